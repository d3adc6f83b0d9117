"""What a start after a crash has to read batch by batch is bounded: logs are flushed in the background before it becomes too much."""

from pathlib import Path

import pytest

from moldau.broker.replicas import housekeeping
from moldau.model.identity import TopicPartition
from support.broker_world import BrokerWorld

ALLOWED = 20
"""`log.recovery.batches.max` of these tests."""


def test_many_batches_off_disk_are_flushed_and_their_recovery_point_is_written_down(tmp_path: Path) -> None:
    world = BrokerWorld(store=str(tmp_path / "store"), log_recovery_batches_max=ALLOWED)
    world.create_topic("t")
    client = world.connect()
    for _ in range(ALLOWED - 1):
        client.produce("t", b"value")
    world.clock.advance(1)
    assert world.partition("t").log.flushed_offset == 0, "one is missing"
    client.produce("t", b"value")
    world.clock.advance(1)
    assert world.partition("t").log.flushed_offset == ALLOWED
    client.produce("t", b"value")
    world.clock.advance(1)
    world.restart(crash=True)
    log = world.partition("t").log
    assert log.recovery is not None
    assert log.recovery.recovery_point == ALLOWED, "the recovery point did not wait for the next minute"


def test_logs_that_are_written_to_share_what_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "UNFLUSHED_BATCHES_MIN", 5)
    world = BrokerWorld(log_recovery_batches_max=ALLOWED)
    world.create_topic("t", partitions=3)
    client = world.connect()
    for partition, count in enumerate((7, 6, 0)):
        for _ in range(count):
            client.produce("t", b"value", partition=partition)
    world.clock.advance(1)
    assert [world.partition("t", index).log.flushed_offset for index in range(3)] == [0, 0, 0], "10 each are allowed to two"
    client.produce("t", b"value", partition=2)
    world.clock.advance(1)
    assert [world.partition("t", index).log.flushed_offset for index in range(3)] == [7, 6, 0], "6 each are allowed to three"


def test_of_many_logs_none_is_flushed_for_a_few_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "UNFLUSHED_BATCHES_MIN", 5)
    world = BrokerWorld(log_recovery_batches_max=6)
    world.create_topic("t", partitions=8)
    client = world.connect()
    for partition in range(8):
        client.produce("t", b"value", partition=partition)
    world.clock.advance(1)
    assert sum(world.partition("t", index).log.flushed_offset for index in range(8)) == 0


def test_what_a_start_had_to_read_counts_for_the_next_one(tmp_path: Path) -> None:
    world = BrokerWorld(store=str(tmp_path / "store"), log_recovery_batches_max=ALLOWED)
    world.create_topic("t")
    client = world.connect()
    for _ in range(ALLOWED - 1):
        client.produce("t", b"value")
    job = world.partition("t").log.flush_job()
    assert job is not None
    job.run()  # the disk has it, and nobody has taken note
    world.restart(crash=True)
    log = world.broker.logs.get(TopicPartition("t", 0))
    assert log is not None
    assert log.recovery is not None
    assert (log.recovery.batches, log.flushed_offset) == (ALLOWED - 1, 0)
    world.connect().produce("t", b"value")
    world.clock.advance(1)
    assert log.flushed_offset == ALLOWED
