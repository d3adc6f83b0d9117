"""The real network, for the time of one command."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from moldau.adapters.asyncio_network import AsyncioNetwork
from moldau.adapters.event_loop import LoopClock, new_event_loop, run_to_end

if TYPE_CHECKING:
    from moldau.ports.clock import Clock
    from moldau.ports.transport import Network

R = TypeVar("R")


def on_network(act: "Callable[[Network, Clock], Coroutine[Any, Any, R]]") -> R:
    """What a coroutine returns that gets the network and the clock, on a loop of its own."""
    loop = new_event_loop()
    return run_to_end(loop, act(AsyncioNetwork(loop), LoopClock(loop)))
