"""The one sink of all queries: what Spark calls with each batch and its number.

In this order: the claim of the job is confirmed, so that a process that another one has replaced writes nothing; each output takes the
rows; late rows are written where the job wants them; counts are published where it is a tier of the audit; Spark then notes the batch as
done in its checkpoint. A driver that dies anywhere in between has the batch run again under the same number and over the same offsets, and
outputs that have it already leave it out. A batch with several outputs is computed once: what is computed twice would change the state
twice.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from moldau.lake.reading.batch_order import PROPERTY, BatchOrder
from moldau.streams.checkpoints import Checkpoint
from moldau.streams.errors import BatchError
from moldau.streams.input_counts import TaskCounted
from moldau.streams.late import LateRows, execution_of, late_watermark_ms
from moldau.streams.outputs import BatchNumber, Output
from moldau.streams.plans import StreamInput, columns_read, first_offsets
from moldau.streams.points import reached
from moldau.streams.tier import QueryCounts

if TYPE_CHECKING:
    from moldau.lake.reading.input_counts import InputCounts


class JobStoppingError(Exception):
    """No batch is begun any more."""


class BatchSink:
    """Writes the batches of one query. Spark calls it, one batch at a time."""

    def __init__(
        self,
        spark: Any,
        job: str,
        query: str,
        outputs: Sequence[Output],
        late: LateRows,
        checkpoint: Checkpoint,
        confirm: Callable[[], object],
        announce: Callable[[str, str], object],
        inputs: Mapping[str, StreamInput],
        tier: QueryCounts | None = None,
    ) -> None:
        """`spark` is the session in which the query was started, `inputs` are those that tasks count, by name."""
        self._spark = spark
        self._job, self._query, self._outputs, self._late = job, query, outputs, late
        self._checkpoint = checkpoint
        self._confirm = confirm
        self._announce = announce
        self._counted = TaskCounted(inputs, checkpoint)
        self._tier = tier
        self._run: str | None = None
        self._gate = threading.Lock()
        self._stopping = False
        self.written: int | None = None
        """The number of the last batch of this process."""
        self.idle: int | None = None
        """The same, if that batch read nothing that the one before had not read."""
        self.counts: dict[int, dict[str, InputCounts | None]] = {}
        """By batch, of those that were written and not yet reported: what tasks have counted of inputs; None: not of all that was read."""
        self.failure: Exception | None = None
        """Why a batch was not written: what Spark has of it is text."""

    def __call__(self, rows: Any, number: int) -> None:
        """Write one batch."""
        with self._gate:
            if self._stopping:
                raise JobStoppingError
            try:
                self.idle = number if self._write(rows, number) else None
                self.written = number
            except Exception as error:
                self.failure = error
                raise

    @contextmanager
    def held(self, timeout_s: float) -> Iterator[int | None]:
        """Between two batches: none is written meanwhile. The number of the last one of this process. BatchError."""
        if not self._gate.acquire(timeout=timeout_s):
            raise BatchError(f"query {self._query}: its batch takes longer than {timeout_s:g} s")
        try:
            yield self.written
        finally:
            self._gate.release()

    def stop(self, timeout_s: float) -> bool:
        """Begin no batch any more, and wait for the one that is being written; False if it takes longer."""
        self._stopping = True
        if not self._gate.acquire(timeout=timeout_s):
            return False
        self._gate.release()
        return True

    def _write(self, rows: Any, number: int) -> bool:
        """Whether it read nothing."""
        if self._run is None:
            run = self._checkpoint.run_id()
            if run is None:
                raise BatchError(f"query {self._query}: there is no checkpoint in {self._checkpoint.directory}, which Spark has begun")
            self._announce(self._query, run)  # before anything is written: a start without this checkpoint is refused from now on
            self._run = run
        self._confirm()
        reached("batch begun")
        batch = BatchNumber(self._job, self._query, self._run, number, self._checkpoint.batch(number))
        before = self._checkpoint.batch(number - 1) if number else None
        self._counted.clear()
        audited = () if self._tier is None else self._tier.begin(batch)
        is_counted = bool(audited or self._counted.inputs)
        execution = execution_of(self._spark, batch)
        order = BatchOrder(
            batch.planned.time_ms,
            late_watermark_ms(before),
            self._counted.directory if is_counted else None,
            audited,
            columns_read(execution) if self._counted.inputs else {},
        )
        tasks = rows.sparkSession.sparkContext
        tasks.setLocalProperty(PROPERTY, order.to_text())
        self._write_outputs(rows, batch)
        tasks.setLocalProperty(
            PROPERTY, replace(order, directory=None, audited=(), columns={}).to_text()
        )  # late rows are read a second time
        reached("counts left")
        found = self._counted.read(batch)
        starts = first_offsets(execution) if before is None else before.inputs
        self.counts[number] = counts = self._counted.counts(batch, found, starts)
        self._late.write(batch, starts, order.watermark_ms, counts)
        if self._tier is not None:
            self._tier.publish(batch, found.audited, starts)
        self._counted.clear()
        reached("batch written")
        return before is not None and before.inputs == batch.planned.inputs

    def _write_outputs(self, rows: Any, batch: BatchNumber) -> None:
        if len(self._outputs) == 1:
            self._outputs[0].write(rows, batch)
            return
        rows.persist()
        try:
            for output in self._outputs:
                output.write(rows, batch)
        finally:
            rows.unpersist()
