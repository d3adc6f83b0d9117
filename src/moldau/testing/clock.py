"""A clock that moves only when a test advances it."""

from collections.abc import Callable
from heapq import heappop, heappush


class FakeTimer:
    """A call that is due."""

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        """Forget the call."""
        self.callback = None


class FakeClock:
    """A :class:`moldau.ports.clock.Clock`. Calls run inside `advance` and `settle`, in the order in which they are due."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._start_ms = start_ms
        self._now = 0.0
        self._timers: list[tuple[float, int, FakeTimer]] = []
        self._sequence = 0

    def time_ms(self) -> int:
        """Milliseconds since 1970."""
        return self._start_ms + int(self._now * 1000)

    def monotonic(self) -> float:
        """Seconds since this clock was made."""
        return self._now

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> FakeTimer:
        """Run `callback` when the clock has moved on by `delay_s`."""
        timer = FakeTimer(callback)
        self._sequence += 1
        heappush(self._timers, (self._now + max(delay_s, 0.0), self._sequence, timer))
        return timer

    def advance(self, seconds: float) -> None:
        """Move on, running what comes due at its time."""
        until = self._now + seconds
        while self._timers and self._timers[0][0] <= until:
            due, _, timer = heappop(self._timers)
            self._now = max(self._now, due)
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()
        self._now = max(self._now, until)

    def advance_within(self, seconds: float) -> None:
        """Move on inside a call, as time that it takes; what comes due runs later."""
        self._now += seconds

    def settle(self) -> None:
        """Run what is due now."""
        self.advance(0.0)

    @property
    def pending(self) -> int:
        """Calls that are still due."""
        return sum(timer.callback is not None for _, _, timer in self._timers)
