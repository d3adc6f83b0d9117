"""What a broker does from its start to its stop: epochs rise, deletions end, records and configurations stay, nothing waits for ever."""

import struct
import zlib
from pathlib import Path

import pytest

from moldau.cluster import znodes
from moldau.log.names import LEADER_EPOCHS
from moldau.model.errors import CoordinationError, ErrorCode
from moldau.model.identity import TopicPartition
from moldau.ports.coordination import Done, Multi, Request
from support.broker_world import BrokerWorld, batch, fetch_request, produce_request, values_of
from support.trees import AskedTree


@pytest.fixture
def world(tmp_path: Path) -> BrokerWorld:
    made = BrokerWorld(store=str(tmp_path / "store"))
    made.create_topic("t")
    return made


def test_records_and_configurations_outlive_a_restart(world: BrokerWorld) -> None:
    world.create_topic("small", max_message_bytes=300)
    client = world.connect()
    client.produce("t", b"a")
    client.produce("small", b"b")
    world.restart()
    client = world.connect()
    assert client.values("t") == [b"a"]
    assert client.produce("small", b"x" * 300).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert client.produce("t", b"next").base_offset == 1


def test_each_start_raises_the_leader_epoch_and_the_first_append_notes_it(world: BrokerWorld) -> None:
    world.connect().produce("t", b"a")
    for epoch in (1, 2, 3):
        world.restart()
        assert world.partition("t").machine.leader_epoch == epoch
    client = world.connect()
    assert client.fetch("t", 0, current_leader_epoch=2).error_code == ErrorCode.FENCED_LEADER_EPOCH
    client.produce("t", b"b")
    assert world.partition("t").log.end_offset_for_epoch(2) == (0, 1)
    assert world.partition("t").log.end_offset_for_epoch(3) == (3, 2)
    world.restart()
    assert world.disk.read(f"/data/t-0/{LEADER_EPOCHS}").split() == b"0 2 0 0 3 1".split()


def test_an_adopted_log_goes_on_above_the_epochs_that_it_has(world: BrokerWorld, tmp_path: Path) -> None:
    """Recovery takes a lower epoch behind a higher one for a leftover; what is appended after adoption must not look like that."""
    for _ in range(3):
        world.restart()
    world.connect().produce("t", b"of another system, in epoch 3")
    world.stop()
    world.disk.write_atomically("/data/meta.properties", b"version=0\nbroker.id=7\ncluster.id=another\n")
    world.stop = lambda: None  # type: ignore[method-assign]
    world.store_path = str(tmp_path / "new store")
    world.restart(adopt=True)
    assert world.partition("t").machine.leader_epoch == 4
    assert world.connect().produce("t", b"ours").base_offset == 1
    world.broker.flusher.request(world.partition("t"))
    world.restart(crash=True)
    assert world.connect().values("t") == [b"of another system, in epoch 3", b"ours"]
    assert world.partition("t").machine.leader_epoch == 5


class InterruptedTree(AskedTree):
    """A tree that takes the first part of a large topic, and fails with the second."""

    is_failing = False

    def submit(self, request: Request, done: Done) -> None:
        if self.is_failing and isinstance(request, Multi) and znodes.partition("t", 100) in [write.path for write in request.writes]:
            done(CoordinationError("the process is killed here", retriable=True))
        else:
            super().submit(request, done)


def test_an_adoption_that_was_interrupted_is_completed_by_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = BrokerWorld(store=str(tmp_path / "store"), tree=InterruptedTree)
    world.create_topic("t", partitions=150)
    for _ in range(3):
        world.restart()
    world.connect().produce("t", b"of another system, in epoch 3", partition=120)
    world.stop()
    world.disk.write_atomically("/data/meta.properties", b"version=0\nbroker.id=7\ncluster.id=another\n")
    world.stop = lambda: None  # type: ignore[method-assign]
    world.store_path = str(tmp_path / "new store")
    monkeypatch.setattr(InterruptedTree, "is_failing", True)
    with pytest.raises(CoordinationError, match="topics not adopted"):
        world.restart(adopt=True)
    monkeypatch.setattr(InterruptedTree, "is_failing", False)
    world.restart(adopt=True)
    assert len(list(world.broker.partitions)) == 150
    assert world.partition("t", 120).machine.leader_epoch == 4
    assert world.connect().produce("t", b"ours", partition=120).base_offset == 1


def test_no_producer_gets_an_id_that_another_has_in_an_adopted_log(world: BrokerWorld, tmp_path: Path) -> None:
    records = batch(world, b"x", producer_id=4711, producer_epoch=0, base_sequence=0)
    world.connect().ask(produce_request("t", records), 9)
    world.stop()
    world.disk.write_atomically("/data/meta.properties", b"version=0\nbroker.id=7\ncluster.id=another\n")
    world.stop = lambda: None  # type: ignore[method-assign]
    world.store_path = str(tmp_path / "new store")
    world.restart(adopt=True)
    assert world.broker.producer_ids.next() == 4712


def test_offsets_used_again_after_a_crash_can_be_told_apart(world: BrokerWorld) -> None:
    """A client that read offset 1 before the crash is told that what it read is gone (KIP-320)."""
    client = world.connect()
    client.produce("t", b"synced")
    world.broker.flusher.request(world.partition("t"))
    client.produce("t", b"lost")
    assert client.values("t", 1) == [b"lost"]
    world.restart(crash=True)
    client = world.connect()
    assert client.values("t") == [b"synced"]
    client.produce("t", b"other")
    client.produce("t", b"another")
    answer = client.fetch("t", 2, last_fetched_epoch=0)
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (0, 1)


def test_with_visibility_flushed_a_start_shows_what_it_found_and_has_synced(world: BrokerWorld) -> None:
    """After a kill the page cache still holds what was not synced; a later crash of the machine must not take back what was shown."""
    world.create_topic("shown-late", visibility="flushed")
    world.connect().produce("shown-late", b"a")
    world.disk._locks.clear()
    world.stop = lambda: None  # type: ignore[method-assign]
    world.background.immediate = False
    world.restart()
    assert world.connect().values("shown-late") == [b"a"]
    world.background.jobs.clear()
    world.restart(crash=True)
    assert world.connect().values("shown-late") == [b"a"]


def test_a_deletion_that_was_interrupted_ends_at_the_next_start(world: BrokerWorld) -> None:
    world.connect().produce("t", b"a")
    world.store.create(znodes.delete_topic("t"))
    world.restart()
    assert world.connect().fetch("t", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.store.children(znodes.DELETE_TOPICS) == []
    assert "t-0" not in world.disk.list("/data")
    topic_id = world.create_topic("t")
    assert topic_id
    assert world.connect().values("t") == []


def test_a_stop_answers_who_waits(world: BrokerWorld) -> None:
    client = world.connect()
    client.send(fetch_request("t", 0, max_wait_ms=60_000), 12)
    world.stop()
    assert len(client.answers()) == 1


def test_a_partition_whose_log_is_damaged_stays_offline_alone(world: BrokerWorld) -> None:
    world.create_topic("other")
    client = world.connect()
    client.produce("t", b"a")
    client.produce("other", b"b")
    world.stop()
    world.store.close()
    message = b"\1" + bytes(9) + b"\xff\xff\xff\xff" + bytes(4)  # of format 1: magic, attributes, time, null key, empty value
    old_format = struct.pack(">qiI", 0, len(message) + 4, zlib.crc32(message)) + message
    file = world.disk.open("/data/t-0/00000000000000000000.log", writable=True)
    file.truncate(0)
    file.append([old_format])
    file.release()
    world.disk.remove("/data/.kafka_cleanshutdown")
    world.broker = world._start()
    client = world.connect()
    assert client.fetch("t", 0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert client.produce("t", b"x").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert client.values("other") == [b"b"]


def test_retention_comes_by_itself(world: BrokerWorld) -> None:
    world.create_topic("short", retention_ms=60_000, segment_ms=1000, segment_bytes=1_048_576)
    client = world.connect()
    client.produce("short", b"old")
    world.clock.advance(400)
    client.produce("short", b"new")
    world.clock.advance(400)
    assert world.partition("short").log.start_offset >= 1
    assert values_of(client.fetch("short", world.partition("short").log.start_offset).records) in ([b"new"], [])


def test_checkpoints_are_written_from_time_to_time(world: BrokerWorld) -> None:
    world.connect().produce("t", b"a")
    world.clock.advance(61)
    assert b"t 0 1" in world.disk.read("/data/replication-offset-checkpoint")


def test_partitions_are_told_apart_when_they_cannot_be_served(world: BrokerWorld) -> None:
    broker = world.broker
    assert broker.missing_partition(b"none", 0, by_id=False).code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.missing_partition(b"t", 5, by_id=False).code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.missing_partition(b"?" * 16, 0, by_id=True).code == ErrorCode.UNKNOWN_TOPIC_ID
    assert broker.missing_partition(b"t", 0, by_id=False).code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_new_topic_of_an_old_name_starts_empty(world: BrokerWorld) -> None:
    client = world.connect()
    client.produce("t", b"old")
    world.delete_topics("t")
    world.create_topic("t")
    assert client.values("t") == []
    assert client.produce("t", b"new").base_offset == 0
    assert world.broker.partitions.get(TopicPartition("t", 0)) is not None


def test_what_is_produced_once_the_stop_has_begun_is_refused_and_fails_no_disk(world: BrokerWorld) -> None:
    """A write that found its partition not led any more took its log directory offline, under a stop that then was not clean."""
    client, log = world.connect(), world.partition("t").log
    client.produce("t", b"a")
    world.broker.replicas.close()
    client.peer.send(client.frame(produce_request("t", batch(world, b"b")), 9))
    (answer,) = client.answers()
    assert answer.body.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not log.has_staged
    assert world.broker.logs.problem(TopicPartition("t", 0)) is None
    world.restart()
    assert world.connect().values("t") == [b"a"]


def test_statistics_count(world: BrokerWorld) -> None:
    world.connect()
    numbers = world.broker.statistics()
    assert (numbers["connections"], numbers["partitions_led"], numbers["requests_delayed"]) == (1, 1, 0)


def test_a_restored_metadata_store_does_not_use_epochs_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its epochs are lower than those of the records, and recovery would cut what is appended next."""
    store = tmp_path / "store.sqlite"
    world = BrokerWorld(store=str(store))
    world.create_topic("t")
    world.connect().produce("t", b"a")
    world.stop()
    world.store.close()
    backup = store.read_bytes()
    world.broker = world._start()
    for value in (b"b", b"c", b"d"):
        world.connect().produce("t", value)
        world.restart()
    world.stop()
    world.store.close()
    store.write_bytes(backup)
    world.broker = world._start()
    assert "metadata store is older than the logs" in caplog.text
    client = world.connect()
    client.produce("t", b"e")
    assert world.partition("t").machine.leader_epoch == 4
    world.restart()
    assert world.connect().values("t") == [b"a", b"b", b"c", b"d", b"e"]
    assert "cut" not in caplog.text
