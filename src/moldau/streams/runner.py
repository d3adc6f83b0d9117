"""One run of a job: its queries are started together, watched, reported, and stopped together."""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from moldau.lake.reading.limits import NO_LIMITS, StreamLimits, write_limits
from moldau.model.errors import MoldauError, WorldError
from moldau.streams.batches import BatchSink
from moldau.streams.checkpoints import Checkpoint, Positions
from moldau.streams.claim import REPORT_S, JobClaim
from moldau.streams.errand import Errand
from moldau.streams.errors import BatchError, CheckpointError, StreamError, cause_of
from moldau.streams.generations import JobGenerations, beside_name, directory_in, encode_generations
from moldau.streams.late import LateOutput, LateRows
from moldau.streams.outputs import Output
from moldau.streams.plans import inputs_of, operators_of, runs_by_clock
from moldau.streams.points import reached
from moldau.streams.reports import JobOrder, JobState, OrderAnswer, OrderKind, QueryReport, generations_key
from moldau.streams.savepoints import Savepoint, write_savepoint
from moldau.streams.settling import Rest, Settling, furthest_of, is_at, nearest_of, new_round
from moldau.streams.shape import JobShape, QueryShape, check_fit, read_shape, set_aside, write_shape
from moldau.streams.started import StartedQuery, trigger_of
from moldau.streams.state_topic import StateTopic
from moldau.streams.through import ThroughOutput
from moldau.streams.tier import JobTier, TierPlan, with_rows_counted

log = logging.getLogger(__name__)

_LOOK_S = 0.1
BATCH_END_S = 60.0


@dataclass(frozen=True, slots=True)
class JobQuery:
    """A DataFrame that is written, and where to."""

    name: str
    frame: Any
    outputs: tuple[Output, ...]
    mode: str
    trigger: str
    late: tuple[LateOutput, ...] = ()

    def shape(self) -> QueryShape:
        """What its checkpoint has to fit."""
        return QueryShape(inputs_of(self.frame), operators_of(self.frame), tuple(each.place for each in self.outputs), self.mode)

    @property
    def written(self) -> tuple[Output, ...]:
        """All that it writes to, that of late rows too."""
        return (*self.outputs, *(each.output for each in self.late))

    def of_generation(self, number: int) -> "JobQuery":
        """The query as this generation of the job has it. StreamError."""
        late = tuple(replace(each, output=each.output.of_generation(number)) for each in self.late)
        return replace(self, outputs=tuple(each.of_generation(number) for each in self.outputs), late=late)


def stages(queries: Sequence[JobQuery]) -> list[list[JobQuery]]:
    """The queries in the order in which they feed each other by topics of the job: a run up to the present has to read what it writes."""
    inputs = {query.name: [word.strip(",") for each in inputs_of(query.frame) for word in each.split()] for query in queries}
    left, found = list(queries), []
    while left:
        fed = {output.name for query in left for output in query.written if output.place == f"topic {output.name}"}
        stage = [query for query in left if fed.isdisjoint(inputs[query.name])] or left
        found.append(stage)
        left = [query for query in left if query not in stage]
    return found


class JobRun:
    """Runs a job in this process. Another thread may `stop` it."""

    def __init__(
        self,
        job: str,
        brokers: str,
        directory: str,
        spark: Any,
        queries: Sequence[JobQuery],
        limits_file: str = "",
        topics: Sequence[str] = (),
        tier: TierPlan | None = None,
    ) -> None:
        self._job, self._brokers, self._base = job, brokers, directory
        self._spark = spark
        self._given = queries
        self._limits_file = limits_file
        self.topics = topics
        """Those of the inputs."""
        self._tier_plan = tier
        self._tier: JobTier | None = None
        self._stopped = threading.Event()
        self._topic = StateTopic(brokers)
        self._lock = threading.Lock()
        self._running: list[StartedQuery] = []
        self._settled = False
        self._answer: OrderAnswer | None = None
        self._ordered_ms = 0
        self._settling: Settling | None = None
        self._errand: Errand | None = None
        self._is_beside = False
        self._enter(1, job)

    @property
    def queries(self) -> Sequence[JobQuery]:
        """Those of the generation that it runs."""
        return self._queries

    def _enter(self, generation: int, name: str) -> None:
        """Run this generation of the job: its checkpoints and outputs, under this name."""
        self.generation = generation
        self._directory = directory_in(self._base, generation)
        self._queries = [each.of_generation(generation) for each in self._given]
        self._claim = JobClaim(self._topic, name, os.path.abspath(self._directory), generation)
        self._reports = {query.name: QueryReport(query.name) for query in self._queries}

    def stop(self) -> None:
        """Stop at the end of the batch that is being written. Does not wait."""
        self._stopped.set()

    def check(self) -> None:
        """What `run` compares before it begins, of checkpoints, outputs and the last report; the job is not claimed, nothing is written.

        CheckpointError, StreamError, WorldError, PeerError.
        """
        self._enter(self._generations().current, self._job)
        self._check_shape(self._shape(), fresh=False)
        self._begin_tier(fresh=False)
        self._claim.look()
        for known in () if self._claim.before is None else self._claim.before.queries:
            if known.name in self._reports:
                self._check(known)

    def run(self, *, once: bool, fresh: bool, savepoint: str | None = None) -> None:
        """Until all that there is now is written (`once`), or until it is stopped.

        `fresh` sets the checkpoints aside and begins with new ones: what was written stays, and what is read is written again. So does a
        start from a savepoint, with its checkpoints.
        JobTakenError, CheckpointError, StreamError before anything is written; BatchError, JobFencedError, WorldError, PeerError.
        """
        self._enter(self._generations().current, self._job)
        restored = None if savepoint is None else Savepoint.read(savepoint, self._job)
        shape = self._shape()
        if restored is not None:
            restored.checked(shape)
            for through in self._through:
                raise StreamError(
                    f"topic {through.name}: has rows of the time after the savepoint, which the job would write to it again: "
                    f"a job with rows through a topic cannot begin at a savepoint"
                )
        self._check_shape(shape, fresh=fresh or restored is not None)
        self._begin_tier(fresh=fresh or restored is not None)
        self._take()
        self._run(shape, once=once, fresh=fresh, savepoint=restored)

    def run_beside(self, generation: int, errand: Errand, savepoint: str | None = None) -> None:
        """Run this generation beside the current one, until `errand` or another thread stops it. Errors as those of `run`."""
        self._enter(generation, beside_name(self._job, generation))
        self._errand, self._is_beside = errand, True
        restored = None if savepoint is None else Savepoint.read(savepoint, self._job)
        if restored is not None:
            restored.checked(self._shape())
        self._begin_tier(fresh=False)
        self._take()
        self._run(None, once=False, fresh=False, savepoint=restored)

    def close(self) -> None:
        """Close the connections; no limit is left."""
        self.limit(NO_LIMITS)
        if self._tier is not None:
            self._tier.close()
        self._topic.close()

    @property
    def _through(self) -> list[ThroughOutput]:
        return [output for query in self._queries for output in query.outputs if isinstance(output, ThroughOutput)]

    def _generations(self) -> JobGenerations:
        return self._topic.read().generations_of(self._job) if self._topic.exists() else JobGenerations()

    def _shape(self) -> JobShape:
        return JobShape(self._job, self._spark.version, {query.name: query.shape() for query in self._queries})

    def _check_shape(self, shape: JobShape, *, fresh: bool) -> None:
        check_fit(self._directory, shape, fresh=fresh)
        for query in self._queries:
            for output in query.outputs:
                output.check(query.frame)
            for late in query.late:
                late.check()

    def _begin_tier(self, *, fresh: bool) -> None:
        """Of the generation that it runs. `fresh`: no checkpoint that is there will be used. StreamError if another one has it."""
        if self._tier_plan is None:
            return
        self._tier = JobTier(self._job, self._brokers, self._tier_plan.of_generation(self.generation))
        self._tier.begin({query.name: None if fresh else self._checkpoint(query.name).run_id() for query in self._queries})

    def _take(self) -> None:
        self._claim.take()
        reached("claimed")

    def _run(self, shape: JobShape | None, *, once: bool, fresh: bool, savepoint: Savepoint | None) -> None:
        error: Exception | None = None
        try:
            if shape is None:
                assert self._errand is not None
                self._errand.begin()
                shape = self._shape()
                if savepoint is not None and read_shape(self._directory) is None:
                    savepoint.restore(self._directory, shape)
                self._check_shape(shape, fresh=False)
            else:
                self._finish_switch()
                self.limit(NO_LIMITS)
                if once and savepoint is None and not fresh and not self.is_complete():  # it was stopped before it closed windows
                    self.limit(StreamLimits(round=new_round()))
            self._take_reports(shape, fresh=fresh, savepoint=savepoint if self._errand is None else None)
            write_shape(self._directory, check_fit(self._directory, shape))
            for through in self._through:
                through.make()
            self._work(once=once)
        except Py4JError as caught:
            error = BatchError(f"job {self._job}: Spark has ended: {str(caught).splitlines()[0]}")
            raise error from caught
        except Exception as caught:
            error = caught
            raise
        finally:
            self._report_end(error)
            if self._errand is not None:
                self._errand.end()

    def _finish_switch(self) -> None:
        """The process of a generation that has become current runs as the job's: nothing is left to do of the switch."""
        known = self._generations()
        if known.current != self.generation:
            raise StreamError(f"job {self._job} has just switched to generation {known.current}: start it again")
        if known.is_switch_open:
            self._topic.write({generations_key(self._job): encode_generations(replace(known, reprocessing=None))})

    def _work(self, *, once: bool) -> None:
        failure: Exception | None = None
        try:
            for stage in stages(self._queries) if once else [self._queries]:
                for query in stage:
                    self._start(query, once=once)
                self._watch(once=once)
                if self._stopped.is_set():
                    break
        finally:
            failure = self._end()
        if failure is not None:
            raise failure
        if self._tier is not None:
            self._tier.mark()
        if once and not self._stopped.is_set():
            self._settled = self.furthest() == nearest_of(self._checkpoints()) and self.is_complete()

    def limit(self, limits: StreamLimits) -> None:
        """From now on the queries read within these limits; those that begin, from its starts. StreamError."""
        if not self._limits_file:
            return
        try:
            write_limits(self._limits_file, limits)
        except OSError as error:
            raise StreamError(f"{self._limits_file}: cannot be written: {(error.strerror or str(error)).lower()}") from error

    def rest(self) -> Rest:
        """Reached when the queries have nothing to do within their limits."""
        return Rest(self._running)

    def furthest(self) -> dict[str, dict[str, int]]:
        """Up to where the queries read: of each partition the one that is furthest."""
        return furthest_of(self._checkpoints())

    def is_level(self, ends: Positions) -> bool:
        """Whether all queries stand at these offsets, of the topics that they read."""
        return is_at(self.furthest(), ends) and is_at(nearest_of(self._checkpoints()), ends)

    def is_complete(self) -> bool:
        """Whether the outputs have all that the watermarks give."""
        return all(self._checkpoint(query.name).is_complete() for query in self._queries if query.shape().operators)

    def reports(self) -> list[QueryReport]:
        """How far the queries are."""
        with self._lock:
            return self._newest_reports()

    def become_current(self, claim: JobClaim, *, settled: bool) -> None:
        """Continue as the job's process, by this claim; the one as `JOB@N` is given up. `settled`: it reads no more."""
        with self._lock:
            self._settled = settled
            beside, self._claim = self._claim, claim
            claim.write(self._newest_reports())
            beside.abandon()
            self._is_beside = False

    def _checkpoints(self) -> list[Checkpoint]:
        return [self._checkpoint(query.name) for query in self._queries]

    def _take_reports(self, shape: JobShape, *, fresh: bool, savepoint: Savepoint | None) -> None:
        """Continue the counts of the process before. CheckpointError if its checkpoint is not the one that is here.

        A start that is refused reports them as they were, so that the next one is checked against the same checkpoints. `fresh` and a
        savepoint set the checkpoints aside, those of queries that the job has no longer too, and begin to count.
        """
        before = {} if self._claim.before is None else {each.name: each for each in self._claim.before.queries}
        self._reports |= {query.name: before[query.name] for query in self._queries if query.name in before}
        if fresh or savepoint is not None:
            check_fit(self._directory, shape, fresh=True)
            had = read_shape(self._directory)
            names = {*self._reports, *(() if had is None else had.queries)}
            if folder := set_aside(self._directory, names):
                log.info("job %s: its checkpoints are in %s now; it begins with others", self._job, folder)
            for through in self._through:
                through.empty()
            if savepoint is not None:
                savepoint.restore(self._directory, shape)
        else:
            for query in self._queries:
                self._check(self._reports[query.name])
        for query in self._queries:
            known = self._reports[query.name]
            if known.run != self._checkpoint(query.name).run_id():
                known = QueryReport(query.name)
            self._reports[query.name] = replace(known, outputs=tuple(each.place for each in query.written))

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
        late = LateRows(self._spark, query.late)
        counts, frame = None, query.frame
        if self._tier is not None:
            counts = self._tier.of_query(self._spark, query.name, [each.place for each in query.outputs], checkpoint)
            frame = with_rows_counted(frame)
        sink = BatchSink(self._job, query.name, query.outputs, late, checkpoint, self._confirm, self._announce, counts)
        writer = (
            frame.writeStream.foreachBatch(sink)
            .queryName(f"{self._claim.job}/{query.name}")
            .outputMode(query.mode)
            .option("checkpointLocation", f"file://{os.path.abspath(checkpoint.directory)}")
        )
        planned, by_clock = checkpoint.newest(), runs_by_clock(query.frame)
        try:
            trigger = {"availableNow": True} if once else {"processingTime": trigger_of(query.trigger, by_clock=by_clock)}
            started = writer.trigger(**trigger).start()
        except PySparkException as error:
            raise StreamError(f"job {self._job}, query {query.name}: Spark does not run it: {str(error).splitlines()[0]}") from error
        report = self._reports[query.name]
        self._running.append(StartedQuery(query.name, sink, started, report, checkpoint, planned, by_clock=by_clock))

    def _confirm(self) -> None:
        self._claim.confirm()

    def _announce(self, query: str, run: str) -> None:
        """From now on the query has batches by this checkpoint."""
        with self._lock:
            self._reports[query] = replace(self._reports[query], run=run)
            self._claim.write(list(self._reports.values()), answer=self._answer)

    def _watch(self, *, once: bool) -> None:
        """Until all queries have ended, or one has failed, or an order to stop has come. `once`: a query by the clock is ended."""
        due = time.monotonic() + REPORT_S
        while not self._stopped.wait(_LOOK_S):
            ended = [each for each in self._running if not each.started.isActive]  # once: one that ends now is seen the next time
            for each in ended:
                if (failure := each.failure()) is not None:
                    raise self._described(each, failure)
            if self._settling is not None and self._settling.step():
                self._settled = self.is_complete()
                return
            if len(ended) == len(self._running):
                return
            for each in self._running if once else ():
                each.stop_at_rest()
            if self._errand is not None:
                self._errand.look()
            if time.monotonic() >= due:
                self._report()
                if self._tier is not None:
                    self._tier.mark()
                due = time.monotonic() + REPORT_S

    def _report(self) -> None:
        try:
            order = self._write()
        except WorldError as error:
            log.warning("job %s: its state was not reported: %s; trying again", self._job, error)
            return
        if order is None:
            return
        match order.kind:
            case OrderKind.STOP:
                log.info("job %s: an order to stop has come", self._job)
                self._stopped.set()
            case OrderKind.SETTLE:
                if self._settling is None and not self._is_beside:
                    log.info("job %s: an order to settle has come", self._job)
                    self._settling = Settling(self)
            case OrderKind.SWITCH:
                if self._errand is not None:
                    self._errand.switch()
            case OrderKind.SAVEPOINT:
                if self._ordered_ms != order.at_ms:
                    self._ordered_ms = order.at_ms
                    threading.Thread(target=self._make_savepoint, args=(order,), name="moldau-stream-savepoint", daemon=True).start()

    def _make_savepoint(self, order: JobOrder) -> None:
        """Copy between two batches of each query, beside the thread that reports; the next report has the answer."""
        error: str | None = None
        try:
            with contextlib.ExitStack() as held:
                written = {each.name: held.enter_context(each.sink.held(BATCH_END_S)) for each in self._running}
                for each in self._running:
                    self._checkpoint(each.name).wait_committed(written[each.name])
                write_savepoint(order.to or "", self._job, self.generation, self._directory, self.reports())
        except MoldauError as failure:
            error = str(failure)
            log.warning("job %s: there is no savepoint %s: %s", self._job, order.to, error)
        else:
            log.info("job %s: its savepoint is in %s", self._job, order.to)
        self._answer = OrderAnswer(order.at_ms, error)

    def _write(self, state: JobState = JobState.RUNNING, error: str | None = None) -> JobOrder | None:
        with self._lock:
            return self._claim.write(self._newest_reports(), state, error, settled=self._settled, answer=self._answer)

    def _newest_reports(self) -> list[QueryReport]:
        for each in self._running:
            each.update()
            self._reports[each.name] = replace(each.report, run=self._reports[each.name].run)
        return list(self._reports.values())

    def _end(self) -> Exception | None:
        """Stop what runs at the end of its batch; why such a batch has failed. One that is interrupted has not."""
        failure: Exception | None = None
        for each in self._running:
            if not each.sink.stop(BATCH_END_S):
                log.warning(
                    "query %s: its batch takes longer than %d s, and is interrupted; the next start repeats it",
                    each.name,
                    BATCH_END_S,
                )
            elif failure is None and each.sink.failure is not None:
                failure = self._described(each, each.sink.failure)
            try:
                each.started.stop()
            except (Py4JError, PySparkException) as second:  # Java has ended
                log.warning("query %s: was not stopped: %s", each.name, second)
        return failure

    def _report_end(self, error: Exception | None) -> None:
        if error is not None:
            self._settled = False  # a query that fails has nothing to do either
        try:
            self._write(JobState.STOPPED if error is None else JobState.FAILED, None if error is None else str(error))
        except (MoldauError, Py4JError) as second:
            log.warning("job %s: its end was not reported: %s", self._job, second)

    def _described(self, running: StartedQuery, failure: Exception) -> Exception:
        if isinstance(failure, StreamError | WorldError):
            return failure
        number = "" if running.report.batch is None else f" after batch {running.report.batch}"
        return BatchError(f"job {self._job}, query {running.name}, failed{number}: {cause_of(failure)}")
