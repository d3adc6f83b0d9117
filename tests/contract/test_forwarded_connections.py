"""What brokers of a test's cluster send each other is forwarded by a process that holds it back, delays it, and loses nothing."""

import contextlib
import socket
import struct
import time
from collections.abc import Iterator

import pytest

from moldau.testing.cluster.forwarder import HELD_BYTES, STRANGER, opener
from moldau.testing.cluster.links import HOST, Links, Target

LIMIT_S = 60.0


def request(client_id: str, body: bytes = b"") -> bytes:
    """As every client's first one begins."""
    frame = struct.pack(">hhi", 18, 0, 1) + struct.pack(">h", len(client_id)) + client_id.encode() + body
    return struct.pack(">i", len(frame)) + frame


HELLO = request("broker-1-watch")


class Pair:
    """Connections of broker 1 to broker 2, by the forwarder."""

    def __init__(self) -> None:
        self.target = socket.create_server((HOST, 0))
        self.links = Links()
        self.port = self.links.start({"2": Target("2", HOST, self.target.getsockname()[1])})["2"]
        self.open: list[socket.socket] = []

    def connect(self, hello: bytes = HELLO) -> tuple[socket.socket, socket.socket]:
        """Both ends; what was said first is on its way."""
        here = socket.create_connection((HOST, self.port), LIMIT_S)
        here.sendall(hello)
        there, _ = self.target.accept()
        there.settimeout(LIMIT_S)
        self.open += [here, there]
        return here, there

    def close(self) -> None:
        self.links.close()
        for each in (*self.open, self.target):
            each.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()


def read(connected: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = connected.recv(count - len(data))
        assert piece, "the connection has ended"
        data += piece
    return data


def is_silent(connected: socket.socket) -> bool:
    """Whether nothing has come. Rules are followed before `Links` returns, so that nothing is on its way that they forbid."""
    connected.setblocking(False)
    try:
        connected.recv(1)
    except BlockingIOError:
        return True
    finally:
        connected.settimeout(LIMIT_S)
    return False


def send_all_that_is_taken(connected: socket.socket, least: int, most: int) -> int:
    """Bytes, until no more are taken for a moment, or so many were; up to `least` it is waited for longer."""
    sent = 0
    with contextlib.suppress(TimeoutError):
        while sent < most:
            connected.settimeout(LIMIT_S if sent < least else 0.5)
            sent += connected.send(b"\0" * (1 << 16))
    return sent


def test_both_ends_get_what_the_other_sends_and_its_end(pair: Pair) -> None:
    here, there = pair.connect()
    assert read(there, len(HELLO)) == HELLO
    there.sendall(b"answer")
    assert read(here, 6) == b"answer"
    here.sendall(b"last")
    here.close()
    assert read(there, 4) == b"last"
    assert there.recv(1) == b""


def test_one_way_only_one_direction_is_held_back_and_nothing_is_lost_of_it(pair: Pair) -> None:
    here, there = pair.connect()
    assert read(there, len(HELLO)) == HELLO
    pair.links.cut([("1", "2")])
    here.sendall(b"held")
    there.sendall(b"passes")
    assert read(here, 6) == b"passes"
    assert is_silent(there)
    here.close()
    pair.links.heal()
    assert read(there, 4) == b"held"
    assert there.recv(1) == b""


def test_connections_that_are_opened_while_they_are_cut_are_silent_until_it_is_healed(pair: Pair) -> None:
    pair.links.cut([("1", "2"), ("2", "1")])
    here, there = pair.connect()
    there.sendall(b"answer")
    stranger, served = pair.connect(request("rdkafka"))
    assert read(served, len(request("rdkafka"))) == request("rdkafka")
    served.sendall(b"x")
    assert read(stranger, 1) == b"x"
    assert is_silent(here)
    assert is_silent(there)
    pair.links.heal()
    assert read(there, len(HELLO)) == HELLO
    assert read(here, 6) == b"answer"


def test_what_is_held_back_is_bounded_and_the_rest_stays_with_its_sender(pair: Pair) -> None:
    here, there = pair.connect()
    assert read(there, len(HELLO)) == HELLO
    here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
    sent = send_all_that_is_taken(here, HELD_BYTES, 64 * HELD_BYTES)
    assert HELD_BYTES <= sent < 64 * HELD_BYTES
    assert read(there, sent) == b"\0" * sent


def test_what_is_slow_comes_later_and_in_its_order(pair: Pair) -> None:
    here, there = pair.connect()
    assert read(there, len(HELLO)) == HELLO
    pair.links.slow([("1", "2")], 0.2, 0)
    begun = time.monotonic()
    here.sendall(b"one")
    here.sendall(b"two")
    assert read(there, 6) == b"onetwo"
    assert time.monotonic() - begun >= 0.2
    there.sendall(b"fast")
    assert read(here, 4) == b"fast"


def test_where_nothing_listens_a_connection_ends_at_once(pair: Pair) -> None:
    pair.target.close()
    # The reset may come before the call that opens the connection returns.
    with pytest.raises(ConnectionResetError), socket.create_connection((HOST, pair.port), LIMIT_S) as here:
        here.recv(1)


def test_a_request_says_whose_connection_it_is() -> None:
    assert [opener(HELLO[:count]) for count in (0, 4, 13, len(HELLO) - 1)] == [None] * 4
    assert opener(HELLO) == "1"
    assert opener(request("broker-12-fetcher-0", b"more")) == "12"
    assert [opener(request(name)) for name in ("", "broker-x", "rdkafka")] == [STRANGER] * 3
    nothing = struct.pack(">ihhih", 10, 18, 0, 1, -1)
    assert opener(nothing) == STRANGER
