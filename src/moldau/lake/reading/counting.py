"""Counts of what the tasks of a stream read: a task leaves them in a file, by range, when it has read its ranges to the end.

They are ordered for a batch (`BatchOrder`): of the rows of an input by their event times, and of the events of topics for the audit. A task
that is run again makes the same file again. Spark may read a range more than once in a batch, where tasks fail or a query reads a topic
twice: the driver takes of the ranges that it finds those that lie next to each other from the start of what the batch reads to its end, and
so each record once.
"""

import json
import logging
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from moldau.lake.counts import Counts, added, counts_to_json, latencies_added
from moldau.lake.reading.batch_order import BatchOrder
from moldau.lake.reading.input_counts import InputCounts
from moldau.lake.reading.offsets import OffsetRange
from moldau.tracking.clock import now_ms

if TYPE_CHECKING:
    from moldau.lake.reading.columns import RecordColumns
    from moldau.tracking.latencies import Latencies

log = logging.getLogger(__name__)

_SUFFIX = ".json"

RangeCounts = Mapping[OffsetRange, Mapping[str, Any]]
"""For the audit: what was read of each range, as `counts_to_json` writes it."""


@dataclass(frozen=True, slots=True)
class FoundCounts:
    """What tasks have left of a batch."""

    audited: dict[OffsetRange, Mapping[str, Any]] = field(default_factory=dict)
    """RangeCounts."""
    inputs: dict[str, dict[OffsetRange, InputCounts]] = field(default_factory=dict)
    """By the name under which an input is counted."""


class TaskCounts:
    """Of one task, whose input is counted under this name if that is given: what is read is added, then `write`."""

    def __init__(self, directory: str, audited: Sequence[str], counted_as: str | None = None) -> None:
        self._directory, self._audited, self._counted_as = directory, audited, counted_as
        self._seen_ms = now_ms()
        self._ranges: dict[OffsetRange, _AuditCount] = {}
        self._rows: dict[OffsetRange, InputCounts] = {}

    @property
    def fields(self) -> Sequence[str]:
        """The fields of records that it needs: the audit counts events by what is in their values."""
        return ("value",) if self._audited else ()

    def begin(self, wanted: OffsetRange) -> None:
        """A range is read from now on; it may have no records."""
        if wanted.topic in self._audited:
            self._ranges[wanted] = _AuditCount({}, {})
        if self._counted_as is not None:
            self._rows[wanted] = InputCounts()

    def add_rows(self, wanted: OffsetRange, counts: InputCounts) -> None:
        """Rows of a range that was begun."""
        if wanted in self._rows:
            self._rows[wanted] = self._rows[wanted].plus(counts)

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
        """All ranges were read to their ends. OSError, where the audit counts; else a warning: the driver names what it does not find.

        Nothing is left on a host that has no such checkpoint: nothing there would remove it.
        """
        if not self._ranges and not self._rows:
            return
        try:
            self._leave()
        except FileNotFoundError:
            log.warning("%s: is not seen on this host: what its tasks count is missing", os.path.dirname(self._directory))
        except OSError as error:
            if self._ranges:
                raise
            log.warning("%s: what a task counts is missing: %s", self._directory, (error.strerror or str(error)).lower())

    def _leave(self) -> None:
        found = {
            "input": self._counted_as,
            "rows": [[*wanted, counts.to_json()] for wanted, counts in self._rows.items()],
            "audited": [[*wanted, counted.to_json(self._seen_ms)] for wanted, counted in self._ranges.items()],
        }
        key = json.dumps([self._counted_as, list(self._rows), list(self._ranges)])
        name = blake2b(key.encode(), digest_size=16).hexdigest()
        with suppress(FileExistsError):
            os.mkdir(self._directory)
        descriptor, partial = tempfile.mkstemp(dir=self._directory, prefix=".")
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(found, file)
        os.replace(partial, os.path.join(self._directory, f"{name}{_SUFFIX}"))


@dataclass(slots=True)
class _AuditCount:
    counts: Counts
    latencies: "dict[int, Latencies]"
    untracked: int = 0
    untracked_bytes: int = 0

    def to_json(self, seen_ms: int) -> dict[str, Any]:
        return counts_to_json(self.counts, self.untracked, self.untracked_bytes, latencies=self.latencies, seen_ms=seen_ms)


def ordered_counts(order: BatchOrder | None, counted_as: str | None) -> TaskCounts | None:
    """What counts in a task of this order; None where nothing is ordered."""
    if order is None or order.directory is None or not (order.audited or counted_as):
        return None
    return TaskCounts(order.directory, order.audited, counted_as)


def read_counts(directory: str) -> FoundCounts:
    """What tasks have left there. OSError, ValueError."""
    found = FoundCounts()
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return found
    for name in names:
        if not name.endswith(_SUFFIX):
            continue
        with open(os.path.join(directory, name), encoding="utf-8") as file:
            left = json.load(file)
        for *wanted, counted in left["audited"]:
            found.audited[OffsetRange(*wanted)] = counted
        for *wanted, counted in left["rows"]:
            found.inputs.setdefault(left["input"], {})[OffsetRange(*wanted)] = InputCounts(*counted)
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
