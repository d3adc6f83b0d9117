"""Group commit: acknowledgements that wait for the disk share one sync.

For each log at most one sync runs at a time, in a background thread. Appends that come meanwhile wait for the next one, which starts as
soon as the running one ends and covers all of them. So with `flush.messages` 1 the number of syncs depends on how long the disk
takes for one, not on the number of producers.

    append 0..4, wait for 4     sync up to 5 starts
    append 5..9, wait for 9     waits
    append 10,   wait for 10    waits
    sync ends                   4 is answered; sync up to 11 starts
    sync ends                   9 and 10 are answered

Each sync holds files open from the moment it is given to the background. So `SYNCS_MAX` are there at a time; other logs wait in line.

A sync that fails takes its log directory offline (after a failed sync nobody knows which bytes the disk has); all that wait are told. Where
only room was missing for the small files that go with a sync, they are told too, and the next append asks for another.
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

Done = Callable[[StorageError | None], object]


class _Waiting:
    """Who waits for the disk of one partition."""

    __slots__ = ("in_line", "running", "waiters", "wanted")

    def __init__(self) -> None:
        self.waiters: list[tuple[int, Done]] = []
        self.running = False
        self.in_line = False
        self.wanted = False


class LogFlusher:
    """Runs the syncs of all logs. `flushed` is called with each partition whose flushed offset has moved."""

    def __init__(
        self,
        background: Background,
        flushed: Callable[[HostedPartition], object],
        storage_failed: Callable[[HostedPartition, StorageError], object],
    ) -> None:
        self._background = background
        self._flushed = flushed
        self._storage_failed = storage_failed
        self._waiting: dict[HostedPartition, _Waiting] = {}
        self._line: deque[tuple[HostedPartition, _Waiting]] = deque()
        self._running = 0
        self._stopped = False

    @property
    def busy(self) -> bool:
        """Whether anybody waits for a sync, or one runs."""
        return bool(self._waiting)

    def wait(self, partition: HostedPartition, last_offset: int, done: Done) -> None:
        """Call ``done(None)`` once the record at `last_offset`, already written, is on disk; with the error if it cannot be brought
        there.
        """
        if last_offset < partition.log.flushed_offset:
            done(None)
            return
        waiting = self._waiting.setdefault(partition, _Waiting())
        waiting.waiters.append((last_offset, done))
        self._start(partition, waiting)

    def request(self, partition: HostedPartition) -> None:
        """Bring what is written to disk, with nobody waiting for it."""
        waiting = self._waiting.setdefault(partition, _Waiting())
        waiting.wanted = True
        self._start(partition, waiting)

    def stop(self) -> None:
        """Begin no more syncs, neither of queued logs nor for later requests: the stop of the broker syncs all logs."""
        self._stopped = True
        self._line.clear()

    def _start(self, partition: HostedPartition, waiting: _Waiting) -> None:
        if waiting.running or waiting.in_line or self._stopped:
            return
        if self._running >= SYNCS_MAX:
            waiting.in_line = True
            self._line.append((partition, waiting))
            return
        waiting.wanted = False
        try:
            job = partition.log.flush_job() if partition.is_led else None
        except StorageError as error:
            self._storage_failed(partition, error)
            self._finished(partition, waiting, error)
            return
        if job is None:  # all that was written is on disk, or the partition is gone
            gone = None if partition.is_led else StorageError("the partition is gone", path=str(partition.topic_partition))
            waiters, waiting.waiters = waiting.waiters, []
            self._waiting.pop(partition, None)
            for _, answer in waiters:
                answer(gone)
            return
        waiting.running = True
        self._running += 1

        def done(_: None, error: BaseException | None) -> None:
            self._done(partition, waiting, job, error)

        self._background.run(job.run, done)

    def _done(self, partition: HostedPartition, waiting: _Waiting, job: "FlushJob", error: BaseException | None) -> None:
        waiting.running = False
        self._running -= 1
        if error is None:
            partition.log.flush_done(job)
            self._flushed(partition)
        elif isinstance(error, StorageError):
            partition.log.flush_failed(job)
            self._storage_failed(partition, error)
        else:
            raise error
        self._start_next()
        self._finished(partition, waiting, error)

    def _start_next(self) -> None:
        while self._line and self._running < SYNCS_MAX:
            partition, waiting = self._line.popleft()
            waiting.in_line = False
            self._start(partition, waiting)

    def _finished(self, partition: HostedPartition, waiting: _Waiting, error: StorageError | None) -> None:
        """Answer those whose records are on disk, or all with the error; go on with the rest."""
        flushed = partition.log.flushed_offset
        waiters, waiting.waiters = waiting.waiters, []
        for last_offset, done in waiters:
            if error is not None or last_offset < flushed:
                done(error)
            else:
                waiting.waiters.append((last_offset, done))
        if waiting.waiters or waiting.wanted:
            self._start(partition, waiting)
        elif not waiting.running:
            self._waiting.pop(partition, None)
