"""Tracked events become tables: by hour or day, with columns that follow the schemas, and what cannot be read beside them (I1, I2, F1)."""

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from moldau.client import Producer
from moldau.client.admin import Admin
from moldau.client.cluster import Cluster
from moldau.demo.loading import group_lag
from moldau.lake.loading.errors import LoadError, SchemaChangeError, TaskError
from moldau.lake.loading.load import load
from moldau.lake.points import on_point
from moldau.lake.reading.offsets import DataLossError
from moldau.lake.reports import REPORTS, raw_report, run_report, top_values
from moldau.lake.table import read_table
from moldau.lake.tables.opening import opened
from moldau.model.identity import Offset, TopicPartition
from moldau.registry.client import RegistryClient
from moldau.testing.broker import Broker
from support.load_world import NOON_MS, PARTITIONS, STEP_MS, LoadWorld, columns_of, words_of
from support.spark import spark_session
from support.tracked_events import whole_topic

pytestmark = [pytest.mark.system, pytest.mark.spark]


@pytest.fixture(scope="module")
def spark() -> Any:
    return spark_session()


def added_files(path: str) -> list[list[str]]:
    """The folders of the files that each load has added, oldest first."""
    loads = []
    for file in sorted(Path(path, "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        if any("moldau.job" in action.get("commitInfo", {}) for action in actions):
            loads.append([str(Path(action["add"]["path"]).parent) for action in actions if "add" in action])
    return loads


def trim(world: LoadWorld, offset: int) -> None:
    """Records below `offset` are gone from every partition."""
    with Cluster(world.broker.bootstrap_servers) as cluster:
        Admin(cluster).delete_records({TopicPartition(world.topic, number): Offset(offset) for number in range(PARTITIONS)})


@pytest.mark.parametrize("writers", [None, 2])
def test_events_go_into_their_hours_and_each_task_adds_one_file_to_each(
    writers: int | None, spark: Any, broker: Broker, tmp_path: Path
) -> None:
    """Late events go into the hour they belong to. A small load is one task, unless the job wants more."""
    world = LoadWorld(broker, tmp_path, partition="hour", writers=writers)
    world.publish(160)
    result = load(spark, world.job)
    assert (result.rows, result.dead_letters, result.group_error, result.audit_error) == (144, 16, None, None)
    world.published = world.spoilt = 0  # more events of the same times
    world.publish(60)
    assert load(spark, world.job).rows == 54
    loads = added_files(world.job.table)
    assert all(count <= (writers or 1) for files in loads for count in Counter(files).values())
    assert set(loads[0]) == {f"event_day=2013-07-01/event_hour={hour}" for hour in (12, 13, 14)}
    assert set(loads[1]) == {"event_day=2013-07-01/event_hour=12"}, "they were late"
    for row in world.rows():
        moment = row["header"]["time"]
        assert (moment.date().isoformat(), str(moment.hour)) == (row["event_day"], row["event_hour"])
        assert int(moment.timestamp() * 1000) == NOON_MS + row["n"] * STEP_MS
    assert group_lag(world.job.bootstrap_servers, world.job.group_id or "", world.topic) == 0
    state = world.state()
    assert (state.rows, state.dead_letters, state.verdict) == (198, 22, "complete")
    assert sum(sum(words["moldau.counts"]["count"]) for words in words_of(world.job.table)) == 198
    assert [words["moldau.counts"]["untracked"] for words in words_of(world.job.table)] == [16, 6]
    assert world.audit().untracked["lake", world.topic].count == 22, "as an auditor would tell it"


def test_columns_follow_the_schemas_and_no_version_loses_anything(spark: Any, broker: Broker, tmp_path: Path) -> None:
    world = LoadWorld(broker, tmp_path, writers=1)
    one = world.schema({"name": "gone", "type": "string"})
    two = world.schema({"name": "extra", "type": ["null", "double"], "default": None})
    two["fields"][0]["type"] = "long"
    world.publish(9, one, gone="early")
    load(spark, world.job)
    assert columns_of(world.job.table).field("n").type == pa.int32()
    world.publish(9, one, gone="late")
    world.publish(9, two, extra=0.5)
    result = load(spark, world.job)
    found = columns_of(world.job.table)
    assert [(name, str(found.field(name).type)) for name in ("n", "gone", "extra")] == [
        ("n", "int64"),
        ("gone", "string"),
        ("extra", "double"),
    ]
    frame = read_table(spark, world.job.table)
    groups = frame.groupBy("gone", "extra").agg({"*": "count"}).collect()
    kinds = sorted((gone or "", extra or 0.0, number) for gone, extra, number in groups)
    assert kinds == [("", 0.5, 8), ("early", 0.0, 9), ("late", 0.0, 8)]
    assert world.state() == world.complete()
    assert [words["operation"] for words in DeltaTable(world.job.table).history()][:2] == ["LOAD", "WIDEN COLUMNS"]
    assert DeltaTable(world.job.table).version() == result.version
    assert sorted(DeltaTable(world.job.table).to_pyarrow_table(columns=["n"])["n"].to_pylist()) == sorted(row["n"] for row in world.rows())


def test_what_the_table_cannot_follow_stops_the_load_or_goes_to_the_dead_letters(spark: Any, broker: Broker, tmp_path: Path) -> None:
    """Either is told by name. Dead letters have arrived: for the audit nothing is missing."""
    world = LoadWorld(broker, tmp_path, writers=1)
    world.publish(9)
    load(spark, world.job)
    with RegistryClient(broker.registry_url) as registry:
        registry.set_compatibility(f"{world.topic}-value", "NONE")
    other = world.schema()
    other["fields"][0]["type"] = "string"
    with world.tracker(other) as tracker:
        for number in range(4):
            tracker.track({"n": str(number), "text": ""}, time=NOON_MS, topic=world.topic)
    version = opened(world.job.table).version
    message = rf"subject {world.topic}-value, version 2: .*: column n is int32 in the table and string in the events"
    with pytest.raises(SchemaChangeError, match=message):
        load(spark, world.job)
    assert opened(world.job.table).version == version
    lenient = world.other(on_incompatible="dead-letters")
    world.publish(9)
    result = load(spark, lenient)
    assert (result.rows, result.dead_letters) == (8, 5)
    errors = [row["error"] for row in world.rows(world.job.dead_letters)]
    assert sum("schema id" in error and "string" in error for error in errors) == 4, errors
    assert world.verdict() == "complete"
    assert len(world.rows()) == world.published


def test_what_is_no_event_of_any_schema_is_kept_with_its_reason(spark: Any, broker: Broker, tmp_path: Path) -> None:
    world = LoadWorld(broker, tmp_path, writers=1)
    world.publish(5)
    good = next(each.value for each in whole_topic(broker.bootstrap_servers, world.topic) if each.value)
    bad = {
        b"\0\0\1\xe2\x40" + good[5:]: "schema id 123456 is not known to the registry",
        good[:-2]: "schema id",
        good + b"x": "1 of",
        b"\0\0": "a value of 2 bytes has no room for the schema id",
        b"": "a value of 0 bytes",
        b"{}xxxxxxxx": "the first byte is 0x7b, not 0x00",
    }
    with Producer(broker.bootstrap_servers) as raw:
        for value in bad:
            raw.send(world.topic, value, key=b"bad", partition=1)
        raw.send(world.topic, None, key=b"tombstone", partition=1)
    result = load(spark, world.job)
    assert (result.rows, result.dead_letters) == (5, len(bad) + 1)
    letters = {row["value"]: row for row in world.rows(world.job.dead_letters)}
    assert letters[None]["error"] == "the value is null"
    for value, reason in bad.items():
        assert reason in letters[value]["error"], (value, letters[value]["error"])
        assert (letters[value]["key"], letters[value]["topic"], letters[value]["_partition"]) == (b"bad", world.topic, 1)


def test_records_that_are_gone_fail_the_load_by_partition_and_offset_or_show_as_a_gap(spark: Any, broker: Broker, tmp_path: Path) -> None:
    world = LoadWorld(broker, tmp_path, writers=1)
    world.publish(9)
    load(spark, world.job)
    world.publish(9)
    trim(world, 8)
    with pytest.raises(
        DataLossError, match=rf"{world.topic}-\d: offset \d is no longer in the log, which starts at 8; with --no-fail-on-data-loss"
    ):
        load(spark, world.job)
    before = len(world.rows())
    result = load(spark, world.job, fail_on_data_loss=False)
    assert before + result.rows == len(world.rows()) < world.published
    gone = world.published + world.spoilt - len(world.rows()) - len(world.rows(world.job.dead_letters))
    assert sum(each.size for each in result.skipped) == gone, "the record that is no event is gone too, or a dead letter"
    assert "loss" in world.verdict(), "the audit shows the gap"


@pytest.mark.parametrize("fail", [True, False])
def test_records_that_go_while_they_are_loaded(spark: Any, broker: Broker, tmp_path: Path, fail: bool) -> None:
    """The load is planned, and the log is trimmed before its tasks read it."""
    world = LoadWorld(broker, tmp_path, writers=1)
    world.publish(20)

    def hook(point: str) -> None:
        if point == "driver: planned":
            trim(world, 5)

    with on_point(hook):
        if fail:
            with pytest.raises(
                DataLossError, match=rf"{world.topic}-\d: offset 0 of \[0, \d+\): the log holds \[5, \d+\); with --no-fail-on-data-loss"
            ):
                load(spark, world.job)
            assert world.rows() == []
        else:
            result = load(spark, world.job, fail_on_data_loss=False)
            assert 0 < result.rows < world.published
            assert {(each.start, each.end) for each in result.skipped} == {(0, 5)}


def test_a_topic_that_is_gone(spark: Any, broker: Broker, tmp_path: Path) -> None:
    world = LoadWorld(broker, tmp_path, writers=1)
    world.publish(9)
    load(spark, world.job)
    broker.delete_topic(world.topic)
    ends = rf"{world.topic}-0 up to offset \d, {world.topic}-1 up to offset \d"
    with pytest.raises(
        DataLossError, match=f"topic {world.topic} was deleted; {world.job.table} holds {ends}, and the records after that are lost"
    ):
        load(spark, world.job)
    assert load(spark, world.job, fail_on_data_loss=False).rows == 0
    with pytest.raises(LoadError, match="there is no topic"):
        load(spark, world.other(topic="never-there", table=str(tmp_path / "never")))


def test_a_topic_that_goes_while_it_is_loaded(spark: Any, broker: Broker, tmp_path: Path) -> None:
    world = LoadWorld(broker, tmp_path, writers=1)
    world.publish(9)
    with (
        on_point(lambda point: broker.delete_topic(world.topic) if point == "driver: planned" else None),
        pytest.raises(DataLossError, match=rf"{world.topic}-\d: offset 0 of \[0, \d\): the topic was deleted"),
    ):
        load(spark, world.job)
    assert world.rows() == []


def test_a_disk_that_cannot_be_written_is_named_and_nothing_is_committed(spark: Any, broker: Broker, tmp_path: Path) -> None:
    world = LoadWorld(broker, tmp_path, writers=1)
    world.publish(9)
    with world.tracker() as tracker:
        tracker.track({"n": -1, "text": ""}, time=NOON_MS - 24 * 3_600_000, topic=world.topic)
    world.published += 1
    blocked = Path(world.job.table, "event_day=2013-07-01")
    with (
        on_point(lambda point: blocked.write_text("no folder") if point == "driver: planned" else None),
        pytest.raises(TaskError, match=rf"topic {world.topic}: {blocked}/test-\w+\.parquet: cannot be written: "),
    ):
        load(spark, world.job)
    assert (opened(world.job.table).version, world.rows(world.job.dead_letters)) == (0, [])
    assert list(tmp_path.rglob("*.parquet")) == [], "what was written of other days is gone, or tries again would fill the disk"
    blocked.unlink()
    load(spark, world.job)
    assert world.state() == world.complete()


def test_reports_answer_the_usual_questions(spark: Any, broker: Broker, tmp_path: Path) -> None:
    world = LoadWorld(broker, tmp_path, writers=1)
    world.publish(30)
    load(spark, world.job)
    hours = run_report(spark, world.job.table, "events-per-hour").collect()
    assert [(row.event_hour, row.service, row.events, row.hosts) for row in hours] == [(12, "tests", 27, 1)]
    (latency,) = run_report(spark, world.job.table, "arrival-latency").collect()
    years_ms = (datetime.now(UTC).timestamp() * 1000 - NOON_MS) / 2
    assert latency.events == 27
    assert latency.greatest_ms >= latency.median_ms > years_ms > 0
    complete = run_report(spark, world.job.table, "completeness", bootstrap_servers=broker.bootstrap_servers, topic=world.topic).collect()
    assert [(row.verdict, row.events == row.distinct_events == row.produced) for row in complete] == [("complete", True)] * 3
    assert {row.verdict for row in run_report(spark, world.job.table, "completeness").collect()} == {"no producer counts"}
    top = top_values(spark, world.job.table, "header.host", 3).collect()
    assert [(row.value, row.events, row.percent) for row in top] == [("host-1", 27, 100.0)]
    raw = raw_report(spark, broker.bootstrap_servers, world.topic).collect()
    assert sum(row.records for row in raw) == 30
    assert sum(row.records for row in raw if row.schema_id is None) == 3
    with pytest.raises(ValueError, match="there is no report 'x'; there are events-per-hour"):
        run_report(spark, world.job.table, "x")
    assert len(REPORTS) == 3
