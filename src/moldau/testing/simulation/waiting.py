"""Waits for the clients of a run to come to their end, and says where they wait if they do not."""

import asyncio
from collections.abc import Sequence
from types import CoroutineType

from moldau.testing.simulation.simulation import Simulation


class NotConvergedError(Exception):
    """What could have come to its end has not."""


async def wait_for(simulation: Simulation, tasks: "Sequence[asyncio.Task[None]]", limit_s: float) -> None:
    """Wait until all have ended. Raises what one has raised; NotConvergedError after `limit_s`."""
    until = simulation.schedule.now + limit_s
    while not all(task.done() for task in tasks):
        if simulation.schedule.now > until:
            raise NotConvergedError("not done: " + "; ".join(_where(task) for task in tasks if not task.done()))
        await simulation.sleep(1.0)
    for task in tasks:
        if not task.cancelled():
            task.result()


def _where(task: "asyncio.Task[None]") -> str:
    """A task, and the places where it waits, the innermost first."""
    places = []
    coroutine: object = task.get_coro()
    while isinstance(coroutine, CoroutineType) and coroutine.cr_frame is not None:
        places.append(f"{coroutine.__qualname__}:{coroutine.cr_frame.f_lineno}")
        coroutine = coroutine.cr_await
    return f"{task.get_name()} in {' < '.join(reversed(places))}"
