"""Opening a connection means the same over real sockets, on both event loops, and in memory."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from typing import Protocol

import pytest

from moldau.adapters.asyncio_network import AsyncioNetwork
from moldau.adapters.asyncio_server import Server, ServerLimits
from moldau.adapters.binding import bind
from moldau.adapters.event_loop import new_event_loop
from moldau.broker.admission.admission import ConnectionQuota
from moldau.ports.transport import ConnectError, Network, Receiver, Transport
from moldau.testing.clock import FakeClock
from moldau.testing.network import MemoryNetwork

STEPS_MAX = 20_000


class Side:
    """One end of a connection, which remembers."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.buffer = memoryview(bytearray(4096))
        self.received = bytearray()
        self.lost: list[Exception | None] = []

    def get_buffer(self, size_hint: int) -> memoryview:
        return self.buffer

    def buffer_updated(self, count: int) -> None:
        self.received += self.buffer[:count]

    def queue_drained(self) -> None: ...

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.append(error)


class Sides:
    """The ends of the connections of one party, in the order in which they came, and failures."""

    def __init__(self) -> None:
        self.all: list[Side] = []
        self.failures: list[ConnectError] = []

    def accept(self, transport: Transport) -> Receiver:
        self.all.append(Side(transport))
        return self.all[-1]


class World(Protocol):
    """A network, and a listener at `address` whose ends are `listening`."""

    network: Network
    address: tuple[str, int]
    listening: Sides

    def step(self) -> None: ...
    def free_address(self) -> tuple[str, int]: ...
    def close(self) -> None: ...


class MemoryWorld:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.memory = MemoryNetwork(lambda callback: self.clock.call_later(0.0, callback), window=5000)
        self.network: Network = self.memory
        self.address = ("broker.test", 9092)
        self.listening = Sides()
        self.memory.listen(*self.address, self.listening.accept)

    def step(self) -> None:
        self.clock.settle()
        self.memory.move()

    def free_address(self) -> tuple[str, int]:
        return ("broker.test", 9093)

    def close(self) -> None:
        self.step()
        assert self.clock.pending == 0
        assert self.memory.links == []


class SocketWorld:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.network: Network = AsyncioNetwork(loop)
        self.listening = Sides()
        self.server = Server(loop, lambda transport, _: self.listening.accept(transport), ServerLimits(), ConnectionQuota())
        sockets = bind("127.0.0.1", 0)
        self.address: tuple[str, int] = sockets[0].getsockname()
        self.server.serve([("PLAINTEXT", each) for each in sockets])
        self.errors: list[object] = []
        loop.set_exception_handler(lambda loop, context: self.errors.append(context))

    def step(self) -> None:
        self.loop.run_until_complete(asyncio.sleep(0.0002))

    def free_address(self) -> tuple[str, int]:
        with socket.create_server(("127.0.0.1", 0)) as free:
            host, port = free.getsockname()
        return host, port

    def close(self) -> None:
        self.server.abort()
        self.step()
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
        assert self.errors == []


def memory() -> World:
    return MemoryWorld()


def on_asyncio() -> World:
    return SocketWorld(new_event_loop("asyncio"))


def on_uvloop() -> World:
    pytest.importorskip("uvloop")
    return SocketWorld(new_event_loop("uvloop"))


@pytest.fixture(params=[memory, on_asyncio, on_uvloop], ids=lambda make: make.__name__)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made: World = request.param()
    yield made
    made.close()


@pytest.fixture
def ours(world: World) -> Iterator[Sides]:
    sides = Sides()
    yield sides
    for side in sides.all:
        side.transport.abort()
    world.step()


def until(world: World, condition: Callable[[], bool]) -> None:
    for _ in range(STEPS_MAX):
        if condition():
            return
        world.step()
    raise AssertionError("it did not happen")


def connected(world: World, ours: Sides) -> tuple[Side, Side]:
    """A new connection: our end and the listener's."""
    count = len(ours.all)
    world.network.connect(*world.address, ours.accept, ours.failures.append)
    assert len(ours.all) == count, "nothing is called before `connect` returns"
    until(world, lambda: len(ours.all) == len(world.listening.all) == count + 1)
    return ours.all[-1], world.listening.all[-1]


def test_both_ends_name_the_same_addresses(world: World, ours: Sides) -> None:
    own, theirs = connected(world, ours)
    assert own.transport.peer == theirs.transport.local == world.address
    assert own.transport.local == theirs.transport.peer
    assert own.transport.local != world.address
    assert ours.failures == []


def test_bytes_go_both_ways_in_order(world: World, ours: Sides) -> None:
    own, theirs = connected(world, ours)
    request, response = bytes(range(256)) * 1000, bytes(reversed(range(256))) * 3000
    own.transport.send([request[:10], request[10:]])
    until(world, lambda: theirs.received == request)
    theirs.transport.send([response])
    until(world, lambda: own.received == response)


def test_connections_do_not_mix(world: World, ours: Sides) -> None:
    pairs = [connected(world, ours) for _ in range(5)]
    for number, (own, theirs) in enumerate(pairs):
        own.transport.send([b"to %d" % number])
        theirs.transport.send([b"from %d" % number])
    until(world, lambda: all(len(own.received) == 6 and len(theirs.received) == 4 for own, theirs in pairs))
    assert [bytes(own.received) for own, _ in pairs] == [b"from %d" % number for number in range(5)]
    assert [bytes(theirs.received) for _, theirs in pairs] == [b"to %d" % number for number in range(5)]


def test_where_nobody_listens_it_fails_with_the_address(world: World, ours: Sides) -> None:
    host, port = world.free_address()
    world.network.connect(host, port, ours.accept, ours.failures.append)
    assert ours.failures == [], "nothing is called before `connect` returns"
    until(world, lambda: bool(ours.failures))
    (failure,) = ours.failures
    assert failure.retriable
    assert str(failure).startswith(f"cannot connect to {host}:{port}: ")
    assert "refused" in str(failure)
    assert ours.all == []


@pytest.mark.parametrize("host", ["no.such.host.invalid", "é" * 70, "ü.invalid"])
def test_a_host_that_does_not_exist_fails(world: World, ours: Sides, host: str) -> None:
    world.network.connect(host, 9092, ours.accept, ours.failures.append)
    until(world, lambda: bool(ours.failures))
    assert str(ours.failures[0]).startswith(f"cannot connect to {host}:9092: ")


@pytest.mark.parametrize("steps", range(6))
def test_once_cancelled_neither_callback_comes(world: World, ours: Sides, steps: int) -> None:
    attempts = [world.network.connect(*address, ours.accept, ours.failures.append) for address in (world.address, world.free_address())]
    for _ in range(steps):
        world.step()
    came = len(ours.all), len(ours.failures)
    for attempt in attempts:
        attempt.cancel()
        attempt.cancel()
    for _ in range(20):
        world.step()
    assert (len(ours.all), len(ours.failures)) == came
    if not ours.all:
        until(world, lambda: all(side.lost for side in world.listening.all))


def test_to_cancel_a_connection_that_is_open_does_nothing(world: World, ours: Sides) -> None:
    attempt = world.network.connect(*world.address, ours.accept, ours.failures.append)
    until(world, lambda: len(ours.all) == len(world.listening.all) == 1)
    attempt.cancel()
    world.listening.all[0].transport.send([b"still there"])
    until(world, lambda: ours.all[0].received == b"still there")


def test_a_side_that_closes_sends_what_is_queued_and_the_other_hears_of_the_end_once(world: World, ours: Sides) -> None:
    for closes in (0, 1):
        pair = connected(world, ours)
        closing, other = pair[closes], pair[1 - closes]
        closing.transport.send([b"x" * 300_000])
        closing.transport.close()
        until(world, lambda closing=closing, other=other: len(closing.lost) == len(other.lost) == 1)  # type: ignore[misc]
        assert other.received == b"x" * 300_000
        assert closing.lost == other.lost == [None]


def test_a_side_that_does_not_read_holds_the_other_up(world: World, ours: Sides) -> None:
    own, theirs = connected(world, ours)
    own.transport.pause_reading()
    size = 32 << 20
    theirs.transport.send([b"y" * size])
    for _ in range(20):
        world.step()
    assert theirs.transport.queued_bytes() > 0
    assert own.received == b""
    own.transport.resume_reading()
    until(world, lambda: len(own.received) == size)
