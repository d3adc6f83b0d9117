"""Windows that are equal in all tiers and unchanged for long: kept as one number for each topic. Pure.

A watch of months cannot keep each count. A window is *settled* when it is complete in all tiers, to the byte, and was not changed
for a day: all tiers have the same count, so that nothing is lost to any comparison when it is taken away from all of them. Late events
that come into it later are compared by themselves, and are missing or doubled if they would have been with all the others.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from moldau.tracking.counts import NOTHING, WINDOW_MS, Count


@dataclass(slots=True)
class Settled:
    """Of one topic. `tiers` had all counted all of them."""

    count: Count = NOTHING
    windows: int = 0
    dead_letters: dict[str, int] = field(default_factory=dict)
    """By tier: how many of the count were put aside."""
    tiers: tuple[str, ...] = ()
    spans: list[tuple[int, int]] = field(default_factory=list)
    """From and to when there are settled windows, in order, not touching."""
    skewed: list[tuple[int, int]] = field(default_factory=list)
    """The same of those that only hosts with wrong clocks have; they hold up no watermark, and raise none."""

    def add(self, start_ms: int, count: Count, *, shown: bool, skewed: bool) -> None:
        """One more window, or one that was settled before and had late events since. `shown`: whether its numbers are wanted."""
        if shown:
            self.count = self.count + count
            self.windows += start_ms not in self
        if skewed:
            self.skewed = _joined([*self.skewed, (start_ms, start_ms + WINDOW_MS)])
        else:
            self.spans = _joined([*self.spans, (start_ms, start_ms + WINDOW_MS)])

    def shared_by(self, tiers: Iterable[str]) -> None:
        """What comes now is counted by these: the first ones of all, or else those of them that had what there is already."""
        self.tiers = tuple(tier for tier in self.tiers if tier in set(tiers)) if self.spans or self.skewed else tuple(tiers)

    def __contains__(self, start_ms: object) -> bool:
        return isinstance(start_ms, int) and any(start <= start_ms < end for start, end in [*self.spans, *self.skewed])

    def newest_before(self, limit_ms: int | None) -> int | None:
        """The end of the newest settled window that begins before a time, None: of all."""
        ends = [end if limit_ms is None else min(end, limit_ms) for start, end in self.spans if limit_ms is None or start < limit_ms]
        return max(ends, default=None)


@dataclass(frozen=True, slots=True)
class SettledPair:
    """What is settled of a topic between two neighbouring tiers: complete, and not among the windows of the report."""

    topic: str
    upper_tier: str
    lower_tier: str
    count: Count
    windows: int
    dead_letters: int = 0
    """Of the lower tier."""


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found
