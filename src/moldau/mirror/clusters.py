"""The real network, for the time of one command."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from moldau.adapters.asyncio_network import AsyncioNetwork
from moldau.adapters.event_loop import LoopClock, new_event_loop

if TYPE_CHECKING:
    from moldau.ports.clock import Clock
    from moldau.ports.transport import Network

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
