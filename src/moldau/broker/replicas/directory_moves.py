"""Moves logs between the directories of this broker (KIP-113): all that move in turn, a step of `FutureLogs` each, between other work.

What is copied is read and written on the broker's thread, a piece of `PIECE_BYTES` at a time, and at most
`replica.alter.log.dirs.io.max.bytes.per.second` of all logs together. Folders, syncs and checkpoints are made in the background. The log
is taken over when the copy has all again and no change of the in-sync set is proposed: the answer to that is awaited by what serves the
log now. Requests, coordinators apart, do not notice it; coordinators load their partition again.
"""

import logging
from typing import TYPE_CHECKING, Protocol

from moldau.broker.replicas.throttles import WindowedRate
from moldau.model.errors import MoldauError, StorageError
from moldau.model.steps import UNFINISHED, Pause, Steps, Suspension
from moldau.ports.background import Background, run_all

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from moldau.broker.admission.slices import SliceScheduler
    from moldau.broker.replicas.manager import ReplicaManager
    from moldau.log.log_set import FutureLog
    from moldau.log.manager import LogManager
    from moldau.model.config.store import BrokerConfig
    from moldau.model.identity import TopicPartition
    from moldau.ports.clock import Clock

_LOG = logging.getLogger(__name__)

PIECE_BYTES = 256 * 1024
LOOK_EVERY_S = 0.02
"""While nothing can be copied or taken over."""
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


if TYPE_CHECKING:

    class Services(Protocol):
        """What moves use of the broker."""

        @property
        def background(self) -> Background:
            """For syncs."""

        @property
        def clock(self) -> Clock:
            """Its time."""

        @property
        def config(self) -> BrokerConfig:
            """As it is now."""

        @property
        def logs(self) -> LogManager:
            """All logs."""

        @property
        def replicas(self) -> ReplicaManager:
            """Its partitions."""

        @property
        def slices(self) -> SliceScheduler:
            """Work in turns."""


class DirectoryMoves:
    """See the module."""

    def __init__(self, broker: "Services") -> None:
        self._broker = broker
        self._rate = WindowedRate()
        self._is_running = False

    def begin(self, topic_partition: "TopicPartition", path: str) -> None:
        """Have a replica's log moved to a directory, or leave it there. PeerError: see `FutureLogs.begin`."""
        if self._broker.logs.futures.begin(topic_partition, path, self._broker.clock.time_ms()) and not self._is_running:
            self._is_running = True
            try:
                if self._broker.slices.run(self._steps(), self._ended, droppable=False) is None:
                    self._ended(None)
            except Exception as bug:
                self._ended(bug)

    def _ended(self, error: Exception | None) -> None:
        self._is_running = False
        if error is not None:
            futures, now_ms = self._broker.logs.futures, self._broker.clock.time_ms()
            moving = futures.moving()
            for each in moving:
                futures.cancel(each, now_ms)
            _LOG.error("logs not moved because of a bug: partitions=%s", ",".join(map(str, moving)), exc_info=error)

    def _steps(self) -> Steps:
        futures, clock = self._broker.logs.futures, self._broker.clock
        yield UNFINISHED
        while moving := futures.moving():
            has_advanced = False
            for each in moving:
                has_advanced |= yield from self._advance(each)
                yield UNFINISHED
            if not has_advanced:
                yield Suspension(lambda resume: clock.call_later(LOOK_EVERY_S, resume))

    def _advance(self, topic_partition: "TopicPartition") -> "Generator[Pause, None, bool]":
        """Do the next step of one move; False if it has to wait."""
        futures, now_ms = self._broker.logs.futures, self._broker.clock.time_ms()
        future = futures.current(topic_partition, now_ms)
        if future is None:
            return True
        if not future.is_made:
            if (yield from self._elsewhere(future, futures.making(future))):
                futures.made(future, self._broker.clock.time_ms())
            return True
        copied = self._copy(future, now_ms)
        if not futures.holds(future):
            return True
        if futures.sync_wanted(future, now_ms):
            yield from self._sync(future)
            return True
        if not futures.is_level(future):
            return copied > 0
        if not futures.is_settled(future):
            yield from self._settle(future)
            return True
        return self._take_over(future)

    def _copy(self, future: "FutureLog", now_ms: int) -> int:
        """The next piece, unless there were too many bytes in the last seconds."""
        limit, now_s = self._broker.config.int(RATE), self._broker.clock.monotonic()
        if self._rate.room(limit, now_s) <= 0:
            return 0
        copied = self._broker.logs.futures.copy(future, min(PIECE_BYTES, limit), now_ms)
        if copied:
            self._rate.add(copied, now_s)
        return copied

    def _settle(self, future: "FutureLog") -> "Generator[Pause, None, None]":
        futures = self._broker.logs.futures
        yield from self._sync(future)
        now_ms = self._broker.clock.time_ms()
        if futures.current(future.topic_partition, now_ms) is future:
            work = futures.settling(future, now_ms)
            if work is not None:
                yield from self._elsewhere(future, work)

    def _sync(self, future: "FutureLog") -> "Generator[Pause, None, None]":
        log, job = future.log, self._broker.logs.futures.flush_job(future, self._broker.clock.time_ms())
        if log is not None and job is not None:
            if (yield from self._elsewhere(future, job.run)):
                log.flush_done(job)
            else:
                log.flush_failed(job)

    def _elsewhere(self, future: "FutureLog", work: "Callable[[], object]") -> "Generator[Pause, None, bool]":
        """Do some work for a copy in the background. False if that failed, or the copy was dropped meanwhile."""
        failure: StorageError | None = None
        future.is_busy = True
        try:
            yield from run_all(self._broker.background, [work])
        except StorageError as error:
            failure = error
        return self._broker.logs.futures.ended(future, failure, self._broker.clock.time_ms())

    def _take_over(self, future: "FutureLog") -> bool:
        """Have the copy take the place of the log, and serve it, unless that has to wait."""
        replicas, where = self._broker.replicas, future.topic_partition
        hosted = replicas.hosted.get(where)
        if hosted is not None and hosted.machine.proposed_isr is not None:
            return False
        try:
            log = self._broker.logs.futures.take_over(future, self._broker.clock.time_ms())
        except MoldauError as error:
            _LOG.error("partition offline: partition=%s reason=%s", where, error)
            if hosted is not None and replicas.hosted.get(where) is hosted:  # its directory is in service
                replicas.directory_offline(hosted.log.directory, [where])
            return True
        if log is not None and hosted is not None:
            replicas.change_log(hosted, log)
        return True
