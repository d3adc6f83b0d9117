"""What peers have sent in part takes bounded memory over all of them, and nobody waits for ever."""

import struct

import pytest

from moldau.broker.request_memory import READ_BYTES, SMALL_BYTES
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from support.broker_world import BrokerWorld, Client, batch, produce_request

BOUND = 1_000_000
FRAME = 400_000
TIMEOUT_S = 10


@pytest.fixture
def world() -> BrokerWorld:
    made = BrokerWorld(queued_max_request_bytes=BOUND, incomplete_request_timeout_ms=TIMEOUT_S * 1000)
    made.create_topic("t")
    return made


def large(world: BrokerWorld, client: Client) -> bytes:
    """A Produce request of some hundred kilobytes."""
    return client.frame(produce_request("t", batch(world, b"x" * FRAME)), 9)


def send_part(world: BrokerWorld, count: int = 200_000) -> tuple[Client, bytes]:
    """A client that has sent that much of a large request, and the rest of it."""
    client = world.connect()
    frame = large(world, client)
    client.peer.send(frame[:count])
    return client, frame[count:]


def held(world: BrokerWorld) -> int:
    return sum(connection.held_bytes for connection in world.broker.connections)


def push(world: BrokerWorld, clients: list[tuple[Client, bytes]]) -> None:
    for _ in range(400):
        world.clock.settle()
        for client, _ in clients:
            client.peer.push()


def test_the_memory_of_incomplete_requests_is_bounded_over_all_connections(world: BrokerWorld) -> None:
    clients = [send_part(world) for _ in range(50)]
    push(world, clients)
    memory = world.broker.request_memory
    assert memory.held == held(world)
    assert memory.held <= BOUND + FRAME + 1000 + 50 * (SMALL_BYTES + READ_BYTES)
    assert memory.waiting > 0


def test_short_requests_are_served_meanwhile(world: BrokerWorld) -> None:
    clients = [send_part(world) for _ in range(50)]
    assert world.broker.request_memory.exhausted
    other = world.connect()
    for _ in range(10):
        assert other.ask(HeartbeatRequest("g", 1, "m"), 4).error_code
    assert len(clients) == 50


def test_all_who_send_on_are_served_one_after_the_other(world: BrokerWorld) -> None:
    clients = [send_part(world) for _ in range(20)]
    for client, rest in clients:
        client.peer.send(rest)
    push(world, clients)
    codes = [client.answers()[0].body.responses[0].partition_responses[0].error_code for client, _ in clients]
    assert codes == [0] * 20
    assert (world.broker.request_memory.held, world.broker.request_memory.waiting) == (0, 0)


def test_who_sends_nothing_more_is_closed_and_others_get_on(world: BrokerWorld) -> None:
    silent = [send_part(world) for _ in range(10)]
    late, rest = send_part(world)
    late.peer.send(rest)
    push(world, [*silent, (late, b"")])
    assert late.answers() == []
    for _ in range(TIMEOUT_S + 3):
        world.clock.advance(1)
        late.peer.push()
    push(world, [(late, b"")])
    assert all(client.closed for client, _ in silent)
    assert world.broker.request_memory.cut >= 10


def test_while_there_is_memory_nobody_is_hurried(world: BrokerWorld) -> None:
    client, rest = send_part(world)
    world.clock.advance(10 * TIMEOUT_S)
    client.peer.send(rest)
    assert client.answers()[0].body.responses[0].partition_responses[0].error_code == 0


def test_what_a_lost_connection_held_is_there_again(world: BrokerWorld) -> None:
    clients = [send_part(world) for _ in range(20)]
    for client, _ in clients:
        client.peer.disconnect()
    world.clock.settle()
    assert (world.broker.request_memory.held, world.broker.request_memory.waiting) == (0, 0)


def test_a_request_split_into_bytes_gets_on_at_the_bound(world: BrokerWorld) -> None:
    clients = [send_part(world) for _ in range(20)]
    other = world.connect(piece=1)
    assert other.ask(HeartbeatRequest("g", 1, "m"), 4).error_code
    assert len(clients) == 20


def test_the_frame_is_whatever_it_says_to_be(world: BrokerWorld) -> None:
    """A peer that announces much and sends little takes no more than eight times what it sent."""
    for _ in range(100):
        world.connect().peer.send(struct.pack(">ihhi", 50_000_000, 0, 9, 1) + bytes(1000))
    assert world.broker.request_memory.held <= 100 * 8 * 1012
