"""A replica in a DuckDB database, for analysis: columns of its own types, but for decimals, which are text, so that their digits stay.

DuckDB is made for large statements: rows go in as lists, a portion of changes in one statement, and commits are applied many at a time.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import duckdb

from moldau.changelog import positions
from moldau.changelog.row_hash import checksum_of
from moldau.changelog.store import SHARD_COLUMN, WHOLE, Checksum, KeyRange, Position, StoreError
from moldau.changelog.stores.folding import folded
from moldau.changelog.stores.sql import SqlTable, listed, missing_columns, quoted
from moldau.changelog.values import Change, Key, Row, Table, Value

_TYPES: Final = {
    "boolean": "BOOLEAN",
    "integer": "BIGINT",
    "real": "DOUBLE",
    "text": "VARCHAR",
    "bytes": "BLOB",
    "decimal": "VARCHAR",
    "date": "DATE",
    "time": "TIME",
    "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMPTZ",
}
_CLASSES: Final[Mapping[str, tuple[type, ...]]] = {
    "boolean": (bool,),
    "integer": (int,),
    "real": (float,),
    "text": (str,),
    "bytes": (bytes,),
    "decimal": (Decimal, int, float),
    "date": (date,),
    "time": (time,),
    "timestamp": (datetime,),
    "timestamptz": (datetime,),
}
"""What a column takes. DuckDB would convert other values, and the replica would differ from the source."""
_INTEGERS: Final = 2**63
_PORTION: Final = 10_000
_ROWS: Final = 1_000
"""Read at once."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class DuckdbStore:
    """In the database file `path`. With `sharded` it takes rows of several shards. While it is open no other process can open the file."""

    def __init__(self, path: str | Path, *, sharded: bool = False) -> None:
        self.sharded = sharded
        self._path = str(path)
        self._changelog = ""
        self._tables: dict[str, SqlTable] = {}
        with self._errors():
            self._database = duckdb.connect(self._path)

    def prepare(self, changelog: str, tables: Sequence[Table]) -> None:
        """Make tables, and columns that they have got."""
        self._changelog = changelog
        with self._transaction():
            columns = ", ".join(f"{quoted(name)} {_TYPES[kind]} NOT NULL" for name, kind in positions.COLUMNS.items())
            self._execute(f"CREATE TABLE IF NOT EXISTS {positions.TABLE} ({columns}, PRIMARY KEY ({listed(positions.KEY)}))")
            for table in tables:
                with self._errors(table.name):
                    self._prepare(SqlTable(table, self.sharded))
        self._tables = {table.name: SqlTable(table, self.sharded) for table in tables}

    def _prepare(self, wanted: SqlTable) -> None:
        found = "SELECT column_name FROM duckdb_columns() WHERE table_name = ? AND schema_name = current_schema() ORDER BY column_index"
        there = [name for (name,) in self._execute(found, [wanted.table.name]).fetchall()]
        if not there:
            columns = ", ".join(f"{quoted(name)} {_TYPES[kind]}" for name, kind in wanted.columns.items())
            self._execute(f"CREATE TABLE {wanted.name} ({columns}, PRIMARY KEY ({listed(wanted.key)}))")
            return
        keys = (
            "SELECT constraint_column_names FROM duckdb_constraints() "
            "WHERE table_name = ? AND schema_name = current_schema() AND constraint_type = 'PRIMARY KEY'"
        )
        row = self._execute(keys, [wanted.table.name]).fetchone()
        key = [] if row is None else list(row[0])
        if [name.lower() for name in key] != [name.lower() for name in wanted.key]:
            raise ValueError(f"it has the primary key ({', '.join(key)}), and the replica needs ({', '.join(wanted.key)})")
        for name, kind in missing_columns(wanted.columns, there).items():
            self._execute(f"ALTER TABLE {wanted.name} ADD COLUMN {quoted(name)} {_TYPES[kind]}")

    def positions(self) -> Mapping[int, Position]:
        """By shard."""
        with self._errors(positions.TABLE):
            found = self._execute(f"SELECT * FROM {positions.TABLE} WHERE changelog = ?", [self._changelog])
            return dict(map(positions.from_columns, found.fetchall()))

    def apply(self, shard: int, changes: Sequence[Change], position: Position) -> None:
        """Portion by portion, in one transaction."""
        with self._transaction():
            for tables in folded(changes, _PORTION):
                for name, rows in tables.items():
                    self._apply(shard, name, rows)
            self._store(shard, position)

    def _apply(self, shard: int, name: str, rows: Mapping[Key, Row | None]) -> None:
        known = self._known(name)
        gone = [key for key, row in rows.items() if row is None]
        kept = {key: row for key, row in rows.items() if row is not None}
        if gone:
            columns: dict[str, Sequence[Value]] = {SHARD_COLUMN: [shard] * len(gone)} if self.sharded else {}
            columns |= {column: [key[place] for key in gone] for place, column in enumerate(known.table.key)}
            lists = self._lists(known, columns, gone)
            with self._errors(name):
                self._execute(f"DELETE FROM {known.name} WHERE ({listed(known.key)}) IN (SELECT {self._unnested(known, columns)})", lists)
        if kept:
            columns = {SHARD_COLUMN: [shard] * len(kept)} if self.sharded else {}
            columns |= {column: [row.get(column) for row in kept.values()] for column in known.table.columns}
            lists = self._lists(known, columns, list(kept))
            with self._errors(name):
                self._execute(f"INSERT OR REPLACE INTO {known.name} ({listed(columns)}) SELECT {self._unnested(known, columns)}", lists)

    def _unnested(self, known: SqlTable, columns: Iterable[str]) -> str:
        return ", ".join(
            f"unnest(?::{_LIST_TYPES.get(known.columns[name], _TYPES[known.columns[name]])}[])" + _cast(known.columns[name])
            for name in columns
        )

    def _lists(self, known: SqlTable, columns: Mapping[str, Sequence[Value]], keys: Sequence[Key]) -> list[Any]:
        lists = []
        for name, values in columns.items():
            kind = known.columns[name]
            classes = _CLASSES[kind]
            for place, value in enumerate(values):
                if value is not None and not _fits(kind, classes, value):
                    reason = f"column {name} is {kind}, and cannot have {value!r}"
                    raise StoreError(f"{self._subject(known.table.name, keys[place])}: {reason}", retriable=False)
            lists.append([_to_sql(kind, value) for value in values])
        return lists

    def _store(self, shard: int, position: Position) -> None:
        with self._errors(positions.TABLE):
            values = positions.to_columns(self._changelog, shard, position)
            self._execute(f"INSERT OR REPLACE INTO {positions.TABLE} VALUES ({', '.join('?' * len(values))})", list(values))

    def clear(self, shard: int, position: Position) -> None:
        """Remove the rows of a shard."""
        with self._transaction():
            for name, known in self._tables.items():
                condition, parameters = known.of_shard(shard)
                with self._errors(name):
                    self._execute(f"DELETE FROM {known.name} WHERE {condition}", parameters)
            self._store(shard, position)

    def checksum(self, shard: int, table: str, rows: KeyRange = WHOLE) -> Checksum:
        """Over a range."""
        return checksum_of(row for _, row in self._read(shard, table, rows))

    def middle(self, shard: int, table: str, rows: KeyRange) -> Key | None:
        """The key in the middle."""
        known = self._known(table)
        with self._errors(table):
            condition, parameters = known.in_range(shard, rows)
            count = self._execute(f"SELECT count(*) FROM {known.name} WHERE {condition}", parameters).fetchall()[0][0]
            if count < 2:
                return None
            kinds = {name: known.table.columns[name] for name in known.table.key}
            order = f"ORDER BY {listed(known.table.key)} LIMIT 1 OFFSET ?"
            (found,) = self._execute(
                f"SELECT {_selected(kinds)} FROM {known.name} WHERE {condition} {order}", [*parameters, count // 2]
            ).fetchall()
            middle = tuple(_from_sql(kind, value) for kind, value in zip(kinds.values(), found, strict=True))
            known.check_bound(middle)
            return middle

    def rows(self, shard: int, table: str, rows: KeyRange) -> Sequence[tuple[Key, Row]]:
        """By key."""
        return list(self._read(shard, table, rows))

    def _read(self, shard: int, table: str, rows: KeyRange) -> Iterator[tuple[Key, Row]]:
        known = self._known(table)
        kinds, key = known.table.columns, known.table.key
        with self._errors(table):
            condition, parameters = known.in_range(shard, rows)
            found = self._execute(f"SELECT {_selected(kinds)} FROM {known.name} WHERE {condition} ORDER BY {listed(key)}", parameters)
            while portion := found.fetchmany(_ROWS):
                for values in portion:
                    row = {name: _from_sql(kind, value) for (name, kind), value in zip(kinds.items(), values, strict=True)}
                    yield tuple(row[name] for name in key), row

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def _execute(self, statement: str, parameters: Sequence[Any] = ()) -> Any:
        return self._database.execute(statement, parameters)

    def _known(self, table: str) -> SqlTable:
        known = self._tables.get(table)
        if known is None:
            raise StoreError(f"{self._subject(table)}: it is not one of the replica's", retriable=False)
        return known

    def _subject(self, table: str = "", key: Key | None = None) -> str:
        return f"DuckDB store {self._path}" + (f", table {table}" if table else "") + (f", key {key!r}" if key is not None else "")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._errors():
            self._database.begin()
        try:
            yield
            with self._errors():
                self._database.commit()
        except BaseException:
            with suppress(duckdb.TransactionException):  # the failed commit has ended it
                self._database.rollback()
            raise

    @contextmanager
    def _errors(self, table: str = "") -> Iterator[None]:
        try:
            yield
        except (duckdb.Error, ValueError, OverflowError) as error:
            raise StoreError(f"{self._subject(table)}: {error}", retriable=False) from error


_AS_TEXT: Final = ("date", "time", "timestamp", "timestamptz")
_LIST_TYPES: Final = dict.fromkeys(_AS_TEXT, "VARCHAR")


def _fits(kind: str, classes: tuple[type, ...], value: Value) -> bool:
    if not isinstance(value, classes) or isinstance(value, bool) != (kind == "boolean"):
        return False
    match kind:
        case "integer":
            return isinstance(value, int) and -_INTEGERS <= value < _INTEGERS
        case "date":
            return not isinstance(value, datetime)
        case "timestamp" | "timestamptz":
            return isinstance(value, datetime) and (value.tzinfo is None) == (kind == "timestamp")
        case _:
            return True


def _cast(kind: str) -> str:
    return f"::{_TYPES[kind]}" if kind in _AS_TEXT else ""


def _selected(kinds: Mapping[str, str]) -> str:
    """Columns to read. A point in time as a number: DuckDB's own way needs another package."""
    return ", ".join(f"epoch_us({quoted(name)})" if kind == "timestamptz" else quoted(name) for name, kind in kinds.items())


def _to_sql(kind: str, value: Value) -> Any:
    match value:
        case datetime():
            plain = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
            return plain.isoformat(" ", "microseconds") + ("" if value.tzinfo is None else "+00")
        case date() | time():
            return value.isoformat()
        case _ if kind == "decimal" and value is not None:
            return str(value)
        case _:
            return value


def _from_sql(kind: str, value: Any) -> Value:
    if value is not None:
        if kind == "decimal":
            return Decimal(value)
        if kind == "timestamptz":
            return _EPOCH + int(value) * _MICROSECOND
    return value  # type: ignore[no-any-return]
