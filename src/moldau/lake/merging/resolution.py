"""Which row of each key counts.

Rows here have the columns of the merged table but its bucket, and `DELETED`, whichever the order is: a deletion has to be seen until all
rows of its key were. In the order of the log the last record of a key counts; a key is in one partition, and one that is in two is an
error, since offsets of two partitions have no order. In the order of a time the row with the latest time counts, and of equal times the one
that the log has later (by partition, then offset); a row without a time is before all others.

A deletion in the order of a time stays as a marked row until the newest time is later than its own by the horizon: an older row of its key
that comes until then changes nothing, one that comes later brings the key back. Marks that are over are dropped before new rows are looked
at, so the result does not depend on which buckets were rewritten meanwhile.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from moldau.lake.merging.keys import key_codes
from moldau.lake.merging.options import DELETED, OFFSET, PARTITION, MergeError, MergeOptions, column_of

ROWS_AT_ONCE_MIN = 200_000
"""Of the new rows of a bucket that are put together with the others at once, or as many as those are."""
_NEVER = -(2**63)
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Resolver:
    """Chooses rows, for one merge into the table at `path`."""

    path: str
    options: MergeOptions
    newest_before_ms: int | None = None
    """The newest time up to the merge before this one; None if it is not known, or the order is that of the log."""
    newest_ms: int | None = None
    """The newest time with the new rows."""

    def marked(self, rows: Any) -> Any:
        """The rows of the append-only table, each with whether it deletes its key."""
        rule = self.options.rule
        mask = pa.repeat(pa.scalar(False), rows.num_rows) if rule is None else rule.mask(rows)
        return rows.append_column(pa.field(DELETED, pa.bool_()), mask)

    def latest(self, rows: Any) -> Any:
        """The numbers of the rows that count, one for each key, rising (int64). MergeError for a key in two partitions."""
        codes = key_codes(rows, self.options.keys)
        partitions, offsets = (_numbers(rows.column(name)) for name in (PARTITION, OFFSET))
        time = self.options.time
        columns = (offsets, partitions, codes) if time is None else (offsets, partitions, order_numbers(column_of(rows, time)), codes)
        order = np.lexsort(columns)
        sorted_codes = codes[order]
        same = sorted_codes[1:] == sorted_codes[:-1]
        if time is None:
            sorted_partitions = partitions[order]
            crossing = np.flatnonzero(same & (sorted_partitions[1:] != sorted_partitions[:-1]))
            if len(crossing):
                at = crossing[0]
                raise self._in_two_partitions(rows, int(order[at]), int(sorted_partitions[at]), int(sorted_partitions[at + 1]))
        return np.sort(order[np.concatenate([~same, [True]])]) if len(order) else order

    def without_old_marks(self, rows: Any, newest_ms: int | None) -> Any:
        """The rows without those whose key was deleted long ago."""
        time = self.options.time
        if time is None or newest_ms is None or not self.options.keeps_marks:
            return rows
        times = times_ms(column_of(rows, time))
        over = rows.column(DELETED).to_numpy(zero_copy_only=False).astype(np.bool_) & (times < newest_ms - self.options.horizon_ms)
        return rows.filter(pa.array(~over)) if over.any() else rows

    def stored(self, rows: Any) -> Any:
        """What the merged table has of the rows that count."""
        if self.options.time is None:
            kept = rows.filter(pc.invert(rows.column(DELETED))) if pc.any(rows.column(DELETED)).as_py() else rows
            return kept.drop_columns([DELETED])
        rows = self.without_old_marks(rows, self.newest_ms)
        return rows if self.options.keeps_marks else rows.drop_columns([DELETED])

    def stored_if_changed(self, old: Any, new: Iterable[Any]) -> Any:
        """What the merged table has of the rows of a bucket when new ones come; None if that is what it has."""
        rows = self.without_old_marks(old, self.newest_before_ms)
        changed = rows.num_rows != old.num_rows
        waiting: list[Any] = []
        count = 0
        for each in (*new, None):
            if each is not None:
                waiting.append(each)
                count += each.num_rows
            if waiting and (each is None or count >= max(ROWS_AT_ONCE_MIN, rows.num_rows)):
                both = pa.concat_tables([rows, *waiting])
                numbers = self.latest(both)
                if len(numbers) != rows.num_rows or (len(numbers) and numbers[-1] >= rows.num_rows):
                    rows, changed = both.take(pa.array(numbers)), True
                waiting, count = [], 0
        stored = self.stored(rows)
        return stored if changed or stored.num_rows != rows.num_rows else None

    def _in_two_partitions(self, rows: Any, row: int, one: int, other: int) -> MergeError:
        key = ", ".join(f"{name} {column_of(rows, name)[row].as_py()!r}" for name in self.options.keys)
        return MergeError(
            f"{self.path}: key {key} is in partitions {one} and {other}, and offsets of two partitions have no order; "
            "make the merged table in the order of a time (time:COLUMN, for example time:_timestamp)"
        )


def order_numbers(column: Any) -> Any:
    """Numbers that have the order of the times in a column (int64); those of nulls are the least."""
    return _numbers(column.cast(pa.int32()) if pa.types.is_date32(column.type) else column)


def times_ms(column: Any) -> Any:
    """The times in a column in ms since 1970 (int64)."""
    numbers = order_numbers(column)
    if pa.types.is_timestamp(column.type):
        return np.where(numbers == _NEVER, _NEVER, numbers // 1000)
    return np.where(numbers == _NEVER, _NEVER, numbers * _DAY_MS) if pa.types.is_date(column.type) else numbers


def newest_of(column: Any, now_ms: int) -> int | None:
    """The newest time in a column, in ms, and `now_ms` at the most: a clock that is wrong must not end the horizon of all deletions."""
    times = times_ms(column)
    newest = int(times.max()) if len(times) else _NEVER
    return None if newest == _NEVER else min(newest, now_ms)


def _numbers(column: Any) -> Any:
    return pc.fill_null(column.cast(pa.int64()), _NEVER).to_numpy()
