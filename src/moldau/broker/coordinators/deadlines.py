"""Deadlines of many keys on one timer of the clock: a heap, with lazy removal.

A deadline that moves to a later time costs one store and no heap operation: its place in the heap stays, and is moved when it comes up.
So a session that is extended by each heartbeat touches the heap about once in a session timeout.
"""

from collections.abc import Callable, Hashable
from heapq import heapify, heappop, heappush
from math import inf

from moldau.ports.clock import Clock, Timer

Action = Callable[[], object]

TURN_S = 0.005
"""Time that actions take together before the loop gets its turn."""
STALE_MIN = 64
"""The heap is rebuilt when it has more entries than this besides twice the deadlines that are set."""


class _Deadline:
    """Invariant: `queued_ms` is the earliest time that the heap has for it, and never after `due_ms`; inf if the heap has none."""

    __slots__ = ("action", "due_ms", "key", "owner", "queued_ms")

    def __init__(self, owner: Hashable, key: Hashable) -> None:
        self.owner = owner
        self.key = key
        self.due_ms: float = inf
        self.queued_ms: float = inf
        self.action: Action | None = None


class Deadlines:
    """One action for each key of an owner, at its time. Times are milliseconds of the clock's monotonic time."""

    __slots__ = ("_clock", "_count", "_heap", "_owners", "_sequence", "_timer", "_timer_due_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._owners: dict[Hashable, dict[Hashable, _Deadline]] = {}
        self._count = 0
        self._heap: list[tuple[float, int, _Deadline]] = []
        self._sequence = 0
        self._timer: Timer | None = None
        self._timer_due_ms: float = inf

    def __len__(self) -> int:
        """How many are set."""
        return self._count

    def now_ms(self) -> int:
        """The time by which deadlines are set."""
        return round(self._clock.monotonic() * 1000)

    def set(self, owner: Hashable, key: Hashable, due_ms: float, action: Action) -> None:
        """Call `action` once, not before `due_ms`; it replaces the deadline that the key has."""
        keys = self._owners.get(owner)
        if keys is None:
            keys = self._owners[owner] = {}
        deadline = keys.get(key)
        if deadline is None:
            deadline = keys[key] = _Deadline(owner, key)
            self._count += 1
        deadline.action = action
        deadline.due_ms = due_ms
        if due_ms < deadline.queued_ms:
            self._push(deadline)
            if due_ms < self._timer_due_ms:
                self._set_timer(due_ms)

    def cancel(self, owner: Hashable, key: Hashable) -> None:
        """Forget the key's deadline; harmless if it has none."""
        keys = self._owners.get(owner)
        deadline = None if keys is None else keys.pop(key, None)
        if deadline is not None:
            deadline.action = None
            self._count -= 1
            if not keys:
                del self._owners[owner]
            self._removed()

    def drop(self, owner: Hashable) -> None:
        """Forget all deadlines of an owner."""
        for deadline in self._owners.pop(owner, {}).values():
            deadline.action = None
            self._count -= 1
        self._removed()

    def close(self) -> None:
        """Forget all."""
        for owner in list(self._owners):
            self.drop(owner)

    def _push(self, deadline: _Deadline) -> None:
        deadline.queued_ms = deadline.due_ms
        self._sequence += 1
        heappush(self._heap, (deadline.due_ms, self._sequence, deadline))

    def _removed(self) -> None:
        if self._count == 0:
            self._heap.clear()
            self._stop_timer()
        elif len(self._heap) > 2 * self._count + STALE_MIN:
            self._heap = [entry for entry in self._heap if entry[2].action is not None and entry[0] == entry[2].queued_ms]
            heapify(self._heap)

    def _set_timer(self, due_ms: float) -> None:
        self._stop_timer()
        self._timer_due_ms = due_ms
        self._timer = self._clock.call_later(max(due_ms - self.now_ms(), 0) / 1000, self._time_over)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_due_ms = None, inf

    def _time_over(self) -> None:
        self._timer, self._timer_due_ms = None, inf
        until = self._clock.monotonic() + TURN_S
        try:
            while self._heap and self._heap[0][0] <= self.now_ms():
                self._run(*heappop(self._heap))
                if self._clock.monotonic() >= until:
                    break
        finally:
            if self._heap and self._heap[0][0] < self._timer_due_ms:
                self._set_timer(self._heap[0][0])

    def _run(self, queued_ms: float, _sequence: int, deadline: _Deadline) -> None:
        """One entry of the heap has come up."""
        action = deadline.action
        if action is None or queued_ms != deadline.queued_ms:
            return
        deadline.queued_ms = inf
        if deadline.due_ms > self.now_ms():
            self._push(deadline)
        else:
            self.cancel(deadline.owner, deadline.key)
            action()
