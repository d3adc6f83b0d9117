"""What travels on the connections of a simulation, by kind: to hold a certain request or response of a certain host.

    wire = Wire(sim.network)                    # before the first connection
    sim.network.hold(wire.response(ApiKey.FETCH, to="broker-2"))
    await sim.until(lambda: sim.network.held > 0)
    sim.network.release()

A direction of a connection is held as a whole, from the moment at which such a frame is about to arrive.
"""

from collections import deque
from collections.abc import Callable
from struct import Struct

from moldau.protocol.api_keys import ApiKey
from moldau.testing.simulation.network import FIRST_PORT, ConnectionEnd, SimulatedNetwork

_REQUEST = Struct(">ihhi")
"""Size, API, version, correlation id."""
_RESPONSE = Struct(">ii")
_SIZE = 4
Matches = Callable[[ConnectionEnd], bool]


class Wire:
    """See the module."""

    def __init__(self, network: SimulatedNetwork) -> None:
        self._directions: dict[ConnectionEnd, _Direction] = {}
        network.on_arriving = self._see

    def request(self, kind: ApiKey, *, to: str | None = None, by: str | None = None) -> Matches:
        """Requests of a kind, to one host, by one host."""
        return lambda end: _is_server(end) and self._carries(end, kind) and _is_between(end, by, to)

    def response(self, kind: ApiKey, *, to: str | None = None, by: str | None = None) -> Matches:
        """Responses to requests of a kind, to one host, by one host."""
        return lambda end: not _is_server(end) and self._carries(end, kind) and _is_between(end, by, to)

    def _carries(self, end: ConnectionEnd, kind: ApiKey) -> bool:
        return any(frame.kind == kind for frame in self._directions[end].frames)

    def _see(self, end: ConnectionEnd) -> None:
        """Bytes are about to arrive at an end."""
        direction = self._directions.get(end)
        if direction is None:
            direction = self._directions[end] = _Direction()
        other = self._directions.setdefault(end.other, _Direction())
        direction.look(end, other.asked)


class _Frame:
    __slots__ = ("end", "kind")

    def __init__(self, kind: int, end: int) -> None:
        self.kind = kind
        self.end = end
        """The position in the stream after it."""


class _Direction:
    """The frames that an end has not taken yet."""

    def __init__(self) -> None:
        self.frames: deque[_Frame] = deque()
        self.asked: dict[int, int] = {}
        """The kind of each request that has come, by correlation id."""
        self._next = 0
        """Where in the stream the next frame begins."""

    def look(self, end: ConnectionEnd, asked: dict[int, int]) -> None:
        """Find the frames in what is on its way. `asked`: the requests that went the other way."""
        while self.frames and self.frames[0].end <= end.taken:
            self.frames.popleft()
        data, header = end.other.in_flight, _REQUEST if _is_server(end) else _RESPONSE
        while (at := self._next - end.taken) + header.size <= len(data):
            assert at >= 0, "a header was taken before it was seen"
            if header is _REQUEST:
                size, kind, _, correlation_id = _REQUEST.unpack_from(data, at)
                self.asked[correlation_id] = kind
            else:
                size, correlation_id = _RESPONSE.unpack_from(data, at)
                kind = asked.pop(correlation_id, -1)
            self._next += _SIZE + size
            self.frames.append(_Frame(kind, self._next))


def _is_server(end: ConnectionEnd) -> bool:
    return end.local[1] < FIRST_PORT


def _is_between(end: ConnectionEnd, sender: str | None, receiver: str | None) -> bool:
    return sender in (None, end.other.party.host) and receiver in (None, end.party.host)
