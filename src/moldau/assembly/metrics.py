"""The metrics endpoint of a broker's process: its port, its server, and the way from the server's threads to the broker's.

Its port is bound before the broker opens anything, and it answers from then on: ``/health`` at once, the others as soon as the broker
serves, until it has stopped.
"""

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from typing import TYPE_CHECKING, Any, TypeVar

from moldau.adapters.binding import bind
from moldau.adapters.metrics_server import MetricsServer, UnavailableError
from moldau.broker.collector import collect, not_ready
from moldau.broker.metrics.families import Family
from moldau.model.steps import Pause

if TYPE_CHECKING:
    from moldau.broker.broker import Broker

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

ANSWER_S = 10.0
"""How long the broker may take for a collection."""


class MetricsEndpoint:
    """Call `bind`, `start`, `serve`, `stopping` and `stop` in this order, on the broker's thread; `stop` is harmless at any time."""

    def __init__(self, host: str, port: int) -> None:
        self.address = (host, port)
        """As asked for; with the real port once it is bound."""
        self._sockets: list[socket.socket] = []
        self._server: MetricsServer | None = None
        self._serving: tuple[asyncio.AbstractEventLoop, Broker] | None = None
        self._reason = "the broker is starting"
        """Why it is not ready, as far as that is known without asking it."""
        self._more: list[Callable[[], list[Family]]] = []
        self._asked: set[Future[Any]] = set()
        self._lock = threading.Lock()

    def add(self, collect: Callable[[], list[Family]]) -> None:
        """Show the metrics of something else in this process too; it is asked on the server's threads. Call it before `start`."""
        self._more.append(collect)

    def bind(self) -> None:
        """Take the port. OSError if it cannot be had."""
        host, port = self.address
        self._sockets = bind(host, port)
        self.address = (host, self._sockets[0].getsockname()[1])

    def start(self) -> None:
        """Answer requests."""
        self._server = MetricsServer(self._sockets, self._collect, self._not_ready)
        self._sockets = []
        self._server.start()

    def serve(self, loop: asyncio.AbstractEventLoop, broker: "Broker") -> None:
        """The broker takes requests."""
        self._serving, self._reason = (loop, broker), ""

    def stopping(self) -> None:
        """It takes no more; it can still be asked."""
        self._reason = "the broker is stopping"

    def stop(self) -> None:
        """End: the broker cannot be asked any more."""
        with self._lock:
            self._serving, self._reason = None, "the broker has stopped"
            for future in self._asked:
                future.cancel()
        if self._server is not None:
            self._server.stop()
            self._server = None
        for bound in self._sockets:
            bound.close()
        self._sockets = []

    # What the server's threads call

    def _collect(self) -> list[Family]:
        return [*self._ask(collect), *(family for more in self._more for family in more())]

    def _not_ready(self) -> list[str]:
        return [self._reason] if self._reason else self._ask(_reasons)

    def _ask(self, question: "Callable[[Broker], Generator[Pause, None, T]]") -> T:
        """Run steps on the broker's thread, in turns with requests, and wait for the outcome. UnavailableError."""
        future: Future[T] = Future()

        def steps(broker: "Broker") -> Generator[Pause, None, None]:
            """An outcome for every end, also where the broker closes the steps."""
            try:
                outcome = yield from question(broker)
            except BaseException as error:
                _fail(future, error)
                raise
            with contextlib.suppress(Exception):  # given up meanwhile
                future.set_result(outcome)

        with self._lock:
            if self._serving is None:
                raise UnavailableError(self._reason)
            loop, broker = self._serving
            self._asked.add(future)
            loop.call_soon_threadsafe(lambda: broker.slices.run(steps(broker), _ended))
        try:
            return future.result(ANSWER_S)
        except LateError:
            raise UnavailableError(f"the broker has not answered within {ANSWER_S:g} s") from None
        except Exception as error:
            raise UnavailableError(self._reason or "the metrics could not be collected; the broker's log says why") from error
        finally:
            with self._lock:
                self._asked.discard(future)


def _fail(future: "Future[T]", error: BaseException) -> None:
    with contextlib.suppress(Exception):
        future.set_exception(error if isinstance(error, Exception) else UnavailableError("the broker is stopping"))


def _ended(error: Exception | None) -> None:
    if error is not None:
        _LOG.error("metrics not collected because of a bug", exc_info=error)


def _reasons(broker: "Broker") -> Generator[Pause, None, list[str]]:
    yield None
    return not_ready(broker)
