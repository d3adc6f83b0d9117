"""What is asked of a cluster when the faults are over: what is missing is named, and where replicas differ."""

import pytest

from moldau.testing.simulation import convergence
from moldau.testing.simulation.clients.admin import SimulatedAdmin
from moldau.testing.simulation.clients.producer import SimulatedProducer
from moldau.testing.simulation.convergence import check_replicas, converge
from moldau.testing.simulation.invariants import InvariantError
from moldau.testing.simulation.simulation import Simulation
from moldau.testing.simulation.waiting import NotConvergedError
from simulation.test_cluster import run, sim

__all__ = ["sim"]

FILE = "/data/t-0/00000000000000000000.log"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convergence, "CONVERGE_S", 20.0)


async def write(sim: Simulation) -> None:
    await SimulatedAdmin(sim.client()).create_topic("t")
    producer = SimulatedProducer(sim.client())
    for value in range(3):
        await producer.send_and_wait("t", b"%d" % value, partition=0)
    await producer.close()


def test_a_cluster_with_all_brokers_converges_and_one_without_a_replica_does_not(sim: Simulation) -> None:
    hosts = dict(enumerate(sim.hosts, 1))

    async def main() -> None:
        await write(sim)
        await converge(sim, hosts)
        check_replicas(sim, hosts)
        sim.hosts[1].kill()
        with pytest.raises(NotConvergedError, match="broker 2 does not serve"):
            await converge(sim, hosts)
        del hosts[2]
        await converge(sim, hosts)
        sim.hosts[1].start()
        hosts[2] = sim.hosts[1]
        await converge(sim, hosts)

    run(sim, main)


def test_a_replica_that_differs_in_a_byte_is_found(sim: Simulation) -> None:
    hosts = dict(enumerate(sim.hosts, 1))

    async def main() -> None:
        await write(sim)
        await converge(sim, hosts)
        sim.hosts[2].disk.flip(FILE, 65, 0)
        with pytest.raises(InvariantError, match="replicas differ at offset 0"):
            check_replicas(sim, hosts)
        sim.hosts[2].disk.flip(FILE, 65, 0)
        check_replicas(sim, hosts)

    run(sim, main)


def test_a_follower_that_never_fetches_again_is_named(sim: Simulation) -> None:
    hosts = dict(enumerate(sim.hosts, 1))

    async def main() -> None:
        await write(sim)
        for host in sim.hosts[:2]:
            sim.network.block(host.name, sim.hosts[2].name)
        with pytest.raises(NotConvergedError, match=r"t-0: (end and high watermark|in sync) are"):
            await converge(sim, hosts)

    run(sim, main)
