"""Syncs of logs. Appends whose acknowledgements wait for the disk share them: group commit.

For each log at most one sync runs at a time, in a background thread. What is written meanwhile waits for the next one, which starts as
soon as the running one ends and covers all of it. So with `flush.messages` 1 the number of syncs depends on how long the disk takes for
one, not on the number of producers.

    append 0..4, requested      sync up to 5 starts
    append 5..9, requested      waits
    append 10,   requested      waits
    sync ends                   0..4 are acknowledged; sync up to 11 starts
    sync ends                   5..10 are acknowledged

Each sync holds files open from the moment it is given to the background. So `SYNCS_MAX` are there at a time; other logs wait in line.

A sync that fails takes its log directory offline: after a failed sync it is unknown which bytes the disk has. Where only room was missing
for the small files that go with a sync, it does not, and the next request begins another.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.broker.replicas.hosted import HostedPartition
from moldau.model.errors import StorageError
from moldau.ports.background import Background

if TYPE_CHECKING:
    from moldau.log.partition_log import FlushJob

SYNCS_MAX = 8
"""Twice what the background has threads: each finds the next one waiting when it has ended one."""


class _Syncs:
    """The syncs of one log."""

    __slots__ = ("in_line", "running", "wanted")

    def __init__(self) -> None:
        self.running = False
        self.in_line = False
        self.wanted = False


class LogFlusher:
    """Runs the syncs of all logs. `synced` is called with each partition whose log a sync has brought to disk, `sync_failed` with one whose
    sync failed.
    """

    def __init__(
        self,
        background: Background,
        synced: Callable[[HostedPartition], object],
        sync_failed: Callable[[HostedPartition, BaseException], object],
    ) -> None:
        self._background = background
        self._synced = synced
        self._sync_failed = sync_failed
        self._syncs: dict[HostedPartition, _Syncs] = {}
        self._line: deque[HostedPartition] = deque()
        self._running = 0
        self._stopped = False

    @property
    def busy(self) -> bool:
        """Whether a sync is wanted, or runs."""
        return bool(self._syncs)

    def request(self, partition: HostedPartition) -> None:
        """Bring all that is written to disk; with the next sync where one runs."""
        syncs = self._syncs.get(partition)
        if syncs is None:
            syncs = self._syncs[partition] = _Syncs()
        syncs.wanted = True
        self._start(partition, syncs)

    def stop(self) -> None:
        """Begin no more syncs, neither of queued logs nor for later requests: the stop of the broker syncs all logs."""
        self._stopped = True
        self._line.clear()

    def _start(self, partition: HostedPartition, syncs: _Syncs) -> None:
        if syncs.running or syncs.in_line or self._stopped:
            return
        if self._running >= SYNCS_MAX:
            syncs.in_line = True
            self._line.append(partition)
            return
        syncs.wanted = False
        try:
            job = partition.log.flush_job() if partition.is_open else None
        except StorageError as error:
            del self._syncs[partition]
            self._sync_failed(partition, error)
            return
        if job is None:  # all that was written is on disk, or the log is closed
            del self._syncs[partition]
            if partition.is_open:
                self._synced(partition)
            return
        syncs.running = True
        self._running += 1

        def done(_: None, error: BaseException | None) -> None:
            self._done(partition, syncs, job, error)

        self._background.run(job.run, done)

    def _done(self, partition: HostedPartition, syncs: _Syncs, job: "FlushJob", error: BaseException | None) -> None:
        if error is None:
            partition.log.flush_done(job)
            if partition.is_open:
                self._synced(partition)  # which may request another
        else:
            partition.log.flush_failed(job)
            self._sync_failed(partition, error)
        syncs.running = False
        self._running -= 1
        while self._line and self._running < SYNCS_MAX:
            first = self._line.popleft()
            self._syncs[first].in_line = False
            self._start(first, self._syncs[first])
        if syncs.wanted:
            self._start(partition, syncs)
        elif not syncs.running:
            self._syncs.pop(partition, None)
        if error is not None and not isinstance(error, StorageError):
            raise error
