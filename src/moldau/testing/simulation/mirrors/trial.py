"""A run of two clusters and a mirror between them, and the verdict on it: as `simulation.trial`, with one more judge.

First everything goes wrong. Then both clusters heal, the source's clients come to their end, and the mirror has to read all that it can;
after that the target is judged as any cluster is, and what it holds by what the source has and has had.
"""

import time
import traceback
from typing import TextIO

from moldau.model.identity import TopicPartition
from moldau.testing.history.checker import check
from moldau.testing.simulation.broker_judge import BrokerJudge
from moldau.testing.simulation.cluster_judge import ClusterJudge
from moldau.testing.simulation.mirrors.faults import MirrorFaults
from moldau.testing.simulation.mirrors.fleet import MirrorOptions
from moldau.testing.simulation.mirrors.judge import MirrorJudge
from moldau.testing.simulation.mirrors.process import MirrorHost
from moldau.testing.simulation.mirrors.topics import MirroredTopics, create_topics
from moldau.testing.simulation.nemesis import Nemesis, draw_faults
from moldau.testing.simulation.probes import SimulatedProbe
from moldau.testing.simulation.report import Transcript
from moldau.testing.simulation.simulation import Simulation
from moldau.testing.simulation.trial import CONVERGE_S, BugHandler, Script, TrialResult
from moldau.testing.simulation.waiting import wait_for
from moldau.testing.simulation.workloads.recording import drain

TARGET = "target-"


def run_mirror_trial(options: MirrorOptions, *, transcript: TextIO | None = None) -> TrialResult:
    """Run a seed. What happens is written to `transcript`, if there is one; the run is the same without it."""
    begun = time.process_time()
    verdict = TrialResult(options.seed)
    bugs = BugHandler()
    with bugs, SimulatedProbe(options.seed) as probe:
        trial = _Trial(options)
        probe.on_reached["producers: evicted one"] = trial.source.history.evicted
        try:
            trial.source.run(trial.run(transcript))
        except Exception as error:
            verdict.failures.append("".join(traceback.format_exception(error)).strip())
        verdict.failures += bugs.found
        verdict.reached = probe.counts
        trial.report(verdict)
        trial.close()
    if not verdict.failures:
        verdict.failures = [str(anomaly) for anomaly in check(trial.source.history)[1]]
    verdict.cpu_s = time.process_time() - begun
    return verdict


class _Trial:
    """The parts of a run."""

    def __init__(self, options: MirrorOptions) -> None:
        self._options = options
        self.source = Simulation(options.source)
        self.target = Simulation(options.target, name=TARGET, beside=self.source)
        self._clusters = (self.source, self.target)
        self._nemeses = [_nemesis(cluster) for cluster in self._clusters]
        self._judges = [_judge(*each) for each in zip(self._clusters, self._nemeses, strict=True)]
        self._hosts = [MirrorHost(f"mirror-{number}", plan, self.source, self.target) for number, plan in enumerate(options.plans, 1)]
        self._faults = MirrorFaults(self._nemeses[0], self._hosts, self._clusters)
        self._topics = MirroredTopics()
        self._judge = MirrorJudge(self.source, self.target, self._hosts, self._topics, options.plans[0].topics, may_lose=options.may_lose)

    async def run(self, transcript: TextIO | None) -> None:
        """Both phases, and the verdict."""
        source, target = self._clusters
        if transcript is not None:
            for cluster, nemesis in zip(self._clusters, self._nemeses, strict=True):
                Transcript(cluster.hosts, nemesis, transcript)
        for cluster in self._clusters:
            for host in cluster.hosts:
                host.start()
        setup = create_topics(target.client("setup"), compacts_positions=self._options.compacts_positions)
        await wait_for(source, [source.start(setup, "setup")], CONVERGE_S)
        outages = [cluster.history.outage("faults") for cluster in self._clusters]
        for nemesis in self._nemeses:
            nemesis.begin()
        self._faults.begin()
        tasks = [source.start(self._topics.workload(name)(source.client(name)), name) for name in source.options.clients]
        until = source.schedule.now + source.options.faults_s
        while source.schedule.now < until and not all(task.done() for task in tasks):
            for task in tasks:
                if task.done() and not task.cancelled():
                    task.result()
            for judge in self._judges:
                judge.look()
            await source.sleep(min(1.0, until - source.schedule.now))
        for nemesis in self._nemeses:
            nemesis.heal()
        await self._judges[0].settle(outages[0], lambda: wait_for(source, tasks, CONVERGE_S))
        await self._judge.drained()
        for mirror in self._hosts:
            mirror.may_start = lambda _host: False
            mirror.end()
        await self._judges[1].settle(outages[1], lambda: wait_for(target, [], CONVERGE_S))
        await self._judge.check()
        partitions = [TopicPartition(*each) for each in source.partitions]
        drains = [source.start(drain(source.client("drain"), partitions, committed=committed), "drain") for committed in (True, False)]
        await wait_for(source, drains, CONVERGE_S)
        for judge in self._judges:
            judge.finish()

    def report(self, verdict: TrialResult) -> None:
        """Say how the run was."""
        verdict.failures += [
            f"a bug of the mirror: {error}" for host in self._hosts for each in host.processes for error in each.loop.errors
        ]
        source = self.source
        verdict.done = [fault for nemesis in self._nemeses for fault in nemesis.done]
        verdict.script = Script([], [])
        verdict.crc, verdict.steps = source.schedule.crc, source.schedule.steps
        verdict.struck = {fault.kind for fault in verdict.done}
        verdict.states = {state for judge in self._judges for state in judge.states}
        verdict.virtual_s = source.schedule.now
        verdict.operations = self._judge.records

    def close(self) -> None:
        """Free what the run has taken."""
        for host in self._hosts:
            host.end()
        self.target.close()
        self.source.close()


def _nemesis(cluster: Simulation) -> Nemesis:
    options = cluster.options
    return Nemesis(cluster.hosts, draw_faults(options), may_cut_power="power_cut" in options.faults)


def _judge(cluster: Simulation, nemesis: Nemesis) -> BrokerJudge | ClusterJudge:
    return BrokerJudge(cluster) if cluster.options.brokers == 1 else ClusterJudge(cluster, nemesis)
