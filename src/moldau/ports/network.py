"""Connections that a broker opens, to other brokers. Those that it accepts come from a server, with the same two sides of `transport`."""

from collections.abc import Callable
from typing import Protocol

from moldau.model.errors import WorldError
from moldau.ports.transport import Receiver, Transport


class ConnectError(WorldError):
    """No connection could be made to `host`:`port`."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(f"cannot connect to {host}:{port}: {reason}", retriable=True)
        self.host = host
        self.port = port


class Connecting(Protocol):
    """A connection that is being opened."""

    def cancel(self) -> None:
        """Give up: neither callback comes any more. Harmless when one has come."""


class Network(Protocol):
    """Opens connections."""

    def connect(
        self, host: str, port: int, accept: Callable[[Transport], Receiver], failed: Callable[[ConnectError], object]
    ) -> Connecting:
        """Connect to `port` of one of the addresses of `host`.

        One of the callbacks comes later, on the thread that owns the broker, never before this returns: `accept` with the sending side of
        the connection, for which it returns the receiving side, or `failed`. Nothing bounds the time but the system's own limits: set a
        timer, and cancel.
        """
