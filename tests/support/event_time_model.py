"""Event time as a plain model has it: what the windows of a query count, which rows are late, and which of them no window takes.

Times are whole minutes. A query goes through batches; `ends` is the watermark by which a batch closes windows, `drops` the one by which it
leaves rows out: that of the batch before. After each batch the watermark is `delay` before the newest row that there was, and never less
than before. When there is nothing to read and the watermark has moved, there is one batch without rows.
"""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

Row = tuple[int, str]
"""A minute, and a key."""
Window = tuple[int, int]
"""From this minute to before that one."""
Closed = tuple[int, int, str, int]
"""A window, its key, and how many rows it has."""
EPOCH = -22_616_640
"""1970, where a watermark is before there is one; minutes are those since 2013."""


@dataclass(frozen=True)
class Sliding:
    """Windows of `length` that begin each `slide`."""

    length: int
    slide: int

    def windows(self, minute: int) -> list[Window]:
        last = minute // self.slide * self.slide
        return [(start, start + self.length) for start in range(last, minute - self.length, -self.slide)]


@dataclass(frozen=True)
class Sessions:
    """Rows of a key that have no `gap` between them."""

    gap: int

    def windows(self, minute: int) -> list[Window]:
        return [(minute, minute + self.gap)]


@dataclass
class EventTimeModel:
    kind: Sliding | Sessions
    delay: int
    ends: int = EPOCH
    drops: int = EPOCH
    open: Counter[tuple[int, int, str]] = field(default_factory=Counter)
    closed: list[Closed] = field(default_factory=list)
    late: list[tuple[int, str, int]] = field(default_factory=list)
    """Rows at or before the watermark, and by how much."""
    dropped: list[Row] = field(default_factory=list)
    """Of those the ones that no window took."""

    def run(self, batches: Iterable[Sequence[Row]]) -> None:
        """Until nothing is left to read."""
        for rows in batches:
            self.batch(rows)
        if self.ends > self.drops:
            self.batch([])

    def batch(self, rows: Sequence[Row]) -> None:
        for minute, key in rows:
            if minute <= self.drops:
                self.late.append((minute, key, self.drops - minute))
            taken = [window for window in self.kind.windows(minute) if window[1] > self.drops]
            if not taken:
                self.dropped.append((minute, key))
            for start, end in taken:
                self._count(start, end, key)
        for start, end, key in [each for each in self.open if each[1] <= self.ends]:
            self.closed.append((start, end, key, self.open.pop((start, end, key))))
        self.drops = self.ends
        self.ends = max([self.ends, *(minute - self.delay for minute, _ in rows)])

    def _count(self, start: int, end: int, key: str) -> None:
        count = 1
        if isinstance(self.kind, Sessions):
            for other in [each for each in self.open if each[2] == key and each[0] <= end and start <= each[1]]:
                start, end, count = min(start, other[0]), max(end, other[1]), count + self.open.pop(other)
        self.open[start, end, key] += count


def in_batches(rows: Sequence[Row], size: int) -> list[Sequence[Row]]:
    """As a job with `records_max` reads one partition."""
    return [rows[number : number + size] for number in range(0, len(rows), size)]


def mixed_rows(seed: int, count: int) -> list[Row]:
    """Rows that advance by about three minutes each, most of them out of order, some of them by hours."""
    given = random.Random(seed)
    rows = []
    for number in range(count):
        behind = given.choice((0, 0, 0, given.randint(0, 30), given.randint(0, 60), given.randint(0, 300)))
        rows.append((600 + 3 * number - behind, given.choice("abc")))
    return rows
