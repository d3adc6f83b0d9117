"""A run with a merge from a source to a target, whose topics are there before it begins."""

from collections.abc import Sequence

from moldau.model.identity import TopicPartition
from moldau.testing.history.history import Outage
from moldau.testing.simulation.mirrors.fleet import MirrorOptions
from moldau.testing.simulation.mirrors.judge import MirrorJudge
from moldau.testing.simulation.mirrors.run import MirrorRun, Tasks
from moldau.testing.simulation.mirrors.topics import MirroredTopics, create_topics
from moldau.testing.simulation.mirrors.work import Sharing
from moldau.testing.simulation.trial import CONVERGE_S
from moldau.testing.simulation.waiting import wait_for
from moldau.testing.simulation.workloads.recording import drain


class MergeRun(MirrorRun):
    """See the module."""

    def __init__(self, options: MirrorOptions) -> None:
        super().__init__(options)
        self._topics = MirroredTopics()
        plan = options.plans[0]
        self._judge = MirrorJudge(
            self.source,
            self.target,
            self.there,
            self._topics,
            plan.topics,
            may_lose=options.may_lose,
            begins_at_start=plan.sharing is not Sharing.ALL_TO_ONE,
        )

    async def prepare(self) -> None:
        """The target's topics."""
        await create_topics(self.target.client("setup"), compacts_positions=self.options.compacts_positions)

    def clients(self) -> Tasks:
        """Those of the source."""
        source = self.source
        return [source.start(self._topics.workload(name)(source.client(name)), name) for name in source.options.clients]

    async def end(self, tasks: Tasks, outages: Sequence[Outage]) -> None:
        """The source comes to its end, then the mirror, then the target."""
        source, target = self.clusters
        await self.judges[0].settle(outages[0], lambda: wait_for(source, tasks, CONVERGE_S))
        await self._judge.drained()
        self.end_mirrors()
        await self.judges[1].settle(outages[1], lambda: wait_for(target, [], CONVERGE_S))
        await self._judge.check()
        partitions = [TopicPartition(*each) for each in source.partitions]
        drains = [source.start(drain(source.client("drain"), partitions, committed=committed), "drain") for committed in (True, False)]
        await wait_for(source, drains, CONVERGE_S)

    @property
    def records(self) -> int:
        """How many were mirrored."""
        return self._judge.records
