"""Counts that grow: what a walk over many batches adds up to, until it is published.

Records without a tracked header are counted too, as *untracked*: under an origin of empty names, which no producer instance has, and in
the window of their batch's time, since they have no event time. Their checksum is 0.
"""

from moldau.tracking.counts import CHECKSUM_MASK, Count, CountKey, window_start

Origin = tuple[str, str, str, str]
"""Datacenter, service, host, producer instance."""

UNTRACKED: Origin = ("", "", "", "")


def is_untracked(key: CountKey) -> bool:
    """Whether this key counts records without a tracked header."""
    return not key.instance


class Tally:
    """Counts of any number of topics, by key. One thread at a time."""

    def __init__(self) -> None:
        self.records = 0
        self._cells: dict[tuple[str, int, Origin], list[int]] = {}

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

    def add_untracked(self, topic: str, timestamp_ms: int, count: int, size: int) -> None:
        """Some records without a tracked header, of a batch with this time."""
        self.add(topic, window_start(timestamp_ms), UNTRACKED, count, size, 0, timestamp_ms, timestamp_ms)

    def take(self, other: "Tally") -> None:
        """Add all that the other one has."""
        for (topic, start_ms, origin), cell in other._cells.items():
            self.add(topic, start_ms, origin, cell[0], cell[1], cell[2], cell[3], cell[4])

    def counts(self) -> dict[CountKey, Count]:
        """What there is so far."""
        return {
            CountKey(topic, start_ms, *origin): Count(count, size, checksum & CHECKSUM_MASK, least_ms, greatest_ms)
            for (topic, start_ms, origin), (count, size, checksum, least_ms, greatest_ms) in self._cells.items()
        }

    def clear(self) -> None:
        """Start again from nothing."""
        self.records = 0
        self._cells.clear()
