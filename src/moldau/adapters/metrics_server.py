"""HTTP for a monitoring system: ``/metrics`` as Prometheus text, ``/health`` and ``/ready``. Needs the extra `metrics`.

It has threads of its own, so that rendering and slow clients do not occupy the broker's, which only collects values. Collections run one
at a time, and requests that wait for one share the next. At most `CONNECTIONS_MAX` connections are open: a further one closes the oldest,
so clients that send or read nothing do not keep others out. While that many threads wait for the broker, further connections are closed.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from moldau.broker.metrics.families import Family

CONNECTIONS_MAX = 16
SOCKET_TIMEOUT_S = 10.0
"""How long a client may keep a connection without sending or taking bytes."""
_TEXT = "text/plain; charset=utf-8"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"


class UnavailableError(Exception):
    """The broker cannot be asked: it is starting, stopping or does not answer."""


class MetricsServer:
    """Serves on sockets that are bound and listen."""

    def __init__(self, sockets: Sequence[socket.socket], collect: Callable[[], list[Family]], not_ready: Callable[[], list[str]]) -> None:
        """`collect` and `not_ready` are called on this server's threads, wait for the broker, and may raise UnavailableError."""
        self._collect = collect
        self._not_ready = not_ready
        self._lock = threading.Lock()
        self._page: bytes | UnavailableError = b""
        self._collected_s = float("-inf")
        """When the collection of `_page` began."""
        self._servers = [_Server(each, self) for each in sockets]

    def start(self) -> None:
        """Begin to serve."""
        for server in self._servers:
            threading.Thread(target=server.serve_forever, args=(0.1,), name="moldau-metrics", daemon=True).start()

    def stop(self) -> None:
        """Stop listening and close all connections. Call `start` before."""
        for server in self._servers:
            server.shutdown()
            server.server_close()
            server.close_connections()

    def page(self) -> bytes:
        """All metrics as text. UnavailableError."""
        asked_s = time.monotonic()
        with self._lock:
            if self._collected_s < asked_s:
                self._collected_s = time.monotonic()
                try:
                    self._page = render(self._collect())
                except UnavailableError as error:
                    self._page = error
            if isinstance(self._page, UnavailableError):
                raise UnavailableError(*self._page.args)
            return self._page

    def answer(self, path: str) -> tuple[HTTPStatus, str, bytes]:
        """Status, content type and body for a path."""
        try:
            match path:
                case "/metrics":
                    return HTTPStatus.OK, _METRICS, self.page()
                case "/health":
                    return HTTPStatus.OK, _TEXT, b"ok\n"
                case "/ready":
                    reasons = self._not_ready()
                    if not reasons:
                        return HTTPStatus.OK, _TEXT, b"ready\n"
                    return HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, "".join(f"{reason}\n" for reason in reasons).encode()
                case _:
                    return HTTPStatus.NOT_FOUND, _TEXT, b"not found; there are /metrics, /health and /ready\n"
        except UnavailableError as error:
            return HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, f"{error}\n".encode()


def render(families: Iterable[Family]) -> bytes:
    """Families, and those of this process (`process_*`), in the text format 0.0.4."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Fixed([_metric(family) for family in families]))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


def _metric(family: Family) -> Metric:
    """Its samples are made one by one while they are rendered: see :mod:`moldau.broker.metrics.families`."""
    metric = Metric(family.name, family.help, family.kind)
    name, labels = family.name, family.labels
    metric.samples = (Sample(name + suffix, dict(zip(labels, values, strict=False)), value) for suffix, values, value in family.samples)  # type: ignore[assignment]
    return metric


class _Fixed(Collector):
    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, bound: socket.socket, metrics: MetricsServer) -> None:
        super().__init__(bound.getsockname(), _Handler, bind_and_activate=False)
        self.socket.close()  # the base class makes one of its own
        self.socket = bound
        self.metrics = metrics
        self._open: dict[socket.socket, None] = {}
        """Those that may be cut, the oldest first."""
        self._ending: dict[socket.socket, None] = {}
        """Those that were, and whose threads have not ended."""
        self._open_lock = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Take a connection; the oldest is closed where there are too many."""
        with self._open_lock:
            is_full = len(self._ending) >= CONNECTIONS_MAX
            if not is_full:
                self._open[request] = None
                if len(self._open) > CONNECTIONS_MAX:
                    oldest = next(iter(self._open))
                    del self._open[oldest]
                    self._ending[oldest] = None
                    _cut(oldest)
        if is_full:
            self.shutdown_request(request)
        else:
            super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """The connection has ended."""
        with self._open_lock:
            self._open.pop(request, None)
            self._ending.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: a client that disconnected or is too slow is no error of the server."""

    def close_connections(self) -> None:
        """Close all."""
        with self._open_lock:
            for each in list(self._open):
                _cut(each)


def _cut(connection: socket.socket) -> None:
    """Wake the thread that reads or writes it; that one closes it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    timeout = SOCKET_TIMEOUT_S
    server: _Server
    server_version = "moldau"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer with a body."""
        self._answer(body=True)

    def do_HEAD(self) -> None:
        """Answer without."""
        self._answer(body=False)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """A request that the base class refuses: malformed, or of another method, which is 405 here."""
        status = HTTPStatus.METHOD_NOT_ALLOWED if code == HTTPStatus.NOT_IMPLEMENTED else HTTPStatus(code)
        self._send(
            status, _TEXT, f"{status.phrase.lower()}\n".encode(), {"Allow": "GET, HEAD"} if status is HTTPStatus.METHOD_NOT_ALLOWED else {}
        )

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing: a scrape comes every few seconds."""

    _NO_HEADERS: ClassVar[dict[str, str]] = {}

    def _answer(self, *, body: bool) -> None:
        status, content_type, page = self.server.metrics.answer(self.path.partition("?")[0])
        self._send(status, content_type, page, self._NO_HEADERS, body=body)

    def _send(self, status: HTTPStatus, content_type: str, page: bytes, headers: dict[str, str], *, body: bool = True) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(page)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(page)
