"""Memory that requests take before they are handled, over all connections: `queued.max.request.bytes`.

A connection between requests holds nothing; one that has sent a part of a request, or whole ones that have to wait, holds a buffer. While
the sum is below the bound nothing is delayed. At the bound:

* Connections are read a little at a time (`READ_BYTES`), so that requests up to that size are served as usual, and what they hold grows
  by a quarter at a time. One whose request fits into what it holds is read as usual: it takes no more, and gives it back the sooner.
* Another one that holds more than `SMALL_BYTES` is not read, until there is memory again. Only the one whose request has been incomplete
  for longest is, so that one request can always be completed and its memory given back: there is no deadlock. For this one request, and
  for each connection `SMALL_BYTES` or a quarter of what it holds, the sum may be above the bound.
* While a connection waits, requests that have been incomplete for longer than `incomplete.request.timeout.ms` are given up and their
  connections closed: peers that hold memory and send nothing more do not keep others waiting for ever. One that is read, and fast enough
  to fill its buffer within `STEADY_S`, is given up only if all that are slower were not enough, and the first in the line not at all: if
  all of them were closed, their clients would begin again together, and with slow links no request would ever be completed.
* A request that has come whole and is handled in steps (see `elements`), or waits for another thread or for the transaction coordinator
  (`keep`), counts until its end, also when its connection is lost. It keeps its place in the line, so that large requests are not read
  faster than they are handled: while it is the first, no other is read on in its stead. One of up to `SMALL_BYTES` has no place, and
  keeps none waiting.
* Such a request needs nothing more, so it is not given up, and neither are others because of it: while it is the first, or while all
  that is incomplete is less than the bound, the time of connections that wait does not pass, and of those that are read only slow ones
  are closed.

Kafka's memory pool reserves whole requests, small ones too, and reads from no connection at its bound.
"""

import logging
import sys
from typing import TYPE_CHECKING, Protocol

from moldau.model.log_throttle import LogThrottle

if TYPE_CHECKING:
    from moldau.ports.clock import Clock

_LOG = logging.getLogger(__name__)

READ_BYTES = 8 * 1024
SMALL_BYTES = 16 * 1024
CHECK_S = 1.0
STEADY_S = 64
"""Time in which a request that is not too slow fills its buffer: of 1 MB, 16 KB in a second."""
NOTES_INTERVAL_S = 60.0


if TYPE_CHECKING:

    class Holder(Protocol):
        """A connection, as far as the memory of its requests matters."""

        def release(self) -> None:
            """Continue reading: there is memory again."""

        def starve(self) -> None:
            """Close: there is none, and the request has had its time."""


class _Held:
    __slots__ = ("bytes", "connection", "kept", "position", "received", "seen", "since")

    def __init__(self, size: int, position: int, since: float, connection: "Holder") -> None:
        self.bytes = size
        """Of the connection's own buffer."""
        self.kept = 0
        """Of requests that have come whole; with any, the place in the line is theirs."""
        self.position = position
        self.since = since
        self.connection = connection
        self.received = 0
        """Bytes that the connection has received in its life."""
        self.seen: int | None = None
        """The same at the last check; None if there was none, or if the connection has waited since."""


class RequestMemory:
    """See the module. `bytes_max` and `incomplete_max_s` may be changed at any time."""

    def __init__(self, clock: "Clock") -> None:
        self.bytes_max = 0
        self.incomplete_max_s = 0.0
        self.held = 0
        """Bytes that all connections and whole requests hold together."""
        self.kept = 0
        """Those of them that whole requests hold."""
        self.cut = 0
        """Connections closed for it."""
        self._clock = clock
        self._holders: dict[Holder, _Held] = {}
        """The line: what connections and their whole requests hold, the one without progress for longest first."""
        self._waiting: dict[Holder, None] = {}
        """Connections that are not read."""
        self._checking = False
        self._notes = LogThrottle(NOTES_INTERVAL_S, 1)

    @property
    def is_bounded(self) -> bool:
        """Whether there is a bound."""
        return self.bytes_max < sys.maxsize

    @property
    def exhausted(self) -> bool:
        """Whether the bound is reached."""
        return self.held >= self.bytes_max

    @property
    def waiting(self) -> int:
        """Connections that are not read until there is memory."""
        return len(self._waiting)

    def note(self, holder: "Holder", size: int, position: int, received: int, *, has_room: bool) -> bool:
        """`holder` holds `size` bytes now, the first of which is at `position` of the `received` ones; whether it has to wait for memory.

        `has_room`: its request fits into the bytes that it holds. One that has to wait is released, once.
        """
        self._count(holder, size, position)
        if size:
            self._holders[holder].received = received
        if has_room or not self.exhausted or size <= SMALL_BYTES or holder in self._waiting or holder is next(iter(self._holders)):
            return False
        self._waiting[holder] = None
        return True

    def keep(self, holder: "Holder", size: int) -> None:
        """A request of `holder` has come whole, and keeps `size` bytes until `finish`, besides what `note` counts."""
        self.held += size
        self.kept += size
        if size > SMALL_BYTES:
            held = self._holders.get(holder)
            if held is None:
                held = self._holders[holder] = _Held(0, 0, self._clock.monotonic(), holder)
            held.kept += size

    def finish(self, holder: "Holder", size: int) -> None:
        """The request for which `keep` was called is handled, or its connection is lost and nothing more is done of it."""
        self.held -= size
        self.kept -= size
        if size > SMALL_BYTES:
            held = self._holders[holder]
            held.kept -= size
            if not held.kept:
                del self._holders[holder]
                if held.bytes:
                    self._append(holder, held.bytes, held.position)
        self._balance()

    def forget(self, holder: "Holder") -> None:
        """The connection is closed; its whole requests are still handled."""
        self._waiting.pop(holder, None)
        if holder in self._holders:
            self._count(holder, 0, 0)

    def statistics(self) -> dict[str, int]:
        """Numbers for a person who looks into a running broker."""
        return {"request_bytes_held": self.held, "requests_waiting_for_memory": self.waiting, "requests_cut_for_memory": self.cut}

    def _count(self, holder: "Holder", size: int, position: int) -> None:
        held = self._holders.get(holder)
        self.held += size - (0 if held is None else held.bytes)
        if held is not None and (held.kept or (size and held.position == position)):
            held.bytes, held.position = size, position
        else:
            self._holders.pop(holder, None)
            if size:
                self._append(holder, size, position)
        self._balance()

    def _append(self, holder: "Holder", size: int, position: int) -> None:
        """Put it at the end of the line: it gets on."""
        self._holders[holder] = _Held(size, position, self._clock.monotonic(), holder)

    def _balance(self) -> None:
        if self.exhausted:
            self._begin_to_check()
            self._release_first()
        elif self._waiting:
            self._release()

    def _release(self) -> None:
        for holder in list(self._waiting):
            self._release_one(holder)

    def _release_first(self) -> None:
        first = next(iter(self._holders), None)
        if first is not None and first in self._waiting:
            self._release_one(first)

    def _release_one(self, holder: "Holder") -> None:
        held = self._holders.get(holder)
        if held is not None:
            held.seen = None
        del self._waiting[holder]
        holder.release()

    def _begin_to_check(self) -> None:
        now = self._clock.monotonic()
        if self._notes.due("full", now):
            _LOG.warning(
                "bound reached, reading large requests one by one: setting=queued.max.request.bytes limit=%d held=%d connections=%d cut=%d",
                self.bytes_max, self.held, len(self._holders), self.cut,
            )  # fmt: skip
        if not self._checking:
            self._checking = True
            self._clock.call_later(CHECK_S, self._check)

    def _check(self) -> None:
        """While there is no memory: give up requests whose time is over if a connection waits, and let the first of the others be read."""
        self._checking = False
        if not self.exhausted:
            return
        if self._waiting:
            self._give_up()
        for held in self._holders.values():
            held.seen = held.received
        if self.exhausted:
            self._release_first()
            self._begin_to_check()

    def _give_up(self) -> None:
        begun_s = self._clock.monotonic() - self.incomplete_max_s
        first = next(iter(self._holders.values()), None)
        is_ours = self.held - self.kept < self.bytes_max or first is None or first.kept > 0
        slow: list[_Held] = []
        steady: list[_Held] = []
        for held in self._holders.values():
            if held.kept:
                continue
            is_waiting = held.connection in self._waiting
            if is_waiting and is_ours:
                held.since += CHECK_S
            elif held.since <= begun_s:
                if is_waiting:
                    slow.append(held)
                elif held.seen is not None:  # otherwise the next check can tell
                    is_steady = (held.received - held.seen) * STEADY_S >= held.bytes * CHECK_S
                    (steady if is_steady else slow).append(held)
        for held in slow:
            self._cut(held)
        for held in steady[:0:-1]:
            if is_ours or not self.exhausted:
                break
            self._cut(held)

    def _cut(self, held: _Held) -> None:
        self.cut += 1
        self.forget(held.connection)
        held.connection.starve()
