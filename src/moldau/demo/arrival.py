"""Whether all that hosts have published is where the load reads it."""

import time
from collections.abc import Callable

STANDSTILL_S = 60.0
"""After so long without another event at the end nothing more is expected: the audit finds what is missing."""
ASK_S = 0.1


class Arrival:
    """Of events that mirrors bring from the clusters of the hosts to that of the load. Asked when all hosts have ended."""

    def __init__(self, published: Callable[[], int], arrived: Callable[[], int], now: Callable[[], float] = time.monotonic) -> None:
        """`published` is how many records the first clusters have, `arrived` how many of them the last one is known to have."""
        self._published = published
        self._arrived = arrived
        self._now = now
        self._expected: int | None = None
        self._last = -1
        self._changed_at = 0.0

    def complete(self) -> bool:
        """Whether all are there, or no more are expected."""
        if self._expected is None:
            self._expected = self._published()
        arrived, now = self._arrived(), self._now()
        if arrived != self._last:
            self._last, self._changed_at = arrived, now
        return arrived >= self._expected or now - self._changed_at >= STANDSTILL_S
