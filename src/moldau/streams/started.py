"""A query of a job that was started: what Spark reports of its batches, why it has ended, when it has nothing to do.

State that ends by the clock (a time to live, timers of processing time) has Spark run batch after batch without records. A query with such
state has nothing to do when a batch that was planned since has read nothing new.
"""

import logging
import threading
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from moldau.streams.batches import BatchSink, JobStoppingError
from moldau.streams.checkpoints import Checkpoint
from moldau.streams.progress import after_batch, input_counts, late_lines
from moldau.streams.reports import QueryReport
from moldau.streams.state_rows import Counting

log = logging.getLogger(__name__)

AT_ONCE: Final = "0 seconds"
"""The trigger of a job that gives none."""
_BY_CLOCK: Final = "1 second"
"""Of a query that runs by the clock, which would run batches without a pause."""
_LOOK_S = 0.1


def trigger_of(given: str, *, by_clock: bool) -> str:
    """How often a batch begins."""
    return _BY_CLOCK if by_clock and given == AT_ONCE else given


class StartedQuery:
    """A query that was started. `planned` is the last batch in its checkpoint before, None if there was none."""

    def __init__(
        self,
        name: str,
        sink: BatchSink,
        started: Any,
        report: QueryReport,
        checkpoint: Checkpoint,
        planned: int | None,
        *,
        by_clock: bool,
        counting: Counting = Counting.AS_SET,
    ) -> None:
        self.name, self.sink, self.started = name, sink, started
        self.report = report
        self._checkpoint, self._planned, self._by_clock = checkpoint, planned, by_clock
        self._counting = counting
        self._last = -1 if report.batch is None else report.batch
        self._is_stopped = False

    def has_begun(self) -> bool:
        """Whether it has written a batch, or has none to write, or has ended."""
        return self.sink.written is not None or not self.started.isActive or self.started.status["message"].startswith("Waiting")

    def update(self) -> None:
        """Take what Spark has reported since the last time."""
        for progress in self.started.recentProgress:
            if progress["batchId"] <= self._last or "addBatch" not in progress["durationMs"]:
                continue
            self._last = progress["batchId"]
            plain = _plain(progress)
            counts = input_counts(plain, self.sink.counts.get(self._last, {}))
            for written in [each for each in list(self.sink.counts) if each <= self._last]:
                del self.sink.counts[written]
            self.report = after_batch(self.report, plain, counts, self._counting)
            for line in late_lines(plain, counts):
                log.warning("query %s: batch %d: %s", self.name, self._last, line)

    def failure(self) -> Exception | None:
        """Why it has ended, if not because it was to."""
        if self.sink.failure is not None:
            return self.sink.failure
        error: Exception | None = self.started.exception()
        return None if self._is_stopped and JobStoppingError.__name__ in str(error) else error

    def stop_at_rest(self) -> None:
        """Of a run up to the present: stop a query by the clock that has read all that there was, between two batches. Does not wait."""
        if self._by_clock and self._has_rested_since(self._planned) and self._checkpoint.committed() == self.sink.written:
            self._is_stopped = True
            if self.sink.stop(0):
                self.started.stop()

    def process_all(self) -> None:
        """Until it has nothing to do, or has ended. Py4JError, PySparkException."""
        if not self._by_clock:
            self.started.processAllAvailable()
            return
        newest = self._checkpoint.newest()
        after = 0 if newest is None else newest + 1  # the next one may have looked already for what there is to read
        ended = threading.Event()
        threading.Thread(target=self._wait, args=(ended,), name=f"moldau-stream-rest-{self.name}", daemon=True).start()
        while not self._has_rested_since(after) and not ended.wait(_LOOK_S):
            pass

    def _wait(self, ended: threading.Event) -> None:
        """A query that has had no batch yet has nothing to do in Spark's words too; else this returns when it ends."""
        try:
            self.started.processAllAvailable()
        except (Py4JError, PySparkException):
            pass  # it has failed, which its own status has
        finally:
            ended.set()

    def _has_rested_since(self, number: int | None) -> bool:
        idle = self.sink.idle
        return idle is not None and (number is None or idle > number)


def _plain(progress: Any) -> dict[str, Any]:
    """As dictionaries, of which Spark makes rows here and there."""
    observed = {name: row.asDict() for name, row in (progress["observedMetrics"] or {}).items()}
    return {**{name: progress[name] for name in ("batchId", "batchDuration", "timestamp", "sources", "stateOperators", "eventTime")},
            "numInputRows": progress.numInputRows, "observedMetrics": observed}  # fmt: skip
