"""Long requests of all connections together take a bounded part of memory: few are decoded at once, the others wait with their frames."""

import gc
from typing import Any

import pytest

from moldau.broker.admission.admission import ConnectionQuota
from moldau.broker.admission.elements import SHORT_MAX, ElementPool
from moldau.model.config.static import read_static
from moldau.model.config.store import BrokerConfig
from moldau.protocol.fast.fetch import FetchFramePartition as DecodedPartition
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.group_admin import DescribeGroupsRequest
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from support.broker_world import BrokerWorld, Client
from support.turns import slow_down

COUNT = 3 * SHORT_MAX
ELEMENTS_MAX = COUNT + 500


def long_fetch(count: int = COUNT, topic: str = "t") -> FetchRequest:
    wanted = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(count)]
    return FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 24, topics=[FetchTopic(topic, partitions=wanted)])


def long_produce() -> ProduceRequest:
    data = [PartitionProduceData(index, None) for index in range(COUNT)]
    return ProduceRequest(None, 1, 30_000, [TopicProduceData("t", partition_data=data)])


LONG: dict[str, tuple[Any, int]] = {
    "fetch": (long_fetch(), 12),
    "produce": (long_produce(), 9),
    "other": (DescribeGroupsRequest([f"group-{number}" for number in range(COUNT)]), 5),
}


@pytest.fixture
def world() -> BrokerWorld:
    made = BrokerWorld(request_decoded_elements_max=ELEMENTS_MAX)
    made.create_topic("t")
    slow_down(made.clock)
    return made


def taken(world: BrokerWorld) -> int:
    admission = world.broker.admission
    budgets = admission.data.long, admission.data.short, admission.others.long, admission.others.short
    return sum(budget.taken for budget in budgets)


def nothing_is_left(world: BrokerWorld) -> bool:
    memory = world.broker.request_memory
    return (world.broker.slices.running, memory.held, world.broker.admission.waiting, taken(world)) == (0, 0, 0, 0)


def settle(world: BrokerWorld, turns: int = 3000) -> None:
    for _ in range(turns):
        world.clock.settle()
        if not world.broker.slices.running:
            break


@pytest.mark.parametrize("name", LONG)
def test_as_many_elements_are_decoded_at_once_as_one_request_may_have(world: BrokerWorld, name: str) -> None:
    """15 connections with 49,000 partitions each, at once, took 477 MB for Produce and 397 MB for Fetch."""
    clients = [world.connect() for _ in range(8)]
    answered: list[int] = []
    for client in clients:
        client.send(*LONG[name])
    memory = world.broker.request_memory
    frame_size = len(clients[0].frame(*LONG[name], answered=False)) - 4
    assert memory.held >= (len(clients) - 1) * frame_size, "frames that wait count"
    for turn in range(10_000):
        assert taken(world) <= ELEMENTS_MAX + ELEMENTS_MAX // 2
        if name == "fetch" and turn % 20 == 0:
            assert sum(type(each) is DecodedPartition for each in gc.get_objects()) <= ELEMENTS_MAX + ELEMENTS_MAX // 2
        world.clock.settle()
        answered += [number for number, client in enumerate(clients) if number not in answered and client.answers()]
        if len(answered) == len(clients):
            break
    assert answered == sorted(answered), "first come, first served"
    settle(world)
    assert nothing_is_left(world)


def test_one_of_some_hundred_partitions_does_not_wait_for_the_longest(world: BrokerWorld) -> None:
    longest = [world.connect() for _ in range(8)]
    for client in longest:
        client.send(long_fetch(), 12)
    for _ in range(30):
        world.clock.settle()
    other = world.connect()
    other.send(long_fetch(count=SHORT_MAX // 2), 12)
    while not other.answers():
        world.clock.settle()
    assert world.broker.admission.waiting >= 5
    settle(world)


@pytest.mark.parametrize("name", ["fetch", "other"])
def test_one_whose_connection_is_lost_while_it_waits_is_not_handled(world: BrokerWorld, name: str) -> None:
    clients: list[Client] = [world.connect() for _ in range(8)]
    for client in clients:
        client.send(*LONG[name])
        client.peer.disconnect()
    settle(world)
    assert nothing_is_left(world)
    assert not any(client.answers() for client in clients[1:])


@pytest.mark.parametrize("name", LONG)
def test_a_broker_that_stops_gives_up_those_that_wait(world: BrokerWorld, name: str) -> None:
    for _ in range(8):
        world.connect().send(*LONG[name])
    settle(world, 30)
    world.broker.slices.close()
    assert nothing_is_left(world)


@pytest.mark.parametrize("name", LONG)
def test_one_with_too_many_elements_ends_its_connection(world: BrokerWorld, name: str, caplog: pytest.LogCaptureFixture) -> None:
    world.broker.admission.limits = world.broker.admission.limits._replace(decoded_elements_max=COUNT - 1)
    client = world.connect()
    client.send(*LONG[name])
    settle(world)
    assert client.closed
    assert f"more than {COUNT - 1} elements" in caplog.text
    assert nothing_is_left(world)


class _Request:
    """As far as a budget cares."""

    def __init__(self) -> None:
        self.ended = False
        self.elements = 0
        self.budget: ElementPool | None = None


def test_a_budget_is_given_in_order_and_to_nobody_who_has_ended() -> None:
    budget, resumed = ElementPool(), list[str]()
    one, two, three, four = (_Request() for _ in range(4))

    def take(name: str, request: Any, count: int) -> None:
        for pause in budget.take(request, count, 100):
            pause.begin(lambda: resumed.append(name))  # type: ignore[union-attr]

    take("one", one, 90)
    take("two", two, 20)
    take("three", three, 5)
    take("four", four, 100)
    assert (budget.taken, budget.waiting, three.elements) == (90, 3, 0), "three has room, and is not before two"
    three.ended = True
    budget.give_back(50)
    assert (budget.taken, resumed, two.elements, three.elements) == (60, ["two", "three"], 20, 0)
    budget.give_back(60)
    assert (budget.taken, resumed) == (100, ["two", "three", "four"])


def quota_of(**settings: object) -> ConnectionQuota:
    quota = ConnectionQuota()
    quota.configure(BrokerConfig(read_static(settings=[f"{name.replace('_', '.')}={value}" for name, value in settings.items()])))
    return quota


def test_connections_are_bounded_in_all() -> None:
    quota = quota_of(max_connections=2)
    assert [quota.admit(ip) for ip in ("192.0.2.1", "192.0.2.2", "192.0.2.3")] == [None, None, ("max.connections", 2)]
    quota.release("192.0.2.1")
    assert quota.admit("192.0.2.3") is None
    assert (quota.held, quota.refused) == (2, 1)


def test_connections_are_bounded_by_address_with_exceptions() -> None:
    quota = quota_of(max_connections_per_ip=1, max_connections_per_ip_overrides="192.0.2.2:2, [2001:db8::1]:0")
    assert [quota.admit("192.0.2.1") for _ in range(2)] == [None, ("max.connections.per.ip", 1)]
    assert [quota.admit("192.0.2.2") for _ in range(3)] == [None, None, ("max.connections.per.ip", 2)]
    assert quota.admit("2001:db8::1") == ("max.connections.per.ip", 0)
    quota.release("192.0.2.1")
    assert quota.admit("192.0.2.1") is None


def test_without_a_number_the_open_files_bound_the_connections() -> None:
    quota = quota_of()
    quota.files_max = 1
    assert [quota.admit("192.0.2.1") for _ in range(2)] == [None, ("max.connections", 1)]


def test_a_lower_bound_keeps_the_connections_that_are_there() -> None:
    quota = quota_of()
    for _ in range(3):
        assert quota.admit("192.0.2.1") is None
    quota.configure(BrokerConfig(read_static(settings=["max.connections=1"])))
    assert (quota.held, quota.limit) == (3, 1)
    for _ in range(2):
        assert quota.admit("192.0.2.1") == ("max.connections", 1)
        quota.release("192.0.2.1")
    quota.release("192.0.2.1")
    assert quota.admit("192.0.2.1") is None
