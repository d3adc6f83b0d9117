"""An operator's client of a mirror: it reads what the processes report, and writes orders. It works with no process running, too."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from random import Random
from typing import TYPE_CHECKING, TypeVar

from moldau.adapters.asyncio_network import AsyncioNetwork
from moldau.adapters.event_loop import LoopClock, new_event_loop
from moldau.mirror import catalog
from moldau.mirror.catalog import Catalog
from moldau.mirror.process import FRAME_BYTES_MAX, Client
from moldau.mirror.state.board import Board
from moldau.mirror.state.topic import STATE, KeyValue, Tail, append, create
from moldau.model.errors import PeerError, WorldError
from moldau.wire.brokers import Brokers

if TYPE_CHECKING:
    from moldau.mirror.plan.values import MirrorPlan
    from moldau.model.identity import TopicPartition
    from moldau.wire.connection import Address

T = TypeVar("T")


class Operator:
    """See the module. `by`: who orders, for those who read it later."""

    def __init__(self, plan: "MirrorPlan", by: str, timeout_s: float) -> None:
        """Within a running loop. `timeout_s`: for each step."""
        self.plan = plan
        self.by = by
        self._timeout_s = timeout_s
        self._clock = LoopClock(asyncio.get_running_loop())
        self.target = self._brokers(plan.target.bootstrap_servers)
        self.sources = {source.name: self._brokers(source.bootstrap_servers) for source in plan.sources}

    def close(self) -> None:
        """Disconnect."""
        for brokers in (self.target, *self.sources.values()):
            brokers.close()

    @property
    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return self._clock.time_ms()

    async def target_catalog(self) -> Catalog:
        """The topics of the target. PeerError, WorldError."""
        return await self.within(catalog.look(self.target), "target", self.target)

    async def source_catalogs(self) -> dict[str, Catalog | str]:
        """The topics of the sources, or why they cannot be had, by source."""
        return {name: await self._source_catalog(name) for name in self.sources}

    async def board(self) -> Board:
        """What `_mirror_state` has of the mirror. PeerError, WorldError."""
        board = Board(self.plan.name)
        if STATE.topic in (await self.target_catalog()).topics:
            for record in await self.within(Tail(self.target).read_to_end(), "target", self.target):
                board.take(record)
        return board

    async def order(self, records: Iterable[KeyValue]) -> None:
        """Write orders. PeerError, WorldError."""
        if STATE.topic not in (await self.target_catalog()).topics:
            await self.within(create(self.target), "target", self.target)
        await self.append(STATE, records)

    async def append(self, partition: "TopicPartition", records: Iterable[KeyValue]) -> None:
        """Write records to a partition of the target. PeerError, WorldError."""
        await self.within(append(self.target, partition, records, self.now_ms), "target", self.target)

    async def within(self, work: Awaitable[T], name: str, brokers: Brokers) -> T:
        """Wait for an answer of a cluster. WorldError if there is none in time."""
        try:
            return await asyncio.wait_for(work, self._timeout_s)
        except TimeoutError as error:
            servers = ",".join(f"{host}:{port}" for host, port in brokers.context.servers)
            raise WorldError(f"{name} {servers} does not answer within {self._timeout_s:g} s", retriable=True) from error

    async def _source_catalog(self, name: str) -> Catalog | str:
        brokers = self.sources[name]
        try:
            return await self.within(catalog.look(brokers), f"source {name}", brokers)
        except (PeerError, WorldError) as error:
            return str(error)

    def _brokers(self, servers: "tuple[Address, ...]") -> Brokers:
        network = AsyncioNetwork(asyncio.get_running_loop())
        return Brokers(Client(f"mirror-{self.plan.name}-operator", network, servers, Random()), frame_bytes_max=FRAME_BYTES_MAX)


def operate(plan: "MirrorPlan", by: str, timeout_s: float, work: Callable[[Operator], Awaitable[T]]) -> T:
    """Do something as an operator. PeerError, WorldError, and what `work` raises."""

    async def run() -> T:
        operator = Operator(plan, by, timeout_s)
        try:
            return await work(operator)
        finally:
            operator.close()

    loop = new_event_loop()
    try:
        return loop.run_until_complete(run())
    finally:
        loop.close()
