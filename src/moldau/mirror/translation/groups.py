"""The offsets of one consumer group: where it continues in the target, and committing that there."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from random import Random
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from moldau.adapters.asyncio_network import AsyncioNetwork
from moldau.adapters.event_loop import new_event_loop
from moldau.mirror.process import FRAME_BYTES_MAX, Client
from moldau.mirror.translation.translate import Translated, translate
from moldau.wire.brokers import Brokers
from moldau.wire.group import GroupMetadata, commit_offsets, fetch_offsets

if TYPE_CHECKING:
    from moldau.mirror.plan.values import MirrorPlan

INSIST_S = 30.0
T = TypeVar("T")


class _Clusters(NamedTuple):
    target: Brokers
    sources: dict[str, Brokers]


def group_offsets(plan: "MirrorPlan", group: str) -> list[Translated]:
    """Where a group of the sources continues in the target. PeerError, WorldError."""
    return _run(plan, lambda clusters: _offsets(plan, clusters, group))


def commit(plan: "MirrorPlan", group: str, offsets: Iterable[Translated]) -> None:
    """Commit what could be translated in the target. PeerError: UNKNOWN_MEMBER_ID if the group has members there; WorldError."""
    committed = {each.target: each.offset for each in offsets if each.offset is not None}
    if committed:
        _run(plan, lambda clusters: _insist(clusters.target, lambda: commit_offsets(clusters.target, GroupMetadata(group), committed)))


async def _offsets(plan: "MirrorPlan", clusters: _Clusters, group: str) -> list[Translated]:
    wanted = {}
    for name, brokers in clusters.sources.items():
        wanted[name] = await _insist(brokers, lambda brokers=brokers: fetch_offsets(brokers, group, None))  # type: ignore[misc]
    return await translate(plan, clusters.target, clusters.sources, wanted)


async def _insist(brokers: Brokers, act: "Callable[[], Awaitable[T]]") -> T:
    return await brokers.insist(act, INSIST_S)


def _run(plan: "MirrorPlan", act: "Callable[[_Clusters], Awaitable[T]]") -> T:
    loop = new_event_loop()
    try:
        return loop.run_until_complete(_with_clusters(loop, plan, act))
    finally:
        loop.close()


async def _with_clusters(loop: asyncio.AbstractEventLoop, plan: "MirrorPlan", act: "Callable[[_Clusters], Awaitable[T]]") -> T:
    network, random = AsyncioNetwork(loop), Random()

    def connected(servers: "tuple[tuple[str, int], ...]") -> Brokers:
        return Brokers(Client(f"mirror-{plan.name}-offsets", network, servers, random), frame_bytes_max=FRAME_BYTES_MAX)

    clusters = _Clusters(
        connected(plan.target.bootstrap_servers), {source.name: connected(source.bootstrap_servers) for source in plan.sources}
    )
    try:
        return await act(clusters)
    finally:
        for brokers in (clusters.target, *clusters.sources.values()):
            brokers.close()
