"""What of a batch is read again for its late rows, and what the log says of them."""

import pytest

from moldau.lake.reading.input_counts import InputCounts
from moldau.streams.checkpoints import parse_batch
from moldau.streams.errors import BatchError
from moldau.streams.late import batch_range, has_late_rows
from moldau.streams.progress import METRIC, input_counts, late_lines, lateness

LATE = {"observedMetrics": {METRIC + "flights": {"late": 3, "latest_ms": 61_000}, METRIC + "planes": {"late": 0}, "other": {"late": 9}}}


def test_what_a_batch_has_read() -> None:
    """From the offsets of the batch before to its own; partitions without anything new are left out, new ones are read from the first."""
    before = {"flights": {"0": 5, "1": 7, "id": "a"}}
    assert batch_range("flights", before, {"flights": {"0": 9, "1": 7, "2": 4, "id": "a"}}) == ({"0": 5, "2": -2}, {"0": 9, "2": 4})
    assert batch_range("flights", before, before) == ({}, {})
    assert batch_range("flights", {}, {"flights": {"0": 2, "id": "a"}}) == ({"0": -2}, {"0": 2})


def test_a_topic_that_was_made_again_is_read_from_its_first_record() -> None:
    before, now = {"flights": {"0": 5, "id": "a"}}, {"flights": {"0": 5, "id": "b"}}
    assert batch_range("flights", before, now) == ({"0": -2}, {"0": 5})


def test_a_plan_has_the_offsets_of_each_input() -> None:
    """Also of one that has none yet, and of two of one topic."""
    plan = parse_batch('v1\n{"batchWatermarkMs":1,"batchTimestampMs":2}\n{"a":{"0":7,"id":"x"}}\n-\n{"a":{"0":5,"id":"x"}}')
    assert plan.inputs == ({"a": {"0": 7, "id": "x"}}, {}, {"a": {"0": 5, "id": "x"}})


def test_whether_there_are_late_rows() -> None:
    """By what Spark has counted, or the tasks. Where not all was counted there may be some; a batch without any count fails."""
    counts = LATE["observedMetrics"]
    assert [has_late_rows(name, {}, counts) for name in ("flights", "planes")] == [True, False]
    assert [has_late_rows("t", {"t": each}, {}) for each in (InputCounts(5), InputCounts(5, late=1), None)] == [False, True, True]
    with pytest.raises(BatchError, match="topic ships: Spark has no count of the batch's late rows"):
        has_late_rows("ships", {"flights": InputCounts()}, counts)


def test_the_log_says_how_many_and_how_late() -> None:
    dropped = {**LATE, "stateOperators": [{"numRowsDroppedByWatermark": 2}]}
    assert late_lines(dropped, input_counts(dropped, {"planes": InputCounts(7, late=1, latest_ms=500), "cars": None})) == [
        "topic flights: 3 records were late, the latest by 0:01:01",
        "topic planes: 1 records were late, the latest by 0:00:00",
        "2 late rows, or groups of rows that a task had aggregated, were dropped",
    ]
    assert late_lines({"stateOperators": []}, {"flights": InputCounts(3)}) == []
    assert lateness(93_792_999) == "26:03:12"
