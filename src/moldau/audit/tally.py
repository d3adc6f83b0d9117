"""Counts that grow: what a walk over many batches adds up to, until it is published.

Records without a tracked header are counted too, as *untracked*: under an origin of empty names, which no producer instance has, and in
the window of their batch's time, since they have no event time. Their checksum is 0.

How long events were on their way is counted by topic and window alone, whose events they are makes no difference to it: for events that are
added to a tally which knows when they were seen.
"""

from moldau.tracking.counts import CHECKSUM_MASK, WINDOW_MS, Count, CountKey, window_start
from moldau.tracking.latencies import Latencies, bucket_of, range_of

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
        self._latencies: dict[tuple[str, int], dict[int, int]] = {}
        """By topic and start of the window: how many events by the bucket of their latency."""

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

    def span_of(self, time_ms: int) -> tuple[int, int]:
        """Event times that are counted alike, from one to before another: of the same window, and of latencies of the same bucket."""
        start_ms = window_start(time_ms)
        if self.seen_ms is None:
            return start_ms, start_ms + WINDOW_MS
        least, beyond = range_of(bucket_of(self.seen_ms - time_ms))
        return max(start_ms, self.seen_ms - beyond + 1), min(start_ms + WINDOW_MS, self.seen_ms - least + 1)

    def add_span(self, topic: str, origin: Origin, count: int, size: int, checksum: int, least_ms: int, greatest_ms: int) -> None:
        """Some events of one origin, whose times are in one span."""
        start_ms = window_start(least_ms)
        self.add(topic, start_ms, origin, count, size, checksum, least_ms, greatest_ms)
        if self.seen_ms is not None:
            self.add_latency(topic, start_ms, bucket_of(self.seen_ms - least_ms), count)

    def add_latency(self, topic: str, start_ms: int, bucket: int, count: int) -> None:
        """Some events of one window whose latencies are in one bucket."""
        buckets = self._latencies.setdefault((topic, start_ms), {})
        buckets[bucket] = buckets.get(bucket, 0) + count

    def add_untracked(self, topic: str, timestamp_ms: int, count: int, size: int) -> None:
        """Some records without a tracked header, of a batch with this time."""
        self.add(topic, window_start(timestamp_ms), UNTRACKED, count, size, 0, timestamp_ms, timestamp_ms)

    def take(self, other: "Tally") -> None:
        """Add all that the other one has."""
        for (topic, start_ms, origin), cell in other._cells.items():
            self.add(topic, start_ms, origin, cell[0], cell[1], cell[2], cell[3], cell[4])
        for (topic, start_ms), buckets in other._latencies.items():
            for bucket, count in buckets.items():
                self.add_latency(topic, start_ms, bucket, count)

    def counts(self) -> dict[CountKey, Count]:
        """What there is so far."""
        return {
            CountKey(topic, start_ms, *origin): Count(count, size, checksum & CHECKSUM_MASK, least_ms, greatest_ms)
            for (topic, start_ms, origin), (count, size, checksum, least_ms, greatest_ms) in self._cells.items()
        }

    def latencies(self) -> dict[tuple[str, int], Latencies]:
        """How long the events were on their way, by topic and start of the window."""
        return {key: Latencies.of(buckets) for key, buckets in self._latencies.items()}

    def clear(self) -> None:
        """Start again from nothing."""
        self.records = 0
        self._cells.clear()
        self._latencies.clear()
