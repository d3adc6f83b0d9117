"""A generation of a job that is made beside the running one, and takes its place (docs/streams-reprocessing.md).

It never reads further than the running one has, so that both can be brought to the same offsets whenever it is close:

1. follow: it is limited to the positions that the running job has reported; when it has reached them, to its newest ones.
2. the running job gets an order to settle: its queries come to the same offsets, its outputs to the watermark there, and it stops.
3. this process claims the job: the former generation can write nothing any more.
4. the new generation is limited to the offsets where the old one stands, and comes to rest there.
5. one record of `_stream_state` has the new places of all outputs, and where each continues the one before.
6. this process reports as the job's, and reads without a limit.

A process that dies leaves the steps that it has done; the same command continues. Each step can be done twice: while the brokers are
away it is tried again.
"""

import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum

from moldau.client.errors import may_pass
from moldau.client.partition_requests import EARLIEST, LATEST, READ_COMMITTED
from moldau.lake.reading.cluster_log import ClusterLog
from moldau.lake.reading.limits import NO_LIMITS, StreamLimits
from moldau.model.errors import MoldauError, PeerError, WorldError
from moldau.model.identity import TopicPartition
from moldau.streams.checkpoints import Positions
from moldau.streams.claim import REPORT_S, SILENT_S, JobClaim
from moldau.streams.errors import StreamError
from moldau.streams.generation_places import Places
from moldau.streams.generations import JobGenerations, Reprocessing, beside_name, directory_in, encode_generations
from moldau.streams.points import reached
from moldau.streams.reports import JobOrder, JobReport, JobState, OrderKind, encode_order, generations_key, order_key
from moldau.streams.runner import JobRun
from moldau.streams.settling import Rest, has_reached, merged_positions, nearest_positions, new_round
from moldau.streams.state_topic import StateTopic
from moldau.tracking.clock import now_ms

log = logging.getLogger(__name__)

CLOSE_S, CLOSE_BATCHES = 10.0, 3
"""It has caught up when it reaches in this time where the running job was, or in that of so many batches, if they take longer."""
_LOOK_S = 0.5
AWAY_S = 60.0
"""A step is tried again for so long while the brokers are away."""


class Stage(Enum):
    """How far it is."""

    FOLLOW = "follows"
    OLD_SETTLES = "the running generation settles"
    CLAIMS = "claims the job"
    NEW_SETTLES = "the new generation settles"
    SWITCHES = "switches"
    DONE = "is the job's"


class JobReprocessing:
    """Makes generation `number` of a job and switches to it. Its methods are called by the run's main thread."""

    def __init__(
        self,
        run: JobRun,
        job: str,
        brokers: str,
        directory: str,
        plan: Reprocessing,
        *,
        switch: bool,
        once: bool,
        whole: bool,
        tell: Callable[[str], object],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run, self._job, self._brokers, self._directory, self._plan = run, job, brokers, directory, plan
        self._is_wanted, self._once, self._whole, self._tell, self._monotonic = switch, once, whole, tell, monotonic
        self._name = beside_name(job, plan.number)
        self._topic = StateTopic(brokers)
        self._stage = Stage.FOLLOW
        self._due = 0.0
        self._ends: Positions = {}
        self._ends_s = 0.0
        self._is_close = False
        self._ordered: JobReport | None = None
        self._claim: JobClaim | None = None
        self._rest: Rest | None = None
        self._has_round = False
        self._switched: JobGenerations | None = None
        self._away_s: float | None = None
        """Since when the brokers are."""
        self._others: Positions = {}
        """Where topics stand that the old generation does not read, from when it has stopped: records that come would keep the queries
        busy."""

    def begin(self) -> None:
        """Write down what is made, and make its topics."""
        board = self._topic.read()
        known = board.generations_of(self._job)
        if known.reprocessing is None or known.reprocessing.number != self._plan.number:
            if known.reprocessing is not None:
                self._end_former(known.reprocessing.number)
            self._places(known.current).must_be_new(self._plan.number)
            self._topic.write(
                {generations_key(self._job): encode_generations(replace(known, last=self._plan.number, reprocessing=self._plan))}
            )
            reached("reprocessing begun")
        self._places(known.current).make(self._plan.number)
        self._limit(self._positions(self._found()))
        self._tell(f"job {self._name}: begins at {self._plan.origin}, beside job {self._job}; moldau stream status shows both")

    def look(self) -> None:
        """The next step, if it is time for one. WorldError, PeerError when the brokers are away for too long."""
        if self._stage is Stage.DONE or self._monotonic() < self._due:
            return
        self._due = self._monotonic() + _LOOK_S
        try:
            self._step()
        except (WorldError, PeerError) as error:
            now_s = self._monotonic()
            self._away_s = now_s if self._away_s is None else self._away_s
            if not may_pass(error) or now_s - self._away_s > AWAY_S:
                raise
            if self._stage is Stage.OLD_SETTLES:
                self._ends_s = now_s  # the running job could not report either
            log.warning("job %s: %s; trying again", self._name, error)
        else:
            self._away_s = None

    def _step(self) -> None:
        match self._stage:
            case Stage.FOLLOW:
                self._follow()
            case Stage.OLD_SETTLES:
                self._wait_for_old()
            case Stage.CLAIMS:
                self._take()
            case Stage.NEW_SETTLES:
                self._wait_for_new()
            case Stage.SWITCHES:
                self._switch_over()
            case Stage.DONE:
                pass

    def switch(self) -> None:
        """An order to switch has come."""
        self._is_wanted = True

    def end(self) -> None:
        """The queries have ended."""
        try:
            if self._claim is not None and self._stage in (Stage.CLAIMS, Stage.NEW_SETTLES):
                self._report(JobState.STOPPED)
        except MoldauError as error:
            log.warning("job %s: its end was not reported: %s", self._job, error)
        finally:
            self._topic.close()

    def _follow(self) -> None:
        old = self._found()
        there, here = self._positions(old), self._run.reports()
        if any(each.batch is None for each in (*here, *old.queries)) or not has_reached(nearest_positions(here), self._ends):
            return
        is_read = all(self._ends.values())  # at first there may be no positions, and a limit that reads nothing
        near_s = max(CLOSE_S, CLOSE_BATCHES * max(each.batch_ms for each in (*here, *old.queries)) / 1000)
        if is_read and (there == self._ends or self._monotonic() - self._ends_s <= near_s):
            if not self._is_close:
                self._is_close = True
                then = "" if self._is_wanted else "; it follows, until the order to switch"
                self._tell(f"job {self._name}: has caught up with job {self._job}{then}")
                reached("caught up")
            if self._is_wanted:
                self._order(old)
                return
        if there != self._ends:
            self._limit(there)

    def _order(self, old: JobReport) -> None:
        """Have the running job settle; one that has stopped has to stand settled."""
        if old.state is JobState.RUNNING and not old.settled:
            kind = OrderKind.STOP if self._whole else OrderKind.SETTLE
            self._topic.write({order_key(self._job): encode_order(JobOrder(old.instance, now_ms(), kind))})
            self._ordered, self._ends_s = old, self._monotonic()
            self._stage = Stage.OLD_SETTLES
        else:
            self._take()

    def _wait_for_old(self) -> None:
        assert self._ordered is not None
        now = self._found()
        if now.instance != self._ordered.instance:
            raise StreamError(f"job {self._job}: {now.who} has started it while it was to stop for the switch; run the same command again")
        if now.state is not JobState.RUNNING:
            self._take()
        elif now.at_ms != self._ordered.at_ms:
            self._ordered, self._ends_s = now, self._monotonic()
            order = self._topic.board.orders.get(self._job)
            if order is not None and order.kind is OrderKind.SAVEPOINT:  # it came before the job had read ours
                self._order(now)
        elif self._monotonic() - self._ends_s > SILENT_S:
            self._take()  # refuses what does not stand settled

    def _take(self) -> None:
        self._stage = Stage.CLAIMS
        current = self._topic.read().generations_of(self._job).current
        claim = JobClaim(self._topic, self._job, directory_in(self._directory, current), current)
        old = self._found()
        self._must_stand(old)
        reached("old generation settled")
        claim.take()
        self._claim = claim
        if claim.before is None or claim.before.instance != old.instance:
            self._must_stand(self._old)
        reached("switch claimed")
        self._others = {**{topic: {} for topic in self._run.topics}, **self._run.furthest()}
        self._limit(self._positions(self._old))
        self._rest = self._run.rest()
        self._stage = Stage.NEW_SETTLES

    @property
    def _old(self) -> JobReport:
        """The last report of the generation that ends."""
        assert self._claim is not None
        assert self._claim.before is not None
        return self._claim.before

    def _must_stand(self, old: JobReport) -> None:
        if not old.settled and not self._whole:
            what = f"has failed: {old.error}" if old.state is JobState.FAILED else "was stopped or killed in the middle"
            raise StreamError(
                f"job {self._job}: it {what}, so that its outputs lack what its last batch's watermark closes. Start it again, and run the "
                f"same command again; if it cannot be started, --whole switches all the same: readers then begin with the whole new outputs"
            )

    def _wait_for_new(self) -> None:
        assert self._rest is not None
        assert self._claim is not None
        self._report(JobState.RUNNING)
        if not self._rest.is_reached:
            return
        if not self._has_round and not self._run.is_complete():
            self._has_round = True
            self._limit(self._ends, new_round())
            self._rest = self._run.rest()
            return
        if not self._run.is_level(self._ends) and not self._whole:
            raise StreamError(
                f"job {self._name}: stands at {self._run.furthest()}, and job {self._job} at {self._ends}: it began after that"
            )
        reached("new generation settled")
        known = self._topic.read().generations_of(self._job)
        places = self._places(known.current)
        self._switched = known.switched(
            self._plan.number, places.ended(self._old, known.current), places.continued(self._plan.number, whole=self._whole), now_ms()
        )
        self._stage = Stage.SWITCHES
        self._switch_over()

    def _switch_over(self) -> None:
        assert self._claim is not None
        assert self._switched is not None
        directory = directory_in(self._directory, self._plan.number)
        self._claim.switch({generations_key(self._job): encode_generations(self._switched)}, self._plan.number, directory)
        reached("switched")
        self._run.become_current(self._claim, settled=self._once)
        reached("switch reported")
        self._topic.write({generations_key(self._job): encode_generations(replace(self._switched, reprocessing=None))})
        self._stage = Stage.DONE
        for each in self._switched.places:
            if each.generation == self._plan.number:
                self._tell(f"job {self._job}: {each.kind} {each.output} is {each.place} now")
        if self._once:
            self._run.stop()
        else:
            self._run.limit(NO_LIMITS)

    def _report(self, state: JobState) -> None:
        """As the job's process, which writes nothing yet."""
        assert self._claim is not None
        if state is JobState.STOPPED or now_ms() - self._claim.report.at_ms >= REPORT_S * 1000:
            self._claim.write(self._old.queries, state, settled=self._old.settled)

    def _limit(self, ends: Positions, in_round: str = "") -> None:
        self._ends, self._ends_s = ends, self._monotonic()
        self._run.limit(StreamLimits(self._plan.starts, {**self._others, **ends}, group=False, round=in_round))

    def _found(self) -> JobReport:
        found = self._topic.read().process_of(self._job)
        if found is None:
            raise StreamError(f"no process has run a job {self._job} at {self._brokers}: moldau stream run runs it")
        return found

    def _positions(self, old: JobReport) -> Positions:
        """How far the new generation may read; of the topics that the old one does not read, all."""
        if any(each.batch is None for each in old.queries) or not old.queries:
            return {topic: {} for topic in self._run.topics}
        return merged_positions(each.positions for each in old.queries)

    def _places(self, current: int) -> Places:
        return Places(self._topic.cluster, self._job, [output for query in self._run.queries for output in query.written], current)

    def _end_former(self, number: int) -> None:
        """JobTakenError if the generation that was made before still runs."""
        claim = JobClaim(self._topic, beside_name(self._job, number), directory_in(self._directory, number), number)
        claim.take()
        claim.abandon()


def planned(known: JobGenerations, origin: str, starts: Callable[[], Positions], job: str, *, fresh: bool) -> Reprocessing:
    """The generation that a command makes: the one that is being made, or a new one. StreamError if that began elsewhere."""
    beside = known.reprocessing
    if beside is not None and not fresh:
        if beside.origin != origin and not known.is_switch_open:
            raise StreamError(
                f"job {job}: generation {beside.number} is being made from {beside.origin}, not from {origin}: continue it, or begin "
                f"another one with --fresh"
            )
        return beside
    return Reprocessing(known.last + 1, origin, starts(), now_ms())


def reprocess(
    run: JobRun,
    job: str,
    brokers: str,
    directory: str,
    start: str | int | Positions,
    origin: str,
    savepoint: str | None,
    *,
    switch: bool,
    once: bool,
    fresh: bool,
    whole: bool,
    tell: Callable[[str], object],
) -> None:
    """Make a generation of the job, or continue to, and switch to it. StreamError and others, as a run."""
    topic = StateTopic(brokers)
    try:
        board = topic.read_if_there()
    finally:
        topic.close()
    known, old = board.generations_of(job), board.process_of(job)
    if old is None:
        raise StreamError(f"no process has run a job {job} at {brokers}: moldau stream run runs it")
    if known.is_switch_open and not fresh:
        tell(f"job {job}: has switched to generation {known.current} already")
        if not once:
            run.run(once=False, fresh=False)
        return
    if old.generation != known.current:
        raise StreamError(f"job {job}: has switched to generation {known.current}, as which no process has run yet: moldau stream run does")
    running = merged_positions(each.positions for each in old.queries)
    if savepoint is not None:
        savepoint = os.path.abspath(savepoint)
    plan = planned(known, origin, lambda: {} if savepoint is not None else starts_at(brokers, run.topics, start, running), job, fresh=fresh)
    errand = JobReprocessing(run, job, brokers, directory, plan, switch=switch, once=once, whole=whole, tell=tell)
    run.run_beside(plan.number, errand, savepoint)


def starts_at(brokers: str, topics: Sequence[str], start: str | int | Positions, running: Positions) -> Positions:
    """The offset of each partition at which a generation begins; none after those where the running one is.

    `start` is `earliest`, a time in ms (of the records in the log), or offsets; what these do not name begins at its first record.
    """
    with ClusterLog(brokers, "moldau-stream", isolation_level=READ_COMMITTED) as source:
        counts = source.partition_counts(sorted(set(topics)))
        partitions = [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)]
        firsts = source.offsets(dict.fromkeys(partitions, EARLIEST))
        lasts = source.offsets(dict.fromkeys(partitions, LATEST))
        found = dict(firsts)
        if isinstance(start, int):
            found = {
                each: lasts[each] if offset < 0 else offset for each, offset in source.offsets(dict.fromkeys(partitions, start)).items()
            }
        elif not isinstance(start, str):
            found |= {
                each: start[each.topic][str(each.partition)] for each in partitions if str(each.partition) in start.get(each.topic, {})
            }
    starts: dict[str, dict[str, int]] = {}
    for each, offset in found.items():
        most = running.get(each.topic, {}).get(str(each.partition), lasts[each])
        starts.setdefault(each.topic, {})[str(each.partition)] = max(firsts[each], min(offset, most))
    return starts
