"""A load job of many topics, in rounds: once, every so often, or again and again (mission I2).

A round brings the table of every topic up to the end that its topic has then. Topics are loaded side by side, each by loads of its own;
what happens to one does not keep the others. A long-lived job is nothing but such rounds: there is no state between them that a crash
could lose, since offsets always come from the tables.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from moldau.lake.cluster_log import ClusterLog
from moldau.lake.data_files import FileError
from moldau.lake.load import LoadResult, load
from moldau.lake.load_errors import LoadError, TaskError
from moldau.lake.load_job import LoadJob
from moldau.lake.load_jobs import LoadJobs
from moldau.lake.load_watermark import Watermarks
from moldau.lake.offsets import DataLossError
from moldau.lake.tables.committing import FencedError, LoadConflictError, Writer
from moldau.lake.tables.compaction import Compacted, compact_table
from moldau.lake.tables.format import TableError
from moldau.lake.tables.opening import open_table
from moldau.model.errors import MoldauError, PeerError, WorldError

log = logging.getLogger(__name__)

PARALLEL = 2
WATERMARK_INTERVAL_S = 15.0
_FILES_MIN_WHILE_RUNNING = 8
"""A running service leaves a closed day alone until it has so many small files: late events would have it rewritten each time."""
_EXPECTED = (LoadError, TableError, FileError, DataLossError, MoldauError, OSError)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one topic in a round: what its loads did, or why the last one failed."""

    job: LoadJob
    loads: tuple[LoadResult, ...]
    error: Exception | None = None
    compacted: Compacted | None = None

    @property
    def rows(self) -> int:
        """Rows that came into the table."""
        return sum(each.rows for each in self.loads)


class LoadService:
    """Loads the topics of a job. One thread calls `run_once` or `run`; `stop` may be called from any.

    `on_outcome` is told of every topic of a round in which something happened.
    """

    def __init__(
        self,
        spark: Any,
        jobs: LoadJobs,
        *,
        fail_on_data_loss: bool = True,
        compact: bool = False,
        parallel: int = PARALLEL,
        on_outcome: Callable[[Outcome], object] | None = None,
        watermarks: Watermarks | None = None,
    ) -> None:
        self._spark = spark
        self._jobs = jobs
        self._fail_on_data_loss = fail_on_data_loss
        self._compact = compact
        self._parallel = parallel
        self._on_outcome = on_outcome or (lambda _: None)
        self._writer = Writer(jobs.name)
        self._watermarks = watermarks or Watermarks(jobs.bootstrap)
        self._watermarks_at = 0.0
        self._stopped = threading.Event()

    def run_once(self) -> list[Outcome]:
        """One round. LoadError for a topic that is not there, WorldError for brokers that are away; other failures are in the outcomes."""
        outcomes = self._round(files_min=2)
        self._update_watermarks([each.job for each in outcomes])
        return outcomes

    def run(self, interval_s: float) -> None:
        """Rounds until `stop`, one beginning `interval_s` after the other began, or at once if that took longer.

        What may be gone the next time (a broker or a registry away, a task that died, a load that was faster) is logged and tried again.
        Everything else ends the service once the round is over: FencedError, DataLossError, SchemaChangeError, ...
        """
        while not self._stopped.is_set():
            begun = time.monotonic()
            try:
                outcomes = self._round(files_min=_FILES_MIN_WHILE_RUNNING)
            except MoldauError as error:
                log.warning("load %s: %s; the next round tries again", self._jobs.name, error)
                outcomes = []
            for each in outcomes:
                if each.error is not None:
                    if not passing(each.error):
                        raise each.error
                    log.warning("load %s: %s; the next round tries again", self._jobs.name, each.error)
            if any(each.rows for each in outcomes) or time.monotonic() - self._watermarks_at >= WATERMARK_INTERVAL_S:
                self._update_watermarks([each.job for each in outcomes])
            self._stopped.wait(max(0.0, interval_s - (time.monotonic() - begun)))

    def stop(self) -> None:
        """End after the loads that are under way."""
        self._stopped.set()

    def _round(self, files_min: int) -> list[Outcome]:
        with ClusterLog(self._jobs.bootstrap, f"moldau-load-{self._jobs.name}") as source:
            wanted = None if self._jobs.pattern is not None else list(self._jobs.topics)
            jobs = self._jobs.jobs(source.partition_counts(wanted))
        with ThreadPoolExecutor(self._parallel, f"load {self._jobs.name}") as pool:
            return list(pool.map(lambda job: self._topic(job, files_min), jobs))

    def _topic(self, job: LoadJob, files_min: int) -> Outcome:
        loads: list[LoadResult] = []
        compacted = error = None
        try:
            more = True
            while more and not self._stopped.is_set():
                result = load(self._spark, job, fail_on_data_loss=self._fail_on_data_loss, writer=self._writer)
                loads.append(result)
                more = result.more
            if self._compact and open_table(job.table) is not None:
                compacted = compact_table(job.table, files_min=files_min)
        except _EXPECTED as problem:
            error = problem
        outcome = Outcome(job, tuple(loads), error, compacted)
        if error is not None or any(each.ranges for each in loads) or (compacted is not None and compacted.version is not None):
            self._on_outcome(outcome)
        return outcome

    def _update_watermarks(self, jobs: Sequence[LoadJob]) -> None:
        self._watermarks.update(jobs)
        self._watermarks_at = time.monotonic()


def passing(error: Exception) -> bool:
    """Whether the same load may succeed later without anybody doing anything."""
    match error:
        case FencedError():
            return False
        case PeerError():
            return error.code.retriable
        case WorldError():
            return error.retriable
    return isinstance(error, (TaskError, LoadConflictError, MoldauError))
