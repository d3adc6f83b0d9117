"""Connections in memory: a transport for the broker's side, and the peer at the other end; and a network of them, listeners by address.

Nothing moves by itself. The peer's bytes are handed to the receiver by `Peer.send`, in pieces as small as asked for; what the broker sends
stays in the transport until the peer takes it. `window` is how many bytes the "socket" holds before the transport's own queue grows, so
that a test can let a peer read one byte at a time and see the same order as on a real socket. In a network `move` hands over, in each
direction of each link, what one read would bring; a link's own `move_to` does so for one direction.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence

from moldau.ports.transport import ConnectError, FileRange, Part, Receiver, Transport

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
                if self._queue or len(self.in_flight) + len(part) > self.window:
                    self._queue.append(memoryview(bytes(part)))
                else:
                    self.in_flight += part
        if self._queue:
            self._fill()
        else:
            self._filled()

    def queued_bytes(self) -> int:
        """Bytes beyond the window."""
        if not self._queue:
            return 0
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


Later = Callable[[Callable[[], object]], object]
Accept = Callable[[Transport], Receiver]
FIRST_PORT = 50_000
"""Of those that connecting sides get."""


class MemoryNetwork:
    """A :class:`moldau.ports.transport.Network`. `later` runs a callback after the current call, as an event loop would."""

    def __init__(self, later: Later, *, host: str = "192.0.2.1", window: int = 1 << 16) -> None:
        """`host` is the address that connections come from; `window` the bytes that a link holds in each direction."""
        self.links: list[Link] = []
        self._later = later
        self._host = host
        self._window = window
        self._next_port = FIRST_PORT
        self._listeners: dict[tuple[str, int], Accept] = {}

    def listen(self, host: str, port: int, accept: Accept) -> None:
        """Take connections there from now on."""
        self._listeners[host, port] = accept

    def stop_listening(self, host: str, port: int) -> None:
        """Refuse connections there; those that are open stay."""
        del self._listeners[host, port]

    def connect(self, host: str, port: int, accept: Accept, failed: Callable[[ConnectError], object]) -> "MemoryConnectAttempt":
        """Connect, in a later call."""
        connecting = MemoryConnectAttempt()

        def attempt() -> None:
            if connecting.is_cancelled:
                return
            listener = self._listeners.get((host, port))
            if listener is None:
                failed(ConnectError(host, port, "connection refused", is_refused=True))
                return
            self._open((host, port), listener, accept)

        self._later(attempt)
        return connecting

    def move(self) -> None:
        """One read of each end of each link."""
        for link in list(self.links):
            one, other = link.ends
            if one.in_flight or other.in_flight or one.closed or other.closed:  # most links have nothing to move
                link.move_to(one)
                link.move_to(other)
                if link.is_over:
                    self.links.remove(link)

    def _open(self, address: tuple[str, int], listener: Accept, accept: Accept) -> None:
        own = self._host, self._next_port
        self._next_port += 1
        link = Link(
            MemoryTransport(self._later, window=self._window, peer=address, local=own),
            MemoryTransport(self._later, window=self._window, peer=own, local=address),
        )
        self.links.append(link)
        for transport, begin in zip(link.ends, (accept, listener), strict=True):
            receiver = begin(transport)
            if not transport.closed:
                transport.receiver = receiver


class MemoryConnectAttempt:
    """A connection that is being opened."""

    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        """Give up."""
        self.is_cancelled = True


class Link:
    """A connection: its `ends` are the connecting side's transport and the listening side's."""

    def __init__(self, connecting: MemoryTransport, listening: MemoryTransport) -> None:
        self.ends = connecting, listening

    @property
    def is_over(self) -> bool:
        """Whether both sides are closed."""
        return all(end.closed for end in self.ends)

    def move_to(self, end: MemoryTransport, count_max: int = 1 << 16) -> int:
        """Hand over to an end at most so many bytes that the other has sent, or its close; how many it got."""
        other = self.ends[0] if end is self.ends[1] else self.ends[1]
        if end.closed or end.receiver is None or not end.reading:
            return 0
        if not other.in_flight:
            if other.closed:
                end.lost()
            return 0
        room = end.receiver.get_buffer(-1)
        data = other.take(min(count_max, len(room)))
        room[: len(data)] = data
        end.receiver.buffer_updated(len(data))
        return len(data)
