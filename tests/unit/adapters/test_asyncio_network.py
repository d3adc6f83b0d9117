"""What the contract of connecting cannot reach: the turn of the loop in which a connection comes about."""

import socket
from collections.abc import Iterator

import pytest

from moldau.adapters.asyncio_network import AsyncioNetwork
from moldau.adapters.event_loop import new_event_loop
from moldau.ports.transport import Receiver, Transport


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        yield server


def test_a_connection_that_came_about_and_is_cancelled_in_the_same_turn_is_closed(listening: socket.socket) -> None:
    loop = new_event_loop("asyncio")
    host, port = listening.getsockname()
    called: list[object] = []

    def accept(transport: Transport) -> Receiver:
        called.append(transport)
        raise AssertionError("it was cancelled")

    try:
        attempt = AsyncioNetwork(loop).connect(host, port, accept, called.append)
        while not attempt._task.done():
            loop.call_soon(loop.stop)
            loop.run_forever()
        attempt.cancel()
        loop.call_soon(loop.stop)
        loop.run_forever()
        accepted, _ = listening.accept()
        with accepted:
            accepted.settimeout(10)
            assert accepted.recv(1) == b""
        assert called == []
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


def test_an_error_in_accept_reaches_the_loop(listening: socket.socket) -> None:
    loop = new_event_loop("asyncio")
    host, port = listening.getsockname()
    errors: list[object] = []
    loop.set_exception_handler(lambda loop, context: (errors.append(context["exception"]), loop.stop()))  # type: ignore[func-returns-value]
    failures: list[object] = []

    def accept(transport: Transport) -> Receiver:
        transport.abort()
        raise ZeroDivisionError

    try:
        AsyncioNetwork(loop).connect(host, port, accept, failures.append)
        loop.run_forever()
        assert [type(error) for error in errors] == [ZeroDivisionError]
        assert failures == []
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()
