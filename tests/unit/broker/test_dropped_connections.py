"""A connection that is gone is freed at once, whatever it had asked for: the garbage collector has nothing to look for."""

import gc
import logging
from collections.abc import Iterator

import pytest

from moldau.broker.admission.slices import SlicedWork
from moldau.broker.handlers.fetch.long import LongFetch
from moldau.broker.handlers.produce.long import LongProduce
from moldau.broker.network.connection import Connection
from moldau.model.errors import ErrorCode, PeerError
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.group_members import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from support.broker_world import BrokerWorld, Client, fetch_request, produce_request
from support.turns import slow_down

COUNT = 200


def long_fetch(*, max_wait_ms: int = 60_000) -> FetchRequest:
    wanted = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(COUNT)]
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1000, max_bytes=1 << 24, topics=[FetchTopic("wide", partitions=wanted)])


def long_produce(acks: int = 1) -> ProduceRequest:
    data = [PartitionProduceData(index, None) for index in range(COUNT)]
    return ProduceRequest(None, acks, 30_000, [TopicProduceData("wide", partition_data=data)])


REQUESTS = {
    "nothing": None,
    "a fetch that waits": (fetch_request("t", 1, max_wait_ms=60_000, min_bytes=1), 12),
    "a batch": (produce_request("t", b"value"), 9),
    "topics that exist": (CreateTopicsRequest([CreatableTopic("t", 1, 1) for _ in range(3)]), 5),
    "a join": (JoinGroupRequest("g", 6000, 6000, "", None, "consumer", [JoinGroupRequestProtocol("range", b"")]), 3),
}


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def objects(kind: type) -> int:
    return sum(type(each) is kind for each in gc.get_objects())


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("name", REQUESTS)
def test_a_connection_is_freed_when_it_is_lost(name: str) -> None:
    """100,000 connections with a request each left 20 objects each to the collector, which took pauses of up to 469 ms."""
    world = BrokerWorld()
    world.create_topic("t")
    world.connect().produce("t", b"value")
    before = objects(Connection), objects(PeerError)
    wanted = REQUESTS[name]

    def connect() -> None:
        client: Client = world.connect()
        if wanted is not None:
            client.send(*wanted)
        client.peer.transport.abort()

    connect()
    world.clock.advance(100)
    assert (objects(Connection), objects(PeerError)) == before


@pytest.mark.usefixtures("no_collector")
def test_topics_that_cannot_be_made_leave_no_errors_behind() -> None:
    world = BrokerWorld()
    world.create_topic("t")
    client = world.connect()
    before = objects(PeerError)
    answer = client.ask(CreateTopicsRequest([CreatableTopic(name, 1, 1) for name in ("t", "no/name", "")]), 5)
    assert all(each.error_code is not ErrorCode.NONE for each in answer.topics)
    assert objects(PeerError) == before


LONG = {
    "a fetch that waits": (long_fetch(), 12),
    "a fetch that is answered": (long_fetch(max_wait_ms=0), 12),
    "batches": (long_produce(), 9),
    "batches without an answer": (long_produce(acks=0), 9),
}


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("when", ["at once", "later", "read again"])
@pytest.mark.parametrize("name", LONG)
def test_a_connection_with_a_long_request_is_freed_when_it_is_lost(name: str, when: str, caplog: pytest.LogCaptureFixture) -> None:
    """Each left itself and up to 50,000 decoded partitions to the collector, which runs after ten minutes under load."""
    caplog.set_level(logging.CRITICAL)  # records that are captured keep the errors in them
    world = BrokerWorld()
    world.create_topic("wide", COUNT)
    slow_down(world.clock)
    kinds = (Connection, LongFetch, LongProduce, SlicedWork)
    other = world.connect()
    before = [objects(kind) for kind in kinds]

    def connect() -> None:
        client: Client = world.connect()
        client.send(*LONG[name])
        if when != "at once":
            for _ in range(100):
                world.clock.settle()
        if when == "read again":
            other.produce("wide", bytes(2000), partition=1)
        client.peer.transport.abort()

    connect()
    for _ in range(100):
        world.clock.settle()
    assert [objects(kind) for kind in kinds] == before
