"""Named interleavings: messages are held at the worst moment, and released after what must not hurt."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from moldau.client.failures import ClientError
from moldau.client.message import Message
from moldau.model.identity import TopicPartition
from moldau.testing.simulation.clients.admin import SimulatedAdmin
from moldau.testing.simulation.clients.consumer import SimulatedConsumer
from moldau.testing.simulation.clients.producer import SimulatedProducer
from moldau.testing.simulation.clients.transactions import SimulatedTransactionalProducer
from moldau.testing.simulation.network import ConnectionEnd
from moldau.testing.simulation.options import Options
from moldau.testing.simulation.simulation import BROKER, Simulation
from simulation.test_determinism import read

T0 = TopicPartition("t", 0)


@pytest.fixture
def sim() -> Iterator[Simulation]:
    simulation = Simulation(Options(1))
    simulation.host.start()
    yield simulation
    simulation.close()


def requests(end: ConnectionEnd) -> bool:
    """Messages to the broker."""
    return end.party.host == BROKER


def answers(end: ConnectionEnd) -> bool:
    """Messages of the broker."""
    return end.other.party.host == BROKER


def of(name: str, which: Callable[[ConnectionEnd], bool]) -> Callable[[ConnectionEnd], bool]:
    """Those of a client."""
    return lambda end: which(end) and name in (end.party.host, end.other.party.host)


def run(sim: Simulation, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    sim.run(main())


def end_offset(sim: Simulation) -> int:
    assert sim.host.broker is not None
    partition = sim.host.broker.partitions.get(T0)
    assert partition is not None
    return partition.log.log_end_offset


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_batch_whose_answer_was_lost_with_the_process_is_stored_once(sim: Simulation, end: str) -> None:
    async def main() -> None:
        await SimulatedAdmin(sim.client()).create_topic("t")
        producer = SimulatedProducer(sim.client())
        await producer.send_and_wait("t", b"0", partition=0)
        sim.network.hold(answers)
        delivery = await producer.send("t", b"1", partition=0)
        await sim.until(lambda: end_offset(sim) == 2)
        process = sim.host.process
        assert process is not None
        if end == "kill":
            sim.host.kill()
        else:
            process.stop()
        await sim.until(lambda: sim.host.process is None)
        sim.network.release()
        sim.host.start()
        assert (await delivery).offset == 1
        assert await read(sim) == [b"0", b"1"]

    run(sim, main)


def test_a_zombie_whose_batch_was_held_cannot_write_into_its_heirs_log(sim: Simulation) -> None:
    async def main() -> None:
        await SimulatedAdmin(sim.client()).create_topic("t")
        zombie = SimulatedTransactionalProducer(sim.client("zombie"), "id")
        await zombie.init_transactions()
        await zombie.begin()
        await zombie.send_and_wait("t", b"before", partition=0)
        sim.network.hold(of(zombie.context.name, requests))
        late = zombie.send_nowait(T0, Message(b"late"))
        await sim.until(lambda: sim.network.held > 0)
        heir = SimulatedTransactionalProducer(sim.client("heir"), "id")
        await heir.init_transactions()
        async with heir.transaction():
            await heir.send_and_wait("t", b"heir", partition=0)
        sim.network.release()
        with pytest.raises(ClientError):
            await late
        assert await committed(sim) == [b"heir"]

    run(sim, main)


def test_a_commit_that_is_not_in_the_log_yet_is_not_shown(sim: Simulation) -> None:
    """The disk is slow, and the power is cut while the commit waits for it."""
    sim.host.kill()
    sim.host.settings = {"log.flush.interval.messages": 1}
    sim.host.start()

    async def main() -> None:
        await SimulatedAdmin(sim.client()).create_topic("t")
        member = SimulatedConsumer(sim.client("member"), group_id="g")
        await member.assign({T0: 0})
        await member.commit({T0: 1})
        sim.disk.slowness = 10_000
        second = asyncio.ensure_future(member.commit({T0: 2}))
        await sim.sleep(0.5)
        sim.disk.slowness = 1
        sim.host.power_cut()
        sim.host.start()
        other = SimulatedConsumer(sim.client("other"), group_id="g")
        found = await other.committed([T0])
        await asyncio.wait([second])
        assert found == {T0: 1} or (second.exception() is None and found == {T0: 2})

    run(sim, main)


async def committed(sim: Simulation) -> list[bytes | None]:
    consumer = SimulatedConsumer(sim.client("reader"))
    await consumer.assign({T0: 0})
    end = (await consumer.end_offsets([T0]))[T0]
    found: list[bytes | None] = []
    while consumer.next_offset(T0) < end:
        found += [message.value for message in await consumer.consume(100, 1.0)]
    return found
