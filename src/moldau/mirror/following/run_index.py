"""Runs of transactions in memory, by source partition, to translate any offset at once. No I/O.

Runs of one partition into one of the target come in ascending order in both. Bounded: at `runs_max` the partition with the most runs
loses the older half of them, and offsets from before are not answered.
"""

from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from moldau.mirror.merge.positions import Key
from moldau.mirror.translation.search import Found, Place
from moldau.model.identity import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from moldau.mirror.merge.runs import StoredRun, StoredRuns

RUNS_MAX: Final = 500_000
"""24 bytes each."""


class _Series:
    """The runs of a source partition in one partition of the target, and where those end there that were dropped."""

    __slots__ = ("counts", "firsts", "passed", "targets")

    def __init__(self) -> None:
        self.firsts, self.counts, self.targets = array("q"), array("q"), array("q")
        self.passed = -1

    def __len__(self) -> int:
        return len(self.firsts)

    def add(self, run: "StoredRun") -> None:
        """The next run. One before the last ones takes their place: the source was truncated."""
        while self.firsts and self.firsts[-1] >= run.first:
            self._pop()
        if self.firsts and self._end(-1) > run.first:
            self.counts[-1] = run.first - self.firsts[-1]
        if self.firsts and self._end(-1) == run.first and self.targets[-1] + self.counts[-1] == run.target:
            self.counts[-1] += run.records
            return
        self.firsts.append(run.first)
        self.counts.append(run.records)
        self.targets.append(run.target)

    def drop_older_half(self) -> int:
        """Where the dropped ones end in the source."""
        count = (len(self) + 1) // 2
        end = self._end(count - 1)
        self.passed = self.targets[count - 1] + self.counts[count - 1]
        del self.firsts[:count], self.counts[:count], self.targets[:count]
        return end

    def place(self, offset: int) -> Place | None:
        """The place of one that reads this offset next."""
        at = bisect_right(self.firsts, offset) - 1
        if at >= 0 and offset < self._end(at):
            return Place(self.targets[at] + offset - self.firsts[at], is_record=True)
        if at + 1 < len(self):
            return Place(self.targets[at + 1], is_record=True)
        passed = self.targets[at] + self.counts[at] if at >= 0 else self.passed
        return None if passed < 0 else Place(passed, is_record=False)

    def _end(self, at: int) -> int:
        return self.firsts[at] + self.counts[at]

    def _pop(self) -> None:
        self.firsts.pop()
        self.counts.pop()
        self.targets.pop()


class RunIndex:
    """See the module. `add` gets the transactions in the order of the topic."""

    def __init__(self, runs_max: int = RUNS_MAX, *, is_whole: bool) -> None:
        """`is_whole`: the first run that comes is the first one that ever was."""
        self._runs_max = runs_max
        self._is_whole = is_whole
        self._series: dict[Key, dict[TopicPartition, _Series]] = {}
        self._first: dict[Key, int] = {}
        """The lowest offset of all runs that came."""
        self._floor: dict[Key, int] = {}
        """Where the runs end that were dropped."""
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __contains__(self, key: Key) -> bool:
        """Whether it has runs of a source partition."""
        return key in self._first

    def add(self, transaction: "Iterable[StoredRuns]") -> None:
        """Take the runs of a transaction. They are by source partition and by origins, so they are put in order first."""
        runs = sorted((run, each.topic, each.key) for each in transaction for run in each.runs)
        for run, topic, key in runs:
            mine, target = self._series.setdefault(key, {}), TopicPartition(topic, run.partition)
            series = mine.get(target)
            if series is None:
                series = mine[target] = _Series()
            self._size -= len(series)
            series.add(run)
            self._size += len(series)
            self._first[key] = min(self._first.get(key, run.first), run.first)
        while self._size > self._runs_max:
            self._drop()

    def find(self, key: Key, offset: int) -> Found | None:
        """The places of one that reads this offset of a source partition next; None where runs are not in memory that it takes."""
        first = self._first.get(key, -1)
        floor = self._floor.get(key, -1 if self._is_whole else first)
        if offset < floor or (first < 0 and not self._is_whole):
            return None
        if first < 0:
            return Found(first, {})
        places = {target: place for target, series in self._series[key].items() if (place := series.place(offset)) is not None}
        return Found(first, places)

    def _drop(self) -> None:
        size, key, series = max(
            ((len(series), key, series) for key, mine in self._series.items() for series in mine.values()), key=lambda each: each[0]
        )
        end = series.drop_older_half()
        self._size -= size - len(series)
        self._floor[key] = max(self._floor.get(key, end), end)
