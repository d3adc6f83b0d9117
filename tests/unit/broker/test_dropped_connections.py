"""A connection that is gone is freed at once, whatever it had asked for: the garbage collector has nothing to look for."""

import gc
from collections.abc import Iterator

import pytest

from moldau.broker.connection import Connection
from moldau.model.errors import ErrorCode, PeerError
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from support.broker_world import BrokerWorld, Client, fetch_request, produce_request

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
