"""The clusters of a mirror's file, for the time of one command on the real network."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import TYPE_CHECKING, TypeVar

from moldau.adapters.asyncio_network import AsyncioNetwork
from moldau.adapters.event_loop import new_event_loop
from moldau.mirror.process import FRAME_BYTES_MAX, Client
from moldau.wire.brokers import Brokers

if TYPE_CHECKING:
    from moldau.mirror.plan.values import MirrorPlan
    from moldau.wire.connection import Address

R = TypeVar("R")


def with_clusters(plan: "MirrorPlan", act: Callable[[Brokers, Brokers], Awaitable[R]]) -> R:
    """What a coroutine returns that gets the target and the source of a copy."""
    loop = new_event_loop()
    try:
        return loop.run_until_complete(_with_clusters(loop, plan, act))
    finally:
        loop.close()


async def _with_clusters(loop: asyncio.AbstractEventLoop, plan: "MirrorPlan", act: Callable[[Brokers, Brokers], Awaitable[R]]) -> R:
    network, random = AsyncioNetwork(loop), Random()

    def brokers(servers: "tuple[Address, ...]") -> Brokers:
        return Brokers(Client(f"mirror-{plan.name}", network, servers, random), frame_bytes_max=FRAME_BYTES_MAX)

    (source,) = plan.sources
    both = brokers(plan.target.bootstrap_servers), brokers(source.bootstrap_servers)
    try:
        return await act(*both)
    finally:
        for each in both:
            each.close()
        await asyncio.sleep(0)  # connections end with the loop's next turn
