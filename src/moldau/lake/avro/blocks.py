"""Arrays and maps: where their items begin, in many rows at once, and the steps that read them.

An array is blocks: a count, as many items, the next count, and so on to a count of 0. A negative count means as many items, with the
size of the block after it, which neither fastavro nor this module uses. Only its bytes show how long an item is, so the rows go
through their items side by side: a round skips one item of each row that has one left, which finds where each item begins. Then all
items of all rows are read at once, as if each were a row.

A round takes as long for one row as for a hundred. So a row that has more items, or more blocks, than nearly all others is doubtful.

A count is believed only as far as the bytes of its row reach, and a doubtful row has no items: there are never more items than bytes.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from moldau.lake.avro.vectors import Int64s, RowCursor, Step

ROUNDS = 8
"""So many rounds are made for any number of rows."""
ROWS = 64
"""More of them need so many rows that take part."""
LOOK = 64
"""Every so many rounds doubtful rows are left out: their items are not read."""


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """How the items of an array or map lie in the bytes."""

    skip: Step
    """Passes over an item."""
    least: int
    """No item takes fewer bytes. Invariant: more than 0."""
    width: int | None
    """Each item takes so many bytes; None if that is not always the same."""


class Items:
    """The items of all rows, one after the other."""

    def __init__(self, whole: RowCursor, rows: Int64s, starts: Int64s) -> None:
        self._whole = whole
        self.rows = rows
        """The row of each item; they ascend."""
        self.cursor = RowCursor(whole.data, starts, whole.end[rows])
        """Stands at the beginning of each item."""

    def offsets(self) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        """The number of the first item of each row, and of all items."""
        offsets = np.zeros(len(self._whole) + 1, np.int32)
        np.cumsum(np.bincount(self.rows, minlength=len(self._whole)), out=offsets[1:])
        return offsets

    def doubt(self) -> None:
        """The rows of doubtful items are doubtful."""
        self._whole.doubtful[self.rows[self.cursor.doubtful]] = True


def walk(cursor: RowCursor, layout: BlockLayout) -> Items:
    """Pass over an array in all rows. Rows that are doubtful stay where they are."""
    rows = np.flatnonzero(~cursor.doubtful)
    owners: list[Int64s] = []
    starts: list[Int64s] = []
    rounds = 0
    while len(rows):
        part = cursor.part(rows)
        counts = _counts(part, layout.least)
        if rounds >= ROUNDS and len(rows) < ROWS:
            part.doubtful[:] = True
            counts[:] = 0
        going = np.flatnonzero(counts)
        if len(going):
            inner, counts = part.part(going), counts[going]
            if layout.width is None:
                counts = _worth_it(inner, counts)
                starts.append(_in_rounds(inner, counts, layout.skip))
            else:
                starts.append(_evenly(inner, counts, layout.width))
            owners.append(np.repeat(rows[going], counts))
            part.join(going, inner)
        cursor.join(rows, part)
        rows = rows[going][~part.doubtful[going]]
        rounds += 1
    return _in_order(cursor, owners, starts)


def _counts(cursor: RowCursor, least: int) -> Int64s:
    """How many items the next block has."""
    count = cursor.longs()
    sized = np.flatnonzero(count < 0)
    if len(sized):
        part = cursor.part(sized)
        part.longs()
        cursor.join(sized, part)
        count = np.abs(count)  # the least of all numbers stays negative
    wrong = (count < 0) | (count > (cursor.end - cursor.position) // least) | cursor.doubtful
    if wrong.any():
        cursor.doubt(wrong)
        count = np.where(wrong, 0, count)
    return count


def _worth_it(cursor: RowCursor, counts: Int64s) -> Int64s:
    """The counts, with 0 for rows that would be alone in too many rounds."""
    most = len(counts) - ROWS
    limit = max(ROUNDS, int(np.partition(counts, most)[most])) if most >= 0 else ROUNDS
    alone = counts > limit
    if alone.any():
        cursor.doubt(alone)
        counts = np.where(alone, 0, counts)
    return counts


def _evenly(cursor: RowCursor, counts: Int64s, width: int) -> Int64s:
    """The beginnings of items that all take as many bytes."""
    firsts = np.cumsum(counts) - counts
    starts = np.repeat(cursor.position - firsts * width, counts)
    starts += np.arange(len(starts)) * width
    cursor.move(cursor.position + counts * width)
    return starts


def _in_rounds(cursor: RowCursor, counts: Int64s, skip: Step) -> Int64s:
    """The beginnings of items, found by passing over those before."""
    starts = np.empty(int(counts.sum()), np.int64)
    firsts = np.cumsum(counts) - counts
    rows = np.arange(len(cursor))
    moving, done = cursor.part(rows), 0
    for number in range(int(counts.max())):
        if number >= done or (number % LOOK == 0 and moving.doubtful.any()):  # some row has no more, or none that is worth a round
            left = np.flatnonzero((counts > number) & ~moving.doubtful)
            cursor.join(rows, moving)
            rows, counts, firsts = rows[left], counts[left], firsts[left]
            if not len(rows):
                return starts
            moving, done = cursor.part(rows), int(counts.min())
        starts[firsts + number] = moving.position
        skip(moving)
    cursor.join(rows, moving)
    return starts


def _in_order(cursor: RowCursor, owners: list[Int64s], starts: list[Int64s]) -> Items:
    """The items of all blocks, by rows; none of doubtful rows."""
    if not owners:
        nothing = np.zeros(0, np.int64)
        return Items(cursor, nothing, nothing)
    rows, begins = np.concatenate(owners), np.concatenate(starts)
    if len(owners) > 1:
        order = np.argsort(rows, kind="stable")
        rows, begins = rows[order], begins[order]
    if cursor.doubtful.any():
        sure = ~cursor.doubtful[rows]
        rows, begins = rows[sure], begins[sure]
    return Items(cursor, rows, begins)


def array_step(layout: BlockLayout, item: Step, kind: Any) -> Step:
    """Reads arrays as lists of an Arrow type."""

    def read(cursor: RowCursor) -> Any:
        items = walk(cursor, layout)
        values = item(items.cursor)
        items.doubt()
        return pa.ListArray.from_arrays(pa.array(items.offsets()), values, type=kind)

    return read


def map_step(layout: BlockLayout, value: Step, kind: Any) -> Step:
    """Reads maps. A row that has a name twice is doubtful: of its entries the last one counts."""

    def read(cursor: RowCursor) -> Any:
        entries = walk(cursor, layout)
        names = entries.cursor.strings(entries.cursor.gather(*entries.cursor.spans()))
        values = value(entries.cursor)
        entries.doubt()
        _doubt_repeated(cursor, entries, names)
        return pa.MapArray.from_arrays(pa.array(entries.offsets()), names, values, type=kind)

    return read


def _doubt_repeated(cursor: RowCursor, entries: Items, names: Any) -> None:
    rows = entries.rows
    if not (rows[1:] == rows[:-1]).any():
        return
    known = names.dictionary_encode()
    different = len(known.dictionary)
    together = rows * different + known.indices.to_numpy()
    together.sort()
    cursor.doubtful[together[1:][together[1:] == together[:-1]] // different] = True
