"""A load job of many topics, in rounds: once, every so often, or again and again.

A round brings the table of every topic up to the end that its topic has then. Topics are loaded side by side, each by loads of its own;
what happens to one does not keep the others, now or later: a topic that fails is reported once, and retried in each round. A
long-lived job is nothing but such rounds: there is no state between them that a crash could lose, since offsets always come from the
tables.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from moldau.audit.forgetting import Watch
from moldau.audit.rules import Rules
from moldau.audit.tiers import OWN_SOURCE
from moldau.client.cluster import Cluster
from moldau.lake.loading.errors import LoadError, NoSchemaError, TaskError
from moldau.lake.loading.job import LoadJob, LoadJobs
from moldau.lake.loading.load import LoadResult, load
from moldau.lake.reading.cluster_log import ClusterLog
from moldau.lake.reading.offsets import DataLossError
from moldau.lake.table import set_watermark
from moldau.lake.tables.committing import LoadConflictError, LoadFencedError, TableWriter
from moldau.lake.tables.data_files import FileError
from moldau.lake.tables.format import TableError
from moldau.lake.tables.opening import format_of, open_table
from moldau.lake.tables.rewriting import CompactionResult, compact_table
from moldau.model.errors import MoldauError, PeerError, WorldError
from moldau.tracking.clock import now_ms

log = logging.getLogger(__name__)


class Watermarks:
    """Reads the audit topic once, and then what is new. `rules` are how tiers are compared, for a time in ms."""

    def __init__(self, bootstrap: str, rules: Callable[[int], Rules] | None = None) -> None:
        self._bootstrap = bootstrap
        self._rules = rules or (lambda now_ms: Rules(now_ms=now_ms))
        self._watch = Watch()

    def update(self, jobs: Iterable[LoadJob]) -> Mapping[str, int]:
        """Set the property of each table for which the audit has a watermark; the watermarks by topic, in ms.

        An audit that cannot be read changes nothing, and is logged.
        """
        jobs = [job for job in jobs if job.tier is not None]
        if not jobs:
            return {}
        try:
            with Cluster(self._bootstrap, client_id="moldau-load") as cluster:
                watermarks = self._watch.look({OWN_SOURCE: cluster}, self._rules(now_ms())).watermarks
        except MoldauError as error:
            log.warning("the audit cannot be read, so no completion watermark moves: %s", error)
            return {}
        known: dict[str, int] = {}
        for job in jobs:
            assert job.tier is not None
            time_ms = watermarks.get((job.topic, job.tier))
            if time_ms is None:
                continue
            try:
                tables = format_of(job.table)
                if tables is not None:
                    set_watermark(tables, job.table, time_ms)
                    known[job.topic] = time_ms
            except TableError as error:
                log.warning("%s: the completion watermark was not set: %s", job.table, error)
        return known


PARALLEL = 2
WATERMARK_INTERVAL_S = 15.0
MARK_S = 30.0
"""How often a mark is published to the audit while nothing arrives."""
_FILES_MIN_WHILE_RUNNING = 8
"""A running service leaves a closed day alone until it has so many small files: late events would have it rewritten each time."""
_EXPECTED = (LoadError, TableError, FileError, DataLossError, MoldauError, OSError)


@dataclass(frozen=True, slots=True)
class LoadOutcome:
    """What became of one topic in a round: what its loads did, or why the last one failed."""

    job: LoadJob
    loads: tuple[LoadResult, ...]
    error: Exception | None = None
    compacted: CompactionResult | None = None
    seconds: float = 0.0
    """From when its turn came, with the start of Spark if that was waited for, to its end."""

    @property
    def rows(self) -> int:
        """Rows that came into the table."""
        return sum(each.rows for each in self.loads)

    @property
    def dead_letters(self) -> int:
        """Records that were put aside."""
        return sum(each.dead_letters for each in self.loads)

    @property
    def first_dead_letter(self) -> str | None:
        """Of the records that were put aside the first one: partition, offset and reason."""
        return next((each.first_dead_letter for each in self.loads if each.first_dead_letter is not None), None)

    @property
    def skipped(self) -> dict[int, int]:
        """By partition how many offsets are no longer in the log, and were passed over."""
        counts: Counter[int] = Counter()
        for each in (each for one in self.loads for each in one.skipped):
            counts[each.partition] += each.size
        return dict(sorted(counts.items()))

    @property
    def is_loaded(self) -> bool:
        """Whether its loads succeeded, whatever became of the merged table."""
        return self.error is None or (bool(self.loads) and self.loads[-1].merge_error is self.error)

    @property
    def changed(self) -> bool:
        """Whether the table or its merged one has another version than before."""
        if any(each.merge is not None and each.merge.changed for each in self.loads):
            return True
        return any(each.ranges for each in self.loads) or (self.compacted is not None and self.compacted.version is not None)


class LoadService:
    """Loads the topics of a job. One thread calls `run_once` or `run`; `stop` may be called from any.

    `on_outcome` is called for every topic of a round in which something happened; for one that fails in the same way as in the round
    before it is not called again.
    """

    def __init__(
        self,
        spark: Any,
        jobs: LoadJobs,
        *,
        fail_on_data_loss: bool = True,
        compact: bool = False,
        parallel: int = PARALLEL,
        on_outcome: Callable[[LoadOutcome], object] | None = None,
        watermarks: Watermarks | None = None,
    ) -> None:
        self._spark = spark
        self._jobs = jobs
        self._fail_on_data_loss = fail_on_data_loss
        self._compact = compact
        self._parallel = parallel
        self._on_outcome = on_outcome or (lambda _: None)
        self._writer = TableWriter(jobs.name)
        self._watermarks = watermarks or Watermarks(jobs.bootstrap_servers)
        self._watermarks_at = 0.0
        self._marked_at: dict[str, float] = {}
        """When the last mark of a topic was published to the audit."""
        self._stopped = threading.Event()
        self._failing: dict[str, str] = {}
        """The last reported error of each topic that fails."""
        self._left: set[str] | None = None
        """Topics of the round that are not loaded up to its end, or failed; None before the first round."""
        self._outcomes: list[LoadOutcome] = []
        """Of the topics of the round that are over."""

    @property
    def round_is_loaded(self) -> bool:
        """Whether all topics of the round are loaded, so that nothing is left undone by an end here. Any thread, and signal handlers."""
        return self._left is not None and not self._left

    def run_once(self) -> list[LoadOutcome]:
        """One round. WorldError for brokers that do not answer; what is wrong with a topic is in its outcome.

        A KeyboardInterrupt waits for the loads that are under way, and is dropped if all topics are loaded then.
        """
        try:
            outcomes = self._round(files_min=2)
        except KeyboardInterrupt:
            if not self.round_is_loaded:
                raise
            outcomes = self._outcomes
        self._update_watermarks([each.job for each in outcomes])
        return outcomes

    def run(self, interval_s: float) -> None:
        """Rounds until `stop`, one beginning `interval_s` after the other began, or at once if that took longer.

        A topic that fails is tried again with the next round, whether its failure may pass (a broker or a registry away, a task that died,
        a load that was faster, no schema yet) or not (deleted records, a schema that the table cannot follow): the others continue.
        Two things end the service once the round is over: FencedError, as another process has taken the job over; and that nothing is
        left to be done, since all topics of the round fail for something that does not pass. Then the first one's error is raised.
        """
        while not self._stopped.is_set():
            begun = time.monotonic()
            try:
                outcomes = self._round(files_min=_FILES_MIN_WHILE_RUNNING)
            except MoldauError as error:
                log.warning("load %s: %s; the next round tries again", self._jobs.name, error)
                outcomes = []
            reason = ending(outcomes)
            if reason is not None:
                raise reason
            if any(each.rows for each in outcomes) or time.monotonic() - self._watermarks_at >= WATERMARK_INTERVAL_S:
                self._update_watermarks([each.job for each in outcomes])
            self._stopped.wait(max(0.0, interval_s - (time.monotonic() - begun)))

    def stop(self) -> None:
        """End after the loads that are under way."""
        self._stopped.set()

    def _round(self, files_min: int) -> list[LoadOutcome]:
        with ClusterLog(self._jobs.bootstrap_servers, f"moldau-load-{self._jobs.name}") as source:
            wanted = None if self._jobs.pattern is not None else list(self._jobs.topics)
            jobs = self._jobs.jobs(source.partition_counts(wanted))
        self._left, self._outcomes = {job.topic for job in jobs}, []
        with ThreadPoolExecutor(self._parallel, f"load {self._jobs.name}") as pool:
            return list(pool.map(lambda job: self._topic(job, files_min), jobs))

    def _topic(self, job: LoadJob, files_min: int) -> LoadOutcome:
        begun = time.monotonic()
        loads: list[LoadResult] = []
        compacted: CompactionResult | None = None
        error: Exception | None = None
        try:
            more = True
            while more and not self._stopped.is_set():
                mark = time.monotonic() >= self._marked_at.get(job.topic, 0.0) + MARK_S
                result = load(self._spark, job, fail_on_data_loss=self._fail_on_data_loss, writer=self._writer, mark=mark)
                if (mark or result.ranges) and result.audit_error is None:
                    self._marked_at[job.topic] = time.monotonic()
                loads.append(result)
                more, error = result.more, result.merge_error
            if self._compact and open_table(job.table) is not None:
                compacted = compact_table(job.table, files_min=files_min)
        except _EXPECTED as problem:
            error = problem
        outcome = LoadOutcome(job, tuple(loads), error, compacted, time.monotonic() - begun)
        self._outcomes.append(outcome)
        if self._left is not None and error is None and loads and not loads[-1].more:
            self._left.discard(job.topic)
        if self._is_new(outcome) or outcome.changed:
            self._on_outcome(outcome)
        return outcome

    def _is_new(self, outcome: LoadOutcome) -> bool:
        """Whether the topic fails, and did not or not in this way when it was last tried; or no longer fails."""
        if outcome.error is None and not outcome.loads:
            return False  # stopped before it was tried
        now = None if outcome.error is None else str(outcome.error)
        before = self._failing.pop(outcome.job.topic, None)
        if now is not None:
            self._failing[outcome.job.topic] = now
        return now != before

    def _update_watermarks(self, jobs: Sequence[LoadJob]) -> None:
        self._watermarks.update(jobs)
        self._watermarks_at = time.monotonic()


def ending(outcomes: Sequence[LoadOutcome]) -> Exception | None:
    """Why a running service ends after a round with these outcomes; None if it continues."""
    errors = [each.error for each in outcomes if each.error is not None and not each.is_loaded]
    for error in errors:
        if isinstance(error, LoadFencedError):
            return error
    if errors and len(errors) == len(outcomes) and not any(map(passing, errors)):
        return errors[0]
    return None


def passing(error: Exception) -> bool:
    """Whether the same load may succeed later without any change of job, table or topic."""
    match error:
        case LoadFencedError():
            return False
        case PeerError():
            return error.code.retriable
        case WorldError():
            return error.retriable
    return isinstance(error, (TaskError, LoadConflictError, NoSchemaError, MoldauError))
