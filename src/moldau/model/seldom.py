"""What may happen often, but is worth a line in the log only now and then."""

from collections.abc import Hashable


class Seldom:
    """Lets the same thing through once in `interval_s` seconds.

    Remembers `most` things; while all of them are fresh, new ones are not let through, so that no more than `most` pass in `interval_s`.
    """

    def __init__(self, interval_s: float, most: int) -> None:
        self._interval_s = interval_s
        self._most = most
        self._passed: dict[Hashable, float] = {}
        """When each was let through last, the oldest first."""

    def due(self, thing: Hashable, now: float) -> bool:
        """Whether to tell of it; `now` in seconds of any clock that never goes back."""
        oldest = now - self._interval_s
        while self._passed and next(iter(self._passed.values())) <= oldest:
            del self._passed[next(iter(self._passed))]
        if thing in self._passed or len(self._passed) >= self._most:
            return False
        self._passed[thing] = now
        return True
