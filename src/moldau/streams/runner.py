"""One run of a job: its queries are started together, watched, reported, and stopped together."""

import logging
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from moldau.model.errors import MoldauError, WorldError
from moldau.streams.batches import BatchSink
from moldau.streams.checkpoints import Checkpoint
from moldau.streams.claim import REPORT_S, JobClaim
from moldau.streams.errors import BatchError, CheckpointError, StreamError
from moldau.streams.outputs import Output
from moldau.streams.plans import inputs_of, operators_of
from moldau.streams.points import reached
from moldau.streams.progress import after_batch, late_rows
from moldau.streams.reports import JobState, QueryReport
from moldau.streams.shape import JobShape, QueryShape, check_fit, read_shape, set_aside, write_shape
from moldau.streams.state_topic import StateTopic

log = logging.getLogger(__name__)

_LOOK_S = 0.1
_BATCH_END_S = 60.0


@dataclass(frozen=True, slots=True)
class JobQuery:
    """A DataFrame that is written, and where to."""

    name: str
    frame: Any
    outputs: tuple[Output, ...]
    mode: str
    trigger: str

    def shape(self) -> QueryShape:
        """What its checkpoint has to fit."""
        return QueryShape(inputs_of(self.frame), operators_of(self.frame), tuple(each.place for each in self.outputs), self.mode)


class _Running:
    """A query that was started."""

    def __init__(self, query: JobQuery, sink: BatchSink, started: Any, report: QueryReport) -> None:
        self.query, self.sink, self.started = query, sink, started
        self.report = report
        self._last = -1 if report.batch is None else report.batch

    def update(self) -> None:
        """Take what Spark has reported since the last time."""
        for progress in self.started.recentProgress:
            if progress["batchId"] <= self._last or "addBatch" not in progress["durationMs"]:
                continue
            self._last = progress["batchId"]
            self.report = after_batch(self.report, _plain(progress))
            if late := late_rows(progress):
                log.warning(
                    "query %s: batch %d: %d rows, or groups of rows, came after the watermark, %s, and were dropped",
                    self.query.name,
                    self._last,
                    late,
                    progress["eventTime"].get("watermark", "which is not set"),
                )

    def failure(self) -> Exception | None:
        """Why it has ended, if not because it was to."""
        if self.sink.failure is not None:
            return self.sink.failure
        error: Exception | None = self.started.exception()
        return error


class JobRun:
    """Runs a job in this process. Another thread may `stop` it."""

    def __init__(self, job: str, brokers: str, directory: str, spark: Any, queries: Sequence[JobQuery]) -> None:
        self._job, self._brokers, self._directory = job, brokers, directory
        self._spark = spark
        self._queries = queries
        self._stopped = threading.Event()
        self._topic = StateTopic(brokers)
        self._claim = JobClaim(self._topic, job, os.path.abspath(directory))
        self._reports = {query.name: QueryReport(query.name) for query in queries}
        self._lock = threading.Lock()
        self._running: list[_Running] = []

    def stop(self) -> None:
        """Stop at the end of the batch that is being written. Does not wait."""
        self._stopped.set()

    def check(self) -> None:
        """What `run` compares before it begins, of checkpoints, outputs and the last report; the job is not claimed, nothing is written.

        CheckpointError, StreamError, WorldError, PeerError.
        """
        try:
            check_fit(self._directory, JobShape(self._job, self._spark.version, {query.name: query.shape() for query in self._queries}))
            for query in self._queries:
                for output in query.outputs:
                    output.check(query.frame)
            self._claim.look()
            before = () if self._claim.before is None else self._claim.before.queries
            for known in before:
                if known.name in self._reports:
                    self._check(known)
        finally:
            self._topic.close()

    def run(self, *, once: bool, fresh: bool) -> None:
        """Until all that there is now is written (`once`), or until it is stopped.

        `fresh` sets the checkpoints aside and begins with new ones: what was written stays, and what is read is written again.
        JobTakenError, CheckpointError, StreamError before anything is written; BatchError, JobFencedError, WorldError, PeerError.
        """
        try:
            shape = JobShape(self._job, self._spark.version, {query.name: query.shape() for query in self._queries})
            check_fit(self._directory, shape, fresh=fresh)
            for query in self._queries:
                for output in query.outputs:
                    output.check(query.frame)
            self._claim.take()
            reached("claimed")
            self._run(shape, once=once, fresh=fresh)
        finally:
            self._topic.close()

    def _run(self, shape: JobShape, *, once: bool, fresh: bool) -> None:
        error: Exception | None = None
        try:
            self._take_reports(shape, fresh=fresh)
            write_shape(self._directory, check_fit(self._directory, shape))
            self._work(once=once)
        except Py4JError as caught:
            error = BatchError(f"job {self._job}: Spark has ended: {str(caught).splitlines()[0]}")
            raise error from caught
        except Exception as caught:
            error = caught
            raise
        finally:
            self._report_end(error)

    def _work(self, *, once: bool) -> None:
        failure: Exception | None = None
        try:
            for query in self._queries:
                self._start(query, once=once)
            self._watch()
        finally:
            failure = self._end()
        if failure is not None:
            raise failure

    def _take_reports(self, shape: JobShape, *, fresh: bool) -> None:
        """Continue the counts of the process before. CheckpointError if its checkpoint is not the one that is here.

        A start that is refused reports them as they were, so that the next one is checked against the same checkpoints. `fresh` sets the
        checkpoints aside, those of queries that the job has no longer too, and begins to count.
        """
        before = {} if self._claim.before is None else {each.name: each for each in self._claim.before.queries}
        self._reports |= {query.name: before[query.name] for query in self._queries if query.name in before}
        if fresh:
            check_fit(self._directory, shape, fresh=True)
            had = read_shape(self._directory)
            names = {*self._reports, *(() if had is None else had.queries)}
            if folder := set_aside(self._directory, names):
                log.info("job %s: its checkpoints are in %s now; it begins with new ones", self._job, folder)
        else:
            for query in self._queries:
                self._check(self._reports[query.name])
        for query in self._queries:
            known = self._reports[query.name]
            if known.run != self._checkpoint(query.name).run_id():
                known = QueryReport(query.name)
            self._reports[query.name] = replace(known, outputs=tuple(each.place for each in query.outputs))

    def _check(self, known: QueryReport) -> None:
        """CheckpointError if a query's outputs were written with a checkpoint that is not here, or that was further."""
        checkpoint = self._checkpoint(known.name)
        here = checkpoint.run_id()
        where = f"job {self._job}, query {known.name}"
        ways = "or run with --fresh, which begins again and writes to the outputs again what they have already"
        if known.run is not None and known.run != here:
            what = "there is none" if here is None else f"there is the one with id {here}"
            assert self._claim.before is not None
            raise CheckpointError(
                f"{where}: its batches up to {known.batch} were written with the checkpoint of id {known.run} in "
                f"{self._claim.before.directory}; in {self._directory} {what}. Bring that checkpoint back; {ways}"
            )
        newest = checkpoint.newest()
        if known.batch is not None and (newest is None or known.batch > newest):
            raise CheckpointError(
                f"{where}: its outputs have batch {known.batch}, and the checkpoint in {checkpoint.directory} ends with "
                f"{'no batch' if newest is None else f'batch {newest}'}: it is an older copy, whose next batches would be taken for those "
                f"that the outputs have. Bring the newest one back; {ways}"
            )

    def _checkpoint(self, query: str) -> Checkpoint:
        return Checkpoint(os.path.join(self._directory, query))

    def _start(self, query: JobQuery, *, once: bool) -> None:
        checkpoint = self._checkpoint(query.name)
        sink = BatchSink(self._job, query.name, query.outputs, checkpoint, self._claim.confirm, self._announce)
        writer = (
            query.frame.writeStream.foreachBatch(sink)
            .queryName(f"{self._job}/{query.name}")
            .outputMode(query.mode)
            .option("checkpointLocation", f"file://{os.path.abspath(checkpoint.directory)}")
        )
        try:
            started = (writer.trigger(availableNow=True) if once else writer.trigger(processingTime=query.trigger)).start()
        except PySparkException as error:
            raise StreamError(f"job {self._job}, query {query.name}: Spark does not run it: {str(error).splitlines()[0]}") from error
        self._running.append(_Running(query, sink, started, self._reports[query.name]))

    def _announce(self, query: str, run: str) -> None:
        """From now on the query has batches by this checkpoint."""
        with self._lock:
            self._reports[query] = replace(self._reports[query], run=run)
            self._claim.write(list(self._reports.values()))

    def _watch(self) -> None:
        """Until all queries have ended, or one has failed, or an order to stop has come."""
        due = time.monotonic() + REPORT_S
        while not self._stopped.wait(_LOOK_S):
            ended = [each for each in self._running if not each.started.isActive]  # once: one that ends now is seen the next time
            for each in ended:
                if (failure := each.failure()) is not None:
                    raise self._described(each, failure)
            if len(ended) == len(self._running):
                return
            if time.monotonic() >= due:
                self._report()
                due = time.monotonic() + REPORT_S

    def _report(self) -> None:
        try:
            if self._write():
                log.info("job %s: an order to stop has come", self._job)
                self._stopped.set()
        except WorldError as error:
            log.warning("job %s: its state was not reported: %s; trying again", self._job, error)

    def _write(self, state: JobState = JobState.RUNNING, error: str | None = None) -> bool:
        with self._lock:
            for each in self._running:
                each.update()
                self._reports[each.query.name] = replace(each.report, run=self._reports[each.query.name].run)
            return self._claim.write(list(self._reports.values()), state, error)

    def _end(self) -> Exception | None:
        """Stop what runs at the end of its batch; why such a batch has failed. One that is interrupted has not."""
        failure: Exception | None = None
        for each in self._running:
            if not each.sink.stop(_BATCH_END_S):
                log.warning(
                    "query %s: its batch takes longer than %d s, and is interrupted; the next start repeats it",
                    each.query.name,
                    _BATCH_END_S,
                )
            elif failure is None and each.sink.failure is not None:
                failure = self._described(each, each.sink.failure)
            try:
                each.started.stop()
            except (Py4JError, PySparkException) as second:  # Java has ended
                log.warning("query %s: was not stopped: %s", each.query.name, second)
        return failure

    def _report_end(self, error: Exception | None) -> None:
        try:
            self._write(JobState.STOPPED if error is None else JobState.FAILED, None if error is None else str(error))
        except (MoldauError, Py4JError) as second:
            log.warning("job %s: its end was not reported: %s", self._job, second)

    def _described(self, running: _Running, failure: Exception) -> Exception:
        if isinstance(failure, StreamError | WorldError):
            return failure
        number = "" if running.report.batch is None else f" after batch {running.report.batch}"
        return BatchError(f"job {self._job}, query {running.query.name}, failed{number}: {cause_of(failure)}")


def cause_of(error: BaseException) -> str:
    """The innermost reason in what Spark has made of an error: the last line of Python's traceback that is one."""
    text = str(error)
    lines = [
        line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("at ", "File ", "Caused by", "..."))
    ]
    for line in reversed(lines[-200:]):
        name, _, message = line.partition(": ")
        if message and name.rpartition(".")[2].endswith(("Error", "Exception")) and " " not in name:
            return f"{name.rpartition('.')[2]}: {message}"
    return lines[0] if lines else repr(error)


def _plain(progress: Any) -> dict[str, Any]:
    """As dictionaries, of which Spark makes rows here and there."""
    observed = {name: row.asDict() for name, row in (progress["observedMetrics"] or {}).items()}
    return {**{name: progress[name] for name in ("batchId", "batchDuration", "timestamp", "sources", "stateOperators", "eventTime")},
            "numInputRows": progress.numInputRows, "observedMetrics": observed}  # fmt: skip
