"""A broker compacts in the background: when, how fast, and what it says of it."""

import sys
from pathlib import Path
from typing import Any

import pytest

from moldau.broker.configs import Change, IncrementalChange, Resource, ResourceType
from moldau.broker.replicas.append_batch import AppendBatch, MarkerBatch
from moldau.broker.replicas.housekeeping import cleaner_settings
from moldau.log.cleaning.task import CleaningTask
from moldau.model.config.static import read_static
from moldau.model.config.store import BrokerConfig
from moldau.protocol.records.batch import batches, iterate
from moldau.protocol.records.control import ControlType, EndTxnMarker
from moldau.protocol.records.header import check_batch
from support.broker_world import BrokerWorld, Client, batch, produce_request

BACKOFF_S = 15.0
TOPIC: dict[str, Any] = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": 0.1,
    "segment_index_bytes": 24,
    "index_interval_bytes": 0,
}
"""After two batches the index is full, and the log goes on in a new segment."""


def world_with(**settings: Any) -> tuple[BrokerWorld, Client]:
    world = BrokerWorld(**settings)
    world.create_topic("t", **TOPIC)
    return world, world.connect()


def produce(world: BrokerWorld, client: Client, *values: bytes, key: bytes = b"k", topic: str = "t") -> None:
    for value in values:
        answer = client.ask(produce_request(topic, batch(world, value, key=key)), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0


def everything(client: Client, offset: int = 0) -> list[bytes | None]:
    """The values that fetches give, one after the other, up to the end."""
    values: list[bytes | None] = []
    while stretch := client.fetch("t", offset).records:
        for header, data in batches(memoryview(bytes(stretch))):
            values += [record.value for record in iterate(data, max_decompressed_bytes=1 << 20)]
            offset = header.last_offset + 1
    return values


def a_look(world: BrokerWorld, seconds: float = BACKOFF_S) -> None:
    """Time for the broker to bring what is rolled to disk, and to look for something to compact."""
    world.clock.advance(seconds)


def test_it_looks_now_and_then_and_keeps_the_newest_of_each_key() -> None:
    world, client = world_with()
    produce(world, client, *(b"%d" % number for number in range(9)))
    assert world.workers.running == 0
    a_look(world)
    assert world.workers.running == 1
    world.workers.run_all()
    assert everything(client) == [b"7", b"8"], "7 is the newest in closed segments, 8 is in the active one"
    statistics = world.broker.statistics()
    assert (statistics["compaction_passes"], statistics["compaction_records_removed"]) == (1, 7)


def test_a_fetch_that_waits_and_one_that_comes_see_nothing_of_it() -> None:
    world, client = world_with()
    produce(world, client, *(b"%d" % number for number in range(9)))
    assert everything(client, 3)[0] == b"3"
    a_look(world)
    world.workers.run_all()
    answer = client.fetch("t", 3)
    assert (answer.error_code, answer.high_watermark, answer.log_start_offset) == (0, 9, 0)
    assert everything(client, 3) == [b"7", b"8"]
    assert everything(client, 8) == [b"8"]


def test_a_broker_that_has_nothing_to_compact_looks_at_nothing() -> None:
    world = BrokerWorld()
    world.create_topic("t")
    world.create_topic("empty", partitions=50, cleanup_policy="compact")
    client = world.connect()
    produce(world, client, b"1", b"2")
    modules = {name for name in sys.modules if name.startswith("moldau.log.cleaning")}
    a_look(world)
    assert world.workers.running == 0
    assert "compaction_passes" not in world.broker.statistics()
    assert {name for name in sys.modules if name.startswith("moldau.log.cleaning")} == modules


def test_switched_off() -> None:
    world, client = world_with(log_cleaner_enable="false")
    produce(world, client, *(b"%d" % number for number in range(9)))
    a_look(world)
    assert world.workers.running == 0


def test_how_often_is_a_setting_that_can_change() -> None:
    world, client = world_with(log_cleaner_backoff_ms=60_000)
    produce(world, client, *(b"%d" % number for number in range(9)))
    a_look(world, 59)
    assert world.workers.running == 0
    world.finish(
        world.broker.configs.edit(Resource(ResourceType.BROKER, ""), [IncrementalChange("log.cleaner.backoff.ms", Change.SET, "1000")])
    )
    a_look(world, 1)
    assert world.workers.running == 1
    world.workers.run_all()
    produce(world, client, *(b"%d" % number for number in range(9)))
    a_look(world, 2)
    assert world.workers.running == 1


def test_settings_of_the_next_pass_are_those_that_hold_then() -> None:
    world, client = world_with()
    produce(world, client, *(b"%d" % number for number in range(9)))
    changes = {"log.cleaner.io.max.bytes.per.second": "1000", "log.cleaner.dedupe.buffer.size": "2000000", "log.cleaner.threads": "2"}
    edits = [IncrementalChange(name, Change.SET, value) for name, value in changes.items()]
    world.finish(world.broker.configs.edit(Resource(ResourceType.BROKER, ""), edits))
    world.finish(world.broker.configs.edit(Resource(ResourceType.TOPIC, "t"), [IncrementalChange("delete.retention.ms", Change.SET, "5")]))
    a_look(world)
    task = CleaningTask.decode(world.workers.jobs[0].task)
    assert (task.bytes_per_second, task.map_bytes, task.delete_retention_ms) == (500.0, 1_000_000, 5)
    world.workers.run_all()
    assert world.workers.slept_s > 1


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("log.cleaner.threads", "3", "threads", 3),
        ("log.cleaner.dedupe.buffer.size", "1048576", "map_bytes", 1048576),
        ("log.cleaner.io.buffer.load.factor", "0.5", "map_load_factor", 0.5),
        ("log.cleaner.io.buffer.size", "1000", "io_bytes", 1000),
        ("log.cleaner.io.max.bytes.per.second", "5.5", "bytes_per_second", 5.5),
        ("max.decompressed.bytes", "7000000", "decompressed_bytes_max", 7_000_000),
    ],
)
def test_settings_by_name(name: str, text: str, field: str, value: Any) -> None:
    config = BrokerConfig(read_static(settings=[f"{name}={text}"]))
    assert getattr(cleaner_settings(config), field) == value


def test_what_a_topic_sets() -> None:
    world = BrokerWorld()
    world.create_topic(
        "t",
        min_cleanable_dirty_ratio=0.25,
        min_compaction_lag_ms=5,
        max_compaction_lag_ms=6,
        delete_retention_ms=7,
        cleanup_policy="compact",
    )
    config = world.partition("t").log.config
    assert (config.min_cleanable_dirty_ratio, config.min_compaction_lag_ms) == (0.25, 5)
    assert (config.max_compaction_lag_ms, config.delete_retention_ms, config.roll_ms) == (6, 7, 6)


def test_what_has_to_be_on_disk_first_is_brought_there() -> None:
    """A transaction in a closed segment was decided since the last flush, and nothing else would ask for one."""
    world = BrokerWorld()
    world.create_topic("t", cleanup_policy="compact")
    partition = world.partition("t")
    log, now_ms = partition.log, world.clock.time_ms()
    batch_bytes = batch(world, b"v", key=b"k", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    produced = memoryview(bytearray(batch_bytes))
    world.append(AppendBatch(partition, produced, check_batch(produced)))
    log._appender.roll(now_ms)
    world.clock.advance(1)
    assert log.flushed_offset == 1
    world.append(MarkerBatch(partition, 7, 0, EndTxnMarker(ControlType.COMMIT, 0), 1))
    assert (log.last_stable_offset, log.durable_stable_offset) == (2, 0)
    a_look(world)
    assert (log.durable_stable_offset, world.workers.running) == (2, 0)
    a_look(world)
    assert world.workers.running == 1


def test_stopping_gives_up_what_is_under_way(tmp_path: Path) -> None:
    world, client = world_with(store=str(tmp_path / "store"))
    produce(world, client, *(b"%d" % number for number in range(9)))
    a_look(world)
    world.broker.housekeeping.stop()
    world.workers.run_all()
    assert everything(client)[0] == b"0"
    world.restart()
    assert everything(world.connect())[0] == b"0"
    a_look(world)
    world.workers.run_all()
    assert everything(world.connect()) == [b"7", b"8"]


def test_a_topic_that_is_deleted_meanwhile() -> None:
    world, client = world_with()
    produce(world, client, *(b"%d" % number for number in range(9)))
    a_look(world)
    world.delete_topics("t")
    world.workers.run_all()
    assert world.broker.statistics()["compaction_running"] == 0
