"""Durations in buckets of powers of two: cheap to add, exact in count and sum, quantiles within a bucket's width.

Bucket `b` holds durations of `b` binary digits in microseconds: 0; 1; 2 and 3; 4 to 7; ... A quantile is interpolated within its bucket, so
it is wrong by a factor of two at the most.
"""

from collections.abc import Sequence

BUCKETS = 40
"""The last one holds everything from 76 hours on."""
WINDOW_S = 60.0
_LAST_BUCKET_US = 1 << BUCKETS - 1


class TimeDigest:
    """Durations since the start, and quantiles of those of the last one or two minutes."""

    __slots__ = ("_begin", "_next", "_next_s", "buckets", "sum_us")

    def __init__(self) -> None:
        self.buckets = [0] * BUCKETS
        self.sum_us = 0
        self._begin: Sequence[int] = (0,) * BUCKETS
        """The buckets when the window of `quantiles` began."""
        self._next: Sequence[int] = self._begin
        """The buckets when the next window began."""
        self._next_s: float | None = None

    def add(self, us: int, count: int = 1) -> None:
        """Add `count` durations of `us` microseconds each."""
        self.buckets[us.bit_length() if us < _LAST_BUCKET_US else -1] += count
        self.sum_us += us * count

    @property
    def count(self) -> int:
        """Durations since the start."""
        return sum(self.buckets)

    def quantiles(self, wanted: Sequence[float], now_s: float) -> list[float] | None:
        """Quantiles in microseconds of the last one to two minutes (longer, if this is called less than once a minute); None if nothing was
        added in that time. `now_s`: a monotonic time in seconds.
        """
        if self._next_s is None:
            self._next_s = now_s
        elif now_s - self._next_s >= WINDOW_S:
            self._begin, self._next, self._next_s = self._next, tuple(self.buckets), now_s
        window = [now - before for now, before in zip(self.buckets, self._begin, strict=True)]
        total = sum(window)
        return [_quantile(window, total * share) for share in wanted] if total else None


def _quantile(window: Sequence[int], rank: float) -> float:
    """The duration that `rank` of those in the window do not exceed."""
    below = 0
    for bucket, count in enumerate(window):
        if count and below + count >= rank:
            low = 1 << bucket - 1 if bucket else 0
            return low + low * (rank - below) / count
        below += count
    raise AssertionError("a rank above the count")
