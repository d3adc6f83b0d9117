"""The metrics server answers every client that asks properly, whatever the others do, and says precisely what it has not."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException

import pytest

from moldau.adapters import metrics_server
from moldau.adapters.binding import bind
from moldau.adapters.metrics_server import CONNECTIONS_MAX, MetricsServer, UnavailableError, render
from moldau.broker.metrics.families import Family, counter, gauge

LIMIT_S = 10.0


class Source:
    """What the broker would give. `collecting` is set when a collection has begun, `go` lets it end."""

    def __init__(self) -> None:
        self.collections = 0
        self.reasons: list[str] = []
        self.failure: UnavailableError | None = None
        self.collecting = threading.Event()
        self.go = threading.Event()
        self.go.set()
        self.size = 1

    def collect(self) -> list[Family]:
        self.collections += 1
        self.collecting.set()
        assert self.go.wait(LIMIT_S)
        if self.failure is not None:
            raise self.failure
        family = gauge("kafka_log_log_size", "Bytes.", "topic", "partition")
        for number in range(self.size):
            family.add(number, "t", str(number))
        return [family]

    def not_ready(self) -> list[str]:
        return self.reasons


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def port(source: Source) -> Iterator[int]:
    sockets = bind("127.0.0.1", 0)
    server = MetricsServer(sockets, source.collect, source.not_ready)
    server.start()
    yield sockets[0].getsockname()[1]
    source.go.set()
    server.stop()


def ask(port: int, path: str, method: str = "GET") -> tuple[int, str, bytes]:
    """Status, content type and body."""
    connection = HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.headers["Content-Type"], response.read()
    finally:
        connection.close()


def test_the_page_is_prometheus_text(port: int) -> None:
    status, content_type, page = ask(port, "/metrics?name=x")
    assert (status, content_type) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert page.startswith(
        b'# HELP kafka_log_log_size Bytes.\n# TYPE kafka_log_log_size gauge\nkafka_log_log_size{partition="0",topic="t"} 0.0\n'
    )
    assert b"\nprocess_cpu_seconds_total " in page


def test_labels_are_escaped() -> None:
    family = counter("moldau_x", "Back\\slash.", "topic")
    family.add(1, 'a"b\\c\nd')
    assert rb'moldau_x_total{topic="a\"b\\c\nd"} 1.0' in render([family])


def test_health_and_readiness(port: int, source: Source) -> None:
    assert ask(port, "/health")[::2] == (200, b"ok\n")
    assert ask(port, "/ready")[::2] == (200, b"ready\n")
    source.reasons = ["groups are loading", "transactions are loading"]
    assert ask(port, "/ready")[::2] == (503, b"groups are loading\ntransactions are loading\n")
    assert ask(port, "/health")[0] == 200


def test_a_broker_that_cannot_be_asked(port: int, source: Source) -> None:
    source.failure = UnavailableError("the broker is starting")
    assert ask(port, "/metrics")[::2] == (503, b"the broker is starting\n")
    source.failure = None
    assert ask(port, "/metrics")[0] == 200


@pytest.mark.parametrize("path", ["/", "/metrics/", "/Metrics", "/../metrics", "/x" * 1000])
def test_other_paths_are_not_found(port: int, source: Source, path: str) -> None:
    assert ask(port, path)[0] == 404
    assert source.collections == 0


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "BREW"])
def test_other_methods_are_not_allowed(port: int, source: Source, method: str) -> None:
    assert ask(port, "/metrics", method)[0] == 405
    assert source.collections == 0


def test_head_has_no_body(port: int) -> None:
    assert ask(port, "/metrics", "HEAD")[::2] == (200, b"")


@pytest.mark.parametrize(
    "request_bytes", [b"\r\n\r\n", b"nonsense\r\n\r\n", b"GET /metrics HTTP/9.9\r\n\r\n", b"\0\xff\r\n\r\n", b"GET /" + b"x" * 70_000]
)
def test_what_is_no_request_harms_nobody(port: int, request_bytes: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as client:
        client.sendall(request_bytes)
        client.shutdown(socket.SHUT_WR)
        try:
            while client.recv(1 << 16):
                pass
        except ConnectionResetError:  # it did not read to the end
            pass
    assert ask(port, "/health")[0] == 200


def test_a_page_that_nobody_reads_keeps_nobody_waiting(port: int, source: Source) -> None:
    """Claim: a client that asks for a page of megabytes and does not read it occupies a thread, not the others."""
    source.size = 100_000
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", port))
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert source.collecting.wait(LIMIT_S)
        source.size = 1
        assert ask(port, "/metrics")[0] == 200


def test_two_scrapes_at_once_collect_one_after_the_other(port: int, source: Source) -> None:
    """Claim: each gets a page that was collected after it asked, those that wait together share one, and two never run together."""
    source.go.clear()
    pages: list[int] = []
    threads = [threading.Thread(target=lambda: pages.append(ask(port, "/metrics")[0])) for _ in range(4)]
    threads[0].start()
    assert source.collecting.wait(LIMIT_S)
    for thread in threads[1:]:
        thread.start()
    while threading.active_count() < 4:  # all are under way
        pass
    assert source.collections == 1
    source.go.set()
    for thread in threads:
        thread.join(LIMIT_S)
    assert pages == [200] * 4
    assert 2 <= source.collections <= 4


def test_idle_connections_do_not_keep_others_out(port: int) -> None:
    """Claim: with as many open as may be, a further one closes the oldest."""
    idle = [socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) for _ in range(CONNECTIONS_MAX)]
    try:
        assert ask(port, "/health")[0] == 200
        assert idle[0].recv(1) == b""
    finally:
        for each in idle:
            each.close()


def test_threads_that_wait_for_the_broker_are_bounded(port: int, source: Source) -> None:
    """Claim: while the broker does not answer, scrapes without end take twice as many threads as connections may be open, no more."""
    source.go.clear()
    before = threading.active_count()
    scrapes = []
    for _ in range(4 * CONNECTIONS_MAX):
        scrapes.append(socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S))
        scrapes[-1].sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
    assert scrapes[-1].recv(1) == b"", "refused"
    assert threading.active_count() - before <= 2 * CONNECTIONS_MAX
    source.go.set()
    for each in scrapes:
        each.close()
    status = 0
    while status != 200:  # the threads that waited have to end first
        with contextlib.suppress(OSError, HTTPException):
            status = ask(port, "/metrics")[0]


def test_a_client_that_sends_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    monkeypatch.setattr(metrics_server._Handler, "timeout", 0.05)
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as client:
        assert client.recv(1) == b""


def test_a_stop_closes_what_is_open(source: Source) -> None:
    sockets = bind("127.0.0.1", 0)
    address = sockets[0].getsockname()
    server = MetricsServer(sockets, source.collect, source.not_ready)
    server.start()
    with socket.create_connection(address, timeout=LIMIT_S) as client:
        client.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        assert client.recv(1 << 16)
        server.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=LIMIT_S).close()
