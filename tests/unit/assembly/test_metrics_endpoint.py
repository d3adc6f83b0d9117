"""The metrics endpoint answers at every time of a broker's life, and a broker that does not answer keeps no thread of it for ever."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from typing import Any

import pytest

from moldau.assembly import metrics
from moldau.assembly.metrics import MetricsEndpoint

LIMIT_S = 10.0


class Slices:
    """Takes steps, and runs or drops them as the test says."""

    def __init__(self) -> None:
        self.given: list[Any] = []
        self.came = threading.Event()

    def run(self, steps: Any, ended: Any) -> None:
        self.given.append(steps)
        self.came.set()


class Broker:
    """One that never gets to the steps."""

    def __init__(self) -> None:
        self.slices = Slices()


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join(LIMIT_S)
    loop.close()


@pytest.fixture
def endpoint() -> Iterator[MetricsEndpoint]:
    endpoint = MetricsEndpoint("127.0.0.1", 0)
    endpoint.bind()
    endpoint.start()
    yield endpoint
    endpoint.stop()


def ask(endpoint: MetricsEndpoint, path: str) -> tuple[int, str]:
    connection = HTTPConnection(*endpoint.address, timeout=LIMIT_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def in_thread(endpoint: MetricsEndpoint, path: str, answers: list[tuple[int, str]]) -> threading.Thread:
    thread = threading.Thread(target=lambda: answers.append(ask(endpoint, path)))
    thread.start()
    return thread


def test_a_broker_that_is_starting(endpoint: MetricsEndpoint) -> None:
    assert ask(endpoint, "/health") == (200, "ok\n")
    for path in ("/ready", "/metrics"):
        assert ask(endpoint, path) == (503, "the broker is starting\n")


def test_a_broker_that_is_stopping_is_not_ready(endpoint: MetricsEndpoint, loop: asyncio.AbstractEventLoop) -> None:
    endpoint.serve(loop, Broker())  # type: ignore[arg-type]
    endpoint.stopping()
    assert ask(endpoint, "/ready") == (503, "the broker is stopping\n")
    assert ask(endpoint, "/health") == (200, "ok\n")


def test_a_broker_that_closes_the_steps_ends_the_scrape(endpoint: MetricsEndpoint, loop: asyncio.AbstractEventLoop) -> None:
    """Claim: work that the broker drops when it stops is not waited for."""
    broker = Broker()
    endpoint.serve(loop, broker)  # type: ignore[arg-type]
    answers: list[tuple[int, str]] = []
    thread = in_thread(endpoint, "/ready", answers)
    assert broker.slices.came.wait(LIMIT_S)
    (steps,) = broker.slices.given
    next(steps)
    steps.close()
    thread.join(LIMIT_S)
    assert [code for code, _ in answers] == [503]


def test_a_stop_ends_the_scrapes_that_wait(loop: asyncio.AbstractEventLoop) -> None:
    endpoint, broker = MetricsEndpoint("127.0.0.1", 0), Broker()
    endpoint.bind()
    endpoint.start()
    endpoint.serve(loop, broker)  # type: ignore[arg-type]

    def asking() -> None:
        with contextlib.suppress(OSError, HTTPException):  # whether the answer leaves before the connection is closed is open
            ask(endpoint, "/metrics")

    thread = threading.Thread(target=asking)
    thread.start()
    assert broker.slices.came.wait(LIMIT_S)
    endpoint.stop()
    thread.join(LIMIT_S / 2)
    assert not thread.is_alive()


def test_a_broker_that_does_not_answer(endpoint: MetricsEndpoint, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "ANSWER_S", 0.05)
    endpoint.serve(loop, Broker())  # type: ignore[arg-type]
    assert ask(endpoint, "/metrics") == (503, "the broker has not answered within 0.05 s\n")


def test_a_bug_in_a_collection_is_a_failed_scrape(endpoint: MetricsEndpoint, loop: asyncio.AbstractEventLoop) -> None:
    broker = Broker()
    endpoint.serve(loop, broker)  # type: ignore[arg-type]
    answers: list[tuple[int, str]] = []
    thread = in_thread(endpoint, "/metrics", answers)
    assert broker.slices.came.wait(LIMIT_S)
    with pytest.raises(AttributeError):  # it has nothing to collect from
        next(broker.slices.given[0])
    thread.join(LIMIT_S)
    assert answers == [(503, "the metrics could not be collected; the broker's log says why\n")]


def test_a_stop_without_a_start_gives_the_port_back() -> None:
    endpoint = MetricsEndpoint("127.0.0.1", 0)
    endpoint.bind()
    host, port = endpoint.address
    endpoint.stop()
    again = MetricsEndpoint(host, port)
    again.bind()
    again.stop()
