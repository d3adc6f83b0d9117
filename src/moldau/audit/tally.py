"""Counts that grow: what a walk over many batches adds up to, until it is published.

Records without a tracked header are counted too, as *untracked*: under an origin of empty names, which no producer instance has, and in
the window of their batch's time, since they have no event time. Their checksum is 0.

How long events were on their way is counted by topic and window alone, whose events they are makes no difference to it: for events that are
added to a tally which knows when they were seen. The window is that of the event's own time, as for counts. The latency begins at the time
of the record, which is when it was tracked: the event may have happened years before.
"""

from collections.abc import Iterable
from typing import Final

from moldau.tracking.counts import CHECKSUM_MASK, Count, CountKey, window_start
from moldau.tracking.latencies import ENDLESS, RANGES, Latencies, bucket_of

Origin = tuple[str, str, str, str]
"""Datacenter, service, host, producer instance."""

UNTRACKED: Origin = ("", "", "", "")
NO_TIME: Final = -1
"""The time of a record that has none. Its latency is not counted."""
_NO_BUCKET: Final = -1


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
        self._alike = (0, 0, _NO_BUCKET)

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

    def sent_alike(self, sent_ms: int) -> tuple[int, int, int]:
        """Times of records whose latencies are in one bucket: from one to before another; and the bucket, for `add_latency`."""
        seen_ms, alike = self.seen_ms, self._alike
        if alike[0] <= sent_ms < alike[1]:
            return alike
        if seen_ms is None:
            alike = -ENDLESS, ENDLESS, _NO_BUCKET
        elif sent_ms < 0:
            alike = -ENDLESS, 0, _NO_BUCKET
        else:
            bucket = bucket_of(seen_ms - sent_ms)
            least, beyond = RANGES[bucket]
            alike = max(0, seen_ms - beyond + 1), seen_ms - least + 1, bucket
        self._alike = alike
        return alike

    def add_latency(self, topic: str, start_ms: int, bucket: int, count: int) -> None:
        """Some events of one window, sent at times of which `sent_alike` gave this bucket."""
        if bucket != _NO_BUCKET and count:
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
