"""An operator's client of a mirror: it reads what the processes report, and writes orders. It works with no process running, too."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, TypeVar

from moldau.mirror import catalog
from moldau.mirror.catalog import Catalog
from moldau.mirror.clients import brokers_of
from moldau.mirror.clusters import on_network
from moldau.mirror.reachability import reason_of
from moldau.mirror.state.board import Board
from moldau.mirror.state.topic import STATE, KeyValue, Tail, append, create
from moldau.model.errors import PeerError, WorldError
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.metadata import MetadataRequest

if TYPE_CHECKING:
    from moldau.mirror.plan.values import MirrorPlan
    from moldau.model.identity import TopicPartition
    from moldau.ports.clock import Clock
    from moldau.ports.transport import Network
    from moldau.wire.brokers import Brokers

CONTACT_S = 10.0
"""A cluster that has answered nothing for so long is down; what it is asked for then may take longer."""
T = TypeVar("T")


class Operator:
    """See the module. `by`: who orders, for those who read it later."""

    def __init__(self, plan: "MirrorPlan", by: str, timeout_s: float, network: "Network", clock: "Clock") -> None:
        """`timeout_s`: for each step."""
        self.plan = plan
        self.by = by
        self._timeout_s = timeout_s
        self._clock = clock
        brokers = partial(brokers_of, f"mirror-{plan.name}-operator", network, random=Random())
        self.target = brokers(plan.target.bootstrap_servers)
        self.sources = {source.name: brokers(source.bootstrap_servers) for source in plan.sources}

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
        await self._reach("target", self.target)
        return await self.of_target(catalog.look(self.target))

    async def source_catalogs(self) -> dict[str, Catalog | str]:
        """The topics of the sources, or why they cannot be had, by source."""
        catalogs = await asyncio.gather(*map(self._source_catalog, self.sources))
        return dict(zip(self.sources, catalogs, strict=True))

    async def board(self) -> Board:
        """What `_mirror_state` has of the mirror. PeerError, WorldError."""
        board = Board(self.plan.name)
        if STATE.topic in (await self.target_catalog()).topics:
            for record in await self.of_target(Tail(self.target).read_to_end()):
                board.take(record)
        return board

    async def reach_source(self, name: str) -> None:
        """Make sure that a source answers. WorldError."""
        await self._reach(self.plan.label(name), self.sources[name])

    async def order(self, records: Iterable[KeyValue]) -> None:
        """Write orders. PeerError, WorldError."""
        if STATE.topic not in (await self.target_catalog()).topics:
            await self.of_target(create(self.target))
        await self.append(STATE, records)

    async def append(self, partition: "TopicPartition", records: Iterable[KeyValue]) -> None:
        """Write records to a partition of the target. PeerError, WorldError."""
        await self.of_target(append(self.target, partition, records, self.now_ms))

    async def of_target(self, work: Awaitable[T]) -> T:
        """Wait for an answer of the target. WorldError if there is none in time."""
        return await self.within(work, "target", self.target)

    async def of_source(self, name: str, work: Awaitable[T]) -> T:
        """The same of a source."""
        return await self.within(work, self.plan.label(name), self.sources[name])

    async def within(self, work: Awaitable[T], name: str, brokers: "Brokers", limit_s: float | None = None) -> T:
        """Wait for an answer of a cluster. WorldError if there is none in time: it has the cluster's addresses and the last failure."""
        limit_s = self._timeout_s if limit_s is None else limit_s
        brokers.last_failure = None
        try:
            return await asyncio.wait_for(work, limit_s)
        except TimeoutError as error:
            servers = ",".join(f"{host}:{port}" for host, port in brokers.context.servers)
            cause = reason_of(brokers) or brokers.last_failure
            text = f"{name} {servers} does not answer within {limit_s:g} s" + (f": {cause}" if cause else "")
            raise WorldError(text, retriable=True) from error

    async def _reach(self, name: str, brokers: "Brokers") -> None:
        limit_s = min(self._timeout_s, CONTACT_S)
        asking = brokers.insist(lambda: brokers.ask(ApiKey.METADATA, MetadataRequest(topics=[])), 2 * limit_s)
        await self.within(asking, name, brokers, limit_s)

    async def _source_catalog(self, name: str) -> Catalog | str:
        try:
            return await self.of_source(name, catalog.look(self.sources[name]))
        except (PeerError, WorldError) as error:
            return str(error)


def operate(plan: "MirrorPlan", by: str, timeout_s: float, work: Callable[[Operator], Awaitable[T]]) -> T:
    """Do something as an operator. PeerError, WorldError, and what `work` raises."""

    async def run(network: "Network", clock: "Clock") -> T:
        operator = Operator(plan, by, timeout_s, network, clock)
        try:
            return await work(operator)
        finally:
            operator.close()

    return on_network(run)
