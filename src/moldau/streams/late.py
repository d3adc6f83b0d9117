"""The side output of late rows: what a query has read at or before its watermark goes into a table or a topic of its own.

Spark drops rows by operator, after DataFrame code of the job, and keeps none of them. So a batch with late rows is read a second time when
its outputs are written, over the same offsets and with the batch's time for `current_timestamp`; what is late by the same watermark is
written under the number of the batch, as any output: a driver that dies in between has the batch run again, and writes the same rows.
Whether there are any, each input counts while the batch is computed; a batch without late rows is not read twice.

The watermark by which a batch drops rows is that of the batch before, as the checkpoint has it (`PlannedBatch`): Spark moves the one by
which it ends windows first, and drops by it in the next batch. A row is late if `event_time` is not after it. An aggregation by window
still counts a late row whose window is open; `moldau.streams.windows.closed` has the others.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moldau.lake.reading.event_times import COLUMN as EVENT_TIME
from moldau.lake.reading.input_counts import InputCounts
from moldau.lake.reading.watermark import COLUMN as WATERMARK
from moldau.streams.checkpoints import PlannedBatch
from moldau.streams.errors import BatchError
from moldau.streams.inputs import LATE_MS, TopicInput, read_range
from moldau.streams.outputs import BatchNumber, Output
from moldau.streams.plans import counted_inputs
from moldau.streams.points import reached
from moldau.streams.progress import LATE, METRIC

_ID = "id"
_EARLIEST = -2


@dataclass(frozen=True, slots=True)
class LateOutput:
    """Late rows of one input of a query."""

    given: TopicInput
    number: int
    """Of the input among those of the query, as a checkpoint has them."""
    frame: Any
    """The input as a stream: its columns are those of the late rows."""
    brokers: str
    output: Output
    choose: Callable[[Any], Any] | None = None
    """What of the late rows is written; None: all."""

    @property
    def place(self) -> str:
        """Where it is."""
        return self.output.place

    def check(self) -> None:
        """Before the job starts. StreamError; nothing is made."""
        from pyspark.sql import functions

        self.output.check(self._chosen(_marked(self.frame, functions.current_timestamp())))

    def write(self, spark: Any, batch: BatchNumber, starts_of: Sequence[Mapping[str, Any]], watermark_ms: int) -> None:
        """Read what the batch has read, from where it began by input, and write what is late of it, unless it is there already."""
        from pyspark.sql import functions

        starts, ends = batch_range(self.given.topic, starts_of[self.number], batch.planned.inputs[self.number])
        rows = read_range(spark, self.given, brokers=self.brokers, starts=starts, ends=ends, time_ms=batch.planned.time_ms)
        watermark = functions.timestamp_millis(functions.lit(watermark_ms))
        late = _marked(rows.filter(functions.col(EVENT_TIME) <= watermark), watermark)
        self.output.write(self._chosen(late), batch)

    def _chosen(self, rows: Any) -> Any:
        return rows if self.choose is None else self.choose(rows)


def _marked(rows: Any, watermark: Any) -> Any:
    from pyspark.sql import functions

    lateness = functions.unix_millis(watermark) - functions.unix_millis(EVENT_TIME)
    return rows.withColumn(WATERMARK, watermark).withColumn(LATE_MS, lateness)


def batch_range(topic: str, start: Mapping[str, Any], end: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, int]]:
    """First and next offsets of what a batch has read of a topic, by partition; a partition of which it has read nothing is left out.

    A partition that is new, or of a topic that was made again, is read from its first record, as the stream reads it.
    """
    was, now = start.get(topic, {}), end.get(topic, {})
    if was.get(_ID) != now.get(_ID):
        was = {}
    ends = {partition: int(offset) for partition, offset in now.items() if partition != _ID and was.get(partition) != offset}
    return {partition: int(was.get(partition, _EARLIEST)) for partition in ends}, ends


class LateRows:
    """What a query writes of late rows."""

    def __init__(self, spark: Any, outputs: Sequence[LateOutput]) -> None:
        self._spark, self._outputs = spark, outputs

    def write(
        self, batch: BatchNumber, starts: Sequence[Mapping[str, Any]], watermark_ms: int, counts: Mapping[str, InputCounts | None]
    ) -> None:
        """After the batch's outputs: `starts` are where it began to read, `counts` what its tasks have counted. WorldError, BatchError."""
        if not self._outputs:
            return
        reached("outputs written")
        by_spark: Mapping[str, Mapping[str, Any]] | None = None
        for each in self._outputs:
            name = each.given.counted_as
            if name not in counts and by_spark is None:
                by_spark = observed(execution_of(self._spark, batch))
            if has_late_rows(name, counts, by_spark or {}):
                each.write(self._spark, batch, starts, watermark_ms)
                reached("late rows written")


def execution_of(spark: Any, batch: BatchNumber) -> Any:
    """What Spark does of the batch that the query is at. BatchError."""
    execution = spark.streams.get(batch.run)._jsq.streamingQuery().lastExecution()
    if execution.currentBatchId() != batch.number:
        raise BatchError(f"query {batch.query} is at batch {execution.currentBatchId()}, not {batch.number}")
    return execution


def late_watermark_ms(before: PlannedBatch | None) -> int:
    """The watermark by which a batch drops late rows: that of the batch before. Of the first one it is 1970, as Spark has it."""
    return 0 if before is None else before.watermark_ms


def has_late_rows(name: str, by_tasks: Mapping[str, InputCounts | None], by_spark: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether an input of a batch has any, or may have. BatchError if it was not counted: late rows are never left out silently."""
    if name in by_tasks:
        found = by_tasks[name]
        return found is None or found.late > 0
    try:
        return bool(by_spark[METRIC + name].get(LATE))
    except KeyError:
        raise BatchError(f"topic {name}: Spark has no count of the batch's late rows") from None


def observed(execution: Any) -> dict[str, dict[str, Any]]:
    """What was observed of a batch whose rows are written. Spark reports it after the batch; here it is asked for before."""
    metrics = execution.observedMetrics()
    found: dict[str, dict[str, Any]] = {}
    names = metrics.keys().iterator()
    while names.hasNext():
        name = names.next()
        found[name] = json.loads(metrics.apply(name).json())
    return found


def late_output(
    frame: Any,
    inputs: Mapping[str, tuple[TopicInput, Any]],
    brokers: str,
    output: Output,
    of: str | None,
    choose: Callable[[Any], Any] | None,
) -> LateOutput:
    """The late rows of the input `of` of a DataFrame, which may be left out if it has one. ValueError."""
    numbers = {name: of_plan for name, of_plan in counted_inputs(frame, METRIC).items() if name in inputs}
    names = ", ".join(numbers) or "no topic of the job"
    if of is None and len(numbers) != 1:
        raise ValueError(f"{output.place}: the DataFrame reads {names}: name with of= the topic whose late rows are meant")
    name = next(iter(numbers)) if of is None else of
    if name not in numbers:
        raise ValueError(f"{output.place}: the DataFrame does not read {name}; it reads {names}")
    if len(numbers[name]) > 1:
        raise ValueError(f"{output.place}: the DataFrame reads {name} more than once; make an input for each with job.topic(...)")
    given, rows = inputs[name]
    return LateOutput(given, numbers[name][0], rows, brokers, output, choose)
