"""What differs between two copies of a table, found by checksums of key ranges: ranges that differ are halved until they are small.

    for each in compare(source, replica, shard=0, table="accounts"):
        print(each)

About 2 * log2(rows) checksums for each place that differs; never more rows in memory than `rows_max` of each copy. Both copies have to
stand still, or at the same commit: what changes meanwhile is named as a difference.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any, Protocol

from moldau.changelog.row_hash import row_hash
from moldau.changelog.store import WHOLE, Checksum, KeyRange
from moldau.changelog.values import Key, Row

ROWS_MAX = 1_000


class TableCopy(Protocol):
    """What can be compared: a store of a replica, or a source. See `ReplicaStore` for what the methods return."""

    def checksum(self, shard: int, table: str, rows: KeyRange) -> Checksum:
        """Over a range of a shard."""
        ...

    def middle(self, shard: int, table: str, rows: KeyRange) -> Key | None:
        """A key that divides a range into halves."""
        ...

    def rows(self, shard: int, table: str, rows: KeyRange) -> Sequence[tuple[Key, Row]]:
        """Of a range, by key."""
        ...


class Kind(Enum):
    """How a row differs."""

    MISSING = "missing"
    """Only the left copy has it."""
    EXTRA = "extra"
    """Only the right copy has it."""
    DIFFERENT = "different"
    """Both have it, with other values."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One row; what a copy does not have is None."""

    kind: Kind
    shard: int
    table: str
    key: Key
    left: Row | None
    right: Row | None

    @property
    def columns(self) -> Sequence[str]:
        """Names of the columns that differ, where both copies have the row."""
        if self.left is None or self.right is None:
            return ()
        names = sorted(self.left.keys() | self.right.keys())
        return [name for name in names if row_hash({name: self.left.get(name)}) != row_hash({name: self.right.get(name)})]

    def __str__(self) -> str:
        where = f"shard {self.shard}, table {self.table}, key {', '.join(map(repr, self.key))}"
        match self.kind:
            case Kind.MISSING:
                return f"{where}: missing in the replica"
            case Kind.EXTRA:
                return f"{where}: only in the replica"
            case Kind.DIFFERENT:
                return f"{where}: {'; '.join(self._column(name) for name in self.columns)}"

    def _column(self, name: str) -> str:
        assert self.left is not None
        assert self.right is not None
        return f"{name} is {self.left.get(name)!r} in the source, {self.right.get(name)!r} in the replica"


def compare(left: TableCopy, right: TableCopy, shard: int, table: str, *, rows_max: int = ROWS_MAX) -> Iterator[Difference]:
    """Each row that differs, by key; at most `rows_max` rows of a range are read of each copy at a time.

    StoreError, among others where a range has more rows and its keys cannot be divided.
    """
    pending = [WHOLE]
    while pending:
        rows = pending.pop()
        ours, theirs = left.checksum(shard, table, rows), right.checksum(shard, table, rows)
        if ours == theirs:
            continue
        if max(ours.rows, theirs.rows) <= rows_max:
            yield from _differences(shard, table, dict(left.rows(shard, table, rows)), dict(right.rows(shard, table, rows)))
            continue
        larger = left if ours.rows >= theirs.rows else right
        middle = larger.middle(shard, table, rows)
        assert middle is not None, "a range of more rows than are read has two"
        pending += (KeyRange(middle, rows.high), KeyRange(rows.low, middle))


def _differences(shard: int, table: str, left: Mapping[Key, Row], right: Mapping[Key, Row]) -> Iterator[Difference]:
    for key in sorted(left.keys() | right.keys(), key=_order):
        ours, theirs = left.get(key), right.get(key)
        if theirs is None:
            yield Difference(Kind.MISSING, shard, table, key, ours, None)
        elif ours is None:
            yield Difference(Kind.EXTRA, shard, table, key, None, theirs)
        elif row_hash(ours) != row_hash(theirs):
            yield Difference(Kind.DIFFERENT, shard, table, key, ours, theirs)


def _order(key: Key) -> list[tuple[str, Any]]:
    """Of keys whose values may be of several types, which Python does not compare: numbers are first."""
    return [("" if isinstance(value, int | float | Decimal) else type(value).__name__, value) for value in key]
