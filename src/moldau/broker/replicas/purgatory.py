"""Requests that wait for an append or for their time: Kafka's purgatory, for fetches.

A waiting fetch is watched by every partition that it asks for. When the offset moves by which it reads (`FetchIsolation`), what is
`missing_bytes` falls by the bytes in between; when nothing is missing the fetch is attempted. A partition that is deleted, goes offline or
loses records has its fetches attempted at once. When its time is over a fetch is finished with whatever there is.

Cost: a push on a heap and one dictionary entry per partition. The clock's timer is set only when a deadline comes before the one it is
set for, so a consumer that polls in a circle does not set one per request; those that are done leave the heap when their deadline comes
up, or all together once they are the most of it.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from moldau.ports.clock import Clock, Timer

_LOG = logging.getLogger(__name__)

ATTEMPTS_PER_TURN = 50
"""Requests that one append, or the clock, attempts before other work runs: each takes about 50 microseconds."""
SWEEP_MIN = 1024
"""So many that are done may lie on the heap whatever else is there."""


class FetchIsolation(Enum):
    """The offset of a partition before which a fetch may read, and whose progress it waits for."""

    LOG_END = "log end offset"
    """Of followers."""
    HIGH_WATERMARK = "high watermark"
    LAST_STABLE = "last stable offset"
    """Of consumers that read committed records only: they wait for what is decided, not for what is appended."""


if TYPE_CHECKING:

    class WatchedPartition(Protocol):
        """A partition, as far as waiting requests care."""

        watchers: "dict[DelayedFetch, None]"

        def stable_growth(self, count: int) -> int:
            """As `count` bytes were appended, how many more there are for who reads committed records only, at most."""


class DelayedFetch:
    """One request that waits.

    `attempt(expired)` answers it if it can, and then gives True; when `expired` it must. It is not called again after True. Should it
    raise, which is a bug, `give_up` is called: the requests of others continue.
    """

    __slots__ = ("attempt", "attempted", "changed", "deadline", "done", "give_up", "isolation", "missing_bytes", "partitions", "weight")

    def __init__(
        self,
        attempt: Callable[[bool], bool],
        partitions: "Sequence[WatchedPartition]",
        missing_bytes: int,
        give_up: Callable[[], object],
        *,
        isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
        weight: int = 1,
    ) -> None:
        """`weight`: partitions that it asks for, each of which takes some hundred bytes while it waits."""
        self.isolation = isolation
        self.attempt = attempt
        self.give_up = give_up
        self.partitions = partitions
        self.missing_bytes = missing_bytes
        self.weight = weight
        self.changed: dict[WatchedPartition, None] = {}
        """Partitions to which something has happened while it waited."""
        self.deadline = 0.0
        self.attempted = False
        """Whether an attempt is under way. One that finds a disk broken takes partitions offline, which would attempt it again."""
        self.done = False


class Purgatory:
    """All fetches of a broker that wait. Whether one more may is for the caller to compare (`admission.limits`)."""

    def __init__(self, clock: Clock) -> None:
        self.held = 0
        """Partitions that the waiting fetches ask for, together."""
        self._clock = clock
        self._heap: list[tuple[float, int, DelayedFetch]] = []
        self._sequence = 0
        self._due: dict[DelayedFetch, None] = {}
        """Requests to be attempted soon."""
        self._waiting = 0
        self._timer: Timer | None = None
        self._timer_due = float("inf")

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return self._waiting

    def wait(self, request: DelayedFetch, max_wait_ms: int) -> None:
        """Let `request` wait for its partitions, `max_wait_ms` at most."""
        deadline = self._clock.monotonic() + max_wait_ms / 1000
        request.deadline = deadline
        for partition in request.partitions:
            partition.watchers[request] = None
        self._sequence += 1
        heappush(self._heap, (deadline, self._sequence, request))
        self._waiting += 1
        self.held += request.weight
        if deadline < self._timer_due:
            self._set_timer(deadline)

    def appended(self, grown: "Iterable[tuple[WatchedPartition, int, int]]") -> None:
        """Partitions have grown: of each so many more bytes lie before its high watermark, and so many before its log end."""
        enough: dict[DelayedFetch, None] = {}
        for partition, shown, written in grown:
            growth = {
                FetchIsolation.LOG_END: written,
                FetchIsolation.HIGH_WATERMARK: shown,
                FetchIsolation.LAST_STABLE: partition.stable_growth(shown) if shown else 0,
            }
            for request in partition.watchers:
                request.changed[partition] = None
                request.missing_bytes -= growth[request.isolation]
                if request.missing_bytes <= 0:
                    enough[request] = None
        self._attempt_all(list(enough))

    def changed(self, partitions: "Iterable[WatchedPartition]") -> None:
        """Something other than an append happened to partitions: attempt whatever waits for them."""
        woken: dict[DelayedFetch, None] = {}
        for partition in partitions:
            for request in partition.watchers:
                request.changed[partition] = woken[request] = None
        self._attempt_all(list(woken))

    def finish(self, request: DelayedFetch) -> None:
        """Let it wait no longer: it is answered with what there is."""
        if not request.done:
            self._attempt(request, expired=True)

    def cancel(self, request: DelayedFetch) -> None:
        """No connection waits for the answer any more."""
        if not request.done:
            self._finish(request)

    def close(self) -> None:
        """Finish every request with what there is."""
        for _, _, request in sorted(self._heap):
            if not request.done:
                self._attempt(request, expired=True)
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _attempt_all(self, requests: list[DelayedFetch]) -> None:
        """Attempt the first of them now, and the others a few in each turn of the clock."""
        for request in requests[:ATTEMPTS_PER_TURN]:
            if not request.done:
                self._attempt(request, expired=False)
        if len(requests) > ATTEMPTS_PER_TURN:
            if not self._due:
                self._clock.call_later(0.0, self._attempt_due)
            self._due.update(dict.fromkeys(requests[ATTEMPTS_PER_TURN:]))

    def _attempt_due(self) -> None:
        due = list(islice(self._due, ATTEMPTS_PER_TURN))
        for request in due:
            del self._due[request]
        if self._due:
            self._clock.call_later(0.0, self._attempt_due)
        for request in due:
            if not request.done:
                self._attempt(request, expired=False)

    def _attempt(self, request: DelayedFetch, *, expired: bool) -> None:
        if request.attempted:
            return
        request.attempted = True
        try:
            answered = request.attempt(expired)
        except Exception:
            _LOG.exception("waiting request given up by a bug")
            request.give_up()
            answered = True
        request.attempted = False
        if answered:
            self._finish(request)

    def _finish(self, request: DelayedFetch) -> None:
        if request.done:
            return
        request.done = True
        self._waiting -= 1
        self.held -= request.weight
        for partition in request.partitions:
            partition.watchers.pop(request, None)
        request.partitions = ()
        request.attempt = _nothing
        request.give_up = _no_more
        if len(self._heap) > SWEEP_MIN + 2 * self._waiting:
            self._heap = [entry for entry in self._heap if not entry[2].done]
            heapify(self._heap)

    def _set_timer(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        self._timer = self._clock.call_later(max(due - self._clock.monotonic(), 0.0), self._expire)

    def _expire(self) -> None:
        self._timer = None
        self._timer_due = float("inf")
        now = self._clock.monotonic()
        attempts = 0
        while self._heap:
            deadline, _, request = self._heap[0]
            if not request.done and (deadline > now or attempts == ATTEMPTS_PER_TURN):
                self._set_timer(deadline)
                return
            heappop(self._heap)
            if not request.done:
                attempts += 1
                self._attempt(request, expired=True)


def _no_more() -> None:
    """As `_nothing`."""


def _nothing(expired: bool) -> bool:
    """Stands where the attempt of a finished request was, so that what it held is freed before its deadline."""
    return True
