"""Rate limiter for repetitive log lines."""

from collections.abc import Hashable


class LogThrottle:
    """Passes each key at most once in `interval_s` seconds.

    It remembers `most` keys; while all of them are younger than that, it passes no new ones: at most `most` lines in `interval_s`.
    """

    def __init__(self, interval_s: float, most: int) -> None:
        self._interval_s = interval_s
        self._most = most
        self._passed: dict[Hashable, float] = {}
        """By key the time when it passed last, the oldest first."""

    def due(self, key: Hashable, now: float) -> bool:
        """Whether to log a line with this key; `now` in seconds of any clock that never goes back."""
        oldest = now - self._interval_s
        while self._passed and next(iter(self._passed.values())) <= oldest:
            del self._passed[next(iter(self._passed))]
        if key in self._passed or len(self._passed) >= self._most:
            return False
        self._passed[key] = now
        return True
