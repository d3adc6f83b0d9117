"""A line for each topic of a round in which something happened, and one on standard error for what went wrong."""

import json
from typing import Any

import pytest

from moldau.cli.load_view import show_outcome
from moldau.lake.loading.errors import TaskError
from moldau.lake.loading.job import LoadJob
from moldau.lake.loading.load import LoadResult
from moldau.lake.loading.service import LoadOutcome
from moldau.lake.reading.offsets import OffsetRange
from moldau.lake.tables.rewriting import CompactionResult

JOB = LoadJob("j", "b:1", "clicks", "/lake/clicks", "/lake/dead-letters/clicks", registry="http://r")
GONE = "; skipped, no longer in the log: "


def result(rows: int, dead: int = 0, **more: Any) -> LoadResult:
    return LoadResult(rows, dead, 1, 1000, 7, (OffsetRange("clicks", 0, 5, 5 + rows + dead),), 0.25, **more)


def test_what_came_into_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    show_outcome(LoadOutcome(JOB, (result(1),), seconds=0.25), as_json=False)
    show_outcome(LoadOutcome(JOB, (result(1_000, 1), result(234, 1)), compacted=CompactionResult(1, 12, 1, 9), seconds=0.5), as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "clicks: 1 row, 1 file, version 7, in 0.2 s",
        "clicks: 1,234 rows, 2 dead letters, 2 files, version 7, in 0.5 s",
        "clicks: compacted 12 files into 1, version 9",
    ]


def test_the_first_dead_letter_stands_in_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    loads = (result(3), result(5, 2, first_dead_letter="clicks-0 offset 7: the value is null"), result(1, 1, first_dead_letter="later"))
    show_outcome(LoadOutcome(JOB, loads, seconds=0.8), as_json=False)
    told = "clicks: 9 rows, 3 dead letters, 3 files, version 7, in 0.8 s; first dead letter: clicks-0 offset 7: the value is null\n"
    assert capsys.readouterr().out == told


def test_offsets_that_are_no_longer_in_the_log_are_counted_by_partition(capsys: pytest.CaptureFixture[str]) -> None:
    empty = OffsetRange("clicks", 2, 5, 9)
    first = result(3, skipped=(OffsetRange("clicks", 0, 6, 201), OffsetRange("clicks", 1, 0, 1), empty))
    loads = first, result(2, skipped=(OffsetRange("clicks", 0, 201, 206),))
    show_outcome(LoadOutcome(JOB, loads, seconds=0.5), as_json=False)
    show_outcome(LoadOutcome(JOB, (LoadResult(0, 0, 0, 0, 7, (), 0.01, skipped=(empty,)),)), as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        f"clicks: 5 rows, 2 files, version 7, in 0.5 s{GONE}200 offsets of partition 0, 1 offset of partition 1, 4 offsets of partition 2",
        f"clicks: nothing new{GONE}4 offsets of partition 2",
    ]
    show_outcome(LoadOutcome(JOB, loads), as_json=True)
    assert json.loads(capsys.readouterr().out)["skipped"] == {"0": 200, "1": 1, "2": 4}


def test_what_went_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    show_outcome(LoadOutcome(JOB, (result(1, group_error="no coordinator", audit_error="no broker"),)), as_json=False)
    show_outcome(LoadOutcome(JOB, (), TaskError("topic clicks: the disk is full")), as_json=False)
    assert capsys.readouterr().err.splitlines() == [
        "clicks: the group is not up to date: no coordinator",
        "clicks: the audit is not up to date: no broker",
        "clicks: failed: topic clicks: the disk is full",
    ]


def test_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    show_outcome(LoadOutcome(JOB, (result(3, 1), result(2))), as_json=True)
    show_outcome(LoadOutcome(JOB, (), TaskError("no")), as_json=True)
    good, bad = map(json.loads, capsys.readouterr().out.splitlines())
    assert (good["topic"], good["rows"], good["dead_letters"], good["version"]) == ("clicks", 5, 1, 7)
    assert (good["ranges"], good["error"]) == ([[0, 5, 9], [0, 5, 7]], None)
    assert (bad["version"], bad["error"]) == (None, "no")


def test_a_topic_with_nothing_new_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    nothing = LoadResult(0, 0, 0, 0, 7, (), 0.01)
    show_outcome(LoadOutcome(JOB, (nothing,)), as_json=False)
    assert capsys.readouterr().out == "clicks: nothing new\n"
