"""How many events, per topic, window and origin: what every tier counts alike, so that tiers can be compared.

A *window* is ten minutes of event time, by the header. Counts add up in any order: parts of a count, counted by different threads,
processes or runs, make the whole.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

WINDOW_MS: Final = 600_000
CHECKSUM_MASK: Final = (1 << 64) - 1


def window_start(time_ms: int) -> int:
    """The start of the window that an event time lies in, both in ms since 1970, UTC; before 1970 too."""
    return time_ms - time_ms % WINDOW_MS


class CountKey(NamedTuple):
    """What is counted apart. `instance` is the producer instance, as 16 hex digits; see `moldau.tracking.header`."""

    topic: str
    window_start_ms: int
    datacenter: str
    service: str
    host: str
    instance: str


@dataclass(frozen=True, slots=True)
class Count:
    """Some events: how many, the bytes of their records' values, the checksum of their guids, and the least and greatest event time.

    Invariant: 0 <= checksum < 2^64; the times are None if and only if there are no events.
    """

    count: int = 0
    bytes: int = 0
    checksum: int = 0
    min_time_ms: int | None = None
    max_time_ms: int | None = None

    def __add__(self, other: "Count") -> "Count":
        if not self.count:
            return other
        if not other.count:
            return self
        first, other_first, last, other_last = self.min_time_ms, other.min_time_ms, self.max_time_ms, other.max_time_ms
        return Count(
            self.count + other.count,
            self.bytes + other.bytes,
            (self.checksum + other.checksum) & CHECKSUM_MASK,
            first if other_first is None or (first is not None and first < other_first) else other_first,
            last if other_last is None or (last is not None and last > other_last) else other_last,
        )

    def with_event(self, time_ms: int, value_bytes: int, guid_hash: int) -> "Count":
        """This and one more event."""
        return self + Count(1, value_bytes, guid_hash, time_ms, time_ms)

    def __bool__(self) -> bool:
        return self.count != 0


NOTHING: Final = Count()
"""The count of no events."""


class RunningCount:
    """A count that is added to in place, one event at a time. One thread at a time."""

    __slots__ = ("bytes", "checksum", "count", "max_time_ms", "min_time_ms")

    def __init__(self) -> None:
        self.count = self.bytes = self.checksum = 0
        self.min_time_ms: int | None = None
        self.max_time_ms: int | None = None

    def add(self, time_ms: int, value_bytes: int, guid_hash: int) -> None:
        """One more event. The checksum is cut to 64 bits when it is taken."""
        self.count += 1
        self.bytes += value_bytes
        self.checksum += guid_hash
        if self.min_time_ms is None or time_ms < self.min_time_ms:
            self.min_time_ms = time_ms
        if self.max_time_ms is None or time_ms > self.max_time_ms:
            self.max_time_ms = time_ms

    def frozen(self) -> Count:
        """The count so far."""
        return Count(self.count, self.bytes, self.checksum & CHECKSUM_MASK, self.min_time_ms, self.max_time_ms)
