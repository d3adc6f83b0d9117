"""Named defects of others' coordinators (Q) and transactions (T), each as an interleaving that must not hurt here. Each fails when what
cures it is taken out of the product.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from moldau.broker.coordinators.runtime import CoordinatorRuntime
from moldau.broker.groups.offsets import GroupOffsets
from moldau.broker.handlers import coordinators
from moldau.broker.replicas.commit_gate import CommitGate
from moldau.broker.replicas.hosted import HostedPartition
from moldau.broker.transactions import coordinator as transactions_coordinator
from moldau.broker.transactions import machine as machines
from moldau.broker.transactions.events import Effect
from moldau.broker.transactions.machine import Machine
from moldau.broker.transactions.marker_receipts import MarkerReceipts
from moldau.broker.transactions.partition import TransactionPartition
from moldau.broker.transactions.transaction import TransactionMetadata, TransactionState
from moldau.client.failures import ClientError, CommitError
from moldau.client.message import Message
from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.offsets import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from moldau.testing.simulation.clients.admin import SimulatedAdmin
from moldau.testing.simulation.clients.consumer import SimulatedConsumer
from moldau.testing.simulation.clients.transactions import SimulatedTransactionalProducer
from moldau.testing.simulation.network import ConnectionEnd
from moldau.testing.simulation.options import Options
from moldau.testing.simulation.power_cuts import OFFSETS, TRANSACTIONS
from moldau.testing.simulation.process import PORT
from moldau.testing.simulation.replay import logs_of_leaders, replay
from moldau.testing.simulation.simulation import Simulation
from moldau.testing.simulation.tree_view import partitions_in
from moldau.testing.simulation.waiting import undecided
from moldau.testing.simulation.wire import Wire
from moldau.wire.brokers import Brokers
from simulation.test_cluster import SETTINGS

ID = "app"
PLACES = [TopicPartition("t", index) for index in range(3)]
T0 = PLACES[0]


class World:
    """Three brokers with a topic t of three partitions, and internal topics of one."""

    def __init__(self, **settings: object) -> None:
        given = {**SETTINGS, "offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
        given |= {"offsets.topic.replication.factor": 3, "transaction.state.log.replication.factor": 3}
        given |= {name.replace("_", "."): value for name, value in settings.items()}
        self.sim = Simulation(Options(1, brokers=3, settings=given, tree_latency_s=0.002, tree_linger_s=3.0, session_s=3.0))
        self.wire = Wire(self.sim.network)
        for host in self.sim.hosts:
            host.start()

    def run(self, main: Callable[[], Awaitable[None]]) -> None:
        async def whole() -> None:
            await SimulatedAdmin(self.sim.client()).create_topic("t", 3)
            await main()

        self.sim.run(whole())

    def leader(self, topic: str, index: int = 0) -> int:
        """By the tree; -1 while there is none."""
        found = [each.state for each in partitions_in(self.sim.tree) if (each.topic, each.number) == (topic, index)]
        return -1 if not found or found[0] is None else found[0].leader

    async def leads(self, topic: str, *, other_than: int = -1) -> int:
        await self.sim.until(lambda: self.leader(topic) not in (-1, other_than))
        return self.leader(topic)

    def name(self, broker_id: int) -> str:
        return self.sim.hosts[broker_id - 1].name

    def others(self, broker_id: int) -> list[int]:
        return [each for each in (1, 2, 3) if each != broker_id]

    def kill(self, broker_id: int) -> None:
        self.sim.hosts[broker_id - 1].kill()

    def hosted(self, topic: str, broker_id: int) -> HostedPartition:
        broker = self.sim.hosts[broker_id - 1].broker
        assert broker is not None
        return broker.replicas.hosted[TopicPartition(topic, 0)]

    def state(self, transactional_id: str = ID) -> tuple[str, int, int]:
        """State, producer id and epoch in the log of the coordinator."""
        return replay(logs_of_leaders(self.sim.tree, dict(enumerate(self.sim.hosts, 1)))).transactions[transactional_id]

    async def is_in(self, state: str) -> None:
        await self.sim.until(lambda: self.leader(TRANSACTIONS) != -1 and self.state()[0] == state)

    async def producer(self, protocol: int = 2, timeout_s: float = 60.0, *, patience_s: float = 60.0) -> SimulatedTransactionalProducer:
        producer = SimulatedTransactionalProducer(self.sim.client(ID), ID, protocol=protocol, timeout_s=timeout_s)
        await producer.init_transactions(patience_s)
        return producer

    async def is_refused(self, protocol: int, patience_s: float) -> None:
        """An attempt to take over from a producer, repeated for so long."""
        with suppress(ClientError):
            await self.producer(protocol, patience_s=patience_s)
            raise AssertionError("it has taken over")

    async def commit(self, group: str, offset: int) -> None:
        """As often as it takes."""
        consumer = SimulatedConsumer(self.sim.client(group), group_id=group)
        until = self.sim.schedule.now + 60.0
        while True:
            try:
                await consumer.commit({T0: offset})
                break
            except CommitError:
                assert self.sim.schedule.now < until
                await self.sim.sleep(0.2)
        await consumer.close()

    async def commit_at(self, broker_id: int, group: str, offset: int) -> int:
        """What one broker answers."""
        connection = await Brokers(self.sim.client()).connection((self.name(broker_id), PORT))
        topics = [OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, offset, -1, "")])]
        answer = await connection.send(ApiKey.OFFSET_COMMIT, OffsetCommitRequest(group, topics=topics), timeout_s=90.0, version=8)
        return int(answer.topics[0].partitions[0].error_code)

    async def committed(self, group: str) -> int | None:
        consumer = SimulatedConsumer(self.sim.client(group), group_id=group)
        found = await consumer.committed([T0])
        await consumer.close()
        return found.get(T0)

    async def read(self) -> list[bytes | None]:
        """What readers of committed records get, in order of their values."""
        consumer = SimulatedConsumer(self.sim.client("reader"))
        await consumer.assign(dict.fromkeys(PLACES, 0))
        ends = await consumer.end_offsets(PLACES)
        found: list[bytes | None] = []
        while any(consumer.next_offset(place) < end for place, end in ends.items()):
            found += [message.value for message in await consumer.consume(100, 1.0)]
        await consumer.close()
        return sorted(found, key=str)


async def send(producer: SimulatedTransactionalProducer, *values: bytes) -> None:
    """A transaction with a record in each of the first partitions."""
    await producer.begin()
    for index, value in enumerate(values):
        await producer.send_and_wait("t", value, partition=index)


@pytest.fixture
def world() -> Iterator[World]:
    made = World(offsets_commit_timeout_ms=60_000)
    yield made
    made.sim.close()


def test_q1_a_commit_that_the_next_leader_lacks_is_no_success_where_the_old_one_follows_and_moves_on(world: World) -> None:
    """KAFKA-20634: the high watermark moves over records that this coordinator did not write."""
    sim, network = world.sim, world.sim.network

    async def main() -> None:
        await world.commit("g", 1)
        old = await world.leads(OFFSETS)
        await sim.until(lambda: world.hosted(OFFSETS, old).log.high_watermark == 1)
        for other in world.others(old):
            network.block(world.name(old), world.name(other))
        late = asyncio.ensure_future(world.commit_at(old, "g", 2))
        await sim.until(lambda: world.hosted(OFFSETS, old).log.log_end_offset == 2)
        new = await world.leads(OFFSETS, other_than=old)
        for offset in range(3):
            while await world.commit_at(new, "h", offset) != ErrorCode.NONE:
                await sim.sleep(0.1)
        for other in world.others(old):
            network.unblock(world.name(old), world.name(other))
        await sim.until(lambda: world.hosted(OFFSETS, old).log.high_watermark >= 4)
        assert await late != ErrorCode.NONE
        assert world.leader(OFFSETS) == new
        assert await world.committed("g") == 1

    world.run(main)


@pytest.mark.parametrize("protocol", [1, 2])
def test_q2_what_was_decided_is_completed_where_markers_are_written_and_their_coordinator_ends(world: World, protocol: int) -> None:
    """KAFKA-19999: the next coordinator writes the markers again, and is not refused."""
    sim, network = world.sim, world.sim.network

    async def main() -> None:
        producer = await world.producer(protocol)
        await send(producer, b"a", b"b", b"c")
        first = await world.leads(TRANSACTIONS)
        network.hold(world.wire.response(ApiKey.WRITE_TXN_MARKERS, to=world.name(first)))
        commit = asyncio.ensure_future(producer.commit())
        await sim.until(lambda: network.held > 0)
        world.kill(first)
        network.release()
        await commit
        await world.is_in("CompleteCommit")
        assert await world.read() == [b"a", b"b", b"c"]
        await send(producer, b"d")
        await producer.abort()
        assert await world.read() == [b"a", b"b", b"c"]

    world.run(main)


@pytest.mark.parametrize("protocol", [1, 2])
def test_q3_while_markers_are_on_their_way_no_attempt_to_take_over_raises_the_epoch(world: World, protocol: int) -> None:
    """KAFKA-9777, KAFKA-10080: each would, until none is left; and the transaction would be completed by each of them."""
    sim, network = world.sim, world.sim.network

    async def main() -> None:
        producer = await world.producer(protocol)
        await send(producer, b"a", b"b", b"c")
        first = await world.leads(TRANSACTIONS)
        before = world.state()[2]
        network.hold(world.wire.request(ApiKey.WRITE_TXN_MARKERS, by=world.name(first)))
        for _ in range(3):
            await world.is_refused(protocol, 1.0)
        network.release()
        await world.producer(protocol)
        state, _, epoch = world.state()
        assert state in ("CompleteAbort", "Empty")
        assert epoch <= before + 3
        await sim.sleep(5.0)
        assert world.state() == (state, world.state()[1], epoch)
        assert await world.read() == []

    world.run(main)


@pytest.mark.parametrize("protocol", [1, 2])
def test_q3_where_a_fence_cannot_be_stored_no_attempt_to_take_over_raises_the_epoch(world: World, protocol: int) -> None:
    """KAFKA-9666: each would, until none is left."""
    sim = world.sim

    async def main() -> None:
        producer = await world.producer(protocol)
        await send(producer, b"a", b"b", b"c")
        first = await world.leads(TRANSACTIONS)
        before = world.state()[2]
        for other in world.others(first):
            world.kill(other)
        await sim.until(lambda: world.hosted(TRANSACTIONS, first).machine.isr == (first,))
        for _ in range(3):
            await world.is_refused(protocol, 5.0)
        assert world.state()[0] == "Ongoing"
        for other in world.others(first):
            sim.hosts[other - 1].start()
        await world.producer(protocol)
        state, _, epoch = world.state()
        assert state in ("CompleteAbort", "Empty")
        assert epoch <= before + 3
        assert await world.read() == []

    world.run(main)


def test_q4_a_marker_that_comes_late_does_not_end_the_transaction_after_it(world: World) -> None:
    """redpanda#3232. In the older protocol the two have the same producer id and epoch."""
    sim, network = world.sim, world.sim.network

    async def main() -> None:
        producer = await world.producer(1)
        await send(producer, b"a", b"b", b"c")
        first = await world.leads(TRANSACTIONS)
        is_marker, late = world.wire.request(ApiKey.WRITE_TXN_MARKERS, by=world.name(first)), list[ConnectionEnd]()

        def is_first(end: ConnectionEnd) -> bool:
            if not late and is_marker(end):
                late.append(end)
            return end in late

        network.hold(is_first)
        await producer.commit()
        (end,) = late
        await world.is_in("CompleteCommit")
        await send(producer, b"d", b"e", b"f")
        before = end.taken
        network.release()
        await sim.until(lambda: end.taken > before)
        await sim.sleep(1.0)
        assert await world.read() == [b"a", b"b", b"c"]
        await producer.abort()
        assert await world.read() == [b"a", b"b", b"c"]

    world.run(main)


def test_q5_no_dead_broker_is_named_and_after_a_rolling_restart_every_group_is_served(world: World) -> None:
    """redpanda#10376: a client that is sent to a broker that is not there asks it for ever."""
    sim = world.sim

    async def named() -> set[str]:
        """Those that live brokers name, each asked once; the empty name for none."""
        found = set()
        for host in sim.hosts:
            if host.process is not None and host.process.is_serving:
                connection = await Brokers(sim.client()).connection((host.name, PORT))
                request = FindCoordinatorRequest(coordinator_keys=["g"])
                (answer,) = (await connection.send(ApiKey.FIND_COORDINATOR, request, timeout_s=5.0, version=4)).coordinators
                found.add(answer.host)
        return found

    async def main() -> None:
        await world.commit("g", 1)
        for broker_id in (1, 2, 3):
            host = sim.hosts[broker_id - 1]
            assert host.process is not None
            host.process.stop()
            await sim.until(lambda host=host: host.process is None)  # type: ignore[misc]
            await sim.sleep(1.0)
            assert host.name not in await named()
            assert await world.committed("g") == broker_id
            host.start()
            await sim.until(lambda: len(next(each for each in partitions_in(sim.tree) if each.topic == OFFSETS).state.isr) == 3)  # type: ignore[union-attr]
            await world.commit("g", broker_id + 1)
        for broker_id in (1, 2):
            world.kill(broker_id)
        await sim.sleep(10.0)
        assert await named() <= {"", world.name(3)}

    world.run(main)


def test_t2_the_coordinator_that_takes_over_knows_what_was_acknowledged_of_an_open_transaction(world: World) -> None:
    """redpanda#6018: the commit succeeds, and the records are gone."""

    async def main() -> None:
        producer = await world.producer()
        await send(producer, b"a", b"b", b"c")
        first = await world.leads(TRANSACTIONS)
        world.kill(first)
        await producer.commit()
        await world.is_in("CompleteCommit")
        assert await world.read() == [b"a", b"b", b"c"]

    world.run(main)


def test_t3_no_reader_gets_an_offset_from_before_a_transaction_that_has_been_committed(world: World) -> None:
    """redpanda#9571: what it has processed would be processed again."""
    sim, network = world.sim, world.sim.network

    async def main() -> None:
        await world.commit("g", 1)
        producer = await world.producer()
        await send(producer, b"a")
        member = SimulatedConsumer(sim.client("member"), group_id="g")
        await producer.commit_offsets({T0: 5}, member.group_metadata())
        first, offsets = await world.leads(TRANSACTIONS), await world.leads(OFFSETS)
        if first == offsets:
            offsets, third = world.others(first)
            admin = SimulatedAdmin(sim.client())
            await admin.move_partition(TopicPartition(OFFSETS, 0), [offsets, first, third])
            await admin.elect_preferred(OFFSETS, [0])
            await sim.until(lambda: world.leader(OFFSETS) == offsets)
        network.hold(world.wire.request(ApiKey.WRITE_TXN_MARKERS, by=world.name(first), to=world.name(offsets)))
        commit = asyncio.ensure_future(producer.commit())
        await sim.until(lambda: network.held > 0)
        reading = asyncio.ensure_future(world.committed("g"))
        await sim.sleep(3.0)
        assert not reading.done()
        network.release()
        await commit
        assert await reading == 5

    world.run(main)


def test_t4_a_transaction_whose_producer_and_coordinator_end_does_not_hold_back_readers(world: World) -> None:
    sim = world.sim

    async def main() -> None:
        producer = await world.producer(timeout_s=3.0)
        await send(producer, b"a", b"b", b"c")
        producer.crash()
        world.kill(await world.leads(TRANSACTIONS))
        await sim.sleep(40.0)
        assert world.state()[0] == "CompleteAbort"
        assert undecided(sim.hosts) == []

    world.run(main)


def test_t4_a_record_that_comes_after_its_transaction_was_aborted_opens_no_other(world: World) -> None:
    """KIP-890: nothing would ever end that. In the older protocol no partition knows a later epoch when the record comes."""
    sim, network = world.sim, world.sim.network

    async def main() -> None:
        producer = await world.producer(1)
        await producer.begin()
        first = await world.leads(TRANSACTIONS)
        late, other = sorted(PLACES[:2], key=lambda place: world.leader("t", place.partition) != first)
        await producer.send_and_wait("t", b"a", partition=other.partition)
        network.hold(world.wire.request(ApiKey.PRODUCE, by=producer.brokers.context.name))
        delivery = producer.send_nowait(late, Message(b"late"))
        await sim.until(lambda: network.held > 0)
        await producer.abort()
        with pytest.raises(ClientError):
            await delivery
        network.release()
        await sim.sleep(5.0)
        assert world.state()[0] in ("CompleteAbort", "Empty")
        assert await world.read() == []
        assert undecided(sim.hosts) == []

    world.run(main)


def nothing(*_args: object) -> None:
    """For what would have done something."""


def no_steps(*_args: object) -> Iterator[None]:
    """For steps."""
    return iter(())


_NOT_STORED = Machine._not_stored


def keep_the_epoch(machine: Machine, target: TransactionMetadata | None, error: ErrorCode) -> list[Effect]:
    """For what forgets all that was not stored."""
    if target is not None:
        machine.current = machine.current._replace(epoch=target.epoch)
    return _NOT_STORED(machine, target, error)


def name_who_was_named_once() -> Callable[..., Any]:
    named: dict[str, Any] = {}
    real = coordinators._answer
    return lambda services, topic, nodes, key: named.setdefault(key, real(services, topic, nodes, key))


Scenario = Callable[..., None]
Plant = tuple[object, str, object]
"""What has something, its name, and what takes its place."""
PLANTED: list[tuple[Scenario, tuple[int, ...], tuple[Plant, ...]]] = [
    (
        test_q1_a_commit_that_the_next_leader_lacks_is_no_success_where_the_old_one_follows_and_moves_on,
        (),
        ((CommitGate, "fail", nothing), (CoordinatorRuntime, "resigned", nothing)),  # each would do
    ),
    (
        test_q2_what_was_decided_is_completed_where_markers_are_written_and_their_coordinator_ends,
        (2,),
        ((TransactionPartition, "finish_decided", no_steps),),
    ),
    (
        test_q3_while_markers_are_on_their_way_no_attempt_to_take_over_raises_the_epoch,
        (2,),
        (
            (Machine, "is_busy", property(lambda machine: machine._pending is not None)),
            (machines, "MOVES", dict.fromkeys(TransactionState, frozenset(TransactionState))),  # for which it would load again
        ),
    ),
    (
        test_q3_where_a_fence_cannot_be_stored_no_attempt_to_take_over_raises_the_epoch,
        (2,),
        ((Machine, "_not_stored", keep_the_epoch),),
    ),
    (
        test_q4_a_marker_that_comes_late_does_not_end_the_transaction_after_it,
        (),
        ((MarkerReceipts, "accept", lambda *_args: True),),
    ),
    (
        test_q5_no_dead_broker_is_named_and_after_a_rolling_restart_every_group_is_served,
        (),
        ((coordinators, "_answer", name_who_was_named_once),),
    ),
    (
        test_t2_the_coordinator_that_takes_over_knows_what_was_acknowledged_of_an_open_transaction,
        (),
        ((TransactionPartition, "replay", nothing),),
    ),
    (
        test_t4_a_transaction_whose_producer_and_coordinator_end_does_not_hold_back_readers,
        (),
        ((Machine, "_late", lambda *_args: []),),
    ),
    (
        test_t3_no_reader_gets_an_offset_from_before_a_transaction_that_has_been_committed,
        (),
        ((GroupOffsets, "is_pending", lambda *_args: False),),
    ),
    (
        test_t4_a_record_that_comes_after_its_transaction_was_aborted_opens_no_other,
        (),
        ((transactions_coordinator, "verified", lambda _current, _id, _epoch, partitions: dict.fromkeys(partitions, ErrorCode.NONE)),),
    ),
]


@pytest.mark.parametrize(
    ("scenario", "arguments", "plants"),
    PLANTED,
    ids=[scenario.__name__[5:7] + plants[0][1] for scenario, _, plants in PLANTED],
)
def test_a_scenario_fails_without_its_cure(
    monkeypatch: pytest.MonkeyPatch, world: World, scenario: Scenario, arguments: tuple[int, ...], plants: tuple[Plant, ...]
) -> None:
    for holder, name, planted in plants:
        monkeypatch.setattr(holder, name, planted() if planted is name_who_was_named_once else planted)
    with pytest.raises((AssertionError, TimeoutError, ClientError)):
        scenario(world, *arguments)
