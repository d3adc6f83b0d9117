"""Closing the logs of one directory at a stop, with everything on disk.

Each log writes what it still has to write in a step on the broker's thread; then its files are synced in the background. `SYNCS_MAX` logs
are synced at a time, for a file system brings many files to disk with one commit of its journal. When the time is over, the logs that are
left are closed as they are: their bytes are in the page cache, and the next start checks them.
"""

import logging
from collections.abc import Callable, Iterable
from functools import partial

from moldau.log.log_set import Placement
from moldau.log.partition_log import FlushJob, PartitionLog
from moldau.model.errors import StorageError
from moldau.model.steps import UNFINISHED, Steps, Suspension
from moldau.ports.background import Background

_LOG = logging.getLogger(__name__)

SYNCS_MAX = 16
"""Each holds open the files that it syncs: a handful."""


class Closing:
    """The logs of one directory. Invariant: no log is closed while its sync runs."""

    def __init__(
        self, placements: Iterable[Placement], background: Background, is_late: Callable[[], bool], closed: Callable[[Placement], object]
    ) -> None:
        """`closed` is called with each placement whose log was closed."""
        self.failed = False
        """Whether a log may not be on disk because of an error, or was offline because of one."""
        self.left = 0
        """Logs that were not synced for want of time."""
        self._placements = list(placements)
        self._background = background
        self._is_late = is_late
        self._closed = closed
        self._syncing = 0
        self._resume: Callable[[], object] | None = None

    def steps(self) -> Steps:
        """Close all of them."""
        for placement in self._placements:
            while self._syncing >= SYNCS_MAX:
                yield Suspension(self._at_next_end)
            if placement.log is None:
                self.failed |= not placement.is_clean
            elif self._is_late():
                self.left += 1
                self._close(placement, placement.log, None)
            else:
                self._sync(placement, placement.log)
            yield UNFINISHED
        while self._syncing:
            yield Suspension(self._at_next_end)

    def _at_next_end(self, resume: Callable[[], object]) -> None:
        self._resume = resume

    def _sync(self, placement: Placement, log: PartitionLog) -> None:
        try:
            log.seal()
            job = log.flush_job()
        except StorageError as error:
            self._close(placement, log, error)
            return
        if job is None:
            self._close(placement, log, None)
        else:
            self._syncing += 1
            self._background.run(job.run, partial(self._synced, placement, log, job))

    def _synced(self, placement: Placement, log: PartitionLog, job: FlushJob, _result: None, error: BaseException | None) -> None:
        self._syncing -= 1
        if error is None:
            log.flush_done(job)
        else:
            log.flush_failed(job)
        self._close(placement, log, error)
        resume, self._resume = self._resume, None
        if resume is not None:
            resume()

    def _close(self, placement: Placement, log: PartitionLog, error: BaseException | None) -> None:
        try:
            log.close()
        except StorageError as failure:
            error = error or failure
        if error is not None:
            self.failed = True
            bug = None if isinstance(error, StorageError) else error
            _LOG.error("log not closed cleanly: partition=%s reason=%s", placement.topic_partition, error, exc_info=bug)
        self._closed(placement)
