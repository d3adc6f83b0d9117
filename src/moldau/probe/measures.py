"""What became of probes on one way: to a broker and its acknowledgement, or on to a reader. Pure: times are given, in seconds.

A probe is in time if it arrives within the limit; after that it counts as lost, and its arrival changes nothing. Memory is bounded by the
limit: no probe is kept longer, and of the latencies of an interval at most `SAMPLES_MAX`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

SAMPLES_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Measure:
    """Of one interval: the probes that ended in it, those that arrived in time, and their latencies in seconds; None without any."""

    ended: int
    in_time: int
    p50_s: float | None
    p99_s: float | None

    @property
    def availability(self) -> float | None:
        """The share in time; None if no probe ended."""
        return self.in_time / self.ended if self.ended else None


class Way:
    """The probes on one way, by their numbers, which rise."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._waiting: dict[int, float] = {}
        """When each was sent; the oldest first."""
        self._ended = 0
        self._latencies: list[float] = []
        self._in_time = 0

    def sent(self, number: int, at: float) -> None:
        """A probe is on its way."""
        self._waiting[number] = at

    def arrived(self, number: int, at: float) -> None:
        """It has arrived; if it was late, nothing changes."""
        sent_at = self._waiting.pop(number, None)
        if sent_at is None:
            return
        self._ended += 1
        if at - sent_at <= self._limit_s:
            self._in_time += 1
            if len(self._latencies) < SAMPLES_MAX:
                self._latencies.append(at - sent_at)

    def lost(self, number: int) -> None:
        """It will not arrive, or does not count."""
        if self._waiting.pop(number, None) is not None:
            self._ended += 1

    def withdrawn(self, number: int) -> None:
        """It never set out, so this way is not to blame."""
        self._waiting.pop(number, None)

    def expire(self, now: float) -> None:
        """Probes that are late are lost."""
        for number, sent_at in list(self._waiting.items()):
            if now - sent_at <= self._limit_s:
                return
            self.lost(number)

    def take(self) -> Measure:
        """The measure of the interval that ends now."""
        latencies = sorted(self._latencies)
        found = Measure(self._ended, self._in_time, percentile(latencies, 50), percentile(latencies, 99))
        self._ended, self._in_time, self._latencies = 0, 0, []
        return found


def percentile(ordered: Sequence[float], percent: int) -> float | None:
    """The smallest value that so many percent of all do not exceed; None of no value."""
    return ordered[ceil(len(ordered) * percent / 100) - 1] if ordered else None
