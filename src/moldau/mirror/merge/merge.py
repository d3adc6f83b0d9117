"""The work of one process of a merge: takes what its sources give, and writes it in transactions, one after the other.

A transaction has all that is here when it begins. While it is written the sources are read on, as far as there is room. So few records
make small transactions that end at once, and many make large ones.

    given: position read from the target ─> fetched ─> written, with the position ─> committed
                 ^                                              │
                 └────────────── any error: everything that was fetched is dropped
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from moldau.mirror.fetched import Fetched, nothing_from
from moldau.mirror.merge.announcements import Announcer
from moldau.mirror.merge.origins import Origins
from moldau.mirror.merge.outgoing import joined
from moldau.mirror.merge.part import Given, Part, Waiting
from moldau.mirror.merge.portion import Portion, portion_of
from moldau.mirror.merge.positions import POSITIONS, Stored, positions_batches
from moldau.mirror.merge.route import Route
from moldau.mirror.merge.runs import offsets_batches
from moldau.mirror.merge.start_finder import StartFinder
from moldau.mirror.merge.stored_positions import read_positions
from moldau.mirror.merge.unavailable import Unavailable
from moldau.mirror.merge.writer import PartitionRefusedError, PartitionsUnavailableError, Writer
from moldau.mirror.partitions import Halt, Position, SourcePartition
from moldau.mirror.plan.values import LIMITS, Limits
from moldau.mirror.reachability import is_logged
from moldau.mirror.retries import Retries, Retry
from moldau.mirror.source import SourceReader
from moldau.mirror.together import together
from moldau.model.errors import ErrorCode, PeerError, WorldError
from moldau.model.log_throttle import LogThrottle
from moldau.ports.probe import reached

if TYPE_CHECKING:
    from moldau.model.identity import TopicPartition
    from moldau.ports.clock import Clock
    from moldau.wire.brokers import Brokers
    from moldau.wire.group import GroupMetadata

_LOG = logging.getLogger(__name__)

SMALL_BYTES = 64 * 1024
"""Of a transaction, below which nothing is fetched before its last step: each record that comes meanwhile would be an answer of its own,
and all of them wait for the next transaction anyway.
"""
TRANSACTION_TIMEOUT_S = 10.0
_NO_MEMBER = (
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
)
_TRANSACTION = "transaction"
_LOGGED_EACH_S = 60.0
_REASONS_LOGGED_MAX = 100


class Member(Protocol):
    """This process in the group of its mirror."""

    @property
    def metadata(self) -> "GroupMetadata":
        """Who it is, for the fence."""

    def doubted(self) -> None:
        """The target does not take this process for a member: join again."""


class Merge:
    """See the module."""

    def __init__(
        self,
        mirror: str,
        instance: str,
        target: "Brokers",
        transactional_id: str,
        clock: "Clock",
        member: Member,
        route: Route,
        readers: Mapping[str, SourceReader],
        halted: Callable[[SourcePartition, Halt, str], object],
        limits: Limits = LIMITS,
    ) -> None:
        """`readers` by source, which are there before the first partition is given. `halted` is called with a partition that stands still,
        and why.
        """
        self._instance = instance
        self._target = target
        self._limits = limits
        self._writer = Writer(target, transactional_id, TRANSACTION_TIMEOUT_S, limits.requests_per_connection)
        self._announcer = Announcer(target, mirror, instance, clock)
        self._origins: dict[str, Origins] = {}
        self._clock = clock
        self._member = member
        self._route = route
        self._halted = halted
        self._readers = readers
        self._parts: dict[SourcePartition, Part] = {}
        self._waiting: dict[SourcePartition, None] = {}
        """Partitions with something to write, the one that waits longest first."""
        self._held: dict[SourcePartition, None] = {}
        """Partitions that are not fetched for want of room."""
        self._size = 0
        self.may_fetch = asyncio.Event()
        """Not while a small transaction is written."""
        self.may_fetch.set()
        self._work = asyncio.Event()
        self._is_full = asyncio.Event()
        """Set where enough is fetched for a whole transaction."""
        self._idle = asyncio.Lock()
        """Held by a transaction, and by whatever changes which partitions there are."""
        self._apart: set[TopicPartition] = set()
        """Of the target: they have refused a batch for its size, and get none any more that was joined here."""
        self._is_sound = False
        """Whether the producer may begin a transaction."""
        self._throttle = LogThrottle(_LOGGED_EACH_S, _REASONS_LOGGED_MAX)
        self.transactions = 0
        """Committed so far."""
        self.retries = Retries(clock)
        self._starts = StartFinder(self._begun, self.retries, clock, limits)
        self._unavailable = Unavailable(route, limits, self.retries, clock, self._released)

    async def give(self, partitions: Mapping[SourcePartition, Given]) -> None:
        """This process has these now: they are read from the positions that the target has, as soon as it says them."""
        async with self._idle:
            for partition, given in partitions.items():
                self._parts[partition] = Part(partition, given)
            if self._is_sound:
                try:
                    await self._follow([self._parts[each] for each in partitions])
                except (PeerError, WorldError) as error:
                    self._failed(error)
                    self._is_sound = False
            if not self._is_sound:
                self._work.set()

    async def take_away(self, partitions: Iterable[SourcePartition]) -> None:
        """This process does not have these any more: when this returns no transaction with records of them is open."""
        async with self._idle:
            for partition in partitions:
                self._drop(partition)

    def written(self) -> dict[SourcePartition, Position]:
        """Where each partition is read next, as the target has it."""
        return {partition: part.written for partition, part in self._parts.items()}

    def retry(self, partition: SourcePartition) -> Retry | None:
        """Why a partition's records are not committed for the moment, if that is so."""
        if partition not in self._parts:
            return None
        return self._unavailable.retry(partition) or self.retries.of(partition, _TRANSACTION)

    # Taker

    def take(self, partition: SourcePartition, fetched: Fetched) -> bool:
        """Keep it for the next transaction."""
        part = self._parts.get(partition)
        if part is None:
            return False
        if fetched.position != part.read:
            size = len(fetched.records)
            origins, topic_partition = self._origins[partition.source], partition.topic_partition
            is_settled = origins.is_settled(topic_partition, fetched.batches)
            part.fetched.append(Waiting(part.read, fetched, 0 if is_settled else origins.require(topic_partition)))
            part.read = fetched.position
            part.size += size
            self._size += size
            self._let_go(part)
        if self._size >= self._limits.transaction_bytes:
            self._is_full.set()
        if self._size < self._limits.buffer_bytes and not self._unavailable.holds(partition):
            return True
        self._held[partition] = None
        return False

    def halt(self, partition: SourcePartition, why: Halt, reason: str) -> None:
        """What was fetched before is still written."""
        self._halted(partition, why, reason)

    # Transactions

    async def run(self) -> None:
        """Write, until it is cancelled."""
        try:
            await self._run()
        finally:
            self._unavailable.close()
            await self._starts.close()
            for origins in self._origins.values():
                await origins.close()

    async def _run(self) -> None:
        failures = 0
        while True:
            await self._work.wait()
            await self._linger()
            begun_s = self._clock.monotonic()
            try:
                async with self._idle:
                    if not self._is_sound:
                        await self._begin_again()
                    else:
                        await self._transaction()
                failures = 0
                self.retries.over(_TRANSACTION)
                continue
            except PartitionsUnavailableError as error:
                self._put_aside(error, self._clock.monotonic() - begun_s)
            except (PeerError, WorldError, PartitionRefusedError) as error:
                self._failed(error)
            except Exception:
                self.retries.failed(_TRANSACTION, "a bug, of which the log has more")
                _LOG.exception("transaction failed because of a bug: transactional_id=%s", self._writer.transactional_id)
            finally:
                self.may_fetch.set()
            self._is_sound = False
            self._work.set()
            await asyncio.sleep(self._limits.backoff_s(failures))
            failures += 1

    async def _linger(self) -> None:
        """Wait for more of what is written, until it is enough for a transaction."""
        if self._limits.linger_ms and self._is_sound:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_full.wait(), self._limits.linger_ms / 1000)

    def _failed(self, error: PeerError | WorldError | PartitionRefusedError) -> None:
        if isinstance(error, PartitionRefusedError) and error.code is ErrorCode.MESSAGE_TOO_LARGE and error.target not in self._apart:
            self._apart.add(error.target)
            self.retries.failed(_TRANSACTION, error)
        elif isinstance(error, PartitionRefusedError):
            refused = [each for each in self._parts if self._route.may_go(each, error.target)]
            for partition in refused:
                self._stop(partition, Halt.REFUSED, str(error))
            if not refused:  # a topic of the mirror's own, which all partitions need
                self._retry_later(error)
        else:
            self._retry_later(error)
        if isinstance(error, PeerError) and error.code in _NO_MEMBER:
            reached("mirror: the fence refused a process that is no member any more")
            self._member.doubted()

    def _put_aside(self, error: PartitionsUnavailableError, took_s: float) -> None:
        mine = {target: why for target, why in error.targets.items() if any(self._route.may_go(each, target) for each in self._parts)}
        if mine:
            reached("mirror: a transaction went without partitions of the target that take nothing")
            self._unavailable.failed(mine, took_s)
        else:  # topics of the mirror's own, which all partitions need
            self._retry_later(error)

    def _retry_later(self, error: Exception) -> None:
        self.retries.failed(_TRANSACTION, error)
        if not is_logged(error) and self._throttle.due(str(error), self._clock.monotonic()):
            _LOG.warning("transaction not committed, trying again: transactional_id=%s reason=%s", self._writer.transactional_id, error)

    async def _transaction(self) -> None:
        taken = self._taken()
        if not taken:
            return
        if sum(len(each.fetched.records) for fetched in taken.values() for each in fetched) < SMALL_BYTES:
            self.may_fetch.clear()
        portions = {part: self._portion(part, fetched) for part, fetched in taken.items()}
        now_ms = self._clock.time_ms()
        clusters = {part.given.key.cluster for part, each in portions.items() if each.batches}
        await self._announcer.announce(self._writer.producer_id, clusters.union(*(each.origins for each in portions.values())))
        positions = positions_batches(((part.given.key, self._stored(part, each)) for part, each in portions.items()), now_ms)
        await self._writer.write([*(batch for each in portions.values() for batch in each.batches), *positions])
        runs = [(part.given.key, each.batches) for part, each in portions.items() if each.batches]
        fence = self._writer.fence(self._member.metadata, POSITIONS, self.transactions)
        await (together(fence, self._writer.write(offsets_batches(runs, now_ms))) if runs else fence)
        self.may_fetch.set()
        await self._writer.commit()
        self.transactions += 1
        self._unavailable.stored(batch.target for each in portions.values() for batch in each.batches)
        for part, each in portions.items():
            partition = part.partition
            part.written = each.position
            self._origins[partition.source].passed(partition.topic_partition, each.position.offset)
            if each.fault:
                self._stop(partition, each.why, each.fault)
        self._resume()

    def _is_ready(self, part: Part) -> bool:
        """Whether something of it can be written."""
        is_settled = bool(part.fetched) and part.fetched[0].round <= self._origins[part.partition.source].rounds
        return is_settled and not self._unavailable.holds(part.partition)

    def _let_go(self, part: Part) -> None:
        if self._is_ready(part):
            self._waiting[part.partition] = None
            self._work.set()

    def _released(self) -> None:
        """What could not be written may be tried again."""
        for part in self._parts.values():
            self._let_go(part)
        self._resume()

    def _learned(self, source: str) -> None:
        """Where batches of a source come from is known now."""
        for partition, part in self._parts.items():
            if partition.source == source:
                self._let_go(part)

    def _taken(self) -> dict[Part, list[Waiting]]:
        """What the next transaction has."""
        taken: dict[Part, list[Waiting]] = {}
        size = 0
        for partition in list(self._waiting):
            part = self._parts[partition]
            mine = taken[part] = []
            while self._is_ready(part) and (not size or size + len(part.fetched[0].fetched.records) <= self._limits.transaction_bytes):
                each = part.fetched.popleft()
                mine.append(each)
                size += len(each.fetched.records)
                part.size -= len(each.fetched.records)
            if self._is_ready(part):
                break  # the transaction is full
            del self._waiting[partition]
        self._size -= size
        if self._size < self._limits.transaction_bytes:
            self._is_full.clear()
        if not self._waiting:
            self._work.clear()
        return {part: mine for part, mine in taken.items() if mine}

    def _portion(self, part: Part, taken: Iterable[Waiting]) -> Portion:
        partition = part.partition
        portion = portion_of(
            partition,
            part.given.target_id,
            ((position, fetched) for position, fetched, _ in taken),
            self._origins[partition.source],
            self._route,
            part.written,
        )
        portion.batches = joined(portion.batches, self._apart)
        return portion

    def _stored(self, part: Part, portion: Portion) -> Stored:
        partition = part.partition
        runs_from = self._origins[partition.source].read_from(partition.topic_partition, portion.position.offset)
        return Stored(portion.position, partition.topic, self._instance, runs_from)

    def _resume(self) -> None:
        if self._held and self._size < self._limits.buffer_bytes:
            for partition in [each for each in self._held if not self._unavailable.holds(each)]:
                del self._held[partition]
                self._readers[partition.source].resume(partition)

    # Partitions

    async def _begin_again(self) -> None:
        """Drop what was not committed, and begin where the target says that everything before is."""
        for part in self._parts.values():
            self._readers[part.partition.source].unfollow(part.partition)
            self._empty(part)
        await self._writer.begin_again()
        reached("mirror: the producer began again")
        await self._follow(list(self._parts.values()))
        self._is_sound = True
        if not self._waiting:
            self._work.clear()

    async def _follow(self, parts: list[Part]) -> None:
        stored = await read_positions(self._target)
        named = {(key._replace(topic_id=b""), value.topic): key.topic_id for key, value in stored.items()}
        for part in parts:
            key, partition = part.given.key, part.partition
            found = stored.get(key)
            other = named.get((key._replace(topic_id=b""), partition.topic))
            if found is not None:
                reached("mirror: a position was found in the target")
            elif other is not None:
                reached("mirror: a topic was made again while no process followed it")
                reason = f"topic id {other.hex()} was mirrored to the same topic, the topic id is {key.topic_id.hex()} now"
                self._stop(partition, Halt.RECREATED, reason)
                continue
            if found is not None:
                self._fetch(part, found.position, found.runs_from)
            else:
                self._starts.find(partition, part.given.start)

    def _begun(self, partition: SourcePartition, start: Position) -> None:
        """Its start is stored before anything of it: the end of a log, for one, is another one later."""
        part = self._parts[partition]
        self._fetch(part, start, -1)
        part.fetched.append(Waiting(start, nothing_from(start), 0))
        self._let_go(part)

    def _fetch(self, part: Part, position: Position, runs_from: int) -> None:
        partition = part.partition
        part.read = part.written = position
        self._origins_of(partition.source).follow(partition.topic_partition, runs_from)
        self._readers[partition.source].follow(partition, position)

    def _origins_of(self, source: str) -> Origins:
        found = self._origins.get(source)
        if found is None:
            brokers = self._readers[source].brokers
            found = self._origins[source] = Origins(source, brokers, self._clock, lambda: self._learned(source))
        return found

    def _stop(self, partition: SourcePartition, why: Halt, reason: str) -> None:
        """The target does not take what comes next of it; the others are written."""
        _LOG.error("partition halts: %s: partition=%s reason=%s", why.value, partition, reason)
        self._drop(partition)
        self._halted(partition, why, reason)

    def _drop(self, partition: SourcePartition) -> None:
        part = self._parts.pop(partition, None)
        if part is not None:
            self._readers[partition.source].unfollow(partition)
            if partition.source in self._origins:
                self._origins[partition.source].unfollow(partition.topic_partition)
            self._empty(part)

    def _empty(self, part: Part) -> None:
        self._starts.forget(part.partition)
        self._size -= part.size
        if self._size < self._limits.transaction_bytes:
            self._is_full.clear()
        part.size = 0
        part.fetched.clear()
        self._waiting.pop(part.partition, None)
        self._held.pop(part.partition, None)
