"""Three brokers in one simulation: the real controller, channels, fetchers and in-sync sets over simulated network, disks and tree."""

from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any

import pytest

from moldau.broker.handlers.fetch.read_replicas import RACK_AWARE
from moldau.testing.simulation.clients.admin import SimulatedAdmin
from moldau.testing.simulation.clients.consumer import SimulatedConsumer
from moldau.testing.simulation.clients.producer import SimulatedProducer
from moldau.testing.simulation.options import Options
from moldau.testing.simulation.simulation import Simulation
from simulation.test_determinism import T0, read

SETTINGS: dict[str, object] = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "replica.lag.time.max.ms": 5000,
    "zookeeper.session.timeout.ms": 3000,
}


@pytest.fixture
def sim() -> Iterator[Simulation]:
    simulation = Simulation(Options(1, brokers=3, settings=SETTINGS, tree_latency_s=0.002, tree_linger_s=3.0, session_s=3.0))
    for host in simulation.hosts:
        host.start()
    yield simulation
    simulation.close()


def run(sim: Simulation, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    sim.run(main())


def leader(sim: Simulation) -> int | None:
    """The index of the host that leads t-0 in the highest epoch; None while none does."""
    led = [
        (partition.machine.leader_epoch, number)
        for number, host in enumerate(sim.hosts)
        if host.broker is not None and (partition := host.broker.partitions.get(T0)) is not None
    ]
    return max(led)[1] if led else None


def in_sync(sim: Simulation) -> list[int]:
    """As the leader knows it."""
    led = leader(sim)
    broker = None if led is None else sim.hosts[led].broker
    if broker is None:
        return []
    return sorted(broker.replicas.hosted[T0].machine.isr)


@pytest.mark.parametrize("end", ["kill", "power_cut"])
def test_nothing_acknowledged_is_lost_when_the_leader_ends_and_it_comes_back_in_sync(sim: Simulation, end: str) -> None:
    async def main() -> None:
        await SimulatedAdmin(sim.client()).create_topic("t")
        producer = SimulatedProducer(sim.client())
        for value in range(10):
            await producer.send_and_wait("t", b"%d" % value, partition=0)
        first = leader(sim)
        assert first is not None
        late = [await producer.send("t", b"%d" % value, partition=0) for value in range(10, 13)]
        getattr(sim.hosts[first], end)()
        for each in late:
            await each
        assert leader(sim) != first
        assert await read(sim) == [b"%d" % value for value in range(13)]
        sim.hosts[first].start()
        await sim.until(lambda: in_sync(sim) == [1, 2, 3])
        await producer.send_and_wait("t", b"13", partition=0)
        ends = [host.broker.replicas.hosted[T0].log.log_end_offset for host in sim.hosts if host.broker is not None]
        assert ends == [14] * 3
        assert len(await read(sim)) == 14

    run(sim, main)


def test_a_consumer_in_the_rack_of_a_follower_reads_from_it_while_that_answers() -> None:
    sim = Simulation(Options(1, brokers=3, racks=3, settings={**SETTINGS, "replica.selector.class": RACK_AWARE}))
    for host in sim.hosts:
        host.start()

    async def main() -> None:
        await SimulatedAdmin(sim.client()).create_topic("t")
        producer = SimulatedProducer(sim.client())
        await producer.send_and_wait("t", b"0", partition=0)
        await sim.until(lambda: in_sync(sim) == [1, 2, 3])
        led = leader(sim)
        assert led is not None
        first, follower = sim.hosts[led], sim.hosts[(led + 1) % 3]
        context = replace(sim.client(), rack=str(follower.settings["broker.rack"]))
        consumer = SimulatedConsumer(context)
        await consumer.assign({T0: 0})
        assert [message.value for message in await consumer.consume(10, 5.0)] == [b"0"]
        for pair in ((context.name, first.name), (first.name, context.name)):
            sim.network.block(*pair)
        await producer.send_and_wait("t", b"1", partition=0)
        assert [message.value for message in await consumer.consume(10, 5.0)] == [b"1"]
        for pair in ((context.name, first.name), (first.name, context.name)):
            sim.network.unblock(*pair)
        follower.kill()
        await producer.send_and_wait("t", b"2", partition=0)
        assert [message.value for message in await consumer.consume(10, 5.0)] == [b"2"]

    run(sim, main)
    sim.close()
