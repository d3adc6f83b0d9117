"""Connections and requests over HTTP have bounds of time, number and size, and a stop waits for none of them (F1)."""

import socket
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from moldau.registry.limits import HttpLimits
from moldau.registry.server import RegistryServer
from moldau.testing import Broker
from support.registry import V1, Rest, running_registry

pytestmark = pytest.mark.system

LIMITS = HttpLimits(connections_max=5, request_s=0.5, idle_s=1, unread_s=0.5, head_bytes_max=4096)
PATIENCE_S = 20.0
POST = f"POST /subjects/a/versions HTTP/1.1\r\nHost: localhost\r\nContent-Type: {V1}\r\nContent-Length: 100\r\n\r\n".encode()
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryServer]:
    with Broker() as broker, running_registry(broker.bootstrap_servers, http_limits=LIMITS) as running:
        yield running


def connected(registry: RegistryServer) -> socket.socket:
    """A connection to it."""
    address = urlsplit(registry.url)
    return socket.create_connection((address.hostname, address.port), PATIENCE_S)


def answered(peer: socket.socket) -> bytes:
    """The answer to GET."""
    found = b""
    while not found.endswith(b"{}"):
        part = peer.recv(65536)
        if not part:
            break
        found += part
    return found


def everything(peer: socket.socket) -> bytes:
    """What comes until the end."""
    found = b""
    while True:
        try:
            part = peer.recv(65536)
        except ConnectionResetError:
            return found
        if not part:
            return found
        found += part


@pytest.mark.parametrize("sent", [b"", GET[:-2], POST, POST + b"{"])
def test_a_request_that_does_not_come_to_its_end_is_cut(registry: RegistryServer, sent: bytes) -> None:
    with connected(registry) as peer:
        peer.sendall(sent)
        assert everything(peer).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("sent", [GET[:-2] + b"X: ", POST])
def test_a_byte_now_and_then_does_not_keep_a_connection(registry: RegistryServer, sent: bytes) -> None:
    start = time.monotonic()
    with connected(registry) as peer:
        peer.sendall(sent)
        with pytest.raises(OSError):  # noqa: PT011, PT012 - of whatever kind
            while time.monotonic() - start < PATIENCE_S:
                peer.sendall(b"x")
                time.sleep(0.05)
    assert time.monotonic() - start < PATIENCE_S / 2


def test_the_second_request_of_a_connection_has_its_own_time_and_an_idle_one_is_closed(registry: RegistryServer) -> None:
    with connected(registry) as peer:
        peer.sendall(GET)
        assert answered(peer).startswith(b"HTTP/1.1 200 ")
        time.sleep(LIMITS.request_s * 1.2)
        peer.sendall(GET)
        assert answered(peer).startswith(b"HTTP/1.1 200 "), "idle is not slow"
        peer.sendall(GET[:5])
        assert everything(peer).startswith(b"HTTP/1.1 408 ")
    with connected(registry) as peer:
        peer.sendall(GET)
        assert everything(peer).startswith(b"HTTP/1.1 200 ")


def test_connections_beyond_the_bound_are_refused_and_those_within_are_served(registry: RegistryServer) -> None:
    held = []
    for _ in range(LIMITS.connections_max):
        held.append(connected(registry))
        held[-1].sendall(GET)
        assert answered(held[-1]).startswith(b"HTTP/1.1 200 ")
    with connected(registry) as peer:
        assert everything(peer).startswith(b"HTTP/1.1 503 ")
    held[0].sendall(GET)
    assert answered(held[0]).startswith(b"HTTP/1.1 200 ")
    for each in held:
        each.close()
    deadline = time.monotonic() + PATIENCE_S
    while Rest(registry.url)("GET", "/").status != 200:
        assert time.monotonic() < deadline


@pytest.mark.parametrize("head", [b"X: " + b"x" * 5_000_000, b"".join(b"X%d: y\r\n" % each for each in range(500_000))])
def test_a_head_without_end_is_cut(registry: RegistryServer, head: bytes) -> None:
    with connected(registry) as peer:
        try:
            peer.sendall(GET[:-2] + head)
        except OSError:
            return
        assert b"200" not in everything(peer)[:20]


def test_a_stop_does_not_wait_for_half_requests(registry: RegistryServer) -> None:
    with RegistryServer(registry.bootstrap_servers, "127.0.0.1:0", topic="stops", group="stops") as other:
        peers = [connected(other) for _ in range(20)]
        for number, peer in enumerate(peers):
            peer.sendall((b"", GET[:-2], POST)[number % 3])
        start = time.monotonic()
    assert time.monotonic() - start < 8
    for peer in peers:
        peer.close()


def test_bodies_of_all_requests_together_have_a_bound() -> None:
    """Those of a thousand connections would be two gigabytes; what is refused may be asked again."""
    limits = HttpLimits(all_bodies_bytes_max=1 << 20)
    with Broker() as broker, running_registry(broker.bootstrap_servers, http_limits=limits) as running:
        head = POST.replace(b"Length: 100", b"Length: 900000")
        with connected(running) as first, connected(running) as second:
            first.sendall(head + b" " * 800_000)
            assert running._parts is not None
            deadline = time.monotonic() + PATIENCE_S
            while running._parts._app._bodies_bytes < 800_000:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            assert b"503" in _post(running, 700_000)
            second.sendall(GET)
            assert answered(second).startswith(b"HTTP/1.1 200 ")
        deadline = time.monotonic() + PATIENCE_S
        while b"503" in _post(running, 700_000):
            assert time.monotonic() < deadline
            time.sleep(0.01)


def _post(registry: RegistryServer, size: int) -> bytes:
    """The first line of the answer to a body of blanks."""
    with connected(registry) as peer:
        peer.sendall(POST.replace(b"Length: 100", b"Length: %d" % size) + b" " * size)
        return peer.recv(65536).split(b"\r\n")[0]


def test_answers_that_clients_do_not_read_have_a_bound_over_all_connections() -> None:
    limits = HttpLimits(all_unread_bytes_max=1 << 20, idle_s=1, unread_s=3)
    with Broker() as broker, running_registry(broker.bootstrap_servers, http_limits=limits) as running:
        symbols = ",".join(f'\\"S{each}\\"' for each in range(60_000))
        text = '{"schema": "{\\"type\\":\\"enum\\",\\"name\\":\\"E\\",\\"symbols\\":[' + symbols + ']}"}'
        told = Rest(running.url)("POST", "/subjects/large/versions", raw=text.encode())
        assert told.status == 200, told
        greedy = []
        for _ in range(20):
            greedy.append(connected(running))
            greedy[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            greedy[-1].sendall(GET.replace(b"GET /", b"GET /schemas/ids/1") * 20)
        deadline = time.monotonic() + PATIENCE_S
        while Rest(running.url)("GET", "/schemas/ids/1").status != 503:
            assert time.monotonic() < deadline
        deadline = time.monotonic() + PATIENCE_S
        while Rest(running.url)("GET", "/schemas/ids/1").status != 200:  # those that never read are cut
            assert time.monotonic() < deadline
            time.sleep(0.05)
        for each in greedy:
            each.close()


def test_a_list_that_is_long_is_had_in_pages_and_not_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 18 MB that a registry kept, twenty requests for all of it made 370 MB."""
    limits = HttpLimits(answer_bytes_max=100_000, all_unread_bytes_max=1 << 20)
    with Broker() as broker, running_registry(broker.bootstrap_servers, http_limits=limits) as running:
        rest = Rest(running.url)
        for number in range(4):
            schema = {"schema": '"int"', "metadata": {"properties": {"note": "x" * 40_000}}}
            assert rest("POST", f"/subjects/s{number}/versions", schema).status == 200
        told = rest("GET", "/schemas")
        assert told.status == 422
        assert "offset and limit" in told.body["message"]
        assert [each["subject"] for each in rest("GET", "/schemas?offset=1&limit=2").body] == ["s1", "s2"]
