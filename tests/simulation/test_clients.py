"""The simulated clients do what Kafka's do: order and exactly once through lost answers, both protocols of transactions, groups."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

import pytest

from moldau.client.failures import FencedError, SendError, TransactionAbortedError
from moldau.cluster import znodes
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import TopicPartition
from moldau.ports.coordination import Create, Created
from moldau.testing.simulation.clients.admin import LATEST, SimulatedAdmin
from moldau.testing.simulation.clients.cause import took_effect_perhaps
from moldau.testing.simulation.clients.consumer import SimulatedConsumer
from moldau.testing.simulation.clients.group import COOPERATIVE, RANGE
from moldau.testing.simulation.clients.producer import SimulatedProducer
from moldau.testing.simulation.clients.transactions import SimulatedTransactionalProducer
from moldau.testing.simulation.options import Options
from moldau.testing.simulation.simulation import BROKER, Simulation

if TYPE_CHECKING:
    from moldau.testing.simulation.clients.fetching import SimulatedMessage

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


pytestmark = pytest.mark.system


@pytest.fixture
def sim() -> Iterator[Simulation]:
    simulation = Simulation(Options(1))
    simulation.host.start()
    yield simulation
    simulation.close()


async def create(sim: Simulation, partitions: int = 1, name: str = "t", **configs: object) -> SimulatedAdmin:
    admin = SimulatedAdmin(sim.client("admin"))
    await admin.create_topic(name, partitions, {key.replace("_", "."): value for key, value in configs.items()})
    return admin


async def read(sim: Simulation, *partitions: TopicPartition, committed: bool = True) -> list[bytes | None]:
    """Everything up to the end, by partition."""
    consumer = SimulatedConsumer(sim.client("reader"), isolation_level="read_committed" if committed else "read_uncommitted")
    await consumer.assign(dict.fromkeys(partitions, 0))
    ends = await consumer.end_offsets(partitions)
    found: list[SimulatedMessage] = []
    while (more := await consumer.consume(1000, 0.0)) or any(consumer._fetch_at[partition] != end for partition, end in ends.items()):
        found += more
    await consumer.close()
    return [message.value for message in sorted(found, key=lambda message: (message.partition, message.offset))]


def numbers(count: int) -> list[bytes | None]:
    return [b"%d" % number for number in range(count)]


def break_connections(sim: Simulation, random: Random) -> None:
    """At either end."""
    for connection in sim.network.open_connections():
        random.choice(connection.ends).abort()


async def poll_until(sim: Simulation, are_met: Callable[[], bool], *consumers: SimulatedConsumer) -> None:
    """Each polls by itself, since members wait for each other in a rebalance."""

    async def poll(consumer: SimulatedConsumer) -> None:
        while True:
            await consumer.consume(10, 0.05)

    tasks = [sim.loop.create_task(poll(consumer)) for consumer in consumers]
    while not are_met():
        await sim.sleep(0.05)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


# Producers


def test_records_stand_in_the_order_of_sending(sim: Simulation) -> None:
    async def main() -> None:
        await create(sim)
        async with SimulatedProducer(sim.client()) as producer:
            deliveries = [await producer.send("t", value, partition=0) for value in numbers(100)]
        assert [(await delivery).offset for delivery in deliveries] == list(range(100))
        assert await read(sim, T0) == numbers(100)

    sim.run(main())


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("fault", ["cut", "kill", "power_cut"])
def test_an_idempotent_producer_neither_doubles_nor_reorders_through_faults(fault: str, seed: int) -> None:
    """Again and again while it sends: connections break with requests and answers on their way, or the broker is restarted."""
    options = Options(seed, settings={"log.flush.interval.messages": 1})
    sim = Simulation(options)
    sim.host.start()

    async def disturb() -> None:
        random = sim.random("disturb")
        for _ in range(20):
            await sim.sleep(random.uniform(0.01, 0.3))
            if fault == "cut":
                break_connections(sim, random)
            else:
                getattr(sim.host, fault)()
                await sim.sleep(0.1)
                sim.host.start()

    async def main() -> None:
        await create(sim, 3)
        producer = SimulatedProducer(sim.client())
        disturbance = sim.loop.create_task(disturb())
        values: dict[int, list[bytes | None]] = {0: [], 1: [], 2: []}
        number = 0
        while not disturbance.done():
            for _ in range(5):
                partition = sim.options.seed * number % 3
                values[partition].append(b"%d" % number)
                await producer.send("t", b"%d" % number, partition=partition)
                number += 1
            await sim.sleep(0.05)
        await disturbance
        await producer.close()
        assert producer.statistics()["failed"] == 0
        for partition, expected in values.items():
            assert await read(sim, TopicPartition("t", partition)) == expected

    try:
        sim.run(main())
    finally:
        sim.close()


def test_a_careless_producer_may_double_records(sim: Simulation) -> None:
    """Answers are lost and the requests made again: without idempotence the records stand twice."""

    async def main() -> None:
        await create(sim)
        producer = SimulatedProducer(sim.client(), acks=1)
        await producer.send_and_wait("t", b"first", partition=0)
        delivery = await producer.send("t", b"second", partition=0)
        while b"second" not in await read(sim, T0):
            await sim.sleep(0.0001)
        if not delivery.done():
            break_connections(sim, sim.random("cut"))
        await producer.close()
        assert await read(sim, T0) in ([b"first", b"second"], [b"first", b"second", b"second"])

    sim.run(main())


def test_a_record_that_is_too_large_fails_for_certain_and_the_next_one_is_stored(sim: Simulation) -> None:
    """Its sequence number is missed: the partition goes on with the next epoch."""

    async def main() -> None:
        await create(sim, max_message_bytes=1000)
        producer = SimulatedProducer(sim.client())
        await producer.send_and_wait("t", b"first", partition=0)
        failed = await producer.send("t", bytes(2000), partition=0)
        await producer.flush()
        with pytest.raises(SendError, match="MESSAGE_TOO_LARGE") as failure:
            await failed
        assert not took_effect_perhaps(failure.value)
        assert (await producer.send_and_wait("t", b"second", partition=0)).offset == 1
        await producer.close()

    sim.run(main())


def test_a_record_without_an_answer_is_given_up_as_one_that_may_be_stored(sim: Simulation) -> None:
    async def main() -> None:
        await create(sim)
        producer = SimulatedProducer(sim.client(), delivery_timeout_s=3.0)
        await producer.send_and_wait("t", b"first", partition=0)
        lost = await producer.send("t", b"second", partition=0)
        sim.host.pause(3600)
        await producer.flush()
        assert took_effect_perhaps(lost.exception())
        never_sent = await producer.send("t", b"third", partition=0)
        await producer.flush()
        assert isinstance(never_sent.exception(), SendError)
        assert not took_effect_perhaps(never_sent.exception())
        producer.crash()

    sim.run(main())


# Transactions


@pytest.mark.parametrize("protocol", [1, 2])
def test_transactions_are_seen_whole_or_not_at_all(sim: Simulation, protocol: int) -> None:
    async def main() -> None:
        await create(sim, 3)
        async with SimulatedTransactionalProducer(sim.client(), "id", protocol=protocol) as producer:
            await producer.init_transactions()
            for number in range(6):
                await producer.begin()
                for partition in range(3):
                    await producer.send("t", b"%d" % number, partition=partition)
                await producer.flush()
                if number % 3 == 2:
                    await producer.abort()
                else:
                    await producer.commit()
            await producer.begin()
            await producer.send_and_wait("t", b"open", partition=0)
            assert await read(sim, T1) == [b"0", b"1", b"3", b"4"]
            assert b"open" not in await read(sim, T0)
            assert b"open" in await read(sim, T0, committed=False)
            assert await read(sim, T1, committed=False) == numbers(6)
            await producer.commit()

    sim.run(main())


@pytest.mark.parametrize("protocol", [1, 2])
def test_an_heir_fences_the_producer_before_it(sim: Simulation, protocol: int) -> None:
    async def main() -> None:
        await create(sim)
        zombie = SimulatedTransactionalProducer(sim.client(), "id", protocol=protocol)
        await zombie.init_transactions()
        await zombie.begin()
        await zombie.send_and_wait("t", b"of the zombie", partition=0)
        heir = SimulatedTransactionalProducer(sim.client(), "id", protocol=protocol)
        await heir.init_transactions()
        with pytest.raises(FencedError):
            await zombie.commit()
        assert zombie.is_fatal
        async with heir.transaction():
            await heir.send("t", b"of the heir", partition=0)
        await heir.close()
        zombie.crash()
        assert await read(sim, T0) == [b"of the heir"]

    sim.run(main())


@pytest.mark.parametrize("protocol", [1, 2])
def test_after_a_failed_record_a_transaction_can_only_be_aborted_and_the_next_one_succeeds(sim: Simulation, protocol: int) -> None:
    async def main() -> None:
        await create(sim, max_message_bytes=1000)
        producer = SimulatedTransactionalProducer(sim.client(), "id", protocol=protocol)
        await producer.init_transactions()
        await producer.begin()
        await producer.send("t", b"small", partition=0)
        await producer.send("t", bytes(2000), partition=0)
        with pytest.raises(TransactionAbortedError):
            await producer.commit()
        await producer.abort()
        async with producer.transaction():
            await producer.send("t", b"next", partition=0)
        await producer.close()
        assert await read(sim, T0) == [b"next"]

    sim.run(main())


@pytest.mark.parametrize("protocol", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_transactions_survive_restarts_of_the_broker(seed: int, protocol: int) -> None:
    """Each one that reported its commit is there once, each one that reported its abort is not."""
    sim = Simulation(Options(seed, settings={"log.flush.interval.messages": 1}))
    sim.host.start()

    async def disturb() -> None:
        random = sim.random("disturb")
        for _ in range(10):
            await sim.sleep(random.uniform(0.05, 0.5))
            sim.host.kill()
            await sim.sleep(0.1)
            sim.host.start()

    async def main() -> None:
        await create(sim)
        disturbance = sim.loop.create_task(disturb())
        producer = SimulatedTransactionalProducer(sim.client(), "id", protocol=protocol, timeout_s=60.0, delivery_timeout_s=50.0)
        await producer.init_transactions()
        expected = []
        number = 0
        while not disturbance.done():
            await producer.begin()
            await producer.send("t", b"%d" % number, partition=0)
            if number % 4 == 3:
                await producer.abort()
            else:
                await producer.commit()
                expected.append(b"%d" % number)
            number += 1
        await disturbance
        await producer.close()
        assert await read(sim, T0) == expected

    try:
        sim.run(main())
    finally:
        sim.close()


# Consumers and groups


def test_a_consumer_seeks_and_reads_by_position(sim: Simulation) -> None:
    async def main() -> None:
        await create(sim)
        async with SimulatedProducer(sim.client()) as producer:
            for value in numbers(50):
                await producer.send("t", value, partition=0)
        consumer = SimulatedConsumer(sim.client())
        await consumer.assign({T0: 10})
        first = await consumer.poll(1)
        assert first is not None
        assert (first.offset, first.value) == (10, b"10")
        await consumer.seek(T0, 40)
        assert [message.offset for message in await consumer.consume(3)] == [40, 41, 42]
        assert await consumer.position(T0) == 43
        await consumer.seek_to_beginning()
        assert (await consumer.consume(1))[0].offset == 0
        await consumer.seek_to_end(T0)
        assert await consumer.consume(1, 0.2) == []
        await consumer.close()

    sim.run(main())


def test_a_position_out_of_range_is_reported_and_reset(sim: Simulation) -> None:
    async def main() -> None:
        await create(sim)
        async with SimulatedProducer(sim.client()) as producer:
            await producer.send_and_wait("t", b"0", partition=0)
        reported: list[tuple[TopicPartition, int]] = []
        consumer = SimulatedConsumer(sim.client(), on_reset=lambda *where: reported.append(where))
        await consumer.assign({T0: 100})
        assert (await consumer.consume(1))[0].offset == 0
        assert reported == [(T0, 100)]
        await consumer.close()

    sim.run(main())


@pytest.mark.parametrize("assignor", [RANGE, COOPERATIVE])
def test_members_share_partitions_and_take_over_from_those_that_leave_or_crash(sim: Simulation, assignor: str) -> None:
    async def until_assigned(consumers: list[SimulatedConsumer], counts: list[int]) -> None:
        def are_met() -> bool:
            return sorted(len(consumer.assigned) for consumer in consumers) == counts

        await poll_until(sim, are_met, *consumers)

    async def main() -> None:
        await create(sim, 3)
        one, two, three = (SimulatedConsumer(sim.client(), group_id="g", topics=["t"], assignor=assignor) for _ in range(3))
        await until_assigned([one], [3])
        await until_assigned([one, two, three], [1, 1, 1])
        owned = [each for consumer in (one, two, three) for each in consumer.assigned]
        assert sorted(owned) == [T0, T1, T2]
        await two.close()
        await until_assigned([one, three], [1, 2])
        three.crash()
        await until_assigned([one], [3])
        assert (await SimulatedAdmin(sim.client()).group("g")).group_state == "Stable"
        await one.close()

    sim.run(main())


def test_a_cooperative_member_keeps_what_stays_through_a_rebalance(sim: Simulation) -> None:
    async def main() -> None:
        await create(sim, 2)
        revoked: list[list[TopicPartition]] = []
        one = SimulatedConsumer(sim.client(), group_id="g", assignor=COOPERATIVE)
        await one.subscribe(["t"], on_revoke=revoked.append)
        await poll_until(sim, lambda: len(one.assigned) == 2, one)
        two = SimulatedConsumer(sim.client(), group_id="g", topics=["t"], assignor=COOPERATIVE)
        await poll_until(sim, lambda: len(two.assigned) == 1, one, two)
        assert revoked == [[T1]]
        await one.close()
        await two.close()

    sim.run(main())


def test_a_static_member_comes_back_to_what_it_had_and_fences_its_older_self(sim: Simulation) -> None:
    async def main() -> None:
        await create(sim, 2)
        one = SimulatedConsumer(sim.client(), group_id="g", topics=["t"], group_instance_id="i")
        await poll_until(sim, lambda: len(one.assigned) == 2, one)
        generation = one.group_metadata().generation_id
        again = SimulatedConsumer(sim.client(), group_id="g", topics=["t"], group_instance_id="i")
        await poll_until(sim, lambda: len(again.assigned) == 2, again)
        assert again.group_metadata().generation_id == generation
        with pytest.raises(Exception, match="FENCED_INSTANCE_ID"):
            await one.commit({T0: 0})
        one.crash()
        await again.close()

    sim.run(main())


def test_a_member_reads_on_where_its_group_has_committed(sim: Simulation) -> None:
    async def main() -> None:
        await create(sim)
        async with SimulatedProducer(sim.client()) as producer:
            for value in numbers(10):
                await producer.send("t", value, partition=0)
        one = SimulatedConsumer(sim.client(), group_id="g", topics=["t"])
        assert [message.value for message in await one.consume(4)] == numbers(4)
        await one.commit()
        await one.consume(2)
        await one.rewind()
        assert (await one.consume(1))[0].offset == 4
        one.crash()
        two = SimulatedConsumer(sim.client(), group_id="g", topics=["t"])
        assert (await two.consume(1))[0].offset == 4
        assert await two.committed() == {T0: 4}
        await two.close()

    sim.run(main())


@pytest.mark.parametrize("protocol", [1, 2])
def test_offsets_are_committed_with_a_transaction_or_rewound(sim: Simulation, protocol: int) -> None:
    async def main() -> None:
        await create(sim)
        async with SimulatedProducer(sim.client()) as plain:
            for value in numbers(10):
                await plain.send("t", value, partition=0)
        producer = SimulatedTransactionalProducer(sim.client(), "id", protocol=protocol)
        await producer.init_transactions()
        consumer = SimulatedConsumer(sim.client(), group_id="g", topics=["t"])
        async with producer.transaction(consumer):
            await consumer.consume(3)
        assert await consumer.committed() == {T0: 3}
        with suppress(ZeroDivisionError):
            async with producer.transaction(consumer):
                await consumer.consume(3)
                _ = 1 // 0
        assert (await consumer.consume(1))[0].offset == 3
        await consumer.close()
        await producer.close()

    sim.run(main())


# Administrators


def test_topics_are_created_grown_configured_and_deleted(sim: Simulation) -> None:
    async def main() -> None:
        admin = await create(sim)
        with pytest.raises(PeerError) as failure:
            await admin.create_topic("t")
        assert failure.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        await admin.grow_topic("t", 3)
        assert await admin.partitions_for("t") == 3
        await admin.configure_topic("t", {"max.message.bytes": 100})
        async with SimulatedProducer(sim.client()) as producer:
            with pytest.raises(SendError, match="MESSAGE_TOO_LARGE"):
                await producer.send_and_wait("t", bytes(200), partition=2)
            await producer.send_and_wait("t", b"1", partition=2)
            await producer.send_and_wait("t", b"2", partition=2)
        assert await admin.delete_records(T2, 1) == 1
        assert await admin.offset(T2, LATEST, committed=True) == 2
        assert await admin.epoch_end(T2, 0) == (0, 2)
        assert [each.last_sequence for each in await admin.producers(T2)] == [1]
        assert await admin.transactions() == {}
        await admin.delete_topic("t")
        with pytest.raises(PeerError) as failure:
            await admin.delete_topic("t")
        assert failure.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        admin.close()

    sim.run(main())


def test_a_deletion_that_a_crash_has_interrupted_leaves_the_name_free(sim: Simulation) -> None:
    """The next start ends it; meanwhile the topic is unknown already, and its name is taken."""

    async def main() -> None:
        admin = await create(sim)
        sim.network.hold(lambda end: end.party.host == BROKER)
        deletion = asyncio.ensure_future(admin.delete_topic("t"))
        await sim.until(lambda: sim.network.held > 0)
        sim.host.kill()
        mark: list[object] = []  # the last that the broker has done
        sim.tree.session(lambda _name: None, lambda call, _delay_s: call()).submit(Create(znodes.delete_topic("t"), b""), mark.append)
        assert isinstance(mark[0], Created)
        sim.network.release()
        sim.disk.slowness = 1000.0
        sim.host.start()
        await deletion
        await admin.create_topic("t", 2)
        assert await admin.partitions_for("t") == 2

    sim.run(main())
