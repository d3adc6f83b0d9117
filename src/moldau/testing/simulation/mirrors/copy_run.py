"""A run with a copy, whose topics the mirror itself makes in the target, and which may be promoted at any moment.

After the promotion clients write to the target, and the mirror has to stand still there as soon as the source has more for it. In the end
the source may become the copy.
"""

from collections.abc import Sequence

from moldau.mirror.partitions import Halt
from moldau.model.identity import TopicPartition
from moldau.testing.history.history import Outage
from moldau.testing.simulation.broker_judge import BrokerJudge
from moldau.testing.simulation.clients.admin import LATEST, SimulatedAdmin
from moldau.testing.simulation.cluster_judge import ClusterJudge
from moldau.testing.simulation.convergence import converge
from moldau.testing.simulation.mirrors.copy_judge import CopyJudge
from moldau.testing.simulation.mirrors.draining import Ends, drained
from moldau.testing.simulation.mirrors.fail_back_phase import FailBackPhase
from moldau.testing.simulation.mirrors.fleet import MirrorOptions
from moldau.testing.simulation.mirrors.operator import Promoter
from moldau.testing.simulation.mirrors.process import MirrorHost
from moldau.testing.simulation.mirrors.run import MirrorRun, Tasks
from moldau.testing.simulation.mirrors.topics import MirroredTopics
from moldau.testing.simulation.nemesis import Nemesis
from moldau.testing.simulation.simulation import Simulation
from moldau.testing.simulation.trial import CONVERGE_S
from moldau.testing.simulation.waiting import wait_for
from moldau.testing.simulation.workloads.recording import drain


class CopyRun(MirrorRun):
    """See the module."""

    def __init__(self, options: MirrorOptions) -> None:
        super().__init__(options)
        self._topics = options.plans[0].topics
        self._mirrored = MirroredTopics()
        self._stored = {TopicPartition(topic, number): 0 for topic, count in self._topics.items() for number in range(count)}
        """Up to where processes have known the target to have each partition."""
        self._promoter = Promoter(self.target, self._topics)
        self._failed_back = 0
        """Batches that were compared after the fail-back."""
        self._judge = CopyJudge(self.source, self.target, self._promoter, may_lose=options.may_lose)

    def judge_of(self, cluster: Simulation, nemesis: Nemesis) -> BrokerJudge | ClusterJudge:
        """The invariants of a cluster know no cut, which drops what was committed."""
        is_cut = self.options.promoted_at_s is not None if cluster is self.target else self.options.fails_back
        if is_cut and cluster.options.brokers > 1:
            return ClusterJudge(cluster, nemesis, checks=False)
        return super().judge_of(cluster, nemesis)

    async def prepare(self) -> None:
        """Nothing: topics are made by who needs them."""

    def clients(self) -> Tasks:
        """Those of the source, and the operator of the target."""
        source, at_s = self.source, self.options.promoted_at_s
        tasks = [source.start(self._mirrored.workload(name)(source.client(name)), name) for name in source.options.clients]
        return tasks if at_s is None else [*tasks, source.start(self._promoter.promote(at_s), "operator")]

    def look(self) -> None:
        """And note what is stored."""
        super().look()
        for host in self.there:
            work = None if host.process is None else host.process.work
            for partition, progress in {} if work is None else work.progress().items():
                self._note(partition.topic_partition, progress.position)

    def _note(self, partition: TopicPartition, position: int | None) -> None:
        if position is not None:
            self._stored[partition] = max(self._stored[partition], position)

    async def end(self, tasks: Tasks, outages: Sequence[Outage]) -> None:
        """The source comes to its end, then the mirror, then the target."""
        source, target = self.clusters
        await self.judges[0].settle(outages[0], lambda: wait_for(source, tasks, CONVERGE_S))
        halts = await self._drained()
        self.end_mirrors()
        await self.judges[1].settle(outages[1], lambda: wait_for(target, [], CONVERGE_S))
        await self._judge.check(halts, self._stored)
        partitions = [TopicPartition(*each) for each in source.partitions]
        drains = [source.start(drain(source.client("drain"), partitions, committed=committed), "drain") for committed in (True, False)]
        await wait_for(source, drains, CONVERGE_S)
        if self.options.fails_back:
            await self._fail_back()

    async def _fail_back(self) -> None:
        topics = await FailBackPhase.possible(self.source, self._judge.cuts, self._topics)
        if not topics:
            return
        plans = [plan._replace(instance=f"{number}", topics=topics, mirror="back") for number, plan in enumerate(self.options.plans, 1)]
        self.back = [MirrorHost(f"back-{plan.instance}", plan, self.target, self.source) for plan in plans]
        phase = FailBackPhase((self.source, self.target), self._nemeses, self.back, self._promoter, self._judge)
        await phase.run(topics)
        for cluster in [each for each in self.clusters if each.options.brokers > 1]:
            await converge(cluster, {number: host for number, host in enumerate(cluster.hosts, 1) if host not in cluster.gone})
        self._failed_back = phase.batches

    async def _drained(self) -> dict[TopicPartition, Halt]:
        halts = await drained(self.source, self.there, self._ends)
        self.look()
        return halts

    async def _ends(self) -> Ends:
        admin, ends = SimulatedAdmin(self.source.client("surveyor")), {}
        for partition in self._stored:
            end = await admin.offset(partition, LATEST, committed=False)
            ends[partition] = (await admin.brokers.topic(partition.topic)).topic_id, end
        admin.close()
        return ends

    @property
    def records(self) -> int:
        """Batches that were compared."""
        return self._judge.batches + self._failed_back
