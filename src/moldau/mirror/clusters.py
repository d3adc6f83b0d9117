"""The clusters of a mirror's file, for the time of one command on the real network."""

from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from moldau.adapters.asyncio_network import AsyncioNetwork
from moldau.adapters.event_loop import LoopClock, new_event_loop, run_to_end
from moldau.mirror.clients import brokers_of

if TYPE_CHECKING:
    from moldau.mirror.plan.values import MirrorPlan
    from moldau.ports.clock import Clock
    from moldau.ports.transport import Network
    from moldau.wire.brokers import Brokers

R = TypeVar("R")


def on_network(act: "Callable[[Network, Clock], Coroutine[Any, Any, R]]") -> R:
    """What a coroutine returns that gets the network and the clock, on a loop of its own."""
    loop = new_event_loop()
    return run_to_end(loop, act(AsyncioNetwork(loop), LoopClock(loop)))


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
