"""Forwards connections between the processes of a cluster, and holds back or delays what one of them sends to another. Run as a script.

It imports only the standard library, and so is there in a moment. Standard input has lines of JSON; each is answered by ``ok`` when it has
effect, and its end ends the process:

    {"routes": [[descriptor, name, host, port, from], ...]}     once: listening sockets, and where what they accept is connected to
    {"cut": [[from, to], ...], "slow": [[from, to, delay, bytes], ...]}     from now on, instead of all that was said before

Names are broker ids, and that of the coordination service. Where a route has no ``from``, the first request says who connects: brokers have
client ids ``broker-ID-...``. Nothing is lost of what is held back: it is forwarded later, with the end of the connection.
"""

import json
import os
import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

Pair = tuple[str, str]

READ_BYTES = 1 << 16
HELD_BYTES = 1 << 20
"""So many bytes wait here in each direction of a connection; the rest stays with the sender."""
CONNECT_LIMIT_S = 1.0
NEVER_S = float("inf")
STRANGER = "client"
"""Name of what connects, and is no broker."""
_CLIENT_ID_AT = 12
"""Place of the client id in a request with its size: size, API key and version, correlation id."""
_PREFIX = b"broker-"


class Route(NamedTuple):
    """A listening socket, and what is connected to it."""

    listening: socket.socket
    name: str
    address: tuple[str, int]
    opener: str


class Pace(NamedTuple):
    """How slow a direction is."""

    delay_s: float = 0.0
    bytes_per_s: float = 0.0
    """0: without a limit."""


class Rules(NamedTuple):
    """What is held back, and what is slow, by sender and receiver."""

    cut: frozenset[Pair] = frozenset()
    slow: Mapping[Pair, Pace] = {}


class Piece(NamedTuple):
    """Bytes, and when they are to be sent."""

    due_s: float
    data: memoryview


class End:
    """One side of a connection: a socket, and what waits to be sent to it."""

    def __init__(self, connected: socket.socket, name: str) -> None:
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = connected
        self.name = name
        self.waiting: deque[Piece] = deque()
        self.waiting_bytes = 0
        self.is_over = False
        """It has closed, and all that it had sent was read."""
        self.is_gone = False
        """Nothing can be sent to it any more."""
        self.last_due_s = 0.0

    def put(self, data: bytes, pace: Pace, now_s: float) -> None:
        """Let it wait for its time."""
        spent_s = len(data) / pace.bytes_per_s if pace.bytes_per_s else 0.0
        self.last_due_s = max(self.last_due_s, now_s + pace.delay_s) + spent_s
        self.waiting.append(Piece(self.last_due_s, memoryview(data)))
        self.waiting_bytes += len(data)

    def send_due(self, now_s: float) -> None:
        """Send what is due, as far as it is taken. OSError."""
        while self.waiting and self.waiting[0].due_s <= now_s:
            due_s, data = self.waiting.popleft()
            try:
                sent = self.socket.send(data)
            except BlockingIOError:
                sent = 0
            self.waiting_bytes -= sent
            if sent < len(data):
                self.waiting.appendleft(Piece(due_s, data[sent:]))
                return

    def is_early(self, now_s: float) -> bool:
        """Whether what is to be sent next is not due yet."""
        return bool(self.waiting) and self.waiting[0].due_s > now_s

    def forget(self) -> None:
        """It takes nothing any more."""
        self.is_gone = True
        self.waiting.clear()
        self.waiting_bytes = 0


class Forwarder:
    """All connections. `run` does not return before standard input has ended."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._selector = selectors.DefaultSelector()
        self._rules = Rules()
        self._links: dict[Link, None] = {}
        for route in routes:
            route.listening.setblocking(False)
            self._selector.register(route.listening, selectors.EVENT_READ, lambda _, route=route: self._accept(route))

    def run(self, read_rules: Callable[[], bool]) -> None:
        """Forward; `read_rules` is called when standard input has something, and returns False at its end."""
        self._selector.register(0, selectors.EVENT_READ)
        while True:
            for key, events in self._selector.select(self._wait_s()):
                if key.data is not None:
                    key.data(events)
                elif not read_rules():
                    return
            now_s = time.monotonic()
            for link in [each for each in self._links if each.due_s <= now_s]:
                link.go_on(now_s)

    def set(self, rules: Rules) -> None:
        """From now on these hold."""
        self._rules = rules
        for link in [*self._links]:
            link.go_on(time.monotonic())

    @property
    def rules(self) -> Rules:
        """Those that hold."""
        return self._rules

    def watch(self, end: End, events: int, ready: Callable[[int], object]) -> None:
        """Have `ready` called at these events, and no others."""
        registered = end.socket in self._selector.get_map()
        if not events:
            if registered:
                self._selector.unregister(end.socket)
        elif registered:
            self._selector.modify(end.socket, events, ready)
        else:
            self._selector.register(end.socket, events, ready)

    def ended(self, link: "Link") -> None:
        """Both sides are closed."""
        self._links.pop(link, None)

    def _wait_s(self) -> float | None:
        due_s = min((each.due_s for each in self._links), default=NEVER_S)
        return None if due_s == NEVER_S else max(0.0, due_s - time.monotonic())

    def _accept(self, route: Route) -> None:
        try:
            opening, _ = route.listening.accept()
        except OSError:
            return
        try:
            listening = socket.create_connection(route.address, CONNECT_LIMIT_S)
        except OSError:  # nothing listens there: what is nearest to a refusal
            opening.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            opening.close()
            return
        link = Link(self, End(opening, route.opener), End(listening, route.name))
        self._links[link] = None
        link.go_on(time.monotonic())


class Link:
    """A connection: the end that has opened it, and the one that listens."""

    def __init__(self, owner: Forwarder, opening: End, listening: End) -> None:
        self._owner = owner
        self._opening, self._listening = opening, listening
        self._begin = b""
        """What was sent before it was known who opened the connection."""
        self._is_closed = False
        self.due_s = NEVER_S
        """When the next piece is due that waits for its time."""

    def go_on(self, now_s: float) -> None:
        """Send what may be sent, close what is over, wait for the rest."""
        for end, other in self._directions():
            if self._passes_to(end):
                try:
                    end.send_due(now_s)
                except OSError:
                    end.forget()
                if other.is_over and not end.waiting:
                    self._close()
                    return
        self.due_s = min((end.waiting[0].due_s for end, _ in self._directions() if end.is_early(now_s)), default=NEVER_S)
        for end, ready in ((self._opening, self._opening_ready), (self._listening, self._listening_ready)):
            self._owner.watch(end, self._wanted(end, now_s), ready)

    def _directions(self) -> tuple[tuple[End, End], ...]:
        return (self._opening, self._listening), (self._listening, self._opening)

    def _other(self, end: End) -> End:
        return self._listening if end is self._opening else self._opening

    def _passes_to(self, end: End) -> bool:
        """Whether what is sent to this end is not held back. While it is not known who opened the connection, everything is."""
        sender = self._other(end)
        return bool(self._opening.name) and (sender.name, end.name) not in self._owner.rules.cut

    def _wanted(self, end: End, now_s: float) -> int:
        events, other = 0, self._other(end)
        is_asked_who = not self._opening.name and end is self._opening
        if not end.is_over and (is_asked_who or self._passes_to(other)) and other.waiting_bytes < HELD_BYTES:
            events |= selectors.EVENT_READ
        if end.waiting and not end.is_early(now_s) and self._passes_to(end):
            events |= selectors.EVENT_WRITE
        return events

    def _opening_ready(self, events: int) -> None:
        self._ready(self._opening, events)

    def _listening_ready(self, events: int) -> None:
        self._ready(self._listening, events)

    def _ready(self, end: End, events: int) -> None:
        if self._is_closed:  # by what the other end had, which was ready in the same moment
            return
        now_s = time.monotonic()
        if events & selectors.EVENT_READ and self._wanted(end, now_s) & selectors.EVENT_READ:
            try:
                data = end.socket.recv(READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                end.is_over = True
            if not self._opening.name:
                data = self._name_opening(data)
            if data and not self._other(end).is_gone:
                pace = self._owner.rules.slow.get((end.name, self._other(end).name), Pace())
                self._other(end).put(data, pace, now_s)
        self.go_on(now_s)

    def _name_opening(self, data: bytes) -> bytes:
        """Find out who opened the connection: what is to be forwarded, nothing before that is known."""
        self._begin += data
        name = opener(self._begin)
        if name is None and data:
            return b""
        self._opening.name = name or STRANGER
        begin, self._begin = self._begin, b""
        return begin

    def _close(self) -> None:
        self._is_closed = True
        self.due_s = NEVER_S
        for end, _ in self._directions():
            self._owner.watch(end, 0, self._opening_ready)
            end.socket.close()
        self._owner.ended(self)


def opener(begin: bytes) -> str | None:
    """Who sends a request that begins so; None while that is not known."""
    if len(begin) < _CLIENT_ID_AT + 2:
        return None
    (length,) = struct.unpack_from(">h", begin, _CLIENT_ID_AT)
    client_id = begin[_CLIENT_ID_AT + 2 : _CLIENT_ID_AT + 2 + max(length, 0)]
    if len(client_id) < length:
        return None
    number = client_id.removeprefix(_PREFIX).partition(b"-")[0]
    return number.decode() if client_id.startswith(_PREFIX) and number.isdigit() else STRANGER


def read_rules(document: Any) -> Rules:
    """The rules in a line of standard input."""
    cut = frozenset((sender, receiver) for sender, receiver in document["cut"])
    return Rules(cut, {(sender, receiver): Pace(delay_s, bytes_per_s) for sender, receiver, delay_s, bytes_per_s in document["slow"]})


def main() -> None:
    """Forward until standard input ends."""
    received = bytearray()

    def next_line() -> Any:
        """The next document, None if that has not come whole."""
        line, newline, rest = bytes(received).partition(b"\n")
        if not newline:
            return None
        received[:] = rest
        return json.loads(line)

    def answer() -> None:
        os.write(1, b"ok\n")

    def receive() -> bool:
        data = os.read(0, READ_BYTES)
        received.extend(data)
        while (document := next_line()) is not None:
            forwarder.set(read_rules(document))
            answer()
        return bool(data)

    while (first := next_line()) is None:
        data = os.read(0, READ_BYTES)
        if not data:
            return
        received.extend(data)
    routes = [Route(socket.socket(fileno=number), name, (host, port), source) for number, name, host, port, source in first["routes"]]
    forwarder = Forwarder(routes)
    answer()
    forwarder.run(receive)


if __name__ == "__main__":
    main()
