"""Rows in memory, for tests and for readers that want a table as a dict. With the process its position is lost, so it loads every time."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from moldau.changelog.row_hash import checksum_of
from moldau.changelog.store import Checksum, KeyRange, Position, StoreError
from moldau.changelog.values import Change, Key, Row, Table


class DictionaryStore:
    """`tables` has the rows: by shard and name of the table, and then by key. They are changed between two looks of one thread only."""

    sharded = True

    def __init__(self) -> None:
        self.tables: dict[tuple[int, str], dict[Key, Row]] = {}
        self._columns: dict[str, Table] = {}
        self._positions: dict[int, Position] = {}

    def look(self, changelog: str, tables: Sequence[Table] = ()) -> Mapping[int, Position]:
        """By shard."""
        return self.positions()

    def prepare(self, changelog: str, tables: Sequence[Table]) -> None:
        """Know these tables."""
        for table in tables:
            known = self._columns.get(table.name)
            if known is not None and tuple(known.key) != tuple(table.key):
                raise _refused(table.name, f"it has the primary key {', '.join(known.key)}, not {', '.join(table.key)}")
            self._columns[table.name] = table

    def positions(self) -> Mapping[int, Position]:
        """By shard."""
        return dict(self._positions)

    def apply(self, shard: int, changes: Sequence[Change], position: Position) -> None:
        """Changes are read before any row is changed: if reading them fails, nothing is. So they have to fit into memory here."""
        after: dict[str, dict[Key, Row | None]] = {}
        for change in changes:
            if change.table not in self._columns:
                raise _refused(change.table, f"it is not known; the change of key {change.key!r} cannot be applied")
            row = None if change.after is None else self._whole(change.table, change.after)
            rows = after.setdefault(change.table, {})
            rows.pop(change.key, None)
            rows[change.key] = row
        for table, rows in after.items():
            here = self.tables.setdefault((shard, table), {})
            for key, row in rows.items():
                here.pop(key, None)  # one that is equal may be written otherwise: 1.0 and 1.00
                if row is not None:
                    here[key] = row
        self._positions[shard] = position

    def _whole(self, table: str, row: Row) -> Row:
        """With all columns, as a table has them."""
        return {name: row.get(name) for name in self._columns[table].columns}

    def clear(self, shard: int, position: Position) -> None:
        """Remove the rows of a shard."""
        for where in [where for where in self.tables if where[0] == shard]:
            del self.tables[where]
        self._positions[shard] = position

    def checksum(self, shard: int, table: str, rows: KeyRange) -> Checksum:
        """Over a range."""
        here = self._rows(shard, table)
        return checksum_of(here[key] for key in self._keys(shard, table, rows))

    def middle(self, shard: int, table: str, rows: KeyRange) -> Key | None:
        """The key in the middle."""
        keys = self._keys(shard, table, rows)
        return keys[len(keys) // 2] if len(keys) > 1 else None

    def rows(self, shard: int, table: str, rows: KeyRange) -> Sequence[tuple[Key, Row]]:
        """By key."""
        here = self._rows(shard, table)
        return [(key, {name: here[key].get(name) for name in self._columns[table].columns}) for key in self._keys(shard, table, rows)]

    def close(self) -> None:
        """Rows stay readable."""

    def _rows(self, shard: int, table: str) -> Mapping[Key, Row]:
        if table not in self._columns:
            raise _refused(table, "it is not known")
        return self.tables.get((shard, table), {})

    def _keys(self, shard: int, table: str, rows: KeyRange) -> Sequence[Key]:
        keys = _in_order(self._rows(shard, table))
        low = 0 if rows.low is None else bisect_left(keys, rows.low)
        return keys[low : len(keys) if rows.high is None else bisect_left(keys, rows.high)]


def _in_order(keys: Iterable[Key]) -> list[Key]:
    return sorted(keys)


def _refused(table: str, reason: str) -> StoreError:
    return StoreError(f"store in memory, table {table}: {reason}", retriable=False)
