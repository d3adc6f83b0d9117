"""A replica in Delta tables: a directory with one for each table, and one of positions.

Delta has no transaction over tables. What makes several of them one is the table of positions: each batch writes its rows first, and then,
in one commit, the position and the versions of all tables that belong to it. That commit decides:

* A reader who takes the versions that the newest position names has all tables at one commit of the source.
* A table that has a batch which the positions do not name is put back to the version that they name, before anything else is written. That
  is known by the number of the batch, which is in each commit of rows; commits of others (compaction) change nothing of it.

One process at a time writes a store: commits of a second one conflict, and it ends with an error.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from moldau.changelog import positions
from moldau.changelog.row_hash import checksum_of
from moldau.changelog.store import WHOLE, Checksum, KeyRange, Position, StoreError
from moldau.changelog.stores.column_types import fits
from moldau.changelog.stores.delta_table import KEPT_HOURS, StoredTable, batch_properties
from moldau.changelog.stores.folding import FoldedRow, folded
from moldau.changelog.values import Change, Key, Row, Table

VERSIONS, BATCH = "versions", "batch"
"""In the table of positions: by table the version that counts and the batch that has made it, as JSON; and the number of the batch. The row
with the largest number is the last one.
"""
_SCHEMA: Final = pa.schema(
    [
        *(pa.field(name, pa.int64() if kind == "integer" else pa.string()) for name, kind in positions.COLUMNS.items()),
        pa.field(VERSIONS, pa.string()),
        pa.field(BATCH, pa.int64()),
    ]
)
_FAILURES: Final = (DeltaError, pa.ArrowException, OSError, ValueError, ArithmeticError)


class DeltaStore:
    """In the directory `path`. With `sharded` it takes rows of several shards, which are partitions of its tables."""

    portion = 50_000
    """So many changes are one commit of a table, at most."""
    maintained_every = 200
    """Batches; each leaves files in the tables that it changes."""

    def __init__(self, path: str | Path, *, sharded: bool = False) -> None:
        self.sharded = sharded
        self._root = Path(path)
        self._changelog = ""
        self._tables: dict[str, StoredTable] = {}
        self._positions: DeltaTable | None = None
        self._rows: list[dict[str, Any]] = []
        """Of the table of positions."""
        self._failed = False
        """Whether a batch was not written to its end."""

    def look(self, changelog: str, tables: Sequence[Table] = ()) -> Mapping[int, Position]:
        """See ReplicaStore. Tables are read as the positions name them."""
        self._changelog = changelog
        with self._errors():
            self._read_positions()
            self.sharded = any(self._looked_at(table, sharded=False).has_shards() for table in tables)
            self._tables = {table.name: self._looked_at(table, sharded=self.sharded) for table in tables}
        return self.positions()

    def _looked_at(self, table: Table, *, sharded: bool) -> StoredTable:
        """At the version that counts."""
        known = StoredTable(self._root, table, sharded=sharded)
        named = self._versions().get(table.name)
        known.open(None if named is None else named[0])
        return known

    def prepare(self, changelog: str, tables: Sequence[Table]) -> None:
        """Make tables, and columns that they have got."""
        self._changelog = changelog
        with self._errors(positions.TABLE):
            if self._positions is None:
                DeltaTable.create(self._positions_place, _SCHEMA, mode="ignore")
            if self._positions is None or self._failed:
                self._read_positions()
        prepared = {}
        for table in tables:
            with self._errors(table.name):
                known = StoredTable(self._root, table, sharded=self.sharded)
                if known.exists():
                    known.open()
                    self._put_back(known)
                known.make()
                prepared[table.name] = known
        self._tables = prepared
        self._failed = False

    @property
    def _positions_place(self) -> str:
        return str(self._root / positions.TABLE)

    def _read_positions(self) -> None:
        if DeltaTable.is_deltatable(self._positions_place):
            self._positions = DeltaTable(self._positions_place)
            self._rows = self._positions.to_pyarrow_table().to_pylist()

    def _batch(self) -> int:
        return max((int(row[BATCH]) for row in self._rows), default=0)

    def _versions(self) -> dict[str, tuple[int, int]]:
        """By table the version that counts, and the batch that has made it."""
        if not self._rows:
            return {}
        found = json.loads(max(self._rows, key=lambda row: int(row[BATCH]))[VERSIONS])
        return {table: (int(each["version"]), int(each["batch"])) for table, each in found.items()}

    def _put_back(self, known: StoredTable) -> None:
        """A table with a batch that was not written to its end, or that lacks one because another process has put it back."""
        version, batch = self._versions().get(known.table.name, (0, 0))
        if known.batch != batch:
            known.restore(version, batch)

    def _recover(self) -> None:
        """After an error: what the batch has written is undone, unless its position was stored all the same."""
        if self._failed:
            self.prepare(self._changelog, [known.table for known in self._tables.values()])

    def positions(self) -> Mapping[int, Position]:
        """By shard."""
        self._recover()
        with self._errors(positions.TABLE):
            mine = [row for row in self._rows if row["changelog"] == self._changelog]
            return dict(positions.from_columns([row[name] for name in positions.COLUMNS]) for row in mine)

    def apply(self, shard: int, changes: Sequence[Change], position: Position) -> None:
        """Portion by portion: rows first, and then the position, with which they count."""

        def write(batch: int) -> None:
            for tables in folded(changes, self.portion):
                for name, rows in tables.items():
                    known = self._known(name)
                    self._check(known, list(rows))
                    with self._errors(name):
                        known.write(shard, list(rows), batch)

        self._write(shard, position, write)

    def _check(self, known: StoredTable, rows: Sequence[FoldedRow]) -> None:
        """StoreError for a value that a column does not take."""
        kinds = known.table.columns
        for key, row in rows:
            for name, kind in kinds.items():
                value = None if row is None else row.get(name)
                is_text = isinstance(value, str)
                if not fits(kind, value) or (is_text and not _is_unicode(str(value))):
                    raise StoreError(
                        f"{self._subject(known.table.name)}, key {key!r}: column {name} is {kind}, and cannot have {value!r}",
                        retriable=False,
                    )

    def clear(self, shard: int, position: Position) -> None:
        """Remove the rows of a shard."""

        def write(batch: int) -> None:
            for name, known in self._tables.items():
                with self._errors(name):
                    known.clear(shard, batch)

        self._write(shard, position, write)

    def _write(self, shard: int, position: Position, write: Callable[[int], None]) -> None:
        self._recover()
        batch = self._batch() + 1
        self._failed = True
        write(batch)
        versions = {**self._versions(), **{name: (known.version, known.batch) for name, known in self._tables.items()}}
        named = {table: {"version": version, "batch": batch} for table, (version, batch) in sorted(versions.items())}
        values = dict(zip(positions.COLUMNS, positions.to_columns(self._changelog, shard, position), strict=True))
        others = [row for row in self._rows if (row["changelog"], row["shard"]) != (self._changelog, shard)]
        rows = [*others, {**values, VERSIONS: json.dumps(named, ensure_ascii=False), BATCH: batch}]
        with self._errors(positions.TABLE):
            assert self._positions is not None, "prepared"
            table = pa.Table.from_pylist(rows, schema=_SCHEMA)
            write_deltalake(self._positions, table, mode="overwrite", commit_properties=batch_properties(batch))
        self._rows = rows
        self._failed = False
        if batch % self.maintained_every == 0:
            self._maintain()

    def _maintain(self) -> None:
        for name, known in self._tables.items():
            with self._errors(name):
                known.maintain()
        with self._errors(positions.TABLE):
            assert self._positions is not None, "prepared"
            self._positions.vacuum(KEPT_HOURS, dry_run=False)

    def checksum(self, shard: int, table: str, rows: KeyRange = WHOLE) -> Checksum:
        """Over a range."""
        known = self._readable(table)
        with self._errors(table):
            return checksum_of(row for _, row in known.rows(shard, rows))

    def middle(self, shard: int, table: str, rows: KeyRange) -> Key | None:
        """The key in the middle."""
        known = self._readable(table)
        with self._errors(table):
            return known.middle(shard, rows)

    def rows(self, shard: int, table: str, rows: KeyRange) -> Sequence[tuple[Key, Row]]:
        """By key."""
        known = self._readable(table)
        with self._errors(table):
            return sorted(known.rows(shard, rows), key=lambda each: each[0])

    def close(self) -> None:
        """Nothing is open."""

    def _readable(self, table: str) -> StoredTable:
        self._recover()
        return self._known(table)

    def _known(self, table: str) -> StoredTable:
        known = self._tables.get(table)
        if known is None:
            raise StoreError(f"{self._subject(table)}: it is not one of the replica's", retriable=False)
        return known

    def _subject(self, table: str = "") -> str:
        return f"Delta store {self._root}" + (f", table {table}" if table else "")

    @contextmanager
    def _errors(self, table: str = "") -> Iterator[None]:
        try:
            yield
        except CommitFailedError as error:
            raise StoreError(f"{self._subject(table)}: another process writes it: {error}", retriable=False) from error
        except _FAILURES as error:
            raise StoreError(f"{self._subject(table)}: {error}", retriable=False) from error


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
