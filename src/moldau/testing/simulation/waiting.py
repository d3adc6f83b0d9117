"""Waits for clients and transactions of a run to come to their end, and says where they wait if they do not."""

import asyncio
from collections.abc import Collection, Sequence
from types import CoroutineType

from moldau.model.identity import TopicPartition
from moldau.testing.simulation.process import Host
from moldau.testing.simulation.simulation import Simulation

DECIDE_S = 600.0


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


async def decided(simulation: Simulation, may_hang: Collection[str] = (), among: Collection[Host] | None = None) -> None:
    """Wait until no transaction is undecided in any partition of these hosts, but for those where one may stay so for ever."""
    hosts = simulation.hosts if among is None else among
    until = simulation.schedule.now + DECIDE_S
    while True:
        found = undecided(hosts)
        lagging = None if found is None else [each for each in found if str(each) not in may_hang]
        if lagging == []:
            return
        if simulation.schedule.now > until:
            raise NotConvergedError(f"undecided transactions in {', '.join(map(str, lagging or []))}")
        await simulation.sleep(1.0)


def undecided(hosts: Collection[Host]) -> list[TopicPartition] | None:
    """Partitions with undecided transactions on these hosts; None while none serves."""
    serving = [
        process.broker for host in hosts if (process := host.process) is not None and process.broker is not None and process.is_serving
    ]
    if not serving:
        return None
    open_ones = (each for broker in serving for each in broker.partitions if each.log.last_stable_offset < each.log.high_watermark)
    return list(dict.fromkeys(each.topic_partition for each in open_ones))
