"""One connection over a real socket: reads into the receiver's buffer, sends bytes and file ranges in order.

Rules that hold here:

* The socket has one owner. No asyncio transport lies between, so no other buffer can hold bytes that a `sendfile` would overtake, and
  a connection costs one descriptor. The loop only says when the socket is readable or writable, and any loop with `add_reader` will do.
* `_queue` is the one order of what goes out. While it holds anything the loop watches for writability, and nothing is sent past it.
* Whichever side closes, the receiver is notified later, by the loop, never from inside one of its own calls.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from typing import cast

from moldau.adapters.outgoing import OutgoingQueue, read_short, release_ranges
from moldau.model.errors import StorageError
from moldau.ports.transport import FileRange, Part, Receiver

_LOG = logging.getLogger(__name__)

PARTS_JOINED_MAX = 4096
"""More parts than these belong to a long answer; they are not copied into one piece."""


class SocketTransport:
    """A :class:`moldau.ports.transport.Transport` over a connected, non-blocking stream socket."""

    __slots__ = (
        "_closed",
        "_closing",
        "_descriptor",
        "_loop",
        "_on_closed",
        "_queue",
        "_reading",
        "_receiver",
        "_socket",
        "active",
        "idle_since",
        "local",
        "peer",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connected: socket.socket,
        peer: tuple[str, int],
        local: tuple[str, int],
        on_closed: "Callable[[SocketTransport], object]",
    ) -> None:
        self.peer = peer
        self.local = local
        self.active = True
        """Set by every byte that moves; the server's walk over idle connections clears it."""
        self.idle_since = 0.0
        """Used by the server's walk over idle connections."""
        self._loop = loop
        self._socket = connected
        self._descriptor = connected.fileno()
        self._on_closed = on_closed
        self._receiver: Receiver | None = None
        self._queue = OutgoingQueue(connected)
        self._reading = False
        self._closing = False
        self._closed = False

    def start(self, receiver: Receiver) -> None:
        """Begin to read for `receiver`."""
        self._receiver = receiver
        self.resume_reading()

    # Reading

    def pause_reading(self) -> None:
        """Leave the peer's bytes in the socket."""
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._descriptor)

    def resume_reading(self) -> None:
        """Take them again; nothing once the connection is closing."""
        if not self._reading and not self._closing:
            self._reading = True
            self._loop.add_reader(self._descriptor, self._readable)

    def _readable(self) -> None:
        receiver = self._receiver
        assert receiver is not None
        try:
            count = self._socket.recv_into(receiver.get_buffer(-1))
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lost(error)
            return
        if count == 0:
            self._lost(None)
            return
        self.active = True
        receiver.buffer_updated(count)

    # Sending

    def send(self, parts: Sequence[Part]) -> None:
        """Queue the parts, and send at once what the socket takes."""
        if self._closing:
            release_ranges(parts)
            return
        if self._queue:
            self._queue.extend(parts)
            return
        data = None
        if len(parts) <= PARTS_JOINED_MAX:  # nearly all: one send, nothing queued
            data = read_short(parts) if FileRange in map(type, parts) else b"".join(cast("Sequence[bytes]", parts))
        if data is None:
            self._queue.extend(parts)
            if self._flush():
                self._loop.add_writer(self._descriptor, self._writable)
            return
        try:
            sent = self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._lost(error)
            return
        if sent < len(data):
            self._queue.extend((memoryview(data)[sent:],))
            self._loop.add_writer(self._descriptor, self._writable)

    def queued_bytes(self) -> int:
        """Bytes of memory that wait; a file range counts a small sum."""
        return self._queue.queued

    def _writable(self) -> None:
        self.active = True
        if self._flush() or self._closed:
            return
        self._loop.remove_writer(self._descriptor)
        if self._closing:
            self._close_now(None)
        elif self._receiver is not None:
            self._receiver.queue_drained()

    def _flush(self) -> bool:
        """Send what the socket takes; whether anything is left."""
        try:
            self._queue.flush()
        except StorageError as error:
            _LOG.error("connection cut, file unreadable: peer=%s:%d error=%s", *self.peer, error)
            self._lost(None)
        except OSError as error:
            self._lost(error)
        return bool(self._queue)

    # The end

    def close(self) -> None:
        """Take nothing more from either side, send what is queued, then close."""
        if self._closing:
            return
        self.pause_reading()
        self._closing = True
        if not self._queue:
            self._close_now(None)

    def abort(self) -> None:
        """Close at once."""
        self._close_now(None)

    def _lost(self, error: OSError | None) -> None:
        """The peer has closed the connection (None) or the socket failed."""
        self._close_now(error)

    def _close_now(self, error: Exception | None) -> None:
        if self._closed:
            return
        self.pause_reading()
        self._closing = self._closed = True
        if self._queue:
            self._loop.remove_writer(self._descriptor)
            self._queue.clear()
        self._socket.close()
        self._on_closed(self)
        if self._receiver is not None:
            self._loop.call_soon(self._receiver.connection_lost, error)
            self._receiver = None
