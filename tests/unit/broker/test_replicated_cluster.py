"""Three brokers with a controller over them: what is acknowledged with acks all is on all, and who comes back joins again."""

from typing import Any

from moldau.broker.replicas.hosted import HostedPartition
from moldau.model.identity import TopicPartition
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.records.batch import RecordBatchBuilder
from support.cluster_world import ClusterWorld

ZERO = TopicPartition("t", 0)


def hosted(cluster: ClusterWorld, broker_id: int) -> HostedPartition:
    return cluster.broker(broker_id).replicas.hosted[ZERO]


def produce(cluster: ClusterWorld, leader: int, topic_id: bytes, value: bytes) -> Any:
    builder = RecordBatchBuilder()
    builder.append(cluster.clock.time_ms(), None, value)
    request = ProduceRequest(
        None, -1, 30_000, [TopicProduceData(topic_id=topic_id, partition_data=[PartitionProduceData(0, builder.build())])]
    )
    return cluster.ask(leader, request, 13).responses[0].partition_responses[0]


def ends(cluster: ClusterWorld) -> list[int]:
    return [hosted(cluster, each).log.log_end_offset for each in cluster.processes]


def test_a_record_with_acks_all_is_on_three_brokers_when_it_is_acknowledged() -> None:
    cluster = ClusterWorld(1, 2, 3)
    topic_id = cluster.create_topic("t")
    cluster.settle()
    leader = cluster.partition("t").leader
    assert produce(cluster, leader, topic_id, b"a").error_code == 0
    assert ends(cluster) == [1, 1, 1]
    cluster.advance(0.6)
    assert [hosted(cluster, each).log.high_watermark for each in cluster.processes] == [1, 1, 1]


def test_a_follower_that_was_away_leaves_the_in_sync_set_and_joins_again_when_it_has_all() -> None:
    """It is the leader that writes both."""
    cluster = ClusterWorld(1, 2, 3, replica_lag_time_max_ms=2000)
    topic_id = cluster.create_topic("t")
    cluster.settle()
    leader = cluster.partition("t").leader
    away = next(each for each in cluster.processes if each not in (leader, cluster.controller_id))
    cluster.processes[away].hang()
    assert produce(cluster, leader, topic_id, b"a").error_code == 0
    assert away not in hosted(cluster, leader).machine.isr
    cluster.processes[away].resume()
    cluster.advance(2.0)
    assert sorted(hosted(cluster, leader).machine.isr) == [1, 2, 3]
    assert ends(cluster) == [1, 1, 1]
