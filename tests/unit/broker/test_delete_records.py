"""Records that were deleted are not there again: the answer waits until every live replica has deleted them (KIP-107)."""

from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.messages.topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from moldau.protocol.records.builder import RecordBatchBuilder
from support.cluster_world import ClusterWorld
from support.group_requests import name

RECORDS = 5


def filled() -> tuple[ClusterWorld, int]:
    """Three brokers with a partition that all have; its leader, which is not the controller."""
    cluster = ClusterWorld(1, 2, 3)
    cluster.create_topic("t", partitions=3)
    cluster.settle()
    index = next(each for each in range(3) if cluster.partition("t", each).leader != cluster.controller_id)
    leader = cluster.partition("t", index).leader
    builder = RecordBatchBuilder()
    for number in range(RECORDS):
        builder.append(number, None, b"v")
    produced = ProduceRequest(None, -1, 30_000, [TopicProduceData("t", partition_data=[PartitionProduceData(index, builder.build())])])
    assert cluster.ask(leader, produced, 9).responses[0].partition_responses[0].error_code == 0
    return cluster, index


def delete(cluster: ClusterWorld, index: int, before: int, timeout_ms: int = 30_000) -> tuple[str, int]:
    topics = [DeleteRecordsTopic("t", [DeleteRecordsPartition(index, before)])]
    answer = cluster.ask(cluster.partition("t", index).leader, DeleteRecordsRequest(topics, timeout_ms), 2)
    result = answer.topics[0].partitions[0]
    return name(result.error_code), result.low_watermark


def start_offset(cluster: ClusterWorld, broker_id: int, index: int) -> int:
    hosted = next(each for each in cluster.broker(broker_id).replicas.hosted.values() if each.topic_partition == ("t", index))
    return hosted.log.start_offset


def test_whichever_broker_leads_after_the_answer_shows_none_of_them() -> None:
    cluster, index = filled()
    assert delete(cluster, index, 3) == ("NONE", 3)
    assert [start_offset(cluster, each, index) for each in (1, 2, 3)] == [3, 3, 3]
    cluster.kill(cluster.partition("t", index).leader)
    cluster.until(lambda: cluster.agrees())
    assert delete(cluster, index, 1) == ("NONE", 3)


def test_a_broker_that_is_not_registered_is_not_waited_for() -> None:
    cluster, index = filled()
    leader = cluster.partition("t", index).leader
    cluster.kill(next(each for each in (1, 2, 3) if each not in (leader, cluster.controller_id)))
    cluster.until(lambda: cluster.agrees())
    assert delete(cluster, index, -1) == ("NONE", RECORDS)


def test_a_replica_that_does_not_fetch_is_waited_for_until_the_requests_timeout() -> None:
    cluster, index = filled()
    leader = cluster.partition("t", index).leader
    follower = next(each for each in (1, 2, 3) if each not in (leader, cluster.controller_id))
    cluster.processes[follower].hang()
    assert delete(cluster, index, 3, timeout_ms=1_000) == ("REQUEST_TIMED_OUT", 0)
    assert start_offset(cluster, leader, index) == 3
    cluster.processes[follower].resume()
    assert delete(cluster, index, 3) == ("NONE", 3)
