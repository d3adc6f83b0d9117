"""Counts that grow: what a walk over many batches adds up to, until it is published.

Records without a tracked header are counted too, as *untracked*: under an origin of empty names, which no producer instance has, and in
the window of their batch's time, since they have no event time. Their checksum is 0.

How long events were on their way is counted by topic and window alone, whose events they are makes no difference to it: for events that are
added to a tally which knows when they were seen.
"""

from collections.abc import Iterable

from moldau.tracking.counts import CHECKSUM_MASK, WINDOW_MS, Count, CountKey, window_start
from moldau.tracking.latencies import RANGES, Latencies, bucket_of

Origin = tuple[str, str, str, str]
"""Datacenter, service, host, producer instance."""

UNTRACKED: Origin = ("", "", "", "")


def is_untracked(key: CountKey) -> bool:
    """Whether this key counts records without a tracked header."""
    return not key.instance


class Tally:
    """Counts of any number of topics, by key. One thread at a time."""

    def __init__(self, seen_ms: int | None = None) -> None:
        self.records = 0
        self.seen_ms = seen_ms
        """When the events that are added were seen by the tier, in ms; None: their latencies are not counted."""
        self._cells: dict[tuple[str, int, Origin], list[int]] = {}
        self._latencies: dict[tuple[str, int, int], int] = {}
        """By topic, start of the window and bucket of the latency: how many events."""

    def __len__(self) -> int:
        return len(self._cells)

    def add(self, topic: str, start_ms: int, origin: Origin, count: int, size: int, checksum: int, least_ms: int, greatest_ms: int) -> None:
        """Some events of one window and origin. The checksum may be of more than 64 bits."""
        self.records += count
        cell = self._cells.get((topic, start_ms, origin))
        if cell is None:
            self._cells[topic, start_ms, origin] = [count, size, checksum, least_ms, greatest_ms]
            return
        cell[0] += count
        cell[1] += size
        cell[2] += checksum
        if least_ms < cell[3]:
            cell[3] = least_ms
        if greatest_ms > cell[4]:
            cell[4] = greatest_ms

    def span_of(self, time_ms: int) -> tuple[int, int, int]:
        """Event times that are counted alike, of one window and one bucket of latencies: from one to before another; and the bucket."""
        start_ms = time_ms - time_ms % WINDOW_MS
        if self.seen_ms is None:
            return start_ms, start_ms + WINDOW_MS, 0
        bucket = bucket_of(self.seen_ms - time_ms)
        least, beyond = RANGES[bucket]
        first, last = self.seen_ms - beyond + 1, self.seen_ms - least + 1
        return max(start_ms, first), min(start_ms + WINDOW_MS, last), bucket

    def add_span(
        self, topic: str, origin: Origin, bucket: int, count: int, size: int, checksum: int, least_ms: int, greatest_ms: int
    ) -> None:
        """Some events of one origin, whose times are in one span, of latencies of this bucket."""
        start_ms = least_ms - least_ms % WINDOW_MS
        self.add(topic, start_ms, origin, count, size, checksum, least_ms, greatest_ms)
        if self.seen_ms is not None:
            key = (topic, start_ms, bucket)
            self._latencies[key] = self._latencies.get(key, 0) + count

    def add_latencies(self, topic: str, counts: Iterable[tuple[int, int, int]]) -> None:
        """The start of a window, a bucket, and how many events of that window have latencies in it."""
        known = self._latencies
        for start_ms, bucket, count in counts:
            key = (topic, start_ms, bucket)
            known[key] = known.get(key, 0) + count

    def add_untracked(self, topic: str, timestamp_ms: int, count: int, size: int) -> None:
        """Some records without a tracked header, of a batch with this time."""
        self.add(topic, window_start(timestamp_ms), UNTRACKED, count, size, 0, timestamp_ms, timestamp_ms)

    def take(self, other: "Tally") -> None:
        """Add all that the other one has."""
        for (topic, start_ms, origin), cell in other._cells.items():
            self.add(topic, start_ms, origin, cell[0], cell[1], cell[2], cell[3], cell[4])
        known = self._latencies
        for key, count in other._latencies.items():
            known[key] = known.get(key, 0) + count

    def counts(self) -> dict[CountKey, Count]:
        """What there is so far."""
        return {
            CountKey(topic, start_ms, *origin): Count(count, size, checksum & CHECKSUM_MASK, least_ms, greatest_ms)
            for (topic, start_ms, origin), (count, size, checksum, least_ms, greatest_ms) in self._cells.items()
        }

    def latencies(self) -> dict[tuple[str, int], Latencies]:
        """How long the events were on their way, by topic and start of the window."""
        found: dict[tuple[str, int], dict[int, int]] = {}
        for (topic, start_ms, bucket), count in self._latencies.items():
            found.setdefault((topic, start_ms), {})[bucket] = count
        return {key: Latencies.of(buckets) for key, buckets in found.items()}

    def clear(self) -> None:
        """Start again from nothing."""
        self.records = 0
        self._cells.clear()
        self._latencies.clear()
