"""A broker of a cluster whose log directory fails leads nothing that was in it any more; the rest it serves as before.

And one whose full disk has kept logs closed leads when it has opened them.
"""

import pytest

from moldau.broker.replicas.manager import FollowerState
from moldau.model.errors import ErrorCode, MoldauError, StorageError
from moldau.model.identity import TopicPartition
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.records.batch import RecordBatchBuilder
from support.cluster_world import ClusterWorld

PARTITIONS = 4


class World(ClusterWorld):
    directories = ("/a", "/b")


def produce(cluster: ClusterWorld, topic_id: bytes, leader: int, index: int) -> int:
    builder = RecordBatchBuilder()
    builder.append(cluster.clock.time_ms(), None, b"x")
    data = TopicProduceData(topic_id=topic_id, partition_data=[PartitionProduceData(index, builder.build())])
    code: int = cluster.ask(leader, ProduceRequest(None, -1, 30_000, [data]), 13).responses[0].partition_responses[0].error_code
    return code


def test_others_lead_what_was_in_it_and_acknowledge() -> None:
    cluster = World(1, 2)
    topic_id = cluster.create_topic("t", PARTITIONS, 2)
    cluster.until(cluster.agrees)
    leader = cluster.partition("t").leader
    other = 3 - leader
    hosted = cluster.broker(leader).replicas.hosted
    failed = hosted[TopicPartition("t", 0)].log.directory.rpartition("/")[0]
    lost = [index for index in range(PARTITIONS) if hosted[TopicPartition("t", index)].log.directory.startswith(failed)]
    assert 0 < len(lost) < PARTITIONS
    cluster.disks[leader].fail = lambda _operation, path: path.startswith(failed)
    assert produce(cluster, topic_id, leader, 0) == ErrorCode.KAFKA_STORAGE_ERROR
    cluster.advance(0.1)
    for index in range(PARTITIONS):
        info = cluster.partition("t", index, on=other)
        if index in lost:
            assert (info.leader, info.isr) == (other, (other,))
        else:
            assert sorted(info.isr) == [1, 2]
        assert produce(cluster, topic_id, info.leader, index) == 0
    cluster.kill(leader)
    cluster.disks[leader].fail = None
    cluster.start(leader)
    cluster.until(lambda: all(len(cluster.partition("t", index, on=other).isr) == 2 for index in range(PARTITIONS)))


def test_the_last_one_in_sync_leads_again_when_its_disk_has_room_to_open_the_log() -> None:
    cluster = World(1, 2)
    topic_id = cluster.create_topic("t", 1, 2)
    cluster.until(cluster.agrees)
    last = cluster.partition("t").leader
    assert produce(cluster, topic_id, last, 0) == 0
    cluster.kill(3 - last)
    cluster.until(lambda: cluster.partition("t", on=last).isr == (last,))
    disk = cluster.disks[last]
    cluster.kill(last)
    disk.capacity = 0
    cluster.start(last)
    cluster.until(lambda: "t" in cluster.broker(last).metadata.topics and cluster.partition("t", on=last).leader < 0)
    disk.capacity = None
    cluster.until(lambda: cluster.partition("t", on=last).leader == last)
    assert produce(cluster, topic_id, last, 0) == 0


def test_a_log_that_a_full_disk_kept_from_being_made_is_made_though_another_directory_fails_meanwhile() -> None:
    """Claim: it is known to be in no directory, also not in one that cannot be read any more."""
    cluster = World(1, 2)
    cluster.create_topic("first", 2, 2)
    cluster.until(cluster.agrees)
    replicas, disk, partition = cluster.broker(2).replicas, cluster.disks[2], TopicPartition("t", 0)

    def full(_operation: str, path: str) -> bool:
        if "/t-0" in path:
            raise StorageError("no space left on device", path=path, no_space=True)
        return False

    disk.fail = full
    topic_id = cluster.create_topic("t", 1, 2)
    cluster.until(lambda: partition in replicas._offline)
    offline = replicas._offline[partition]
    assert isinstance(offline.state, FollowerState)
    placed = replicas.hosted[TopicPartition("first", 0)].log.directory.rpartition("/")[0]
    disk.fail = lambda operation, path: path.startswith(placed) or full(operation, path)
    cluster.advance(1.0)
    assert not cluster.broker(2).logs.all_failed
    with pytest.raises(MoldauError):
        replicas.become_follower(partition, offline.state, topic_id, offline.settings)
    disk.fail = lambda _operation, path: path.startswith(placed)
    cluster.until(lambda: partition in replicas.hosted)


def test_a_log_that_a_full_disk_kept_from_being_made_is_made_though_the_next_directory_fails_then() -> None:
    """Claim: what is said of the last directory that was tried is not all that is known."""
    cluster = World(1, 2)
    cluster.create_topic("first", 2, 2)
    cluster.until(cluster.agrees)
    replicas, disk, partition = cluster.broker(2).replicas, cluster.disks[2], TopicPartition("t", 0)
    tried: list[str] = []

    def full_then_broken(_operation: str, path: str) -> bool:
        directory, is_of_it, _ = path.partition("/t-0")
        if is_of_it and directory not in tried:
            tried.append(directory)
        if is_of_it and directory == tried[0]:
            raise StorageError("no space left on device", path=path, no_space=True)
        return len(tried) > 1 and path.startswith(tried[1])

    disk.fail = full_then_broken
    cluster.create_topic("t", 1, 2)
    cluster.until(lambda: partition in replicas._offline)
    assert len(tried) == 2
    assert not cluster.broker(2).logs.all_failed
    disk.fail = lambda _operation, path: path.startswith(tried[1])
    cluster.until(lambda: partition in replicas.hosted)
