"""Whether a source broker leaves fetches unanswered: then it is reported to the controller, which may reach it all the same.

It is silent from the first request on that comes after its last response, whatever becomes of requests and connections meanwhile. Bytes of
a response that is long count as an answer. A timer that comes late says that this broker itself was stopped: the silence begins again.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from moldau.broker.replicas.isr import silence_max_s

if TYPE_CHECKING:
    from moldau.model.config.store import BrokerConfig
    from moldau.ports.clock import Clock, Timer

    class Source(Protocol):
        """A connection to the source."""

        received: int
        """Bytes that have come."""

    class Owner(Protocol):
        """What a watch uses of the fetchers."""

        clock: Clock
        config: BrokerConfig
        report: Callable[[int], object]


LATE_SHARE = 0.5
"""A timer is late beyond this share of the time after which a source is reported."""


class SilenceWatch:
    """See the module. One timer at a time, however many requests there are: it is not set again with each of them."""

    def __init__(self, owner: "Owner", source_id: int, connection: "Callable[[], Source | None]") -> None:
        self._owner = owner
        self._source_id = source_id
        self._connection = connection
        self._out = 0
        self._since_s: float | None = None
        """Since when it is silent."""
        self._seen: tuple[Source | None, int] = None, 0
        """The connection, and the bytes that it had received, when that began, or at the last look."""
        self._timer: Timer | None = None

    def close(self) -> None:
        """Watch it no more."""
        if self._timer is not None:
            self._timer.cancel()

    def asked(self) -> None:
        """A request is made."""
        self._out += 1
        if self._since_s is None:
            self._since_s = self._owner.clock.monotonic()
            self._seen = self._received()
            if self._timer is None:
                self._set_timer(silence_max_s(self._owner.config))

    def failed(self) -> None:
        """A request has no response."""
        self._out -= 1

    def answered(self) -> None:
        """A response has come."""
        self._out -= 1
        self._since_s = self._owner.clock.monotonic() if self._out else None

    def _set_timer(self, delay_s: float) -> None:
        due_s = self._owner.clock.monotonic() + delay_s
        self._timer = self._owner.clock.call_later(delay_s, lambda: self._look(due_s))

    def _received(self) -> "tuple[Source | None, int]":
        connection = self._connection()
        return connection, 0 if connection is None else connection.received

    def _look(self, due_s: float) -> None:
        self._timer = None
        if self._since_s is None:
            return
        now_s, timeout_s = self._owner.clock.monotonic(), silence_max_s(self._owner.config)
        seen, self._seen = self._seen, self._received()
        is_receiving = self._seen[0] is seen[0] and self._seen[1] > seen[1]
        if is_receiving or now_s - due_s > LATE_SHARE * timeout_s:
            self._since_s = now_s
        left_s = self._since_s + timeout_s - now_s
        if left_s <= 0:
            self._owner.report(self._source_id)
            left_s = timeout_s
        self._set_timer(left_s)
