"""The work of one process of a copy: each partition is read from where its log in the target ends.

    given: end of the target's log ─> fetched ─> stored, the log ends later
             ^                                      │
             └──── any error of the partition: what was fetched of it is dropped

That end is the position: there is no other state. Two processes that copy the same partition for a while change nothing: a batch that the
target has is passed over. The leader of a partition of which nothing was stored for a while is asked whether it still takes a mirror's
records: so a promotion is noticed also where the source has nothing new.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from moldau.client.partition_requests import EARLIEST
from moldau.mirror.altering import is_mirrors
from moldau.mirror.copy.writer import REFUSALS, CopyWriter, Outlet
from moldau.mirror.partitions import Halt, Position, SourcePartition
from moldau.mirror.plan.values import LIMITS, Limits
from moldau.mirror.reachability import is_logged
from moldau.mirror.reading import last_epoch, list_end, list_offset
from moldau.mirror.retries import Retries, Retry
from moldau.model.errors import ErrorCode, PeerError, WorldError
from moldau.model.log_throttle import LogThrottle

if TYPE_CHECKING:
    from moldau.mirror.fetched import Fetched
    from moldau.mirror.source import SourceReader
    from moldau.model.identity import TopicPartition
    from moldau.ports.clock import Clock
    from moldau.wire.brokers import Brokers

_LOG = logging.getLogger(__name__)

PROBE_S = 3.0
"""How often the leaders of idle partitions are asked."""
CORRUPT_MAX = 3
"""How often the target may find a batch damaged that the source has sent: then it is not the network's fault."""
_WHY: dict[ErrorCode | None, Halt] = {ErrorCode.CORRUPT_MESSAGE: Halt.POISONED, ErrorCode.INVALID_REQUEST: Halt.PROMOTED}
"""INVALID_REQUEST: the target's partition is no mirror's."""
_LOGGED_EACH_S = 60.0
_REASONS_LOGGED_MAX = 100


class Given(NamedTuple):
    """A partition that this process has: its place in the target, and where it begins if the target has nothing of it."""

    target: "TopicPartition"
    start: Callable[[], Awaitable[Position]]
    accepted: int = 0
    """An operator has accepted that what comes before this offset is missing."""


class _Part:
    """A partition that this process has."""

    __slots__ = ("begins", "corrupt", "failures", "given", "is_idle", "outlet", "partition", "stored")

    def __init__(self, partition: SourcePartition, given: Given) -> None:
        self.partition = partition
        self.given = given
        self.outlet: Outlet | None = None
        """None until the target has said where it ends."""
        self.stored = Position(0)
        self.begins: Position | None = None
        """Its start, from when it was asked for until something is stored: the end of a log, for one, is another one later."""
        self.failures = 0
        """Since something was stored."""
        self.corrupt = 0
        self.is_idle = True
        """Since the leaders of idle partitions were asked."""


class Copy:
    """See the module.

    `readers` by source, which are there before the first partition is given. `halted` is called with a partition that stands still, and
    why.
    """

    def __init__(
        self,
        mirror: str,
        target: "Brokers",
        clock: "Clock",
        readers: Mapping[str, "SourceReader"],
        halted: Callable[[SourcePartition, Halt, str], object],
        limits: Limits = LIMITS,
    ) -> None:
        self._limits = limits
        self._target = target
        self._clock = clock
        self._readers = readers
        self._halted = halted
        self._writer = CopyWriter(target, mirror, limits.requests_per_connection, clock)
        self._parts: dict[SourcePartition, _Part] = {}
        self._held: dict[SourcePartition, None] = {}
        self._size = 0
        self.may_fetch = asyncio.Event()
        """Always."""
        self.may_fetch.set()
        self._beginning: dict[SourcePartition, asyncio.Task[None]] = {}
        self.retries = Retries(clock)
        self._throttle = LogThrottle(_LOGGED_EACH_S, _REASONS_LOGGED_MAX)

    async def run(self) -> None:
        """Copy, until it is cancelled."""
        probing = asyncio.ensure_future(self._probe())
        try:
            await self._writer.run()
        finally:
            probing.cancel()
            await asyncio.gather(probing, return_exceptions=True)

    async def give(self, partitions: Mapping[SourcePartition, Given]) -> None:
        """This process has these now."""
        for partition, given in partitions.items():
            self._drop(partition)
            part = self._parts[partition] = _Part(partition, given)
            self._begin(part)

    async def take_away(self, partitions: Iterable[SourcePartition]) -> None:
        """This process does not have these any more."""
        for partition in partitions:
            self._drop(partition)

    def written(self) -> dict[SourcePartition, Position]:
        """Where each partition is read next, as the target has it."""
        return {partition: part.stored for partition, part in self._parts.items()}

    def retry(self, partition: SourcePartition) -> Retry | None:
        """Why a partition is not stored for the moment, if that is so."""
        part = self._parts.get(partition)
        is_idle = part is None or (part.outlet is not None and part.outlet.size == 0)
        return None if is_idle else self.retries.of(partition)

    # Taker

    def take(self, partition: SourcePartition, fetched: "Fetched") -> bool:
        """Send it."""
        part = self._parts.get(partition)
        if part is None or part.outlet is None:
            return False
        if fetched.batches:
            self._size += len(fetched.records)
            self._writer.add(part.outlet, fetched.records)
        if self._size < self._limits.buffer_bytes:
            return True
        self._held[partition] = None
        return False

    def halt(self, partition: SourcePartition, why: Halt, reason: str) -> None:
        """What was fetched before is still stored."""
        self._halted(partition, why, reason)

    # Partitions

    async def _probe(self) -> None:
        """Ask the leaders of idle partitions whether they still take records."""
        while True:
            await asyncio.sleep(PROBE_S)
            for part in self._parts.values():
                if part.is_idle and part.outlet is not None:
                    self._writer.probe(part.outlet)
                part.is_idle = True

    def _begin(self, part: _Part, delay_s: float = 0.0) -> None:
        self._beginning[part.partition] = asyncio.ensure_future(self._follow(part, delay_s))

    async def _follow(self, part: _Part, delay_s: float) -> None:
        """Fetch a partition from where its log in the target ends."""
        partition, target = part.partition, part.given.target
        if delay_s:
            await asyncio.sleep(delay_s)
        try:
            end, newest = await list_end(self._target, target)
            if end:
                position = Position(end, await self._epoch_before(target, end, newest))
            else:
                position = part.begins = part.begins or await part.given.start()
            if position.offset < part.given.accepted:
                position = Position(part.given.accepted)
            if not await is_mirrors(self._target, target):  # after the end was read: it is the mirror's own
                raise PeerError(ErrorCode.INVALID_REQUEST, f"{target}: it was promoted, and takes nothing more of a mirror")
        except (PeerError, WorldError) as error:
            self._failed(part, error)
            return
        except Exception as bug:
            _LOG.exception("partition not begun because of a bug: partition=%s", partition)
            self._failed(part, WorldError(f"a bug, see the log: {bug!r}", retriable=True))
            return
        part.stored = position
        outlet = Outlet(target, end, lambda end, size: self._stored(part, end, size), lambda error, size: self._refused(part, error, size))
        part.outlet = outlet
        self._readers[partition.source].follow(partition, position)

    async def _epoch_before(self, target: "TopicPartition", end: int, newest: int) -> int:
        """The epoch by which the source shows that it has lost nothing before: of the last batch, or of the whole log where retention or
        compaction have removed that batch.
        """
        if end > await list_offset(self._target, target, EARLIEST):
            epoch = await last_epoch(self._target, target, end)
            if epoch >= 0:
                return epoch
        return newest

    def _stored(self, part: _Part, end: int, size: int) -> None:
        self._size -= size
        part.stored, part.begins = Position(end), None
        part.is_idle = False
        part.failures = part.corrupt = 0
        self.retries.over(part.partition)
        if self._held and self._size < self._limits.buffer_bytes:
            held, self._held = self._held, {}
            for partition in held:
                self._readers[partition.source].resume(partition)

    def _refused(self, part: _Part, error: PeerError | WorldError, size: int) -> None:
        self._size -= size
        if self._parts.get(part.partition) is part:
            self._failed(part, error)

    def _failed(self, part: _Part, error: PeerError | WorldError) -> None:
        """Begin again with what the target has, or stand still."""
        partition = part.partition
        self._readers[partition.source].unfollow(partition)
        self._held.pop(partition, None)
        part.outlet = None
        code = error.code if isinstance(error, PeerError) else None
        part.corrupt += code is ErrorCode.CORRUPT_MESSAGE
        if code in REFUSALS or part.corrupt >= CORRUPT_MAX:
            why = _WHY.get(code, Halt.REFUSED)
            level = logging.WARNING if why is Halt.PROMOTED else logging.ERROR
            _LOG.log(level, "partition halts: %s: partition=%s reason=%s", why.value, partition, error)
            self._drop(partition)
            self._halted(partition, why, str(error))
            return
        self.retries.failed(partition, error)
        if not is_logged(error) and self._throttle.due((partition, str(error)), self._clock.monotonic()):
            _LOG.warning("not stored, trying again: partition=%s reason=%s", partition, error)
        delay_s = self._limits.backoff_s(part.failures)
        part.failures += 1
        self._begin(part, delay_s)

    def _drop(self, partition: SourcePartition) -> None:
        part = self._parts.pop(partition, None)
        if part is None:
            return
        beginning = self._beginning.pop(partition, None)
        if beginning is not None:
            beginning.cancel()
        self._readers[partition.source].unfollow(partition)
        self._held.pop(partition, None)
        self.retries.over(partition)
        if part.outlet is not None:
            self._size -= self._writer.drop(part.outlet)
