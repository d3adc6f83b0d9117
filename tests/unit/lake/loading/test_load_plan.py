"""What a load finds out before it does anything: whose table it is, and which topic it holds (mission I1)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from moldau.lake.counts import counts_to_json
from moldau.lake.loading.commit import WrittenFiles, commit_both, prepare_table
from moldau.lake.loading.job import LoadJob
from moldau.lake.loading.plan import Plan, plan_load
from moldau.lake.reading.offsets import EARLIEST, DataLossError, OffsetRange
from moldau.lake.tables.committing import LoadConflictError, OtherJobError, TableWriter, application_id, commit
from moldau.lake.tables.format import TableChange
from moldau.lake.tables.opening import FORMATS, format_named, open_or_create, opened
from moldau.model.identity import TopicPartition
from support.brokers_stand_in import BrokersStandIn

COLUMNS = pa.schema([("n", pa.int64())])
PARTITIONS, END = 2, 9


class _Brokers(BrokersStandIn):
    """A topic with two partitions of nine records each."""

    topic = "00ff"

    def partition_counts(self, topics: Sequence[str] | None) -> Mapping[str, int]:
        return {"orders": PARTITIONS}

    def topic_id(self, topic: str) -> str:
        return self.topic

    def offsets(self, times: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        return {partition: 0 if time == EARLIEST else END for partition, time in times.items()}


def brokers() -> Any:
    return _Brokers()


def planned_load(job: LoadJob, *, fail_on_data_loss: bool = True) -> Plan:
    return plan_load(job, brokers(), fail_on_data_loss=fail_on_data_loss)


@pytest.fixture(params=FORMATS)
def job(request: pytest.FixtureRequest, tmp_path: Path) -> LoadJob:
    """Job warehouse, which has loaded partition 0 up to offset 3, and partition 1 up to offset 5."""
    columns: dict[str, Any] = {"columns": COLUMNS, "table_format": request.param}
    job = LoadJob("warehouse", "b:1", "orders", str(tmp_path / "orders"), str(tmp_path / "dead"), **columns)
    tables = format_named(job.table_format)
    open_or_create(tables, job.table, job.table_schema(COLUMNS), job.partition_columns, "")
    for partition, end in ((0, 3), (1, 5)):
        words = {"moldau.job": job.name, "moldau.topic.id": "00ff", "moldau.ranges": {str(partition): [0, end]}}
        change = TableChange("LOAD", offsets={application_id(job.name, "00ff", partition): end}, metadata=words)
        commit(tables, job.table, change, writer=TableWriter(job.name))
    return job


def starts(job: LoadJob) -> list[int]:
    return [each.start for each in planned_load(job).ranges]


def test_a_second_name_would_load_each_record_twice_and_is_refused(job: LoadJob) -> None:
    """warehouse goes on where it was. Another job may have a table of its own, and may be made for another topic of the directory."""
    assert starts(job) == [3, 5]
    before = opened(job.table).version
    with pytest.raises(OtherJobError) as refused:
        planned_load(replace(job, name="other"))
    assert str(refused.value) == (
        f"{job.table}: job warehouse loads topic orders into this table, and job other would load each record a second time; "
        "load it under the name warehouse, or into another directory"
    )
    assert opened(job.table).version == before
    assert starts(replace(job, name="other", table=f"{job.table}-2")) == [0, 0]


def test_a_table_that_two_jobs_share_already_is_loaded_on_by_both(job: LoadJob) -> None:
    """What is done is done: neither of them would add a record twice from now on."""
    change = TableChange("LOAD", offsets={application_id("a: b", "00ff", 0): 7})
    commit(format_named(job.table_format), job.table, change, writer=TableWriter("a: b"))
    assert starts(job) == [3, 5]
    assert starts(replace(job, name="a: b")) == [7, 0]
    with pytest.raises(OtherJobError, match="job a: b loads topic orders"):
        planned_load(replace(job, name="other"))


def test_a_topic_made_anew_is_told_with_the_offsets_that_the_table_held_of_the_old_one(
    job: LoadJob, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What came behind those offsets is lost: nobody could say how much without them. Here the topic was made anew twice."""
    planned_load(job)
    assert caplog.messages == []
    words = {"moldau.job": job.name, "moldau.topic.id": "1111", "moldau.ranges": {"1": [0, 4]}}
    change = TableChange("LOAD", offsets={application_id(job.name, "1111", 1): 4}, metadata=words)
    commit(format_named(job.table_format), job.table, change, writer=TableWriter(job.name))
    monkeypatch.setattr(_Brokers, "topic", "2222")
    assert starts(job) == [0, 0]
    held = f"{job.table} held orders-1 up to offset 4 of the old one"
    assert caplog.messages == [f"topic orders was deleted and recreated: {held}, and takes the new one from its beginning"]
    monkeypatch.setattr(_Brokers, "partition_counts", lambda *_: {})
    with pytest.raises(DataLossError, match=r"topic orders was deleted; \S+ holds orders-1 up to offset 4, and the records after that"):
        planned_load(job)


def test_records_that_are_gone_are_refused_with_the_command_s_option_or_planned_as_skipped(
    job: LoadJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table has partition 0 up to offset 3, partition 1 up to 5; the log starts at 5."""
    monkeypatch.setattr(_Brokers, "offsets", lambda _, times: {each: 5 if time == EARLIEST else END for each, time in times.items()})
    with pytest.raises(DataLossError) as refused:
        planned_load(job)
    assert str(refused.value) == (
        "orders-0: offset 3 is no longer in the log, which starts at 5; with --no-fail-on-data-loss what is left would be read"
    )
    planned = planned_load(job, fail_on_data_loss=False)
    assert [each.start for each in planned.ranges] == [5, 5]
    assert planned.skipped == (OffsetRange("orders", 0, 3, 5),)


def test_an_empty_partition_is_passed_over_once_with_the_next_commit(job: LoadJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim: where the log holds nothing after the table's offset any more, the load's own commit moves that offset to the log's start, so
    the next load does not report the same offsets again. Partition 0 is loaded up to 3 and was emptied up to 7, partition 1 has records."""

    def offsets(_: object, times: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        return {each: 7 if each.partition == 0 else 0 if time == EARLIEST else END for each, time in times.items()}

    monkeypatch.setattr(_Brokers, "offsets", offsets)
    gone, ids = OffsetRange("orders", 0, 3, 7), [application_id(job.name, "00ff", number) for number in (0, 1)]
    slow = planned_load(job, fail_on_data_loss=False)
    planned = planned_load(job, fail_on_data_loss=False)
    assert (planned.ranges, planned.skipped) == ((OffsetRange("orders", 1, 5, 9),), (gone,))
    written = WrittenFiles((), (), counts_to_json({}, 0, 0))
    commit_both(planned, written, TableWriter(job.name), brokers())
    assert [opened(job.table).offset(each) for each in ids] == [7, 9]
    assert {each.partition: offset for each, offset in planned.group_offsets.items()} == {0: 7, 1: 9}
    planned = planned_load(job, fail_on_data_loss=False)
    assert (planned.ranges, planned.skipped) == ((), ())
    with pytest.raises(LoadConflictError, match="another load has moved"):
        commit_both(slow, written, TableWriter(job.name), brokers())


def test_an_empty_partition_is_not_moved_under_a_load_that_has_read_it_since(job: LoadJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """The offset is the one that the load was planned from, or nothing is committed."""
    firsts = {0: 7, 1: 0}

    def offsets(_: object, times: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        return {each: firsts[each.partition] if time == EARLIEST or each.partition == 0 else END for each, time in times.items()}

    monkeypatch.setattr(_Brokers, "offsets", offsets)
    planned, id_ = planned_load(job, fail_on_data_loss=False), application_id(job.name, "00ff", 0)
    commit(format_named(job.table_format), job.table, TableChange("LOAD", offsets={id_: 8}), writer=TableWriter(job.name))
    with pytest.raises(LoadConflictError, match=r"another load has moved \S+ from offset 3, where this one started, to 8"):
        commit_both(planned, WrittenFiles((), (), counts_to_json({}, 0, 0)), TableWriter(job.name), brokers())
    assert opened(job.table).offset(id_) == 8


def test_where_nothing_is_to_load_the_table_stays_as_it_is(job: LoadJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets that are gone move with records only: the group hears of what the table says."""
    monkeypatch.setattr(_Brokers, "offsets", lambda _, times: dict.fromkeys(times, 7))
    planned = planned_load(job, fail_on_data_loss=False)
    assert (planned.ranges, planned.after) == ((), None)
    assert {each.partition: offset for each, offset in planned.group_offsets.items()} == {0: 3, 1: 5}


def test_no_offset_passes_over_records_without_leave(job: LoadJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """Partition 1 was trimmed beyond what readers of committed records may see; whether it is empty shows later."""

    def offsets(_: object, times: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        return {each: (0, 7)[each.partition] if time == EARLIEST else (END, 5)[each.partition] for each, time in times.items()}

    monkeypatch.setattr(_Brokers, "offsets", offsets)
    assert planned_load(job).after == {application_id(job.name, "00ff", 0): END}


def test_a_plan_changes_no_table_and_the_load_is_prepared_in_a_step_of_its_own(job: LoadJob) -> None:
    """Claim: a plan that is not carried out leaves nothing. One table has column n as int32 and is widened, the other does not exist."""
    narrow, new, tables = replace(job, table=f"{job.table}-2"), replace(job, table=f"{job.table}-3"), format_named(job.table_format)
    open_or_create(tables, narrow.table, job.table_schema(pa.schema([("n", pa.int32())])), job.partition_columns, "")
    version = opened(narrow.table).version
    planned, first = planned_load(narrow), planned_load(new)
    assert (opened(narrow.table).version, tables.open(new.table)) == (version, None)
    prepared, created = prepare_table(planned), prepare_table(first)
    assert opened(narrow.table).version == version + 1
    assert prepared.base is not None
    assert (prepared.base.version, prepared.schema.field("n").type) == (version + 1, pa.int64())
    assert created.base is not None
    assert (created.base.version, created.schema) == (opened(new.table).version, opened(new.table).schema)


def test_a_load_that_was_overtaken_while_it_was_planned_is_not_prepared(job: LoadJob) -> None:
    planned, id_ = planned_load(job), application_id(job.name, "00ff", 0)
    commit(format_named(job.table_format), job.table, TableChange("LOAD", offsets={id_: 8}), writer=TableWriter(job.name))
    with pytest.raises(LoadConflictError, match="another load of job warehouse was at work while this one was planned"):
        prepare_table(planned)
