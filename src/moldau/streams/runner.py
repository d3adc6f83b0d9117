"""One run of a job: its queries are started together, watched, reported, and stopped together."""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from moldau.lake.reading.event_shape import SUFFIX_PROPERTY
from moldau.lake.reading.limits import NO_LIMITS, StreamLimits, write_limits
from moldau.model.errors import MoldauError, WorldError
from moldau.streams.batches import BatchSink
from moldau.streams.checkpoints import Checkpoint, Positions
from moldau.streams.claim import REPORT_S, JobClaim
from moldau.streams.errand import Errand
from moldau.streams.errors import BatchError, StreamError, cause_of
from moldau.streams.generations import beside_name, directory_in, encode_generations, suffix_in
from moldau.streams.late import LateRows
from moldau.streams.orders import JobOrders
from moldau.streams.plans import runs_by_clock, task_counted_inputs, topics_read
from moldau.streams.points import reached
from moldau.streams.queries import JobQuery, must_read_others, stages
from moldau.streams.reports import JobOrder, JobState, QueryReport, generations_key
from moldau.streams.savepoints import Savepoint, write_savepoint
from moldau.streams.settling import Rest, Settling, furthest_of, is_at, nearest_of, new_round
from moldau.streams.shape import JobShape, check_fit, read_shape, set_aside, write_shape
from moldau.streams.started import StartedQuery, trigger_of
from moldau.streams.starts import noted_starts
from moldau.streams.state_rows import counted, counting_of
from moldau.streams.state_topic import StateTopic
from moldau.streams.succession import check_succession, succeeded
from moldau.streams.through import ThroughOutput
from moldau.streams.tier import JobTier, TierPlan, with_rows_counted

log = logging.getLogger(__name__)

_LOOK_S = 0.1
BATCH_END_S = 60.0
FIRST_BATCH_S = 20.0


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
        starts: Callable[[Sequence[str]], Positions] = lambda _: {},
        tier: TierPlan | None = None,
        on_begun: Callable[[], object] = lambda: None,
    ) -> None:
        """`starts`: where the inputs of these queries begin now, as far as they do not begin at their first records. `on_begun` is called
        once, when each query has written a batch, and none is written meanwhile.
        """
        self._job, self._brokers, self._base = job, brokers, directory
        self._spark = spark
        self._given = queries
        self._limits_file = limits_file
        self._starts_now = starts
        self._starts: Positions = {}
        """Of queries that have no batch yet."""
        self._limits = NO_LIMITS
        self.topics = topics
        """Those of the inputs."""
        self._tier_plan = tier
        self._tier: JobTier | None = None
        self._stopped = threading.Event()
        self._topic = StateTopic(brokers)
        self._lock = threading.Lock()
        self._running: list[StartedQuery] = []
        self._settled = False
        self._orders = JobOrders(job, self)
        self._settling: Settling | None = None
        self._errand: Errand | None = None
        self._is_beside = False
        self._tell: Callable[[str], object] = log.info
        self._on_begun: Callable[[], object] | None = on_begun
        self._enter(1, job)

    @property
    def queries(self) -> Sequence[JobQuery]:
        """Those of the generation that it runs."""
        return self._queries

    def _enter(self, generation: int, name: str) -> None:
        """Run this generation of the job: its checkpoints and outputs, under this name. StreamError."""
        if generation > 1:
            must_read_others(self._job, self._given)
        self.generation = generation
        self._directory = directory_in(self._base, generation)
        self._queries = [each.of_generation(generation) for each in self._given]
        self._claim = JobClaim(self._topic, name, os.path.abspath(self._directory), generation)
        self._reports = {query.name: QueryReport(query.name) for query in self._queries}

    def stop(self) -> None:
        """Stop at the end of the batch that is being written. Does not wait."""
        self._stopped.set()

    def settle(self) -> None:
        """Bring the queries to the same offsets, and stop there. A generation beside the current one is settled by its errand."""
        if self._settling is None and not self._is_beside:
            log.info("job %s: an order to settle has come", self._job)
            self._settling = Settling(self)

    def switch(self) -> None:
        """Take the place of the current generation."""
        if self._errand is not None:
            self._errand.switch()

    def save(self, to: str) -> None:
        """Copy the checkpoints into this directory, between two batches of each query. BatchError, CheckpointError.

        Any thread may call it.
        """
        with contextlib.ExitStack() as held:
            written = {each.name: held.enter_context(each.sink.held(BATCH_END_S)) for each in self._running}
            for each in self._running:
                self._checkpoint(each.name).wait_committed(written[each.name])
            write_savepoint(to, self._job, self.generation, self._directory, self.reports())

    def check(self) -> None:
        """What `run` compares before it begins, of checkpoints, outputs and the last report; the job is not claimed, nothing is written.

        CheckpointError, StreamError, WorldError, PeerError.
        """
        self._enter_current()
        self._check_shape(self._shape(), fresh=False)
        self._begin_tier(fresh=False)
        self._claim.look()
        for known in () if self._claim.before is None else self._claim.before.queries:
            if known.name in self._reports:
                self._check(known)

    def run(self, *, once: bool, fresh: bool, savepoint: str | None = None, tell: Callable[[str], object] = log.info) -> None:
        """Until all that there is now is written (`once`), or until it is stopped: that it runs is what it has to `tell`.

        `fresh` sets the checkpoints aside and begins with new ones: what was written stays, and what is read is written again. So does a
        start from a savepoint, with its checkpoints.
        JobTakenError, CheckpointError, StreamError before anything is written; BatchError, JobFencedError, WorldError, PeerError.
        """
        self._enter_current()
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
        self._tell = tell
        self._run(shape, once=once, fresh=fresh, savepoint=restored)

    def run_beside(self, generation: int, errand: Errand, savepoint: str | None = None) -> None:
        """Run this generation beside the current one, until `errand` or another thread stops it. Errors as those of `run`."""
        for through in self._through:
            raise StreamError(
                f"topic {through.name}: a job with rows through a topic cannot be reprocessed beside itself, as what a query of the one "
                f"generation writes there the queries of the other one would read: run it with --fresh"
            )
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
        self._starts = {}
        self.limit(NO_LIMITS)
        if self._tier is not None:
            self._tier.close()
        self._topic.close()

    @property
    def _through(self) -> list[ThroughOutput]:
        return [output for query in self._queries for output in query.outputs if isinstance(output, ThroughOutput)]

    def _enter_current(self) -> None:
        board = self._topic.read_if_there()
        for topic in self.topics:
            for job, now in board.successors_of(topic):
                what = f"reads topic {topic}, in which an output of job {job} has ended: what follows is in {now}"
                log.warning("job %s: %s (docs/streams-reprocessing.md#jobs)", self._job, what)
        self._enter(board.generations_of(self._job).current, self._job)

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
            if self._errand is None:
                self._starts = noted_starts(
                    self._directory, {each.name: self._checkpoint(each.name) for each in self._queries}, self._starts_now
                )
                self.limit(self._limits)
            write_shape(self._directory, check_fit(self._directory, shape))
            self._make_through()
            self._work(once=once)
        except (Py4JError, ConnectionError) as caught:  # the second one where py4j makes another connection
            error = BatchError(f"job {self._job}: Spark has ended: {str(caught).splitlines()[0]}")
            raise error from caught
        except Exception as caught:
            error = caught
            raise
        finally:
            self._report_end(error)
            if self._errand is not None:
                self._errand.end()

    def _make_through(self) -> None:
        """The topics of rows through topics. One that a later generation begins with has rows of a former one, which it would read."""
        for through in self._through:
            ends = [each for each in self._queries if through in each.outputs or topics_read(each.frame, [through.name])]
            if self.generation > 1 and all(self._checkpoint(each.name).run_id() is None for each in ends):
                through.empty()
            through.make()

    def _finish_switch(self) -> None:
        """The process of a generation that has become current runs as the job's: nothing is left to do of the switch."""
        known = self._topic.read_if_there().generations_of(self._job)
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
                    if query is not stage[-1]:
                        self._wait_for_first_batch(self._running[-1])
                if not once:
                    self._tell(f"job {self._job}: runs, {', '.join(query.name for query in stage)}")
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
        self._limits = limits
        if not self._limits_file:
            return
        try:
            write_limits(self._limits_file, replace(limits, starts=limits.starts or self._starts))
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
        return all(self._checkpoint(query.name).is_complete() or not query.shape().operators for query in self._queries)

    def reports(self) -> list[QueryReport]:
        """How far the queries are."""
        with self._lock:
            return self._newest_reports()

    def become_current(self, claim: JobClaim, *, settled: bool) -> None:
        """Continue as the job's process, by this claim; the one as `JOB@N` is given up. `settled`: it reads no more.

        WorldError, PeerError: it may be called again then, and where what follows it has failed.
        """
        with self._lock:
            self._settled = settled
            claim.write(self._newest_reports())
            if self._claim is not claim:
                self._claim.abandon()
            self._claim, self._is_beside = claim, False

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
            places = [each.place for each in query.written]
            self._reports[query.name] = succeeded(self._reports[query.name], self._checkpoint(query.name), places)

    def _check(self, known: QueryReport) -> None:
        check_succession(self._job, self._claim.before, known, self._checkpoint(known.name))

    def _checkpoint(self, query: str) -> Checkpoint:
        return Checkpoint(os.path.join(self._directory, query))

    def _start(self, query: JobQuery, *, once: bool) -> None:
        checkpoint = self._checkpoint(query.name)
        late = LateRows(self._spark, query.late)
        tier, frame = None, query.frame
        if self._tier is not None:
            tier = self._tier.of_query(self._spark, query.name, [each.place for each in query.outputs], checkpoint)
            frame = with_rows_counted(frame)
        inputs = task_counted_inputs(query.frame)
        sink = BatchSink(self._spark, self._job, query.name, query.outputs, late, checkpoint, self._confirm, self._announce, inputs, tier)
        writer = (
            frame.writeStream.foreachBatch(sink)
            .queryName(f"{self._claim.job}/{query.name}")
            .outputMode(query.mode)
            .option("checkpointLocation", f"file://{os.path.abspath(checkpoint.directory)}")
        )
        planned, by_clock, report = checkpoint.newest(), runs_by_clock(query.frame), self._reports[query.name]
        counting = counting_of(query.shape().operators, report, checkpoint.committed())
        this_thread = self._spark.sparkContext
        this_thread.setLocalProperty(SUFFIX_PROPERTY, suffix_in(self.generation))  # the query's thread inherits it
        try:
            trigger = {"availableNow": True} if once else {"processingTime": trigger_of(query.trigger, by_clock=by_clock)}
            with counted(self._spark, counting):
                started = writer.trigger(**trigger).start()
        except PySparkException as error:
            raise StreamError(f"job {self._job}, query {query.name}: Spark does not run it: {str(error).splitlines()[0]}") from error
        finally:
            this_thread.setLocalProperty(SUFFIX_PROPERTY, None)  # what else it starts has no generation
        running = StartedQuery(query.name, sink, started, report, checkpoint, planned, by_clock=by_clock, counting=counting)
        self._running.append(running)

    def _wait_for_first_batch(self, running: StartedQuery) -> None:
        """Two queries whose first batches Spark plans at the same time may spoil what it keeps of both; not longer than FIRST_BATCH_S."""
        until, due = time.monotonic() + FIRST_BATCH_S, time.monotonic() + REPORT_S
        while not running.has_begun() and time.monotonic() < until and not self._stopped.wait(_LOOK_S):
            if time.monotonic() >= due:
                due = time.monotonic() + REPORT_S
                with contextlib.suppress(WorldError):
                    self._write()

    def _confirm(self) -> None:
        self._claim.confirm()

    def _announce(self, query: str, run: str) -> None:
        """From now on the query has batches by this checkpoint."""
        with self._lock:
            self._reports[query] = replace(self._reports[query], run=run)
            self._claim.write(list(self._reports.values()), answer=self._orders.answer)

    def _watch(self, *, once: bool) -> None:
        """Until all queries have ended, or one has failed, or an order to stop has come. `once`: a query by the clock is ended."""
        due = begun_from = time.monotonic() + REPORT_S  # a run that ends before has nothing to spare
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
            if time.monotonic() >= begun_from:
                self._say_begun()

    def _say_begun(self) -> None:
        """Once; the next time if a batch is being written."""
        if self._on_begun is None or len(self._running) < len(self._queries) or any(each.sink.written is None for each in self._running):
            return
        with contextlib.suppress(BatchError), contextlib.ExitStack() as held:
            for each in self._running:
                held.enter_context(each.sink.held(0))
            self._on_begun()
            self._on_begun = None

    def _report(self) -> None:
        try:
            order = self._write()
        except WorldError as error:
            log.warning("job %s: its state was not reported: %s; trying again", self._job, error)
            return
        if order is not None:
            self._orders.obey(order)

    def _write(self, state: JobState = JobState.RUNNING, error: str | None = None) -> JobOrder | None:
        with self._lock:
            return self._claim.write(self._newest_reports(), state, error, settled=self._settled, answer=self._orders.answer)

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
            except (Py4JError, PySparkException, ConnectionError) as second:  # Java has ended
                log.warning("query %s: was not stopped: %s", each.name, second)
        return failure

    def _report_end(self, error: Exception | None) -> None:
        if error is not None:
            self._settled = False  # a query that fails has nothing to do either
        try:
            self._write(JobState.STOPPED if error is None else JobState.FAILED, None if error is None else str(error))
        except (MoldauError, Py4JError, ConnectionError) as second:
            log.warning("job %s: its end was not reported: %s", self._job, second)

    def _described(self, running: StartedQuery, failure: Exception) -> Exception:
        if isinstance(failure, StreamError | WorldError):
            return failure
        number = "" if running.report.batch is None else f" after batch {running.report.batch}"
        return BatchError(f"job {self._job}, query {running.name}, failed{number}: {cause_of(failure)}")
