"""Hosts of mirrors, and the processes that run on them one after another."""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import NamedTuple

from moldau.model.host_port import Address
from moldau.testing.simulation.mirrors.member import MirrorMember
from moldau.testing.simulation.mirrors.program import ProgramWork
from moldau.testing.simulation.mirrors.work import Sharing, Work, WorkPlan
from moldau.testing.simulation.process import PORT
from moldau.testing.simulation.process_loop import ProcessLoop, ProcessNetwork, ProcessTime
from moldau.testing.simulation.simulation import Simulation
from moldau.wire.brokers import Brokers

DOWN_S = 0.5
"""How long a process that ended without a fault stays away."""


class _Place(NamedTuple):
    """:class:`moldau.wire.brokers.Surroundings` of a process, towards one of the clusters."""

    name: str
    network: ProcessNetwork
    servers: tuple[Address, ...]
    random: Random


class MirrorHost:
    """A machine on which a process of the mirror runs, or does not."""

    def __init__(self, name: str, plan: WorkPlan, source: Simulation, target: Simulation) -> None:
        self.name = name
        self.plan = plan
        self.source = source
        self.target = target
        self.schedule = source.schedule
        self.process: MirrorProcess | None = None
        self.down_s = DOWN_S
        """How long the next one stays away."""
        self.may_start: Callable[[MirrorHost], bool] = lambda _host: True
        """Whether a process may begin by itself where one has ended."""
        self.processes: list[MirrorProcess] = []
        """All so far."""
        self._actor = self.schedule.actor(f"{name} starts")

    def start(self) -> None:
        """Start a process, unless one runs."""
        if self.process is None:
            self.source.network.host_started(self.name)
            self.process = MirrorProcess(self, len(self.processes) + 1)
            self.processes.append(self.process)
            self.process.begin()

    def end(self, *, silently: bool = False) -> None:
        """End the process at once; `silently`: its connections do not say so."""
        if self.process is not None:
            self.process.end(silently=silently)

    def pause(self, seconds: float) -> None:
        """Have nothing of the process happen for so long."""
        process = self.process
        if process is not None and not process.is_paused:
            self.schedule.pause(process.loop.group)
            self.schedule.post(self._actor, partial(self.schedule.resume, process.loop.group), seconds)

    def ended(self) -> None:
        """The process is gone: another one begins after a while."""
        self.process = None
        down_s, self.down_s = self.down_s, DOWN_S
        self.schedule.post(self._actor, self._begin_again, down_s)

    def _begin_again(self) -> None:
        if self.may_start(self):
            self.start()


class MirrorProcess:
    """A process from its start to its end."""

    def __init__(self, host: MirrorHost, number: int) -> None:
        self.host = host
        self.name = f"{host.name}/{number}"
        self.loop = ProcessLoop(host.schedule, self.name)  # type: ignore[abstract]  # the rest is of what it does not have
        self.work: Work | None = None
        self._network = ProcessNetwork(host.source.network, host.name, self.loop)

    @property
    def is_paused(self) -> bool:
        """Whether it stands still."""
        return self.loop.group.is_paused

    def begin(self) -> None:
        """Start it."""
        self.loop.post(self._begin)

    def end(self, *, silently: bool = False) -> None:
        """It is gone, now."""
        if self.host.process is self:
            self.host.source.network.process_ended(self.host.name, silently=silently)
            self._network.end()
            self.loop.end()
            self.host.ended()

    def _begin(self) -> None:
        self.work = self._work()
        self.loop.create_task(self.work.run(), name=self.name).add_done_callback(self._done)

    def _work(self) -> Work:
        host = self.host
        clock = ProcessTime(self.loop, host.schedule)
        if host.plan.sharing is Sharing.ALL_TO_ONE:
            return MirrorMember(host.plan, self._brokers(host.source), self._brokers(host.target), clock)
        servers = _servers(host.source), _servers(host.target)
        return ProgramWork(host.plan, *servers, self._network, clock, host.source.random(f"mirror/{self.name}"))

    def _brokers(self, cluster: Simulation) -> Brokers:
        return Brokers(_Place(self.name, self._network, _servers(cluster), cluster.random(f"mirror/{self.name}")))

    def _done(self, task: object) -> None:
        """It has ended by itself: another process has its name, or it has failed."""
        if not self.loop.group.is_over:
            self.loop.errors += _failure_of(task)
            self.host.schedule.post(self.host.schedule.actor(f"{self.name} ends"), self.end)


def _servers(cluster: Simulation) -> tuple[Address, ...]:
    return tuple(Address(host.name, PORT) for host in cluster.hosts)


def _failure_of(task: object) -> list[str]:
    error = task.exception()  # type: ignore[attr-defined]
    return [] if error is None else [f"{error!r}"]
