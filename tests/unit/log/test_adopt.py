"""Adoption finds topics, partition counts and ids in folders, gives ids where there are none, and deletes nothing."""

import pytest

from moldau.log.adopt import AdoptedTopic, cluster_id_of
from moldau.log.config import LogConfig
from moldau.log.directory import ForeignDirectoryError
from moldau.model.identity import TopicPartition, format_id
from moldau.model.steps import drain
from moldau.testing.disk import ForgetfulDisk
from support.logs import CLUSTER, NOW_MS, TOPIC_ID, append_values, create, manager_over, values_of

KEPT = {"cleanup.policy": "delete", "retention.bytes": "-1", "retention.ms": "-1"}
RANDOM_ID = bytes(range(100, 116))
"""What the manager of these tests draws."""


def kafka_directory(cluster_id: str = CLUSTER) -> ForgetfulDisk:
    """A directory as Kafka in KRaft mode leaves it: two partitions of ``orders``, one of ``old`` without an id, its own metadata."""
    disk = ForgetfulDisk()
    manager = manager_over(disk)
    manager.start(NOW_MS)
    for topic, partition in (("orders", 0), ("orders", 3), ("old", 0)):
        append_values(create(manager, topic, partition), topic.encode())
    manager.shutdown()
    disk.remove("/data/old-0/partition.metadata")
    disk.write_atomically(
        "/data/meta.properties", f"#\nnode.id=1\ndirectory.id={format_id(TOPIC_ID)}\nversion=1\ncluster.id={cluster_id}\n".encode()
    )
    disk.make_directory("/data/__cluster_metadata-0")
    disk.write_atomically("/data/__cluster_metadata-0/00000000000000000000.log", b"kafka's own")
    disk.make_directory("/data/gone-0.0123456789abcdef0123456789abcdef-delete")
    disk.write_atomically("/data/orders-0/00000000000000000000.log.deleted", b"marked by kafka")
    return disk


def test_what_is_found() -> None:
    disk = kafka_directory()
    assert cluster_id_of(disk, ["/data", "/other"]) == CLUSTER
    manager = manager_over(disk)
    manager.start(NOW_MS, adopt=True)
    assert manager.adopt_topics() == [AdoptedTopic("old", RANDOM_ID, 1, KEPT), AdoptedTopic("orders", TOPIC_ID, 4, KEPT)]
    assert manager.topic_id(TopicPartition("old", 0)) == RANDOM_ID
    assert [values_of(log) for _, log in manager.logs()] == [[b"old"], [b"orders"], [b"orders"]]


def test_epochs_begin_above_those_of_the_records() -> None:
    disk = kafka_directory()
    disk.write_atomically("/data/orders-3/leader-epoch-checkpoint", b"0\n1\n7 0\n")
    manager = manager_over(disk)
    manager.start(NOW_MS, adopt=True)
    assert {topic.name: topic.first_epochs for topic in manager.adopt_topics()} == {"old": {}, "orders": {3: 8}}


@pytest.mark.parametrize("checkpoint", [None, b"damaged"])
def test_without_a_usable_checkpoint_of_epochs_the_batches_say_them(checkpoint: bytes | None) -> None:
    disk = kafka_directory()
    manager = manager_over(disk)
    manager.start(NOW_MS, adopt=True)
    log = manager.get(TopicPartition("orders", 3))
    assert log is not None
    log.lead_epoch(7)
    append_values(log, b"of epoch 7")
    manager.shutdown()
    disk.write_atomically("/data/meta.properties", f"#\nnode.id=1\nversion=1\ncluster.id={CLUSTER}\n".encode())
    disk.remove("/data/orders-3/leader-epoch-checkpoint")
    if checkpoint is not None:
        disk.write_atomically("/data/orders-3/leader-epoch-checkpoint", checkpoint)
    manager = manager_over(disk)
    manager.start(NOW_MS, adopt=True)
    assert {topic.name: topic.first_epochs for topic in manager.adopt_topics()} == {"old": {}, "orders": {3: 8}}


def test_a_given_id_is_kept() -> None:
    disk = kafka_directory()
    manager = manager_over(disk)
    manager.start(NOW_MS, adopt=True)
    manager.adopt_topics()
    disk.crash()
    manager = manager_over(disk)
    manager.start(NOW_MS)
    assert manager.topic_id(TopicPartition("old", 0)) == RANDOM_ID


def test_nothing_is_deleted_or_changed_by_the_start_that_adopts() -> None:
    disk = kafka_directory()

    def everything() -> dict[str, bytes]:
        folders = ["/data", *(f"/data/{name}" for name in disk.list("/data") if disk.is_directory(f"/data/{name}"))]
        return {
            f"{folder}/{name}": disk.read(f"{folder}/{name}")
            for folder in folders
            for name in disk.list(folder)
            if not disk.is_directory(f"{folder}/{name}")
        }

    before = everything()
    manager = manager_over(disk, config=LogConfig(retention_ms=0, retention_bytes=0, file_delete_delay_ms=0))
    manager.start(NOW_MS, adopt=True)
    manager.adopt_topics()
    assert drain(manager.apply_retention(NOW_MS + 10**12)) == 0
    assert drain(manager.remove_due(NOW_MS + 10**12)) == 0
    manager.shutdown()
    after = everything()
    assert set(before) <= set(after)
    assert {path for path in before if before[path] != after[path]} == {"/data/meta.properties"}
    assert after["/data/meta.properties.adopted"] == before["/data/meta.properties"]
    assert disk.exists("/data/gone-0.0123456789abcdef0123456789abcdef-delete")


def test_without_adopt_it_is_refused() -> None:
    with pytest.raises(ForeignDirectoryError, match=f"was written by another system, for the cluster {CLUSTER}; start with --adopt"):
        manager_over(kafka_directory()).start(NOW_MS)


def test_afterwards_it_is_ours() -> None:
    disk = kafka_directory()
    manager = manager_over(disk)
    manager.start(NOW_MS, adopt=True)
    manager.shutdown()
    manager = manager_over(disk)
    manager.start(NOW_MS)
    assert drain(manager.remove_due(NOW_MS)) == 1, "the folder that Kafka had marked for deletion"


def test_a_partition_of_an_earlier_topic_goes_offline() -> None:
    disk = kafka_directory()
    manager = manager_over(disk)
    manager.start(NOW_MS, adopt=True)
    append_values(create(manager, "orders", 1), b"x")
    manager.shutdown()
    earlier = bytes(range(30, 46))
    disk.write_atomically("/data/orders-3/partition.metadata", f"version: 0\ntopic_id: {format_id(earlier)}".encode())
    manager = manager_over(disk)
    manager.start(NOW_MS, adopt=True)
    assert AdoptedTopic("orders", TOPIC_ID, 4, KEPT) in manager.adopt_topics()
    assert manager.get(TopicPartition("orders", 3)) is None
    assert format_id(earlier) in str(manager.problem(TopicPartition("orders", 3)))


def test_directories_of_two_clusters_are_refused() -> None:
    disk = kafka_directory()
    disk.make_directory("/other")
    disk.write_atomically("/other/meta.properties", b"version=0\ncluster.id=another\n")
    with pytest.raises(ForeignDirectoryError, match=f"/other belongs to the cluster another, another of the directories to {CLUSTER}"):
        cluster_id_of(disk, ["/data", "/other"])
