"""A run of two clusters that mirror each other, with clients of their own: each record has to be in each of them once.

A record that returned would be there twice, and would be mirrored again and again: the mirrors would never come to an end.
"""

from collections.abc import Sequence
from functools import partial

from moldau.model.identity import TopicPartition
from moldau.testing.history.history import Outage
from moldau.testing.simulation.clients.admin import LATEST, SimulatedAdmin
from moldau.testing.simulation.clients.fetching import SimulatedMessage
from moldau.testing.simulation.mirrors.draining import Ends, drained
from moldau.testing.simulation.mirrors.fleet import MirrorOptions
from moldau.testing.simulation.mirrors.judge import MirrorError
from moldau.testing.simulation.mirrors.ring_topics import RingTopics, create_ring_topics
from moldau.testing.simulation.mirrors.run import MirrorRun, Tasks
from moldau.testing.simulation.mirrors.topics import NEWEST
from moldau.testing.simulation.simulation import Simulation
from moldau.testing.simulation.trial import CONVERGE_S
from moldau.testing.simulation.waiting import NotConvergedError, wait_for
from moldau.testing.simulation.workloads.keeping import read_all

NAMES = "a", "b"
"""What values of the clusters begin with."""
ROUNDS_MAX = 20
"""How often the mirrors may come to an end and find more: what one writes, the other one reads."""


class RingRun(MirrorRun):
    """See the module."""

    def __init__(self, options: MirrorOptions) -> None:
        super().__init__(options)
        self._partitions = [TopicPartition(topic, number) for topic, count in options.plans[0].topics.items() for number in range(count)]
        self._records = 0

    async def prepare(self) -> None:
        """The topics, in both."""
        for cluster in self.clusters:
            await create_ring_topics(cluster.client("setup"))

    def clients(self) -> Tasks:
        """Those of both."""
        topics = [RingTopics(name) for name in NAMES]
        return [
            cluster.start(mine.workload(name)(cluster.client(name)), f"{cluster.name}{name}")
            for cluster, mine in zip(self.clusters, topics, strict=True)
            for name in cluster.options.clients
        ]

    async def end(self, tasks: Tasks, outages: Sequence[Outage]) -> None:
        """The clients come to their end, then both mirrors, then the clusters."""
        for cluster in self.clusters:
            cluster.budget.left = 0
        await wait_for(self.source, tasks, CONVERGE_S)
        await self._drained()
        self.end_mirrors()
        for cluster, judge, outage in zip(self.clusters, self.judges, outages, strict=True):
            await judge.settle(outage, lambda cluster=cluster: wait_for(cluster, [], CONVERGE_S))  # type: ignore[misc]
        for partition in self._partitions:
            self._check(partition, *[await read_all(cluster.client("judge"), partition, 0) for cluster in self.clusters])

    @property
    def records(self) -> int:
        """How many were mirrored."""
        return self._records

    async def _drained(self) -> None:
        """Both mirrors have read all, also what the other one has written last. NotConvergedError, MirrorError."""
        before: list[Ends] = []
        for _ in range(ROUNDS_MAX):
            ends = [await self._ends(cluster) for cluster in self.clusters]
            if ends == before:
                return
            for cluster, hosts in zip(self.clusters, (self.there, self.back), strict=True):
                halts = await drained(cluster, hosts, partial(self._ends, cluster), may_grow=True)
                for partition, why in halts.items():
                    raise MirrorError(f"{partition} of {cluster.name or 'source'} is halted: {why.value}")
            before = ends
        raise NotConvergedError(f"the mirrors write to each other without an end: {before}")

    async def _ends(self, cluster: Simulation) -> Ends:
        admin = SimulatedAdmin(cluster.client("surveyor"))
        ends = {}
        for partition in self._partitions:
            end = await admin.offset(partition, LATEST, committed=False)  # so that no transaction is open
            ends[partition] = (await admin.brokers.topic(partition.topic)).topic_id, end
        admin.close()
        return ends

    def _check(self, partition: TopicPartition, *found: list[SimulatedMessage]) -> None:
        """Each cluster has the records of both, those of one in the order in which they were written."""
        for name in NAMES:
            mine = [[_content(record) for record in records if _is_of(record, name)] for records in found]
            for cluster, contents in zip(self.clusters, mine, strict=True):
                doubled = next((each for number, each in enumerate(contents) if each in contents[:number]), None)
                if doubled is not None:
                    raise MirrorError(f"{partition} of {cluster.name or 'source'}: {doubled} is there twice")
            if partition.topic == NEWEST:
                mine = [list({key: (key, *others) for key, *others in contents}.values()) for contents in mine]
                mine = [sorted(contents, key=repr) for contents in mine]
            if mine[0] != mine[1]:
                first = next((pair for pair in zip(*mine, strict=False) if pair[0] != pair[1]), (len(mine[0]), len(mine[1])))
                raise MirrorError(f"{partition}: the records of {name} are not the same in both clusters: {first[0]}, {first[1]}")
        self._records += sum(map(len, found)) // len(found)


def _is_of(record: SimulatedMessage, name: str) -> bool:
    return record.value is not None and record.value.startswith(f"{name}/".encode())


def _content(record: SimulatedMessage) -> tuple[object, ...]:
    return record.key, record.value, list(record.headers or ()), record.timestamp
