"""How long events were on their way to a tier: a histogram that adds up in any order, bounded, and exact to an eighth.

A *latency* is the time from when an event was tracked, which is the time of its record, to when a tier saw it, in ms. Its *bucket* is
one of four between two powers of two, so that a histogram over all time has less than 170 numbers, whatever it counts. Bucket 0 is of
events that were seen before they were sent, by clocks that differ. The text is what audit records have: do not change.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Self

BUCKETS: Final = 1 + 4 * 41
"""Latencies of 2^41 ms, seventy years, and more are in the last one."""
_LAST: Final = BUCKETS - 1
ENDLESS: Final = 1 << 62
"""More than any latency."""
QUANTILES: Final = (0.5, 0.95, 0.99)
"""Those that are reported."""
_TEXT: Final = re.compile("[0-9]{1,3}:[0-9]{1,18}(?: [0-9]{1,3}:[0-9]{1,18})*")


def bucket_of(latency_ms: int) -> int:
    """The bucket of a latency."""
    if latency_ms <= 0:
        return 0
    power = latency_ms.bit_length() - 1
    return min(1 + 4 * power + ((latency_ms << 2 >> power) & 3), _LAST)


def range_of(bucket: int) -> tuple[int, int]:
    """The least latency of a bucket, and the least one beyond it."""
    return (_lowest(bucket) if bucket else -ENDLESS), (_lowest(bucket + 1) if bucket < _LAST else ENDLESS)


def _lowest(bucket: int) -> int:
    power, quarter = divmod(bucket - 1, 4)
    return -(-((4 + quarter) << power) // 4)


RANGES: Final = tuple(map(range_of, range(BUCKETS)))
"""Of all buckets."""


@dataclass(frozen=True, slots=True)
class Latencies:
    """How many events took how long. Invariant: buckets rise, and none is empty."""

    counts: tuple[tuple[int, int], ...] = ()
    """Bucket and number of events."""

    @classmethod
    def of(cls, counts: Mapping[int, int]) -> Self:
        """By bucket."""
        return cls(tuple(sorted((bucket, count) for bucket, count in counts.items() if count)))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Out of an audit record. ValueError for what is none."""
        if not _TEXT.fullmatch(text):
            raise ValueError(f"latencies are BUCKET:COUNT, separated by spaces, not {text[:40]!r}")
        counts: Counter[int] = Counter()
        for pair in text.split():
            bucket, _, count = pair.partition(":")
            counts[min(int(bucket), _LAST)] += int(count)
        return cls.of(counts)

    def to_text(self) -> str:
        """As audit records have it: ``21:5 22:12``."""
        return " ".join(f"{bucket}:{count}" for bucket, count in self.counts)

    def __add__(self, other: "Latencies") -> "Latencies":
        return added((self, other))

    def __bool__(self) -> bool:
        return bool(self.counts)

    @property
    def total(self) -> int:
        """How many events."""
        return sum(count for _, count in self.counts)

    def quantile(self, share: float) -> int:
        """So many of all events took no longer, in ms: interpolated within its bucket, which is a quarter of its value wide at the most."""
        rank, before = share * self.total, 0
        for bucket, count in self.counts:
            if before + count >= rank:
                if bucket == 0:
                    return 0
                low, high = _lowest(bucket), max(_lowest(bucket), _lowest(bucket + 1) - 1)
                return low + round((high - low) * (rank - before) / count)
            before += count
        return 0

    def later_by(self, more_ms: int) -> "Latencies":
        """The same events, seen so much later; what they took is taken from the middle of their buckets."""
        counts: Counter[int] = Counter()
        for bucket, count in self.counts:
            middle = (_lowest(bucket) + _lowest(bucket + 1)) // 2 if bucket else 0
            counts[bucket_of(middle + more_ms)] += count
        return Latencies.of(counts)


NO_LATENCIES: Final = Latencies()


def added(parts: Iterable[Latencies]) -> Latencies:
    """The sum."""
    counts: Counter[int] = Counter()
    for part in parts:
        for bucket, count in part.counts:
            counts[bucket] += count
    return Latencies.of(counts)
