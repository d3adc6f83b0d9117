"""What a broker does from time to time: retention, compaction, flushes, checkpoints, expiry of producers, removal of what was deleted.

A start after a crash reads what was written and not on disk batch by batch. So that it does not take long, logs with many such batches are
flushed, and their recovery points written down (`log.recovery.batches.max`).

Each task has its interval; a task that raises is logged and runs again, for nothing here may end the process. The look at flushes is as
often as the shortest `flush.ms` of a log requires, and once a second otherwise. A task over all partitions runs in turns (see `slices`).
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from moldau.broker.replicas.rules import UNLIMITED

if TYPE_CHECKING:
    from moldau.broker.admission.slices import SliceScheduler
    from moldau.broker.replicas.directory_moves import DirectoryMoves
    from moldau.broker.replicas.manager import ReplicaManager
    from moldau.log.cleaning.planning import CleanerSettings
    from moldau.log.manager import LogManager
    from moldau.model.config.store import BrokerConfig
    from moldau.model.steps import Steps
    from moldau.ports.background import Background, Workers
    from moldau.ports.clock import Clock, Timer

_LOG = logging.getLogger(__name__)

TICK_MS = 1000
"""Flushes and removals are looked at this often, unless a log asks for more."""
TICK_MS_MIN = 10
UNFLUSHED_BATCHES_MIN = 10_000
"""Of many logs none is flushed for fewer batches off disk than this: fsync is expensive."""
RETRY_FULL_MS = 5000
"""How often a log that a full disk kept closed is tried again."""
PARTITIONS_PER_STEP = 100
"""Partitions that are examined before other work runs: each takes about 1 us."""
EXPIRY_MS = 600_000
"""How often idle producers are forgotten (Kafka's `producer.id.expiration.check.interval.ms`)."""


if TYPE_CHECKING:

    class Services(Protocol):
        """What housekeeping uses of the broker."""

        @property
        def background(self) -> "Background":
            """For syncs."""

        @property
        def clock(self) -> "Clock":
            """Its time."""

        @property
        def config(self) -> "BrokerConfig":
            """As it is now."""

        @property
        def logs(self) -> "LogManager":
            """All logs; there since the start."""

        @property
        def replicas(self) -> "ReplicaManager":
            """Its partitions, and their syncs."""

        @property
        def slices(self) -> "SliceScheduler":
            """Work in turns."""

        @property
        def workers(self) -> "Callable[[], Workers] | None":
            """Gives the processes that compact; None if nothing is compacted."""


class HousekeepingTimers:
    """The timers of one broker."""

    def __init__(self, broker: "Services") -> None:
        self._broker = broker
        self._timers: dict[str, Timer] = {}
        self._directory_moves: DirectoryMoves | None = None
        self._running: set[str] = set()
        """Tasks that run in turns at the moment."""
        self._shortest_ms = UNLIMITED
        """The shortest `flush.ms` of all logs, as far as is known."""
        self._stopped = True

    @property
    def directory_moves(self) -> "DirectoryMoves":
        """What moves logs between directories; made when first asked for."""
        if self._directory_moves is None:
            from moldau.broker.replicas.directory_moves import DirectoryMoves

            self._directory_moves = DirectoryMoves(self._broker)
        return self._directory_moves

    def start(self) -> None:
        """Begin."""
        config = self._broker.config
        self._stopped = False
        self._every(self._tick_ms, self._tick)
        self._every(lambda: config.int("log.retention.check.interval.ms"), self._apply_retention)
        self._every(lambda: max(config.int("log.flush.offset.checkpoint.interval.ms"), TICK_MS), self._checkpoint)
        self._every(lambda: EXPIRY_MS, self._expire_producers)
        self._every(lambda: RETRY_FULL_MS, self._retry_full)
        if self._broker.workers is not None and config.boolean("log.cleaner.enable"):
            self._every(lambda: max(config.int("log.cleaner.backoff.ms"), TICK_MS_MIN), self._compact)

    def stop(self) -> None:
        """Stop; it cannot be started again."""
        self._stopped = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._broker.logs.stop_cleaning()

    def hurry(self, flush_ms: int) -> None:
        """A log's `flush.ms` is `flush_ms`: check at least as often."""
        before_ms = self._tick_ms()
        self._shortest_ms = min(self._shortest_ms, flush_ms)
        if self._tick_ms() < before_ms and not self._stopped:
            self._timers[self._tick.__name__].cancel()
            self._every(self._tick_ms, self._tick)

    def _every(self, interval_ms: Callable[[], int], task: Callable[[], object]) -> None:
        def run() -> None:
            self._every(interval_ms, task)
            try:
                task()
            except Exception:
                _LOG.exception("housekeeping failed: task=%s", task.__name__)

        self._timers[task.__name__] = self._broker.clock.call_later(interval_ms() / 1000, run)

    def _tick_ms(self) -> int:
        return max(TICK_MS_MIN, min(TICK_MS, self._shortest_ms))

    def _tick(self) -> None:
        self._in_steps("flush", self._flush())
        self._in_steps("removal", self._removal())

    def _removal(self) -> "Steps":
        yield from self._broker.logs.remove_due(self._broker.clock.time_ms())

    def _flush(self) -> "Steps":
        """Flush those logs whose settings require it or that have too many unflushed bytes."""
        broker = self._broker
        now_ms = broker.clock.time_ms()
        checkpoint = broker.logs.has_new
        unsettled = []
        self._shortest_ms = UNLIMITED
        for number, partition in enumerate(list(broker.replicas.hosted.values())):
            log = partition.log
            if not log.is_settled:
                unsettled.append(partition)
            if log.config.flush_ms < self._shortest_ms:
                self.hurry(log.config.flush_ms)
            if number % PARTITIONS_PER_STEP == 0:
                yield None
        most = self._unflushed_batches_max(sum(each.log.written_batches > each.log.checkpointed_batches for each in unsettled))
        for number, partition in enumerate(unsettled):
            log = partition.log
            if log.flush_wanted(now_ms) or log.written_batches - log.flushed_batches >= most:
                broker.replicas.flusher.request(partition)
            checkpoint = checkpoint or log.flushed_batches - log.checkpointed_batches >= most
            if number % PARTITIONS_PER_STEP == 0:
                yield None
        if checkpoint:
            self._checkpoint()

    def _unflushed_batches_max(self, busy: int) -> int:
        """How many batches of one log may be off disk, `busy` logs that have such batches sharing what is allowed to all."""
        allowed = self._broker.config.int("log.recovery.batches.max")
        return max(allowed // max(busy, 1), min(allowed, UNFLUSHED_BATCHES_MIN))

    def _apply_retention(self) -> None:
        self._in_steps("retention", self._retention())

    def _retention(self) -> "Steps":
        yield from self._broker.logs.apply_retention(self._broker.clock.time_ms())

    def _checkpoint(self) -> None:
        self._in_steps("checkpoint", self._broker.logs.checkpoint())

    def _in_steps(self, task: str, steps: "Steps") -> None:
        """Run a task over all partitions in turns, unless it still runs since the last time."""
        if task in self._running:
            return
        self._running.add(task)

        def ended(error: Exception | None) -> None:
            self._running.discard(task)
            if error is not None:
                _LOG.error("housekeeping failed: task=%s", task, exc_info=error)

        try:
            if self._broker.slices.run(steps, ended) is None:
                ended(None)
        except Exception as error:
            ended(error)

    def _compact(self) -> None:
        broker = self._broker
        assert broker.workers is not None
        cleaner = broker.logs.cleaner(broker.workers, broker.clock.time_ms)
        if cleaner is not None:
            cleaner.look(cleaner_settings(broker.config))
            for topic_partition in cleaner.take_waiting():
                partition = broker.replicas.hosted.get(topic_partition)
                if partition is not None:
                    broker.replicas.flusher.request(partition)

    def _expire_producers(self) -> None:
        self._in_steps("expire producers", self._broker.logs.expire_producers(self._broker.clock.time_ms()))

    def _retry_full(self) -> None:
        self._in_steps("retry after a full disk", self._broker.replicas.retry_full())


def cleaner_settings(config: "BrokerConfig") -> "CleanerSettings":
    """The ``log.cleaner.*`` configurations as they are now; the cleaner takes them with its next pass."""
    from moldau.log.cleaning.planning import CleanerSettings

    return CleanerSettings(
        threads=config.int("log.cleaner.threads"),
        map_bytes=config.int("log.cleaner.dedupe.buffer.size"),
        map_load_factor=config.double("log.cleaner.io.buffer.load.factor"),
        io_bytes=config.int("log.cleaner.io.buffer.size"),
        bytes_per_second=config.double("log.cleaner.io.max.bytes.per.second"),
        decompressed_bytes_max=config.int("max.decompressed.bytes"),
    )
