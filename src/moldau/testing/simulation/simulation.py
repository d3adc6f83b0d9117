"""One run: one broker or several, their clients and their world, all from one seed.

A run may have a second cluster: a `Simulation` beside the first one, in the same time and on the same network, with hosts, clients, a
coordination tree and a history of its own.
"""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from math import ceil
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from moldau.cluster import znodes
from moldau.testing.history.history import History
from moldau.testing.simulation.clients.context import ClientContext, OperationBudget, PartitionNumbers
from moldau.testing.simulation.disk import SimulatedDisk
from moldau.testing.simulation.network import SimulatedNetwork
from moldau.testing.simulation.options import Options, generator
from moldau.testing.simulation.process import PORT, Host, ignore_crashes_of_the_collector
from moldau.testing.simulation.schedule import Schedule, ScheduledCall, VirtualLoop
from moldau.testing.simulation.tree import SimulatedTree

if TYPE_CHECKING:
    from moldau.model.identity import TopicPartition

T = TypeVar("T")
DIRECTORIES = ("/data", "/more")
BROKER = "broker"
"""The name of the host of a broker that is alone."""
POLL_S = 0.001
"""How often `Simulation.until` looks, while anything happens."""
CLOSE_S = 60.0
"""How much virtual time coroutines have to end when they are cancelled at the end of a run."""


class VirtualClock:
    """A :class:`moldau.ports.clock.Clock` for clients, whose calls happen in the order of the schedule."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._actor = schedule.actor("timers")

    def time_ms(self) -> int:
        """The wall's time."""
        return self._schedule.time_ms()

    def monotonic(self) -> float:
        """Seconds since the run began."""
        return self._schedule.now

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> ScheduledCall:
        """Call later."""
        return self._schedule.post(self._actor, callback, max(delay_s, 0.0))


class Surroundings:
    """What all clusters of a run have in common: time, an event loop in it, and the network."""

    def __init__(self, options: Options) -> None:
        self.schedule = Schedule(generator(options.seed, "schedule"))
        self.loop = VirtualLoop(self.schedule)
        self.clock = VirtualClock(self.schedule)
        self.network = SimulatedNetwork(self.schedule, generator(options.seed, "network"), options.network)


class Simulation:
    """See the module. `close` it at the end, the one that others are beside last."""

    def __init__(self, options: Options, *, name: str = "", beside: "Simulation | None" = None) -> None:
        """`name`: what the names of its hosts and clients begin with."""
        ignore_crashes_of_the_collector()
        self.options = options
        self.name = name
        self._is_first = beside is None
        surroundings = Surroundings(options) if beside is None else beside.surroundings
        self.surroundings: Surroundings = surroundings
        self.schedule, self.loop, self.clock = surroundings.schedule, surroundings.loop, surroundings.clock
        self.network = surroundings.network
        self.tree = SimulatedTree(self.clock)
        self.tree.latency_s, self.tree.linger_s = options.tree_latency_s, options.tree_linger_s
        self.tree.session_s = options.session_s
        self.hosts = [self._host(number) for number in range(1, options.brokers + 1)]
        """By broker id from 1 on, where there are several."""
        self.gone: list[Host] = []
        """Brokers that clients made later do not know: cut off from the others, such a one may not know that it was deposed."""
        self.history = History(clock=lambda: self.schedule.now)
        self.partitions = PartitionNumbers(self.history)
        self.budget = OperationBudget(options.operations)
        self.on_read: Callable[[TopicPartition, int], object] = lambda _partition, _offset: None
        self.deposed_since: Callable[[TopicPartition], float | None] = lambda _partition: None
        """See `ClientContext`."""
        self._clients = 0

    @property
    def host(self) -> Host:
        """The host of a broker that is alone."""
        (host,) = self.hosts
        return host

    @property
    def disk(self) -> SimulatedDisk:
        """The disk of a broker that is alone."""
        return self.host.disk

    def random(self, concern: str) -> Random:
        """The generator for a concern."""
        return generator(self.options.seed, concern)

    def _host(self, number: int) -> Host:
        options = self.options
        is_alone = options.brokers == 1
        own = "" if is_alone else f"/{number}"
        disk = SimulatedDisk(self.random(f"disk{own}"), options.disk, self.schedule.time_ms)
        name = self.name + (BROKER if is_alone else f"{BROKER}-{number}")
        host = Host(name, self.schedule, self.network, disk, self.tree, self.random(f"broker{own}"))
        host.settings = options.settings if is_alone else {**options.settings, "broker.id": number}
        if options.racks:
            host.settings = {**host.settings, "broker.rack": _rack(number % options.racks)}
        host.directories = list(DIRECTORIES[: options.directories])
        host.reading_cost_s = options.reading_cost_s
        return host

    def client(self, name: str = "client") -> ClientContext:
        """The world for one more client, which asks no broker that is gone for ever."""
        self._clients += 1
        name = f"{self.name}{name}-{self._clients}"
        return ClientContext(
            name=name,
            network=self.network.client(name),
            servers=tuple((host.name, PORT) for host in self.hosts if host not in self.gone),
            clock=self.clock,
            random=self.random(f"client/{name}"),
            history=self.history,
            partitions=self.partitions,
            budget=self.budget,
            on_read=lambda partition, offset: self.on_read(partition, offset),
            told_of=self._told_of,
            is_controller=self._is_controller,
            rack=self._rack_of(name),
        )

    def _told_of(self, partition: "TopicPartition") -> float:
        since = self.deposed_since(partition)
        return self.history.now() - (0.0 if since is None else self.schedule.now - since)

    def _is_controller(self, address: tuple[str, int]) -> bool:
        if len(self.hosts) == 1:
            return True
        node = self.tree.get(znodes.CONTROLLER)
        return node is not None and self.hosts[znodes.decode_controller(znodes.CONTROLLER, node.data) - 1].name == address[0]

    def _rack_of(self, client: str) -> str:
        """Where a client is; one in three does not say."""
        racks = self.options.racks
        if not racks:
            return ""
        random = self.random(f"rack/{client}")
        return _rack(random.randrange(racks)) if random.random() < 2 / 3 else ""

    def start(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        """Run a coroutine beside the others."""
        return self.loop.create_task(work, name=name)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end. `StuckError` if it waits for what cannot come."""
        asyncio.set_event_loop(self.loop)
        collects = gc.isenabled()
        gc.disable()  # what a dead client leaves would be closed at a moment that nothing has drawn
        try:
            return self.loop.run_until_complete(main)
        finally:
            asyncio.set_event_loop(None)
            if collects:
                gc.enable()

    async def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        await asyncio.sleep(seconds)

    async def until(self, predicate: Callable[[], bool], limit_s: float = 60.0) -> None:
        """Let virtual time pass until something holds. TimeoutError if it does not for so long."""
        deadline = self.schedule.now + limit_s
        while not predicate():
            if self.schedule.now > deadline:
                raise TimeoutError("what is waited for has not come")
            quiet_s = min(self.loop.next_due(), deadline) - self.schedule.now
            await asyncio.sleep(POLL_S * max(ceil(quiet_s / POLL_S), 1))

    def close(self) -> None:
        """Free what the run has taken."""
        for host in self.hosts:
            host.on_ending.clear()  # nothing is judged any more
            host.kill()
        if not self._is_first:
            return
        tasks = sorted(asyncio.all_tasks(self.loop), key=lambda task: task.get_name())
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.wait(tasks, timeout=CLOSE_S))
        self.loop.close()


def _rack(number: int) -> str:
    return f"rack-{number}"
