"""A mirror finds the next leader of a partition, whichever broker it has asked for the last one."""

import asyncio
from typing import TYPE_CHECKING

import pytest

from moldau.mirror.partitions import Halt, Position, SourcePartition
from moldau.mirror.source import SourceReader
from moldau.testing.simulation.process import PORT
from moldau.wire.brokers import Brokers
from simulation.small_cluster import CONTROLLER, FOLLOWER, LEADER, Cluster

if TYPE_CHECKING:
    from moldau.mirror.fetched import Fetched

pytestmark = pytest.mark.system


class Taken:
    """A :class:`moldau.mirror.fetched.Taker` with room for everything."""

    def __init__(self) -> None:
        self.end = 0

    def take(self, _partition: SourcePartition, fetched: "Fetched") -> bool:
        self.end = fetched.position.offset
        return True

    def halt(self, partition: SourcePartition, why: Halt, reason: str) -> None:
        raise AssertionError(f"{partition} is halted: {why.value}, {reason}")


@pytest.mark.parametrize("leader_dies", [True, False])
def test_a_broker_that_is_cut_off_is_not_asked_for_the_leader_again_and_again(leader_dies: bool) -> None:
    """Claim: where it names a broker that does not answer, or one that answers it does not lead any more, the next broker is asked."""

    async def story(cluster: Cluster) -> None:
        await cluster.move(CONTROLLER, LEADER, FOLLOWER)  # another one is preferred than leads

        # the mirror has asked a broker who leads, and fetches
        brokers = Brokers(cluster.sim.client())
        brokers._server = cluster.host(FOLLOWER).name, PORT
        taken = Taken()
        may_fetch = asyncio.Event()
        may_fetch.set()
        reader = SourceReader("s", brokers, cluster.sim.clock, taken, may_fetch, committed=True, verifies=True)
        reader.follow(SourcePartition("s", cluster.partition().topic_id, "t", 0), Position(0))
        await cluster.write(b"a")
        await cluster.until(lambda: taken.end == 1)

        # that broker hears nothing more of the cluster, and another one becomes leader
        cluster.isolate(FOLLOWER)
        cluster.session(FOLLOWER).lose()
        await cluster.in_sync(LEADER, CONTROLLER)
        if leader_dies:
            cluster.kill(LEADER)
        else:
            await cluster.admin.elect_preferred("t", [0])
        await cluster.led_by(CONTROLLER)
        await cluster.write(b"b")

        # the mirror fetches from it
        await cluster.until(lambda: taken.end == 2)
        await reader.close()
        brokers.close()

    Cluster(min_insync_replicas=1).run(story)
