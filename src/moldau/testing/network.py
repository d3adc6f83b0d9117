"""Connections in memory: a transport for the broker's side, and the peer at the other end.

Nothing moves by itself. The peer's bytes are handed to the receiver by `Peer.send`, in pieces as small as asked for; what the
broker sends stays in the transport until the peer takes it. `window` is how many bytes the "socket" holds before the transport's own
queue grows, so that a test can let a peer read one byte at a time and see the same order as on a real socket.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence

from moldau.ports.transport import FileRange, Part, Receiver

RANGE_COST = 512


class QueuedTransport(ABC):
    """What the transports in memory have in common: bytes beyond the `window` wait in a queue."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.in_flight = bytearray()
        """Bytes in the "socket", which the peer may take."""
        self.reading = True
        self.closing = False
        self.closed = False
        self.receiver: Receiver | None = None
        self._queue: deque[memoryview | FileRange] = deque()

    def send(self, parts: Sequence[Part]) -> None:
        """Queue the parts, and fill the window."""
        for part in parts:
            if self.closing:
                if isinstance(part, FileRange):
                    part.release()
            elif isinstance(part, FileRange):
                self._queue.append(part)
            elif part:
                self._queue.append(memoryview(bytes(part)))
        self._fill()

    def queued_bytes(self) -> int:
        """Bytes beyond the window."""
        return sum(RANGE_COST if isinstance(item, FileRange) else len(item) for item in self._queue)

    def pause_reading(self) -> None:
        """Leave the peer's bytes with the peer."""
        self.reading = False

    def _fill(self) -> None:
        while self._queue and len(self.in_flight) < self.window:
            room = self.window - len(self.in_flight)
            head = self._queue[0]
            if isinstance(head, FileRange):
                data = head.file.pread(min(room, head.length), head.position)
                assert data, f"{head.file.path} ends before {head.position}"
                head.position += len(data)
                head.length -= len(data)
                if head.length == 0:
                    self._queue.popleft()
                    head.release()
            else:
                data = bytes(head[:room])
                if len(data) == len(head):
                    self._queue.popleft()
                else:
                    self._queue[0] = head[len(data) :]
            self.in_flight += data
        self._filled()

    @abstractmethod
    def _filled(self) -> None:
        """The window has what fits: have it arrive, and end the connection if it is closing and nothing is left."""

    def _take_down(self) -> Receiver | None:
        """The connection has ended: release what waits; the receiver, which is to be notified."""
        self.closing = self.closed = True
        self.reading = False
        for item in self._queue:
            if isinstance(item, FileRange):
                item.release()
        self._queue.clear()
        receiver, self.receiver = self.receiver, None
        return receiver


class MemoryTransport(QueuedTransport):
    """A :class:`moldau.ports.transport.Transport`. `later` runs a callback after the current call, as an event loop would."""

    def __init__(
        self,
        later: Callable[[Callable[[], object]], object],
        *,
        window: int = 1 << 16,
        peer: tuple[str, int] = ("192.0.2.1", 50_000),
        local: tuple[str, int] = ("192.0.2.2", 9092),
    ) -> None:
        super().__init__(window)
        self.peer = peer
        self.local = local
        self._later = later

    def resume_reading(self) -> None:
        """Take them again."""
        if not self.closing:
            self.reading = True

    def close(self) -> None:
        """Close once the queue is empty."""
        self.closing = True
        self.reading = False
        self._fill()

    def abort(self) -> None:
        """Close at once."""
        self._drop(None)

    def lost(self, error: Exception | None = None) -> None:
        """The peer went away."""
        self._drop(error)

    def take(self, count: int) -> bytes:
        """The peer reads up to `count` bytes."""
        taken = bytes(self.in_flight[:count])
        del self.in_flight[:count]
        had_queue = bool(self._queue)
        self._fill()
        if had_queue and not self._queue and not self.closing and self.receiver is not None:
            self.receiver.queue_drained()
        return taken

    def _filled(self) -> None:
        if self.closing and not self._queue:
            self._drop(None)

    def _drop(self, error: Exception | None) -> None:
        if self.closed:
            return
        receiver = self._take_down()
        if receiver is not None:
            self._later(lambda: receiver.connection_lost(error))


class Peer:
    """The client's end of a :class:`MemoryTransport`."""

    def __init__(self, transport: MemoryTransport, receiver: Receiver, piece: int = 1 << 16) -> None:
        self.transport = transport
        self.piece = piece
        """Most bytes handed over by one call."""
        self._receiver = receiver
        self._unsent = bytearray()
        transport.receiver = receiver

    def send(self, data: bytes) -> None:
        """Send bytes; what the other side does not read yet waits here."""
        self._unsent += data
        self.push()

    def push(self) -> None:
        """Hand over what waits, as far as the other side reads."""
        while self._unsent and self.transport.reading:
            room = self._receiver.get_buffer(-1)
            count = min(len(room), len(self._unsent), self.piece)
            room[:count] = self._unsent[:count]
            del self._unsent[:count]
            self._receiver.buffer_updated(count)

    @property
    def unsent(self) -> int:
        """Bytes that the other side has not read."""
        return len(self._unsent)

    def receive(self, count: int = 1 << 30) -> bytes:
        """Take up to `count` bytes of what has come."""
        taken = bytearray()
        while len(taken) < count and (piece := self.transport.take(count - len(taken))):
            taken += piece
        return bytes(taken)

    def disconnect(self) -> None:
        """Go away."""
        self.transport.lost()
