"""Two loads at the same records: whatever each has read, a record ends in one table once, and what was refused leaves no file."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

from moldau.lake.counts import DeadLetterCounts, counts_to_json
from moldau.lake.loading import load as loading
from moldau.lake.loading.commit import WrittenFiles, commit_both
from moldau.lake.loading.errors import TaskError
from moldau.lake.loading.job import DEAD_LETTER_COLUMNS, LoadJob
from moldau.lake.loading.plan import Plan
from moldau.lake.loading.schema import EventDecoding
from moldau.lake.loading.task import TaskReport
from moldau.lake.points import on_point
from moldau.lake.reading.offsets import OffsetRange
from moldau.lake.tables.committing import LoadConflictError, LoadFencedError, OtherJobError, TableWriter, application_id, progress
from moldau.lake.tables.data_files import DataFile, PartitionWriter, files_of
from moldau.lake.tables.format import TableChange
from moldau.lake.tables.opening import FORMATS, format_named, open_or_create, open_table, opened
from support.brokers_stand_in import BrokersStandIn


class _Brokers(BrokersStandIn):
    def topic_id(self, topic: str) -> str:
        return "00ff"


BROKERS: Any = _Brokers()


class Lake:
    """A table and its dead letters; loads that have written their files and not committed them."""

    def __init__(self, kind: str, directory: Path) -> None:
        columns = pa.schema([("n", pa.int64())])
        self.job = LoadJob("job", "b:1", "t", str(directory / "table"), str(directory / "dead"), columns=columns, table_format=kind)
        self.tables = format_named(kind)
        self.schema = self.job.table_schema(columns)
        open_or_create(self.tables, self.job.table, self.schema, self.job.partition_columns, "")

    def planned(self, end: int, name: str = "job") -> Plan:
        """A load of the records up to `end`, from what the tables say now, by the job of this name."""
        base, job, id_ = opened(self.job.table), replace(self.job, name=name), application_id(name, "00ff", 0)
        before, dead = progress(base, [id_]), progress(open_table(self.job.dead_letters), [id_])
        ranges = (OffsetRange("t", 0, before[0].offset or 0, end),)
        return Plan(job, self.tables, "00ff", ranges, {}, base, None, self.schema, tuple(before), tuple(dead), {id_: end})

    def written(self, events: list[int], dead: list[int]) -> WrittenFiles:
        """Files of what a load made of its records."""
        counts = counts_to_json({}, 0, 0)
        return WrittenFiles(self._files(self.job.table, {"n": events}), self._files(self.job.dead_letters, {"_offset": dead}), counts)

    def _files(self, path: str, rows: dict[str, list[int]]) -> tuple[DataFile, ...]:
        (numbers,) = rows.values()
        known = DEAD_LETTER_COLUMNS if "_offset" in rows else [("n", pa.int64())]
        table = pa.table({name: pa.array(rows.get(name, [None] * len(numbers)), kind) for name, kind in known})
        writer = PartitionWriter(path, "job")
        writer.add(table, np.zeros(len(numbers), np.int64))
        return tuple(writer.finish())

    def found(self) -> tuple[list[int], list[int]]:
        """Events and offsets of dead letters that readers see."""
        return self._rows(self.job.table, "n"), self._rows(self.job.dead_letters, "_offset")

    def _rows(self, path: str, column: str) -> list[int]:
        snapshot = open_table(path)
        files = [] if snapshot is None else snapshot.files()
        return sorted(row for each in files for row in pq.read_table(Path(path, each.path), partitioning=None)[column].to_pylist())

    def lying_there(self) -> int:
        """Data files, whether a version names them or not."""
        return sum(len(list(Path(path).rglob("*.parquet"))) for path in (self.job.table, self.job.dead_letters))


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(request.param, tmp_path)


def test_a_load_that_slept_puts_no_record_aside_that_another_one_has_taken(lake: Lake) -> None:
    """It knew too few schemas: record 1 is an event by now. Without the look at the table it would be in both."""
    asleep, its_files = lake.planned(2), lake.written([0], [1])
    commit_both(lake.planned(2), lake.written([0, 1], []), TableWriter("job"), BROKERS)
    with pytest.raises(LoadConflictError, match="another load has moved moldau:job:00ff:0 from offset None"):
        commit_both(asleep, its_files, TableWriter("job"), BROKERS)
    assert lake.found() == ([0, 1], [])
    assert lake.lying_there() == 1


def test_the_older_process_is_fenced_before_its_dead_letters(lake: Lake) -> None:
    old = TableWriter("job")
    commit_both(lake.planned(1), lake.written([0], []), old, BROKERS)
    commit_both(lake.planned(2), lake.written([1], []), TableWriter("job"), BROKERS)
    with pytest.raises(LoadFencedError):
        commit_both(lake.planned(3), lake.written([], [2]), old, BROKERS)
    assert lake.found() == ([0, 1], [])


@pytest.mark.parametrize("dead", [[], [1]])
def test_of_two_jobs_whose_first_loads_meet_one_alone_is_in_the_tables(lake: Lake, dead: list[int]) -> None:
    """Both were planned while nobody had loaded the topic, and have written their files."""
    slow, its_files = lake.planned(2, "slow"), lake.written([0], [1])
    commit_both(lake.planned(2, "fast"), lake.written([0], dead), TableWriter("fast"), BROKERS)
    with pytest.raises(OtherJobError, match="job fast loads topic t into this table, and job slow would load each record a second"):
        commit_both(slow, its_files, TableWriter("slow"), BROKERS)
    assert lake.found() == ([0], dead)
    assert lake.lying_there() == 1 + len(dead)


def test_a_job_between_its_two_first_commits_is_not_overtaken(lake: Lake) -> None:
    """Its dead letters stand already, so its events must come: the other one finds the topic claimed, and puts nothing anywhere."""
    fast, its_files = lake.planned(2, "fast"), lake.written([0, 1], [])
    met: list[str] = []

    def other_commits(point: str) -> None:
        if point == "driver: dead letters committed" and not met:
            met.append(point)
            with pytest.raises(OtherJobError, match="job slow loads topic t"):
                commit_both(fast, its_files, TableWriter("fast"), BROKERS)

    with on_point(other_commits):
        commit_both(lake.planned(2, "slow"), lake.written([0], [1]), TableWriter("slow"), BROKERS)
    assert lake.found() == ([0], [1])
    assert lake.lying_there() == 2
    assert opened(lake.job.table).version == 2, "one for the claim"
    commit_both(lake.planned(3, "slow"), lake.written([], [2]), TableWriter("slow"), BROKERS)
    assert opened(lake.job.table).version == 3, "one claim is enough"


def test_of_two_processes_at_the_first_load_of_a_job_the_one_with_the_dead_letters_goes_on(lake: Lake) -> None:
    """A claim takes no job over: both may claim the topic."""
    slow, its_files = lake.planned(2), lake.written([0], [1])

    def other_process(point: str) -> None:
        if point == "driver: dead letters committed":
            with pytest.raises(LoadConflictError, match="another load has moved moldau:job:00ff:0 from offset None"):
                commit_both(slow, its_files, TableWriter("job"), BROKERS)

    with on_point(other_process):
        commit_both(lake.planned(2), lake.written([0], [1]), TableWriter("job"), BROKERS)
    assert lake.found() == ([0], [1])
    assert lake.lying_there() == 2


def test_of_two_commits_the_second_alone_is_taken_back(lake: Lake) -> None:
    """The dead letters are there for good: the next load leaves them out. The files of the events are written anew by it."""

    class Recreated(BrokersStandIn):
        ids = iter(["00ff", "1111"])

        def topic_id(self, _: str) -> str:
            return next(self.ids)

    brokers: Any = Recreated()
    with pytest.raises(LoadConflictError, match="topic t was deleted and recreated while it was loaded"):
        commit_both(lake.planned(2), lake.written([0], [1]), TableWriter("job"), brokers)
    assert lake.found() == ([], [1])
    assert lake.lying_there() == 1


def test_a_load_without_dead_letters_makes_one_version(lake: Lake) -> None:
    assert commit_both(lake.planned(1), lake.written([0], []), TableWriter("job"), BROKERS) == 1
    assert open_table(lake.job.dead_letters) is None


def test_files_of_a_failed_load_are_found_by_its_id(tmp_path: Path) -> None:
    """Tasks that had done their part report to nobody when another one fails."""
    for load in ("aaaaaaaa", "bbbbbbbb"):
        for by in ("day", "hour"):
            writer = PartitionWriter(str(tmp_path / by), "a job", by, load)
            writer.add(pa.table({"n": [1, 2]}), np.array([0, 86_400_000]))
            writer.finish()
    for by in ("day", "hour"):
        found = files_of(str(tmp_path / by), "a job", "aaaaaaaa")
        wanted = (tmp_path / by).rglob("a-job-aaaaaaaa*.parquet")
        assert sorted(found) == sorted(str(each.relative_to(tmp_path / by)) for each in wanted)
        assert len(found) == 2
    assert files_of(str(tmp_path / "nowhere"), "a job", "aaaaaaaa") == []


def test_a_load_that_fails_removes_what_its_tasks_have_left_and_nothing_that_a_version_names(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where files of both begin alike: an id of 8 hex digits is drawn twice among a hundred thousand loads."""
    ids: list[str] = []

    def one_task_of_two_fails(_: object, planned: Plan, load_id: str, **__: object) -> None:
        ids.append(load_id)
        for number in (1, 2):
            for path, column in ((lake.job.table, "n"), (lake.job.dead_letters, "_offset")):
                writer = PartitionWriter(path, "job", load=load_id)
                writer.add(pa.table({column: [number]}), np.zeros(1, np.int64))
                files = tuple(writer.finish())
                if column == "n" and number == 1:
                    lake.tables.put(path, opened(path), TableChange("LOAD", files))
        raise PySparkException("ValueError: no")

    monkeypatch.setattr(loading, "_run_tasks", one_task_of_two_fails)
    with pytest.raises(TaskError, match="topic t: no"):
        loading.write_files(None, lake.planned(1))
    assert lake.found() == ([1], [])
    assert lake.lying_there() == 1
    assert re.fullmatch("[0-9a-f]{32}", ids[0])


def test_what_spark_told_before_it_was_killed_is_not_all_that_there_is(lake: Lake) -> None:
    """The reports come over a connection that ends with Java: pyspark gives those that came, as if there were no others. Their files with
    the offsets of all would have left out the rest for ever."""

    class Killed:
        defaultParallelism = 2  # noqa: N815  # as Spark has it

        def __getattr__(self, _: str) -> Any:
            return lambda *_, **__: self

        def collect(self) -> list[TaskReport]:
            return [TaskReport(lake.written([1], []).events, (), {}, 1, 1, DeadLetterCounts())]

    planned = lake.planned(2)
    planned = replace(planned, job=replace(planned.job, writers=2), decoding=EventDecoding(pa.schema([("n", pa.int64())])))
    with pytest.raises(TaskError, match="topic t: Spark failed: only 1 of 2 tasks reported"):
        loading.write_files(SimpleNamespace(sparkContext=Killed()), planned)


@pytest.mark.parametrize("dead_letters", ["lake/t", "lake/t/", "./lake/t", "lake/t/dead", "lake", "."])
def test_dead_letters_have_a_place_of_their_own(dead_letters: str) -> None:
    """In one table the dead letters' commit would move the offsets of the events, which were never loaded then."""
    good: dict[str, Any] = {"columns": pa.schema([("n", pa.int64())])}
    job = LoadJob("job", "b:1", "t", "lake/t", "lake/t-dead", **good)
    with pytest.raises(ValueError, match="load job: the table and the dead letters are two tables, and neither lies in the other"):
        replace(job, dead_letters=dead_letters)
