"""Counts of what the tasks of a stream read, for the audit: a task leaves them in a file, by range, when it has read its ranges to the end.

The driver that runs the query orders it, with a local property of the thread in which a batch is written: into which directory, and of
which topics. Tasks of other batches look for the property and do nothing more. A task that is run again makes the same file again. Spark
may read a range more than once in a batch, where tasks fail or a query reads a topic twice: the driver takes of the ranges that it finds
those that lie next to each other from the start of what the batch reads to its end, and so each record once.
"""

import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from moldau.lake.counts import Counts, added, counts_to_json, latencies_added
from moldau.lake.reading.offsets import OffsetRange
from moldau.tracking.clock import now_ms

if TYPE_CHECKING:
    from moldau.lake.reading.columns import RecordColumns
    from moldau.tracking.latencies import Latencies

PROPERTY: Final = "moldau.counts"
_SUFFIX = ".json"

RangeCounts = Mapping[OffsetRange, Mapping[str, Any]]
"""What was read of each range, as `counts_to_json` writes it."""


@dataclass(frozen=True, slots=True)
class CountOrder:
    """What tasks are to count."""

    directory: str
    topics: Sequence[str]

    def to_text(self) -> str:
        """The property."""
        return json.dumps([self.directory, list(self.topics)])


class TaskCounts:
    """Of one task: `add` what is read, then `write`."""

    def __init__(self, order: CountOrder) -> None:
        self._order = order
        self._seen_ms = now_ms()
        self._ranges: dict[OffsetRange, _RangeCount] = {}

    def begin(self, wanted: OffsetRange) -> None:
        """A range is read from now on; it may have no records."""
        if wanted.topic in self._order.topics:
            self._ranges[wanted] = _RangeCount({}, {})

    def add(self, wanted: OffsetRange, columns: "RecordColumns") -> None:
        """Records of a range that was begun."""
        counted = self._ranges.get(wanted)
        if counted is None:
            return
        from moldau.audit.columns import count_values

        found = count_values(wanted.topic, columns.value, seen_ms=self._seen_ms, sent_ms=columns.timestamp_ms)
        counted.counts = added((counted.counts, found.counts))
        counted.latencies = latencies_added((counted.latencies, found.latencies))
        counted.untracked += found.untracked
        counted.untracked_bytes += found.untracked_bytes

    def write(self) -> None:
        """All ranges were read to their ends. OSError."""
        if not self._ranges:
            return
        rows = [[*wanted, counted.to_json(self._seen_ms)] for wanted, counted in self._ranges.items()]
        name = blake2b(json.dumps(list(self._ranges)).encode(), digest_size=16).hexdigest()
        os.makedirs(self._order.directory, exist_ok=True)
        descriptor, partial = tempfile.mkstemp(dir=self._order.directory, prefix=".")
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(rows, file)
        os.replace(partial, os.path.join(self._order.directory, f"{name}{_SUFFIX}"))


@dataclass(slots=True)
class _RangeCount:
    counts: Counts
    latencies: "dict[int, Latencies]"
    untracked: int = 0
    untracked_bytes: int = 0

    def to_json(self, seen_ms: int) -> dict[str, Any]:
        return counts_to_json(self.counts, self.untracked, self.untracked_bytes, latencies=self.latencies, seen_ms=seen_ms)


def ordered_counts() -> TaskCounts | None:
    """What counts in this task; None where nothing is ordered."""
    from pyspark import TaskContext

    context = TaskContext.get()
    text = None if context is None else context.getLocalProperty(PROPERTY)
    return TaskCounts(CountOrder(*json.loads(text))) if text else None


def read_counts(directory: str) -> RangeCounts:
    """What tasks have left there. OSError, ValueError."""
    found: dict[OffsetRange, Mapping[str, Any]] = {}
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return found
    for name in names:
        if name.endswith(_SUFFIX):
            with open(os.path.join(directory, name), encoding="utf-8") as file:
                found |= {OffsetRange(*wanted): counted for *wanted, counted in json.load(file)}
    return found


def adjoining(ranges: Iterable[OffsetRange], start: int | None, end: int) -> Sequence[OffsetRange] | None:
    """Those ranges of one partition that lie next to each other from `start`, if it is known, to `end`; None if there are no such."""
    ordered = sorted((each for each in ranges if each.end <= end and (start is None or each.start >= start)), key=lambda each: each.start)
    if start is None and ordered:
        start = ordered[0].start
    ways: dict[int | None, tuple[OffsetRange, ...]] = {start: ()}
    for each in ordered:
        if each.start in ways:
            ways.setdefault(each.end, (*ways[each.start], each))
    return ways.get(end)
