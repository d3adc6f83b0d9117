"""The clusters of a mirror's file, for the time of one command on the real network."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import TYPE_CHECKING, TypeVar

from moldau.adapters.asyncio_network import AsyncioNetwork
from moldau.adapters.event_loop import LoopClock, new_event_loop
from moldau.mirror.clients import brokers_of

if TYPE_CHECKING:
    from moldau.mirror.plan.values import MirrorPlan
    from moldau.ports.clock import Clock
    from moldau.ports.transport import Network
    from moldau.wire.brokers import Brokers

R = TypeVar("R")


def on_network(act: "Callable[[Network, Clock], Awaitable[R]]") -> R:
    """What a coroutine returns that gets the network and the clock, on a loop of its own."""
    loop = new_event_loop()

    async def run() -> R:
        try:
            return await act(AsyncioNetwork(loop), LoopClock(loop))
        finally:
            await asyncio.sleep(0)  # connections end with the loop's next turn

    try:
        return loop.run_until_complete(run())
    finally:
        loop.close()


def with_clusters(plan: "MirrorPlan", act: "Callable[[Brokers, Brokers], Awaitable[R]]") -> R:
    """What a coroutine returns that gets the target and the source of a copy."""
    (source,) = plan.sources

    async def run(network: "Network", _clock: "Clock") -> R:
        servers, random = (plan.target.bootstrap_servers, source.bootstrap_servers), Random()
        both = [brokers_of(f"mirror-{plan.name}", network, each, random) for each in servers]
        try:
            return await act(*both)
        finally:
            for each in both:
                each.close()

    return on_network(run)
