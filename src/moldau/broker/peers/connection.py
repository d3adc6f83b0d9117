"""A connection to another broker: requests out, responses back in their order.

It connects at the first request, and again at the first request after a fault. A fault ends everything that is out: a connection that is
refused or closed, a response that is late, damaged, too long or in the wrong order. The next attempt waits for a back-off, which doubles
with each attempt that brings no response. Requests that come meanwhile wait for the connection, at most until their own time limit.

    idle → connecting → agreeing on versions → open → idle
              └──────────────┴── fault ──→ backing off → connecting

Bounds: requests that are out by `in_flight_max`, a response by `frame_bytes_max`.
"""

import logging
from collections import deque
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from moldau.model.errors import PeerError, WorldError
from moldau.model.log_throttle import LogThrottle
from moldau.ports.transport import ConnectError
from moldau.protocol.rpc import Rpc

if TYPE_CHECKING:
    from moldau.ports.clock import Clock, Timer
    from moldau.ports.transport import ConnectAttempt, Network, Receiver, Transport
    from moldau.protocol.api_keys import ApiKey
    from moldau.protocol.versions import VersionRange

_LOG = logging.getLogger(__name__)

FRAME_BYTES_MAX = 1024 * 1024
"""Of a response, unless another bound is given."""
CONNECT_TIMEOUT_S = 10.0
_JITTER = 0.2
_LOGGED_EACH_S = 60.0
_REASONS_LOGGED_MAX = 4


class PeerCallError(WorldError):
    """A request got no response. `was_sent`: the other broker may have carried it out."""

    def __init__(self, address: tuple[str, int], reason: object, *, was_sent: bool, retriable: bool = True) -> None:
        super().__init__(f"{address[0]}:{address[1]}: {reason}", retriable=retriable)
        self.was_sent = was_sent
        self.is_refused = isinstance(reason, ConnectError) and reason.is_refused
        """Whether nothing listens there."""


class BackOff(NamedTuple):
    """Seconds before the first and at most before a later attempt; each is made up to a fifth shorter or longer."""

    first_s: float = 0.05
    max_s: float = 1.0

    def delay_s(self, faults: int, fraction: float) -> float:
        """Before the attempt that follows so many faults, at least one; `fraction` from 0 to 1 is random."""
        return float(min(self.first_s * 2 ** min(faults - 1, 30), self.max_s)) * (1 - _JITTER + 2 * _JITTER * fraction)


BACK_OFF = BackOff()


class _Call:
    """A request that is out."""

    __slots__ = ("api_key", "deadline_s", "done", "message", "timeout_s", "version")

    def __init__(
        self,
        api_key: "ApiKey",
        message: Any,
        done: "Callable[[Any | PeerCallError], object]",
        version: "VersionRange | None",
        timeout_s: float,
        now_s: float,
    ) -> None:
        self.api_key = api_key
        self.message = message
        self.done = done
        self.version = version
        self.timeout_s = timeout_s
        self.deadline_s = now_s + timeout_s

    def end(self, outcome: Any) -> None:
        """The outcome is known."""
        try:
            self.done(outcome)
        except Exception:  # a bug of one caller must not leave the others without an outcome
            _LOG.exception("response not handled because of a bug: api=%s", self.api_key.name)


class PeerConnection:
    """See the module. Everything runs on the thread that owns the broker."""

    def __init__(
        self,
        network: "Network",
        clock: "Clock",
        address: tuple[str, int],
        client_id: str,
        *,
        in_flight_max: int,
        random_bytes: Callable[[int], bytes],
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        back_off: BackOff = BACK_OFF,
    ) -> None:
        """`in_flight_max` bounds the requests that are out, those included that wait for the connection; `random_bytes` gives the jitter of
        the back-off.
        """
        self.address = address
        self.on_idle_lost: Callable[[], object] | None = None
        """Called when the connection is lost while no request is out."""
        self.received = 0
        """Bytes that have come."""
        self._network = network
        self._clock = clock
        self._client_id = client_id
        self._in_flight_max = in_flight_max
        self._random_bytes = random_bytes
        self._connect_timeout_s = connect_timeout_s
        self._frame_bytes_max = frame_bytes_max
        self._back_off = back_off
        self._throttle = LogThrottle(_LOGGED_EACH_S, _REASONS_LOGGED_MAX)
        self._waiting: deque[_Call] = deque()
        """Not sent yet, oldest first."""
        self._sent: deque[_Call] = deque()
        self._session: _Session | None = None
        self._faults = 0
        """Since the last response."""
        self._pause: Timer | None = None
        """The back-off, while it lasts."""
        self._timer: Timer | None = None
        self._due_s = inf
        """When the calls are looked through for those whose time is over: not after the first deadline. One timer for all calls, which is
        not set again with each of them: a follower fetches thousands of times in a second.
        """
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    @property
    def out(self) -> int:
        """Requests without an outcome."""
        return len(self._waiting) + len(self._sent)

    def request(
        self,
        api_key: "ApiKey",
        message: Any,
        done: "Callable[[Any | PeerCallError], object]",
        *,
        timeout_s: float,
        version: "VersionRange | None" = None,
    ) -> None:
        """Send a request; `done` with its response or PeerCallError, once, and never before this returns.

        `version` None takes the highest common one, a range the highest common one in it. `timeout_s` includes connecting; a request that
        was sent and is not answered in time ends the connection. One that suits no version of the peer fails with `retriable` false.
        """
        call = _Call(api_key, message, done, version, timeout_s, self._clock.monotonic())
        reason = (
            "the connection is closed" if self._is_closed else f"{self.out} requests are out" if self.out >= self._in_flight_max else ""
        )
        if reason:
            self._fail_later(call, PeerCallError(self.address, reason, was_sent=False))
            return
        if call.deadline_s < self._due_s:
            self._look_at(call.deadline_s)
        if self._session is not None and self._session.is_open:
            self._send(self._session, call)
            return
        self._waiting.append(call)
        if self._session is None and self._pause is None:
            self._connect()

    def close(self) -> None:
        """Disconnect; requests that are out fail."""
        if not self._is_closed:
            self._is_closed = True
            self._end("closed by this broker")

    # Connecting

    def _connect(self) -> None:
        self._pause = None
        if self._waiting and not self._is_closed:
            self._session = _Session(self, self._clock, Rpc(self._client_id, self._frame_bytes_max, self._in_flight_max, reads_ahead=True))
            self._session.connect(self._network, self._connect_timeout_s)

    def opened(self, session: "_Session") -> None:
        """The versions are agreed on."""
        while self._waiting and self._session is session and session.is_open:
            self._send(session, self._waiting.popleft())

    def _send(self, session: "_Session", call: _Call) -> None:
        try:
            data = session.encode(call)
        except PeerError as error:
            self._fail_later(call, PeerCallError(self.address, error, was_sent=False, retriable=False))
            return
        self._sent.append(call)
        session.send(data)

    def _fail_later(self, call: _Call, error: PeerCallError) -> None:
        self._clock.call_later(0.0, lambda: call.end(error))

    # Outcomes

    def answered(self, response: Any) -> None:
        """A response came to the oldest request."""
        self._faults = 0
        self._sent.popleft().end(response)

    def _look_at(self, due_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due_s = due_s
        self._timer = self._clock.call_later(max(due_s - self._clock.monotonic(), 0.0), self._look)

    def _look(self) -> None:
        """End the calls whose time is over."""
        self._timer, self._due_s = None, inf
        now_s = self._clock.monotonic()
        for call in [*self._sent, *self._waiting]:
            if call.deadline_s <= now_s:
                self._expired(call)
        due_s = min((call.deadline_s for call in (*self._sent, *self._waiting)), default=inf)
        if due_s < self._due_s:
            self._look_at(due_s)

    def _expired(self, call: _Call) -> None:
        reason = f"no response to {call.api_key.name.lower()} within {call.timeout_s:g} s"
        if call in self._sent:
            self.lost(reason)
        elif call in self._waiting:
            self._waiting.remove(call)
            call.end(PeerCallError(self.address, f"{reason}: not connected", was_sent=False))

    def lost(self, reason: object, *, is_hostile: bool = False) -> None:
        """The connection cannot be used any more."""
        is_idle = not self.out
        if self.out or is_hostile or self._session is None or not self._session.is_open:
            self._faults += 1
            delay_s = self._back_off.delay_s(self._faults, int.from_bytes(self._random_bytes(2), "big") / 0xFFFF)
            if self._throttle.due(str(reason), self._clock.monotonic()):
                text = "connection to broker lost, it is made again at the next request: address=%s:%d client_id=%s reason=%s"
                _LOG.warning(text, *self.address, self._client_id, reason)
            self._pause = self._clock.call_later(delay_s, self._connect)
        self._end(reason)
        if is_idle and self.on_idle_lost is not None:
            self.on_idle_lost()

    def _end(self, reason: object) -> None:
        """End the connection and everything that is out."""
        session, self._session = self._session, None
        sent, self._sent = self._sent, deque()
        waiting, self._waiting = self._waiting, deque()
        if self._is_closed and self._pause is not None:
            self._pause.cancel()
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._due_s = None, inf
        if session is not None:
            session.end()
        for call in sent:
            call.end(PeerCallError(self.address, reason, was_sent=True))
        for call in waiting:
            call.end(PeerCallError(self.address, reason, was_sent=False))


class _Session:
    """One connection of the network: a :class:`moldau.ports.transport.Receiver`, good until its end."""

    __slots__ = ("_attempt", "_clock", "_is_over", "_owner", "_rpc", "_timer", "_transport")

    def __init__(self, owner: PeerConnection, clock: "Clock", rpc: Rpc) -> None:
        self._owner = owner
        self._clock = clock
        self._rpc = rpc
        self._attempt: ConnectAttempt
        self._timer: Timer
        self._transport: Transport | None = None
        self._is_over = False

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._rpc.is_open and not self._is_over

    def connect(self, network: "Network", timeout_s: float) -> None:
        """Connect, and agree on versions, within a time."""
        self._timer = self._clock.call_later(timeout_s, lambda: self._lost(f"not connected within {timeout_s:g} s"))
        self._attempt = network.connect(*self._owner.address, self._accept, self._refused)

    def encode(self, call: _Call) -> bytes:
        """The bytes of a request, which has to be sent. PeerError (UNSUPPORTED_VERSION)."""
        return self._rpc.send(call.api_key, call.message, version=call.version)[1]

    def send(self, data: bytes) -> None:
        """Send what was encoded."""
        assert self._transport is not None, "an open session has a transport"
        self._transport.send([data])

    def end(self) -> None:
        """Disconnect at once."""
        self._is_over = True
        self._timer.cancel()
        self._attempt.cancel()
        self._rpc.give_up()
        if self._transport is not None:
            self._transport.abort()

    def _accept(self, transport: "Transport") -> "Receiver":
        self._transport = transport
        self._clock.call_later(0.0, self._hello)  # once the transport knows its receiver, which it notifies of a failure
        return self

    def _hello(self) -> None:
        if not self._is_over and self._transport is not None:
            self._transport.send([self._rpc.hello()])

    def _refused(self, error: "ConnectError") -> None:
        self._lost(error)

    def _lost(self, reason: object, *, is_hostile: bool = False) -> None:
        if not self._is_over:
            self._owner.lost(reason, is_hostile=is_hostile)

    def get_buffer(self, size_hint: int) -> memoryview:
        """Room for what comes next."""
        return self._rpc.get_buffer()

    def buffer_updated(self, count: int) -> None:
        """Bytes of a response, perhaps the last."""
        if self._is_over:
            return
        self._owner.received += count
        was_open = self._rpc.is_open
        try:
            answered = self._rpc.buffer_updated(count)
            while answered is not None:
                self._owner.answered(answered.response)
                answered = None if self._is_over else self._rpc.next_response()
        except PeerError as error:
            self._lost(error, is_hostile=True)
            return
        if was_open:
            return
        if self._rpc.is_open:
            self._timer.cancel()
            self._owner.opened(self)
        elif self._rpc.oldest is None:
            self._hello()

    def queue_drained(self) -> None:
        """Nothing to do: what is sent is bounded by the requests that are out."""

    def connection_lost(self, error: Exception | None) -> None:
        """The peer has disconnected, or the network has."""
        self._lost(error or "closed by the peer")
