"""A network in memory: listeners by address, and links between two transports.

Nothing moves by itself. `move` hands over, in each direction of each link, what one read would bring; a link's own `move_to` does so for
one direction, in pieces as small as asked for.
"""

from collections.abc import Callable

from moldau.ports.network import ConnectError
from moldau.ports.transport import Receiver, Transport
from moldau.testing.network import MemoryTransport

Later = Callable[[Callable[[], object]], object]
Accept = Callable[[Transport], Receiver]
FIRST_PORT = 50_000
"""Of those that connecting sides get."""


class MemoryNetwork:
    """A :class:`moldau.ports.network.Network`. `later` runs a callback after the current call, as an event loop would."""

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

    def connect(self, host: str, port: int, accept: Accept, failed: Callable[[ConnectError], object]) -> "MemoryConnecting":
        """Connect, in a later call."""
        connecting = MemoryConnecting()

        def attempt() -> None:
            if connecting.is_cancelled:
                return
            listener = self._listeners.get((host, port))
            if listener is None:
                failed(ConnectError(host, port, "connection refused"))
                return
            self._open((host, port), listener, accept)

        self._later(attempt)
        return connecting

    def move(self) -> None:
        """One read of each end of each link."""
        for link in list(self.links):
            for end in link.ends:
                link.move_to(end)
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


class MemoryConnecting:
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
