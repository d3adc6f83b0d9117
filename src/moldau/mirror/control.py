"""Keeps a process of a mirror to what operators have ordered, and reports how its partitions stand; both through `_mirror_state`.

    records ─> board ─> which of the assigned partitions are mirrored now ─> engine (a merge or a copy)
    meters, retries, halts ─> rows ─> records

An order touches only its own partitions: what the engine has of others stays in it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

from moldau.mirror.ends import ends_of
from moldau.mirror.measures import Measures
from moldau.mirror.naming import SourceTopic
from moldau.mirror.partitions import Halt, Position, SourcePartition
from moldau.mirror.plan.values import Mode
from moldau.mirror.reachability import is_logged
from moldau.mirror.retries import Retries, Retry
from moldau.mirror.sharing.shares import Share
from moldau.mirror.state.beginnings import Beginnings
from moldau.mirror.state.board import Board
from moldau.mirror.state.following import Following
from moldau.mirror.state.orders import Accepted
from moldau.mirror.state.reporter import Figures, Reporter
from moldau.mirror.state.reports import WHOLE_TOPIC, OsProcess, Process, Row, State
from moldau.mirror.state.topic import Tail, create
from moldau.mirror.together import together
from moldau.model.errors import PeerError, WorldError
from moldau.model.log_throttle import LogThrottle

if TYPE_CHECKING:
    from moldau.mirror.inventory import Inventory
    from moldau.mirror.plan.values import MirrorPlan
    from moldau.mirror.source import SourceReader
    from moldau.model.identity import TopicPartition
    from moldau.ports.clock import Clock
    from moldau.wire.brokers import Brokers

_LOG = logging.getLogger(__name__)

WAIT_S = 1.0
"""How long the broker may hold a fetch of orders."""
SAMPLE_S = 1.0
REPORT_S = 3.0
"""How often a process reports, unless its reports are large."""
REPORT_BYTES_S = 100_000
"""Of reports, in the mean."""
ENDS_S = 10.0
"""How often a source is asked for the ends of partitions that are not fetched."""
FORGET_MS = 7 * 24 * 3_600_000
"""After so long without a report a process that starts removes those of another one."""
CLOSE_S = 2.0
"""For the last report of a process that ends."""
_LOGGED_EACH_S = 60.0
_REASONS_LOGGED_MAX = 100
_ORDERS, _REPORTS = "orders", "reports"


class Engine(Protocol):
    """The merge or the copy."""

    retries: Retries

    async def take_away(self, partitions: Iterable[SourcePartition]) -> None:
        """This process does not mirror these any more."""

    def written(self) -> dict[SourcePartition, Position]:
        """Where each partition is read next, as the target has it."""

    def retry(self, partition: SourcePartition) -> Retry | None:
        """Why the target does not have a partition's records yet."""


class Hooks(NamedTuple):
    """What a control has its process do, and asks of it."""

    give: Callable[[Sequence[SourcePartition]], Awaitable[None]]
    """Mirror these."""
    look: Callable[[], object]
    """Look at the topics of the clusters soon: other ones are selected."""
    generation: Callable[[], int]
    """Of the group."""
    transactions: Callable[[], int]
    """That were committed so far."""
    failure: Callable[[], str]
    """Why the process as a whole tries something again."""
    following: Callable[[], Following | None]
    """How what comes along with the records is; None if another process does that."""


class Control:
    """See the module. `prepare` comes first."""

    def __init__(
        self,
        plan: "MirrorPlan",
        instance: str,
        target: "Brokers",
        inventory: "Inventory",
        readers: Mapping[str, "SourceReader"],
        engine: Engine,
        measures: Measures,
        clock: "Clock",
        hooks: Hooks,
        os_process: OsProcess,
    ) -> None:
        """`readers` by source, which are there before the first partition is assigned."""
        self.partitions: dict[Share, SourcePartition] = {}
        """Those that are assigned to this process."""
        self.halted: dict[SourcePartition, tuple[Halt, str]] = {}
        """Those of them that stand still until an operator decides."""
        self._doubted: dict[SourcePartition, tuple[Halt, str]] = {}
        """Those that had halted and were resumed, until their source has answered a fetch: till then their reports stay as they were."""
        self.is_replaced = False
        """Another process has this one's instance: it reports no more, or its reports would stand in the place of the other's."""
        self._plan = plan
        self._instance = instance
        self._target = target
        self._inventory = inventory
        self._readers = readers
        self._engine = engine
        self._measures = measures
        self._clock = clock
        self._hooks = hooks
        self._board = Board(plan.name)
        self._tail = Tail(target)
        self._given: dict[SourcePartition, None] = {}
        """Those that the engine has, in the order in which it got them."""
        self._changing = asyncio.Lock()
        """Held while the engine gets partitions or loses them."""
        self._beginnings = Beginnings(clock)
        self._problems: set[SourceTopic] = set()
        """Topics that the last rows were about."""
        self._reporter = Reporter(plan.name, instance, target, clock, os_process)
        self.retries = Retries(clock)
        self._throttle = LogThrottle(_LOGGED_EACH_S, _REASONS_LOGGED_MAX)

    async def prepare(self) -> None:
        """Read what has been ordered. PeerError, WorldError."""
        await create(self._target)
        for record in await self._tail.read_to_end():
            self._board.take(record)
        self._board.resumed.clear()
        self._board.newly_accepted.clear()
        self._reporter.prepare(self._board)
        self._inventory.selection = self._board.selection(self._plan.selection)
        for process in sorted(self._board.processes.values(), key=lambda each: -each.at_ms):
            for row in self._board.rows(process.instance):
                if row.number != WHOLE_TOPIC or row.state in (State.DELETED, State.RECREATED, State.PROMOTED):
                    self._inventory.remember(SourceTopic(row.source, row.topic), row.topic_id)
        for accepted in self._board.accepted.values():
            self._forget(accepted)
        oldest_ms = self._clock.time_ms() - FORGET_MS
        for instance, process in self._board.processes.items():
            if process.at_ms < oldest_ms and instance != self._instance:
                await self._reporter.remove(self._board, instance)

    async def run(self) -> None:
        """Follow orders and report, until it is cancelled."""
        await together(self._follow(), self._report(), self._look_up_ends())

    async def close(self) -> None:
        """Report that the process ends."""
        with suppress(PeerError, WorldError, TimeoutError):
            await asyncio.wait_for(self._reporter.end(self._figures()), CLOSE_S)

    async def assign(self, partitions: Iterable[SourcePartition]) -> None:
        """This process has these too."""
        async with self._changing:
            for each in partitions:
                self.partitions[share_of(each)] = each
                self._begin(each)
            await self._settle()

    async def revoke(self, shares: Sequence[Share]) -> None:
        """This process has these no more: when this returns it mirrors nothing of them."""
        async with self._changing:
            gone = [self.partitions.pop(share) for share in shares if share in self.partitions]
            await self._engine.take_away(gone)
            for each in gone:
                self._end(each)

    @property
    def last_report(self) -> Process | None:
        """What was reported last as this instance, by whichever process."""
        return self._board.processes.get(self._instance)

    def halt(self, partition: SourcePartition, why: Halt, reason: str) -> None:
        """A partition stands still until an operator decides."""
        self.halted[partition] = why, reason
        self._doubted.pop(partition, None)

    def accepted_offset(self, partition: SourcePartition) -> int:
        """What comes before it is missing in the source, and an operator has accepted that; 0 if nothing is."""
        accepted = self._board.accepted.get((partition.source, partition.topic, partition.number))
        return accepted.offset if accepted is not None and accepted.topic_id == partition.topic_id else 0

    def is_followed(self, partition: SourcePartition) -> bool:
        """Whether a partition is neither paused nor, by what any process reported last, halted."""
        last = self._board.last_row(partition)
        is_halted = partition in self.halted or (last is not None and last.state.is_halted)
        return not is_halted and self._board.pause_of(partition.topic, partition.number) is None

    def rows(self) -> list[Row]:
        """How each partition stands, and topics of which none is mirrored."""
        now_s = self._clock.monotonic()
        found = [self._row(each, now_s) for each in self.partitions.values() if self._inventory.selection.selects(each.topic)]
        for origin, (why, reason, topic_id) in self._inventory.problems.items():
            state = State.RETRYING if why is None else State.of(why)
            found.append(Row(*origin, topic_id, WHOLE_TOPIC, state, reason, self._beginnings.of(origin, state)))
        self._beginnings.forget(self._problems - self._inventory.problems.keys())
        self._problems = {*self._inventory.problems}
        return found

    # Orders

    async def _follow(self) -> None:
        failures = 0
        while True:
            try:
                records = await self._tail.read(WAIT_S)
                for record in records:
                    self._board.take(record)
                if records:
                    await self._carry_out()
                self.retries.over(_ORDERS)
                failures = 0
                continue
            except (PeerError, WorldError) as error:
                self._failed(_ORDERS, error)
            except Exception:
                _LOG.exception("orders not followed because of a bug: mirror=%s", self._plan.name)
            failures += 1
            await self._target.back_off(failures)

    async def _carry_out(self) -> None:
        selection = self._board.selection(self._plan.selection)
        if selection != self._inventory.selection:
            self._inventory.selection = selection
            self._hooks.look()
        async with self._changing:
            accepted, self._board.newly_accepted = self._board.newly_accepted, []
            for each in accepted:
                await self._accept(each)
            resumed, self._board.resumed = self._board.resumed, []
            again = [each for each in self.halted if any(scope.covers(each.topic, each.number) for scope in resumed)]
            doubted = {each: self.halted[each] for each in again}
            await self._retry_halted(again)
            self._doubt(doubted)
            await self._settle()

    async def _accept(self, accepted: Accepted) -> None:
        self._forget(accepted)
        partition = self.partitions.get(Share(accepted.source, accepted.topic, accepted.partition))
        if partition is None:
            return
        await self._retry_halted([partition])
        if partition.topic_id != accepted.topic_id:
            self._end(partition)
            now = partition._replace(topic_id=accepted.topic_id)
            self.partitions[share_of(now)] = now
            self._begin(now)

    def _forget(self, accepted: Accepted) -> None:
        if accepted.partition == WHOLE_TOPIC:
            self._inventory.forget(SourceTopic(accepted.source, accepted.topic), accepted.topic_id)

    async def _retry_halted(self, partitions: Sequence[SourcePartition]) -> None:
        """What the engine still has of them it drops: it gets them again when things are settled."""
        await self._engine.take_away(partitions)
        for each in partitions:
            self.halted.pop(each, None)
            self._doubted.pop(each, None)
            self._given.pop(each, None)

    def _doubt(self, partitions: Mapping[SourcePartition, tuple[Halt, str]]) -> None:
        """They are tried again, which may show the same: an operator can still accept what they were halted for."""
        for each, halt in partitions.items():
            meter = self._measures.of(each)
            if meter is not None:
                meter.answered = False
                self._doubted[each] = halt

    async def _settle(self) -> None:
        """The engine gets what it should mirror and has not, and loses what it should not. What it has of a partition that has halted it
        writes.
        """
        selects = self._inventory.selection.selects
        wanted = {
            each
            for each in self.partitions.values()
            if each not in self.halted and selects(each.topic) and self._board.pause_of(each.topic, each.number) is None
        }
        stopped = [each for each in self._given if each not in wanted and each not in self.halted]
        if stopped:
            await self._engine.take_away(stopped)
            for each in stopped:
                del self._given[each]
        new = [each for each in self.partitions.values() if each in wanted and each not in self._given]
        if new:
            self._given.update(dict.fromkeys(new))
            await self._hooks.give(new)

    def _begin(self, partition: SourcePartition) -> None:
        """With what the process that had it before has reported, but for the end of the source, which is another one by now."""
        last = self._board.last_row(partition)
        if last is None:
            self._measures.begin(partition)
        else:
            self._measures.begin(partition, last.position, last.newest_ms)

    def _end(self, partition: SourcePartition) -> None:
        self.halted.pop(partition, None)
        self._doubted.pop(partition, None)
        self._given.pop(partition, None)
        self._beginnings.forget([partition])
        self._measures.end(partition)

    # Reports

    def _row(self, partition: SourcePartition, now_s: float) -> Row:
        state, reason, since_ms = self._state_of(partition)
        since_ms = self._beginnings.of(partition, state, since_ms)
        meter = self._measures.of(partition)
        row = Row(partition.source, partition.topic, partition.topic_id, partition.number, state, reason, since_ms)
        if meter is None:
            return row
        bytes_s, records_s = meter.rates(now_s)
        is_known = self._is_end_known(partition, state)
        return row._replace(
            position=meter.position,
            end=meter.end if is_known else None,
            lag_bytes=meter.lag_bytes if is_known else None,
            newest_ms=meter.newest_ms,
            bytes_s=bytes_s,
            records_s=records_s,
        )

    def _is_end_known(self, partition: SourcePartition, state: State) -> bool:
        """Whether the source is asked where it ends, and answers: what it said last may be far from where it ends now."""
        return state is not State.RETRYING or self._readers[partition.source].retry(partition) is None

    def _state_of(self, partition: SourcePartition) -> tuple[State, str, int]:
        """State, reason, and since when it is so; 0 where it is not known here."""
        halted = self.halted.get(partition)
        if halted is not None:
            return State.of(halted[0]), halted[1], 0
        paused = self._board.pause_of(partition.topic, partition.number)
        if paused is not None:
            scope, pause = paused
            return State.PAUSED, f"{scope} is paused by {pause.by}", pause.at_ms
        meter = self._measures.of(partition)
        doubted = self._doubted.get(partition)
        if doubted is not None and meter is not None and not meter.answered:
            return State.of(doubted[0]), doubted[1], 0
        self._doubted.pop(partition, None)
        reader = self._readers[partition.source]
        retry = self._engine.retry(partition) or reader.retry(partition)
        if retry is not None:
            return State.RETRYING, retry.reason, retry.since_ms
        if reader.position(partition) is None:
            return State.STARTING, "", 0
        return State.MIRRORING, "" if meter is None else meter.held_back(self._clock.monotonic()), 0

    async def _report(self) -> None:
        due_s = 0.0
        while not self.is_replaced:
            try:
                self._sample()
                if self._clock.monotonic() >= due_s:
                    size = await self._publish()
                    due_s = self._clock.monotonic() + max(REPORT_S, size / REPORT_BYTES_S) - SAMPLE_S / 2
                    self.retries.over(_REPORTS)
            except (PeerError, WorldError) as error:
                self._failed(_REPORTS, error)
            except Exception:
                _LOG.exception("nothing reported because of a bug: mirror=%s", self._plan.name)
            await asyncio.sleep(SAMPLE_S)

    def _sample(self) -> None:
        written = self._engine.written()
        is_known = {each for each in written if each in self.halted or self._readers[each.source].position(each) is not None}
        self._measures.sample({each: position for each, position in written.items() if each in is_known})

    async def _publish(self) -> int:
        """Write a report; its size in bytes."""
        self._sample()
        return await self._reporter.write(self.rows(), self._figures(), self._hooks.following())

    def _figures(self) -> Figures:
        return Figures(self._hooks.generation(), self._hooks.transactions(), self.retry_count, self._hooks.failure())

    @property
    def retry_count(self) -> int:
        """Of everything that this process has tried again."""
        return self.retries.count + self._engine.retries.count + sum(reader.retries.count for reader in self._readers.values())

    async def _look_up_ends(self) -> None:
        """The lag of what is paused, has halted or is not stored grows, too; it is not known while the source does not answer."""
        while True:
            await asyncio.sleep(ENDS_S)
            for name, reader in self._readers.items():
                still = {each.topic_partition: each for each in self.partitions.values() if each.source == name and self._is_still(each)}
                found: dict[TopicPartition, int] = {}
                with suppress(PeerError, WorldError):
                    found = await ends_of(reader.brokers, still, committed=self._plan.mode is Mode.MERGE)
                for topic_partition, partition in still.items():
                    meter = self._measures.of(partition)
                    if meter is not None and self._is_still(partition):
                        meter.end = found.get(topic_partition)

    def _is_still(self, partition: SourcePartition) -> bool:
        """Whether a partition is not fetched for now."""
        return partition not in self._given or partition in self.halted or self._engine.retry(partition) is not None

    def _failed(self, subject: str, error: PeerError | WorldError) -> None:
        self.retries.failed(subject, error)
        if not is_logged(error) and self._throttle.due((subject, str(error)), self._clock.monotonic()):
            _LOG.warning("%s not exchanged with the target, trying again: mirror=%s reason=%s", subject, self._plan.name, error)


def share_of(partition: SourcePartition) -> Share:
    """A partition as processes share it."""
    return Share(partition.source, partition.topic, partition.number)
