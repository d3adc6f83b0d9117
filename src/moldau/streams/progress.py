"""Spark's reports of its batches, as the counts of a job. Pure: Spark gives a dictionary for each batch."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from moldau.lake.reading.input_counts import InputCounts
from moldau.streams.checkpoints import positions_of
from moldau.streams.reports import QueryReport
from moldau.streams.state_rows import Counting, rows_after

METRIC: Final = "moldau input "
"""Before the topics' name: what is counted of an input's records, with Spark's `observe`."""
ROWS, AHEAD, WITHOUT_TIME, UNDECODABLE, NEWEST_MS = "rows", "ahead", "without_time", "undecodable", "newest_ms"
LATE, LATEST_MS = "late", "latest_ms"
"""Of these, each is a field of InputCounts."""


def input_counts(progress: Mapping[str, Any], by_tasks: Mapping[str, InputCounts | None]) -> dict[str, InputCounts]:
    """What is known of the inputs of a batch: what Spark has observed, and what tasks have counted."""
    observed = {
        name.removeprefix(METRIC): InputCounts(**{field: count for field, count in counts.items() if count is not None})
        for name, counts in (progress.get("observedMetrics") or {}).items()
        if name.startswith(METRIC)
    }
    return {**observed, **{name: counts for name, counts in by_tasks.items() if counts is not None}}


def after_batch(
    report: QueryReport, progress: Mapping[str, Any], counts: Mapping[str, InputCounts], counting: Counting = Counting.AS_SET
) -> QueryReport:
    """The report when one more batch has been written. `progress` is Spark's of that batch, `counts` those of its inputs."""
    ends = positions_of([_text(source.get("endOffset")) for source in progress.get("sources", ())])
    inputs = {**report.inputs, **{name: report.inputs.get(name, InputCounts()).plus(each) for name, each in counts.items()}}
    operators = progress.get("stateOperators", ())
    begun_ms, took_ms = _milliseconds(progress["timestamp"]), int(progress.get("batchDuration", 0))
    return replace(
        report,
        batch=int(progress["batchId"]),
        batch_ms=took_ms,
        batch_rows=int(progress.get("numInputRows", 0)),
        finished_ms=begun_ms + took_ms,
        watermark_ms=_watermark(progress) or report.watermark_ms,
        positions={**report.positions, **ends},
        inputs=inputs,
        state_rows=rows_after(report.state_rows, operators, counting),
        state_bytes=sum(each["memoryUsedBytes"] for each in operators),
        late_rows=report.late_rows + late_rows(progress),
    )


def late_rows(progress: Mapping[str, Any]) -> int:
    """What the stateful operators of a batch dropped: rows after the watermark, or groups of them that a task had aggregated."""
    return sum(int(each["numRowsDroppedByWatermark"]) for each in progress.get("stateOperators", ()))


def late_lines(progress: Mapping[str, Any], counts: Mapping[str, InputCounts]) -> list[str]:
    """What the log says of the late rows of a batch, of whose inputs there are these counts."""
    found = [
        f"topic {name}: {each.late} records were late, the latest by {lateness(each.latest_ms or 0)}"
        for name, each in counts.items()
        if each.late
    ]
    if dropped := late_rows(progress):
        found.append(f"{dropped} late rows, or groups of rows that a task had aggregated, were dropped")
    return found


def lateness(duration_ms: int) -> str:
    """For people: `26:03:12` are hours, minutes and seconds."""
    minutes, seconds = divmod(duration_ms // 1000, 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"


def _watermark(progress: Mapping[str, Any]) -> int | None:
    """None before there is one: Spark gives 1970 then."""
    text = (progress.get("eventTime") or {}).get("watermark")
    return (_milliseconds(text) or None) if text else None


def _milliseconds(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def _text(offset: Any) -> str:
    """Offsets come as JSON in a text."""
    return "null" if offset is None else str(offset)
