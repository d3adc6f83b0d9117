"""One process of a mirror: it looks what there is, shares it with the other processes, and has its part copied or merged."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from moldau.mirror import starts, target_topics
from moldau.mirror.clients import brokers_of
from moldau.mirror.control import Control, Hooks, share_of
from moldau.mirror.copy.copy import Copy
from moldau.mirror.copy.copy import Given as CopyGiven
from moldau.mirror.fetched import Limits
from moldau.mirror.following.follower import Follower
from moldau.mirror.inventory import Inventory, Problem
from moldau.mirror.measures import Measures
from moldau.mirror.merge.announcements import PRODUCERS
from moldau.mirror.merge.merge import TRANSACTION_TIMEOUT_S, Merge
from moldau.mirror.merge.part import Given as MergeGiven
from moldau.mirror.merge.positions import POSITIONS, Key
from moldau.mirror.merge.route import Route
from moldau.mirror.merge.runs import CONFIGS as RUN_CONFIGS
from moldau.mirror.merge.runs import OFFSETS
from moldau.mirror.merge.writer import Writer
from moldau.mirror.naming import SourceTopic
from moldau.mirror.partitions import Halt, Position, SourcePartition
from moldau.mirror.plan.values import Mode
from moldau.mirror.reachability import Reachability, is_logged
from moldau.mirror.retries import Retries
from moldau.mirror.sharing.shares import Share
from moldau.mirror.sharing.work import FencedInstanceError, SharedWork
from moldau.mirror.source import SourceReader
from moldau.mirror.state.reports import OsProcess
from moldau.mirror.state.view import is_running
from moldau.model.errors import PeerError, WorldError
from moldau.model.log_throttle import LogThrottle

if TYPE_CHECKING:
    from moldau.mirror.plan.values import Limits as PlanLimits
    from moldau.mirror.plan.values import MirrorPlan
    from moldau.mirror.state.reports import Process
    from moldau.ports.clock import Clock
    from moldau.ports.transport import Network

_LOG = logging.getLogger(__name__)

LOOK_S = 5.0
"""How often the topics of all clusters are looked at."""
RESPONSE_BYTES = 8 * 1024 * 1024
"""Of the fetches from one broker that are out at once."""
SUCCESSOR_S = 10.0
"""How long a process that was replaced waits to read by which."""
STOP_S = 5.0
"""How long the end of a process waits for its transaction."""
_LOOK, _INSIST = "look", "insist"
_COMPACTED = {"cleanup.policy": "compact"}
_LOGGED_EACH_S = 60.0
_REASONS_LOGGED_MAX = 100


class MirrorProcess:
    """See the module. `run` it; it is the worker of its `SharedWork`."""

    def __init__(
        self, plan: "MirrorPlan", instance: str, network: "Network", clock: "Clock", random: Random, os_process: OsProcess
    ) -> None:
        """`instance`: its name among the processes of the mirror."""
        self.plan = plan
        self.instance = instance
        self._os_process = os_process
        brokers = partial(brokers_of, f"mirror-{plan.name}-{instance}", network, random=random, limits=plan.limits)
        watch = partial(Reachability, plan.name, clock=clock)
        self._clock = clock
        self._target = brokers(plan.target.bootstrap_servers, watch=watch("target"))
        self._sources = {source.name: brokers(source.bootstrap_servers, watch=watch(plan.label(source.name))) for source in plan.sources}
        self._starts = {source.name: source.start for source in plan.sources}
        self._inventory = Inventory(plan, self._target, self._sources, clock)
        self._shared = SharedWork(self._target, plan.name, instance, tuple(self._sources), self)
        self._readers: dict[str, SourceReader] = {}
        self._merge = self._copy = None
        if plan.mode is Mode.MERGE:
            route = Route(plan.partitioning, self._inventory.target_topic, self._inventory.target_count)
            own_id = transactional_id(plan.name, instance)
            self._merge = Merge(
                plan.name, instance, self._target, own_id, clock, self._shared, route, self._readers, self._halt, plan.limits
            )
        else:
            self._copy = Copy(plan.name, self._target, clock, self._readers, self._halt, plan.limits)
        self.measures = Measures(self._engine, clock, committed=self._merge is not None)
        self._look_now = asyncio.Event()
        self._changing = asyncio.Lock()
        """Held while this process gets partitions or loses them."""
        self._unseen: set[Share] = set()
        """Partitions that it has, and has not found in their source and in the target yet."""
        self._retries = Retries(clock)
        hooks = Hooks(
            self._give,
            self._look_now.set,
            lambda: self._shared.metadata.generation_id,
            self.transactions,
            self.failure,
            lambda: self.follower.report(),
        )
        self.control = Control(
            plan, instance, self._target, self._inventory, self._readers, self._engine, self.measures, clock, hooks, os_process
        )
        self.follower = Follower(
            plan,
            instance,
            self._target,
            self._sources,
            self._inventory,
            clock,
            lambda: self._shared.is_first,
            self.control.is_followed,
        )
        limits = fetch_limits(plan.limits, plan.mode)
        is_merge = self._merge is not None
        for name, source in self._sources.items():
            self._readers[name] = SourceReader(
                name, source, clock, self.measures, self._engine.may_fetch, committed=is_merge, verifies=is_merge, limits=limits
            )
        self._throttle = LogThrottle(_LOGGED_EACH_S, _REASONS_LOGGED_MAX)

    async def run(self) -> None:
        """Mirror until it is cancelled.

        FencedInstanceError: another process has this one's name; SameClusterError; PeerError for what does not pass.
        """
        tasks: list[asyncio.Task[None]] = []
        is_fenced = False
        try:
            await self._insist(self._prepare)
            works = self._shared.run(), self._engine.run(), self._look(), self.control.run(), self.follower.run()
            tasks += map(asyncio.ensure_future, works)
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except FencedInstanceError as error:
            is_fenced = self.control.is_replaced = True
            if (other := await self._successor()) is None:
                raise
            raise FencedInstanceError(self.plan.name, self.instance, f"host {other.host}, pid {other.pid}") from error
        finally:
            if tasks:
                tasks[0].cancel()
                await asyncio.gather(tasks[0], return_exceptions=True)
            await self._end(tasks, reports=not is_fenced)

    def transactions(self) -> int:
        """Committed so far; a copy has none."""
        return 0 if self._merge is None else self._merge.transactions

    def written(self) -> Mapping[SourcePartition, Position]:
        """Where each partition is read next, as the target has it."""
        return self._engine.written()

    @property
    def problems(self) -> Mapping[SourceTopic, Problem]:
        """Topics that are not mirrored."""
        return self._inventory.problems

    def failure(self) -> str:
        """Why this process as a whole tries something again; empty if it does not."""
        retry = self._retries.of(_INSIST, _LOOK)
        away = (f"{self.plan.label(name)}: {reason}" for name, reason in self._inventory.away.items())
        return self._shared.failure or (retry.reason if retry is not None else next(away, ""))

    @property
    def is_first(self) -> bool:
        """Whether it is the first of the mirror's processes, which has everything but records follow."""
        return self._shared.is_first

    @property
    def retry_count(self) -> int:
        """Of everything that it has tried again."""
        return self._retries.count + self.control.retry_count + self.follower.retries.count

    @property
    def _engine(self) -> Merge | Copy:
        engine = self._merge or self._copy
        assert engine is not None, "one of both"
        return engine

    # Worker

    async def assign(self, shares: Sequence[Share], departed: Sequence[str]) -> None:
        """Mirror these too."""
        if self._merge is not None:
            for instance in departed:
                await self._fence(instance)
        async with self._changing:
            if any(share not in self._known() for share in shares):
                await self._insist(self._inventory.look)
            self._unseen.update(shares)
            await self._assign_seen()
            for share in sorted(self._unseen):
                _LOG.warning("partition assigned that is not there yet: mirror=%s partition=%s", self.plan.name, share)

    async def revoke(self, shares: Sequence[Share]) -> None:
        """Mirror these no more."""
        async with self._changing:
            self._unseen.difference_update(shares)
            await self.control.revoke(shares)

    async def lost(self) -> None:
        """Drop everything: the fence keeps what is open from being committed."""
        await self.revoke([*self.control.partitions, *self._unseen])

    def _known(self) -> "dict[Share, SourcePartition]":
        return {share_of(each): each for each in self._inventory.partitions}

    async def _assign_seen(self) -> None:
        known = self._known()
        seen = sorted(share for share in self._unseen if share in known)
        self._unseen.difference_update(seen)
        if seen:
            await self.control.assign([known[share] for share in seen])

    def rates(self) -> Mapping[Share, float]:
        """Bytes a second, of the last while."""
        return {share_of(partition): rate for partition, rate in self.measures.rates().items()}

    # Inside

    async def _prepare(self) -> None:
        await self._inventory.meet()
        await self.control.prepare()
        self._warn_of_predecessor()
        if self._merge is not None:
            await target_topics.create(self._target, target_topics.WantedTopic(POSITIONS.topic, 1, _COMPACTED))
            await target_topics.create(self._target, target_topics.WantedTopic(PRODUCERS.topic, 1, _COMPACTED))
            await target_topics.create(self._target, target_topics.WantedTopic(OFFSETS.topic, 1, RUN_CONFIGS))
        await self._inventory.look()
        self._see()

    def _other_process(self) -> "Process | None":
        """Another process that has reported as this instance since this one did."""
        last = self.control.last_report
        return None if last is None or OsProcess(last.host, last.pid) == self._os_process else last

    async def _successor(self) -> "Process | None":
        """The process that has taken over this instance. The group hears of it earlier than it reports."""
        deadline_s = self._clock.monotonic() + SUCCESSOR_S
        while (other := self._other_process()) is None and self._clock.monotonic() < deadline_s:
            await asyncio.sleep(0.1)
        return other

    def _warn_of_predecessor(self) -> None:
        """One that was killed, and one that still runs, differ only in that the latter hears of it when this one joins the group."""
        other, now_ms = self._other_process(), self._clock.time_ms()
        if other is not None and is_running(other, now_ms) and self._throttle.due(other.at_ms, self._clock.monotonic()):
            _LOG.warning(
                "takes over this instance from another process, which ends if it still runs:"
                " mirror=%s instance=%s host=%s pid=%d reported_s_ago=%.1f",
                self.plan.name,
                self.instance,
                other.host,
                other.pid,
                max(now_ms - other.at_ms, 0) / 1000,
            )

    def _see(self) -> None:
        for name in self._inventory.seen:
            self._shared.see(name, (share_of(each) for each in self._inventory.partitions if each.source == name))

    async def _look(self) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._look_now.wait(), LOOK_S)
            self._look_now.clear()
            try:
                await self._inventory.look()
                self._see()
                if self._unseen:
                    async with self._changing:
                        await self._assign_seen()
                self._retries.over(_LOOK)
            except (PeerError, WorldError) as error:
                self._warn(_LOOK, error)
            except Exception:
                _LOG.exception("topics not looked at because of a bug: mirror=%s", self.plan.name)

    def _key(self, partition: SourcePartition) -> Key:
        return Key(self.plan.name, self._inventory.cluster_id(partition.source), partition.topic_id, partition.number)

    async def _start(self, partition: SourcePartition, *, committed: bool) -> Position:
        start = self._starts[partition.source].of(partition.topic, partition.number)
        return await starts.position_of(self._sources[partition.source], partition.topic_partition, start, committed=committed)

    async def _fence(self, instance: str) -> None:
        """End what a process that departed may have left open."""
        writer = Writer(self._target, transactional_id(self.plan.name, instance), TRANSACTION_TIMEOUT_S)
        await self._insist(writer.begin_again)

    async def _insist(self, act: Callable[[], Awaitable[None]]) -> None:
        """Do it again until it succeeds: what is wrong is said."""
        failures = 0
        while True:
            try:
                await act()
            except (PeerError, WorldError) as error:
                self._warn(_INSIST, error)
                failures += 1
                await self._target.back_off(failures)
            else:
                self._retries.over(_INSIST)
                return

    def _halt(self, partition: SourcePartition, why: Halt, reason: str) -> None:
        self.control.halt(partition, why, reason)

    async def _give(self, partitions: Sequence[SourcePartition]) -> None:
        """Mirror these."""
        if self._merge is not None:
            target_id = self._inventory.target_id
            given = {each: MergeGiven(self._key(each), target_id, partial(self._start, each, committed=True)) for each in partitions}
            await self._merge.give(given)
        elif self._copy is not None:
            await self._copy.give(
                {
                    each: CopyGiven(each.topic_partition, partial(self._start, each, committed=False), self.control.accepted_offset(each))
                    for each in partitions
                }
            )

    def _warn(self, what: str, error: Exception) -> None:
        self._retries.failed(what, error)
        if not is_logged(error) and self._throttle.due(str(error), self._clock.monotonic()):
            _LOG.warning("trying again: mirror=%s reason=%s", self.plan.name, error)

    async def _end(self, tasks: "Iterable[asyncio.Task[None]]", *, reports: bool) -> None:
        """End the transaction that is open, then everything. `reports`: that it has ended, where no other process has its instance."""
        try:
            await asyncio.wait_for(self._shared.close(), STOP_S)
        except (PeerError, WorldError, TimeoutError) as error:
            _LOG.warning(
                "ended without the group's knowledge, what was not committed is mirrored later: mirror=%s reason=%r", self.plan.name, error
            )
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if tasks and reports:
            await self.control.close()
        for reader in self._readers.values():
            await reader.close()
        for brokers in (self._target, *self._sources.values()):
            brokers.close()


def fetch_limits(limits: "PlanLimits", mode: Mode) -> Limits:
    """How much a reader asks for at once: no more than fits in the buffer, and of a partition of a merge than in a transaction."""
    most = min(limits.partition_fetch_bytes, limits.buffer_bytes)
    if mode is Mode.MERGE:
        most = min(most, limits.transaction_bytes)
    response_bytes = min(limits.buffer_bytes, RESPONSE_BYTES) // limits.fetchers
    partition_bytes = min(Limits().partition_bytes, most)
    back_off_s = max(min(Limits().back_off_s, limits.retry_backoff_max_ms / 1000), limits.retry_backoff_ms / 1000)
    return Limits(max(response_bytes, partition_bytes), partition_bytes, back_off_s, limits.fetchers, most)


def transactional_id(mirror: str, instance: str) -> str:
    """Of the process with this name."""
    return f"mirror.{mirror}.{instance}"
