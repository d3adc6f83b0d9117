"""Processes of mirrors between the clusters of `mirror_clusters`, and what arrives by them."""

import asyncio
from random import Random

from moldau.mirror.plan.values import MirrorPlan
from moldau.mirror.process import MirrorProcess
from moldau.mirror.state.board import Board
from moldau.mirror.state.reports import OsProcess, Row
from moldau.model.identity import TopicPartition
from support.mirror_clusters import MirrorClusters


class Running:
    """A process, and the task that it runs in."""

    def __init__(self, clusters: MirrorClusters, plan: MirrorPlan, instance: str = "1", pid: int = 4711) -> None:
        self.clusters = clusters
        network = clusters.source.simulation.client(f"mirror-{instance}").network
        self.process = MirrorProcess(plan, instance, network, clusters.clock, Random(instance), OsProcess("here", pid))
        self.task = asyncio.ensure_future(self.process.run())

    async def stop(self) -> None:
        """As a signal does it."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        assert self.task.cancelled(), self.task.exception()

    async def board(self) -> Board:
        async with self.clusters.operator(self.process.plan) as operator:
            return await operator.board()

    def row(self, name: str) -> Row:
        (found,) = [row for row in self.process.control.rows() if row.name == name]
        return found


async def arrives(clusters: MirrorClusters, topic: str, *values: str) -> None:
    """Wait until the target has these."""

    async def is_there() -> bool:
        return await clusters.target.values(TopicPartition(topic, 0)) == list(values)

    await clusters.eventually(is_there)
