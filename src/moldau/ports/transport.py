"""A connection's bytes, in and out; and connections that a broker opens, to other brokers. Those that it accepts come from a server, with
the same two sides.

In: the transport asks its receiver for room (`get_buffer`) and says how many bytes it put there (`buffer_updated`); the receiver parses
in place, inside that call. Out: one queue per connection owns the order of bytes and file ranges and copes with a socket that is full
at any byte.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from moldau.model.errors import WorldError
from moldau.ports.filesystem import File


class FileRange:
    """`length` bytes of a file from `position`, to be sent without passing through the process.

    Its creator counts as a user of the file (`File.retain`); the transport releases it once it is sent or dropped.
    """

    __slots__ = ("file", "length", "position")

    def __init__(self, file: File, position: int, length: int) -> None:
        file.retain()
        self.file = file
        self.position = position
        self.length = length

    def release(self) -> None:
        """Stop using the file."""
        self.file.release()


Part = bytes | bytearray | memoryview | FileRange


def release_parts(parts: Sequence[Part]) -> None:
    """Release the files of parts that are not sent."""
    for part in parts:
        if isinstance(part, FileRange):
            part.release()


class Transport(Protocol):
    """The sending side of one connection."""

    peer: tuple[str, int]
    """Address of the other end."""
    local: tuple[str, int]
    """Address that the other end connected to."""

    def send(self, parts: Sequence[Part]) -> None:
        """Send the parts in order after all earlier ones. Takes over byte buffers and file ranges; never blocks."""

    def queued_bytes(self) -> int:
        """Bytes of memory waiting to be sent (file ranges count a fixed small sum each, not their length)."""

    def pause_reading(self) -> None:
        """Take no more bytes from the peer, so that it feels back-pressure."""

    def resume_reading(self) -> None:
        """Continue after `pause_reading`."""

    def close(self) -> None:
        """Send what is queued, then close."""

    def abort(self) -> None:
        """Close at once; what is queued is dropped."""


class Receiver(Protocol):
    """The deciding side of one connection; the transport calls it, on the broker's thread."""

    def get_buffer(self, size_hint: int) -> memoryview:
        """Room for the next bytes. Valid until the next `buffer_updated`."""

    def buffer_updated(self, count: int) -> None:
        """`count` bytes were put into that room."""

    def queue_drained(self) -> None:
        """`Transport.queued_bytes` fell to zero after it was above."""

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is closed. The last call."""


class ConnectError(WorldError):
    """No connection could be made to `host`:`port`. `is_refused`: the host is reached, and nothing listens there."""

    def __init__(self, host: str, port: int, reason: str, *, is_refused: bool = False) -> None:
        super().__init__(f"cannot connect to {host}:{port}: {reason}", retriable=True)
        self.host = host
        self.port = port
        self.reason = reason
        self.is_refused = is_refused


class ConnectAttempt(Protocol):
    """A connection that is being opened."""

    def cancel(self) -> None:
        """Give up: neither callback comes any more. Harmless when one has come."""


class Network(Protocol):
    """Opens connections."""

    def connect(
        self, host: str, port: int, accept: Callable[[Transport], Receiver], failed: Callable[[ConnectError], object]
    ) -> ConnectAttempt:
        """Connect to `port` of one of the addresses of `host`.

        One of the callbacks comes later, on the thread that owns the broker, never before this returns: `accept` with the sending side of
        the connection, for which it returns the receiving side, or `failed`. Nothing bounds the time but the system's own limits: set a
        timer, and cancel.
        """
