"""Where a reader of one partition of a source continues in the target, from the runs of that partition. No I/O.

With one partition of the source for each of the target the place is exact: no record that was read comes again, and none is left out. Where
several partitions go into one, it is the last place that leaves none out.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from moldau.mirror.merge.runs import StoredRuns
from moldau.model.identity import TopicPartition


class Place(NamedTuple):
    """A place in a partition of the target."""

    offset: int
    is_record: bool
    """Whether the next record of the reader is there; else it has read all that is mirrored, and the place is after the last one."""


class Found(NamedTuple):
    """What the runs of a partition say of an offset."""

    first: int
    """The first offset of all runs; -1 without any."""
    places: Mapping[TopicPartition, Place]
    """In those partitions of the target that have records of this one."""


class Search:
    """For one partition of a source, and the offset that a reader reads next there. Takes the runs in any order."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.first = -1
        """The first offset of all runs; -1 without any."""
        self._next: dict[TopicPartition, int] = {}
        self._passed: dict[TopicPartition, int] = {}

    def add(self, stored: StoredRuns) -> None:
        """Take the runs of a transaction."""
        for run in stored.runs:
            target = TopicPartition(stored.topic, run.partition)
            self.first = run.first if self.first < 0 else min(self.first, run.first)
            if run.end <= self.offset:
                self._passed[target] = max(self._passed.get(target, 0), run.target_end)
            else:
                found = run.target + max(self.offset - run.first, 0)
                self._next[target] = min(self._next.get(target, found), found)

    def found(self) -> Found:
        """What all of these say."""
        passed = {target: Place(offset, is_record=False) for target, offset in self._passed.items()}
        return Found(self.first, passed | {target: Place(offset, is_record=True) for target, offset in self._next.items()})


def combined(places: Iterable[Mapping[TopicPartition, Place]]) -> dict[TopicPartition, int]:
    """Where a reader of several partitions continues: at the first record that any of them has not given yet, or after the last one."""
    found: dict[TopicPartition, Place] = {}
    for each in places:
        for target, place in each.items():
            known = found.get(target)
            if known is None or _is_before(place, known):
                found[target] = place
    return {target: place.offset for target, place in found.items()}


def _is_before(one: Place, other: Place) -> bool:
    """Whether a reader continues at one of two places rather than at the other."""
    if one.is_record and other.is_record:
        return one.offset < other.offset
    return one.is_record or (not other.is_record and one.offset > other.offset)
