"""Spark's progress becomes counts, counts become records and come back, and a status has the lag as it is now."""

from dataclasses import replace
from typing import Any

import pytest

from moldau.lake.reading.input_counts import InputCounts
from moldau.streams.operator import job_document
from moldau.streams.progress import METRIC, after_batch, input_counts
from moldau.streams.reports import (
    JobOrder,
    JobReport,
    JobState,
    OrderAnswer,
    OrderKind,
    QueryReport,
    StateKey,
    decode_key,
    decode_order,
    decode_report,
    encode_order,
    encode_report,
    generations_key,
    order_key,
    process_key,
)
from moldau.streams.state_topic import StateBoard

PROGRESS: dict[str, Any] = {
    "batchId": 3,
    "batchDuration": 400,
    "timestamp": "2026-11-29T09:00:00.000Z",
    "numInputRows": 10,
    "sources": [{"endOffset": '{"flights": {"0": 23, "id": "9f"}}'}],
    "stateOperators": [
        {"numRowsTotal": 5, "memoryUsedBytes": 100, "numRowsDroppedByWatermark": 2},
        {"numRowsTotal": 1, "memoryUsedBytes": 10, "numRowsDroppedByWatermark": 1},
    ],
    "eventTime": {"watermark": "2013-01-01T00:00:00.000Z"},
    "observedMetrics": {
        METRIC + "flights": {
            "rows": 10,
            "ahead": 1,
            "without_time": None,
            "undecodable": 2,
            "newest_ms": 1000,
            "late": 3,
            "latest_ms": 500,
        },
        "another": {"rows": 99},
    },
}


def after(report: QueryReport, progress: dict[str, Any], by_tasks: dict[str, InputCounts | None] | None = None) -> QueryReport:
    return after_batch(report, progress, input_counts(progress, by_tasks or {}))


def test_batches_add_up() -> None:
    """Rows that were dropped or changed are counted over batches; state, watermark and positions are those of the last one."""
    once = after(QueryReport("counts"), PROGRESS)
    assert (once.batch, once.batch_ms, once.batch_rows, once.state_rows, once.state_bytes, once.late_rows) == (3, 400, 10, 6, 110, 3)
    assert once.positions == {"flights": {"0": 23}}
    assert once.inputs == {"flights": InputCounts(10, 1, 0, 2, 1000, 3, 500)}
    assert (once.watermark_ms, once.finished_ms) == (1356998400000, 1795942800400)
    empty = {"rows": 0, "ahead": None, "without_time": None, "undecodable": None, "newest_ms": None, "late": None, "latest_ms": None}
    twice = after(once, {**PROGRESS, "batchId": 4, "eventTime": {}, "observedMetrics": {METRIC + "flights": empty}})
    assert (twice.batch, twice.late_rows, twice.watermark_ms) == (4, 6, once.watermark_ms)
    assert twice.inputs == once.inputs


def test_what_tasks_have_counted_adds_up_too() -> None:
    """Beside what Spark has observed of other inputs; where not all was counted nothing is added."""
    once = after(QueryReport("counts"), PROGRESS, {"planes": InputCounts(4, newest_ms=9, late=1, latest_ms=3), "cars": None})
    twice = after(once, {**PROGRESS, "observedMetrics": {}}, {"planes": InputCounts(2, newest_ms=8, late=1, latest_ms=5)})
    assert twice.inputs == {"flights": InputCounts(10, 1, 0, 2, 1000, 3, 500), "planes": InputCounts(6, newest_ms=9, late=2, latest_ms=5)}


def test_there_is_no_watermark_in_1970() -> None:
    assert after(QueryReport("q"), {**PROGRESS, "eventTime": {"watermark": "1970-01-01T00:00:00.000Z"}}).watermark_ms is None


REPORT = JobReport(
    "flights", "a1", "host", 17, "pid:[1]", 2, 1000, 5000, JobState.RUNNING, "/data", None, (after(QueryReport("counts"), PROGRESS),)
)


def test_records_come_back_as_they_were() -> None:
    for report in (REPORT, replace(REPORT, generation=2, settled=True, answer=OrderAnswer(7, "the disk is full"))):
        assert decode_report(encode_report(report)) == report
    for order in (JobOrder("a1", 7), JobOrder("a1", 7, OrderKind.SAVEPOINT, "/copies/1")):
        assert decode_order(encode_order(order)) == order
    assert decode_key(process_key("flights", "a1")) == StateKey("flights", "a1")
    assert decode_key(order_key("flights")) == StateKey("flights", is_order=True)
    assert decode_key(generations_key("flights")) == StateKey("flights", is_generations=True)


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b'{"version":2}', b'{"version":1}'])
def test_a_value_that_is_no_report(value: bytes) -> None:
    with pytest.raises(ValueError, match=r"not the report of a stream job|Expecting value|it is of version 2"):
        decode_report(value)


def test_the_board_has_the_process_that_took_over_last(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever order the reports come in; a tombstone removes one; a record that cannot be read changes nothing."""
    board = StateBoard()
    later = replace(REPORT, instance="b2", epoch=3)
    for report in (later, REPORT):
        board.take(process_key("flights", report.instance), encode_report(report))
    assert board.process_of("flights") == later
    board.take(process_key("flights", "b2"), b"{")
    board.take(b"nonsense", b"x")
    assert len(caplog.records) == 2
    board.take(process_key("flights", "b2"), None)
    assert board.process_of("flights") == REPORT
    board.take(order_key("flights"), encode_order(JobOrder("a1", 7)))
    assert board.orders == {"flights": JobOrder("a1", 7)}
    board.take(order_key("flights"), None)
    assert (board.orders, board.jobs, board.process_of("other")) == ({}, ["flights"], None)


def test_a_status_has_lags_of_now() -> None:
    """Records after the positions; in time the age of what was read last; a partition that is gone has none."""
    document = job_document(REPORT, {("flights", "0"): 30}, 8000)
    (query,) = document["queries"]
    assert (document["state"], document["reported_s_ago"], query["lag_records"], query["lag_s"]) == ("running", 3.0, 7, 7.0)
    (caught_up,) = job_document(REPORT, {("flights", "0"): 23}, 8000)["queries"]
    assert (caught_up["lag_records"], caught_up["lag_s"]) == (0, 0.0)
    (gone,) = job_document(REPORT, {}, 8000)["queries"]
    assert gone["lag_records"] == 0
    assert job_document(REPORT, {}, 5000 + 10_001)["state"] == "silent"
    stopped = replace(REPORT, state=JobState.STOPPED)
    assert job_document(stopped, {}, 10**9)["state"] == "stopped"
