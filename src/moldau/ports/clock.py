"""Time and timers. Deciding code takes the time as an argument or from here, never from the system."""

from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """Forget the call; harmless when it has run."""


class Clock(Protocol):
    """Two clocks: the wall's for timestamps, a monotonic one for durations."""

    def time_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC; may jump."""

    def monotonic(self) -> float:
        """Seconds that never go back, from an unnamed origin."""

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        """Run `callback` once, on the thread that owns the broker, not before `delay_s` seconds have passed."""
