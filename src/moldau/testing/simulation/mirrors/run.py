"""A run of two clusters and the processes of mirrors between them: what all kinds of runs have in common.

First everything goes wrong. Then both clusters heal, the clients come to their end, and the mirrors have to read all that they can; after
that both clusters are judged as any cluster is, and what they hold by what the other one has and has had.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TextIO

from moldau.testing.history.history import Outage
from moldau.testing.simulation.broker_judge import BrokerJudge
from moldau.testing.simulation.cluster_judge import ClusterJudge
from moldau.testing.simulation.mirrors.faults import MirrorFaults
from moldau.testing.simulation.mirrors.fleet import MirrorOptions
from moldau.testing.simulation.mirrors.process import MirrorHost
from moldau.testing.simulation.nemesis import Nemesis, draw_faults
from moldau.testing.simulation.report import Transcript
from moldau.testing.simulation.simulation import Simulation
from moldau.testing.simulation.trial import CONVERGE_S, Script, TrialResult
from moldau.testing.simulation.waiting import wait_for

TARGET = "target-"

Tasks = Sequence["asyncio.Task[None]"]


class MirrorRun(ABC):
    """The parts of a run."""

    def __init__(self, options: MirrorOptions) -> None:
        self.options = options
        self.source = Simulation(options.source)
        self.target = Simulation(options.target, name=TARGET, beside=self.source)
        self.clusters = (self.source, self.target)
        self._nemeses = [_nemesis(cluster) for cluster in self.clusters]
        self.judges = [self.judge_of(*each) for each in zip(self.clusters, self._nemeses, strict=True)]
        self.there = [MirrorHost(f"mirror-{number}", plan, *self.clusters) for number, plan in enumerate(options.plans, 1)]
        self.back = [MirrorHost(f"back-{number}", plan, self.target, self.source) for number, plan in enumerate(options.returning, 1)]
        self._faults = MirrorFaults(self._nemeses[0], [*self.there, *self.back], self.clusters)

    async def run(self, transcript: TextIO | None) -> None:
        """Both phases, and the verdict."""
        source = self.source
        if transcript is not None:
            for cluster, nemesis in zip(self.clusters, self._nemeses, strict=True):
                Transcript(cluster.hosts, nemesis, transcript)
        for cluster in self.clusters:
            for host in cluster.hosts:
                host.start()
        await wait_for(source, [source.start(self.prepare(), "setup")], CONVERGE_S)
        outages = [cluster.history.outage("faults") for cluster in self.clusters]
        for nemesis in self._nemeses:
            nemesis.begin()
        self._faults.begin()
        tasks = self.clients()
        until = source.schedule.now + source.options.faults_s
        while source.schedule.now < until and not all(task.done() for task in tasks):
            for task in tasks:
                if task.done() and not task.cancelled():
                    task.result()
            self.look()
            await source.sleep(min(1.0, until - source.schedule.now))
        for nemesis in self._nemeses:
            nemesis.heal()
        await self.end(tasks, outages)
        for judge in self.judges:
            judge.finish()

    def judge_of(self, cluster: Simulation, nemesis: Nemesis) -> BrokerJudge | ClusterJudge:
        """The judge of one of the clusters."""
        return BrokerJudge(cluster) if cluster.options.brokers == 1 else ClusterJudge(cluster, nemesis)

    @abstractmethod
    async def prepare(self) -> None:
        """What there is before the first fault."""

    @abstractmethod
    def clients(self) -> Tasks:
        """Start what runs beside the mirrors."""

    @abstractmethod
    async def end(self, tasks: Tasks, outages: Sequence[Outage]) -> None:
        """Nothing goes wrong any more: bring everything to its end, and compare."""

    @property
    @abstractmethod
    def records(self) -> int:
        """How many were mirrored."""

    def look(self) -> None:
        """See how things stand, once a second."""
        for judge in self.judges:
            judge.look()

    def end_mirrors(self) -> None:
        """No process of a mirror runs any more."""
        for mirror in (*self.there, *self.back):
            mirror.may_start = lambda _host: False
            mirror.end()

    def report(self, verdict: TrialResult) -> None:
        """Say how the run was."""
        hosts = (*self.there, *self.back)
        verdict.failures += [f"a bug of the mirror: {error}" for host in hosts for each in host.processes for error in each.loop.errors]
        source = self.source
        verdict.done = [fault for nemesis in self._nemeses for fault in nemesis.done]
        verdict.script = Script([], [])
        verdict.crc, verdict.steps = source.schedule.crc, source.schedule.steps
        verdict.struck = {fault.kind for fault in verdict.done}
        verdict.states = {state for judge in self.judges for state in judge.states}
        verdict.virtual_s = source.schedule.now
        verdict.operations = self.records

    def close(self) -> None:
        """Free what the run has taken."""
        for host in (*self.there, *self.back):
            host.end()
        self.target.close()
        self.source.close()


def _nemesis(cluster: Simulation) -> Nemesis:
    options = cluster.options
    return Nemesis(cluster.hosts, draw_faults(options), may_cut_power="power_cut" in options.faults)
