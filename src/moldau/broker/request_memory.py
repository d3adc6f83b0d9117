"""Memory that requests take before they are handled, over all connections: `queued.max.request.bytes`.

A connection between requests holds nothing; one that has sent a part of a request, or whole ones that have to wait, holds a buffer. While
the sum is below the bound nobody notices anything. At the bound:

* Connections are read a little at a time (`READ_BYTES`), so that requests up to that size are served as ever.
* One that holds more than `SMALL_BYTES` is not read, until there is memory again. Only the one whose request has been incomplete for
  longest is, so that one request can always be completed and its memory given back: there is no deadlock. For this one request, and
  `SMALL_BYTES` of each connection, the sum may be above the bound.
* A request that has been incomplete for longer than `incomplete.request.timeout.ms` is given up and its connection closed: peers that hold
  memory and send nothing more do not keep others waiting for ever.

Kafka's memory pool reserves whole requests, small ones too, and reads nobody at its bound.
"""

import logging
from typing import TYPE_CHECKING, Protocol

from moldau.model.seldom import Seldom

if TYPE_CHECKING:
    from moldau.ports.clock import Clock

_LOG = logging.getLogger(__name__)

READ_BYTES = 8 * 1024
SMALL_BYTES = 16 * 1024
CHECK_S = 1.0
NOTES_INTERVAL_S = 60.0


class Holder(Protocol):
    """A connection, as far as the memory of its requests matters."""

    def release(self) -> None:
        """Go on: there is memory again."""

    def starve(self) -> None:
        """Close: there is none, and the request has had its time."""


class _Held:
    __slots__ = ("bytes", "position", "since")

    def __init__(self, size: int, position: int, since: float) -> None:
        self.bytes = size
        self.position = position
        self.since = since


class RequestMemory:
    """See the module. `bytes_max` and `incomplete_max_s` may be changed at any time."""

    def __init__(self, clock: "Clock") -> None:
        self.bytes_max = 0
        self.incomplete_max_s = 0.0
        self.held = 0
        """Bytes that all connections hold together."""
        self.cut = 0
        """Connections closed for it."""
        self._clock = clock
        self._holders: dict[Holder, _Held] = {}
        """Who holds something, the one without progress for longest first."""
        self._waiting: dict[Holder, None] = {}
        self._checking = False
        self._notes = Seldom(NOTES_INTERVAL_S, 1)

    @property
    def exhausted(self) -> bool:
        """Whether the bound is reached."""
        return self.held >= self.bytes_max

    @property
    def waiting(self) -> int:
        """Connections that are not read until there is memory."""
        return len(self._waiting)

    def note(self, holder: Holder, size: int, position: int) -> bool:
        """`holder` holds `size` bytes now, the first of which is at `position` of all it has sent; whether it has to wait for memory.

        One that has to wait is released, once.
        """
        held = self._holders.get(holder)
        self.held += size - (0 if held is None else held.bytes)
        if not size:
            self._holders.pop(holder, None)
        elif held is not None and held.position == position:
            held.bytes = size
        else:
            self._holders.pop(holder, None)  # to the end: it gets on
            self._holders[holder] = _Held(size, position, self._clock.monotonic())
        if not self.exhausted:
            if self._waiting:
                self._release()
            return False
        self._begin_to_check()
        self._release_first()
        if size <= SMALL_BYTES or holder is next(iter(self._holders)):
            return False
        self._waiting[holder] = None
        return True

    def forget(self, holder: Holder) -> None:
        """The connection is gone."""
        self._waiting.pop(holder, None)
        if holder in self._holders:
            self.note(holder, 0, 0)

    def statistics(self) -> dict[str, int]:
        """Numbers for a person who looks into a running broker."""
        return {"request_bytes_held": self.held, "requests_waiting_for_memory": self.waiting, "requests_cut_for_memory": self.cut}

    def _release(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for holder in waiting:
            holder.release()

    def _release_first(self) -> None:
        first = next(iter(self._holders), None)
        if first is not None and first in self._waiting:
            del self._waiting[first]
            first.release()

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
        """While there is no memory: give up requests whose time is over, and let the first of the others get on."""
        self._checking = False
        if not self.exhausted:
            return
        oldest = self._clock.monotonic() - self.incomplete_max_s
        for holder, held in list(self._holders.items()):
            if held.since > oldest:
                break
            self.cut += 1
            self.forget(holder)
            holder.starve()
        if self.exhausted:
            self._release_first()
            self._begin_to_check()
