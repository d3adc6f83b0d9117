"""A replica in an SQLite database: ordinary tables, which any program may read while the replica runs.

Decimals, dates and times are text; a point in time is text in UTC. A decimal's column has no affinity, so that its digits stay as they are.
"""

import logging
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final

from moldau.changelog import positions
from moldau.changelog.row_hash import checksum_of
from moldau.changelog.sqlite.layout import is_source, remove
from moldau.changelog.sqlite.schema import DECIMAL
from moldau.changelog.store import WHOLE, Checksum, KeyRange, Position, StoreError
from moldau.changelog.stores.folding import folded
from moldau.changelog.stores.sql import SqlTable, listed, missing_columns, quoted
from moldau.changelog.values import Change, Key, Row, Table, Value

log = logging.getLogger(__name__)

_TYPES: Final = {
    "boolean": "BOOLEAN",
    "integer": "INTEGER",
    "real": "REAL",
    "text": "TEXT",
    "bytes": "BLOB",
    "decimal": DECIMAL,
    "date": "DATE",
    "time": "TIME",
    "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMPTZ",
}
_BUSY_S: Final = 30.0
_NAN: Final = "NaN"
"""As text: SQLite makes NULL of the number."""


class SqliteStore:
    """In the database file `path`, in the journal mode WAL. With `sharded` it takes rows of several shards."""

    def __init__(self, path: str | Path, *, sharded: bool = False) -> None:
        self.sharded = sharded
        self._path = str(path)
        self._changelog = ""
        self._tables: dict[str, SqlTable] = {}
        with self._errors():
            self._database = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = NORMAL")

    def prepare(self, changelog: str, tables: Sequence[Table]) -> None:
        """Make tables, and columns that they have got."""
        self._changelog = changelog
        with self._transaction():
            columns = ", ".join(f"{quoted(name)} {_TYPES[kind]} NOT NULL" for name, kind in positions.COLUMNS.items())
            self._database.execute(
                f"CREATE TABLE IF NOT EXISTS {positions.TABLE} ({columns}, PRIMARY KEY ({listed(positions.KEY)})) WITHOUT ROWID"
            )
            for table in tables:
                with self._errors(table.name):
                    self._prepare(SqlTable(table, self.sharded))
        self._tables = {table.name: SqlTable(table, self.sharded) for table in tables}

    def _prepare(self, wanted: SqlTable) -> None:
        there = self._database.execute("SELECT name, pk FROM pragma_table_info(?)", (wanted.table.name,)).fetchall()
        if not there:
            columns = ", ".join(
                f"{quoted(name)} {_TYPES[kind]}{' NOT NULL' if name in wanted.key else ''}" for name, kind in wanted.columns.items()
            )
            self._database.execute(f"CREATE TABLE {wanted.name} ({columns}, PRIMARY KEY ({listed(wanted.key)}))")
            return
        key = [name for name, place in sorted(there, key=lambda each: each[1]) if place]
        if [name.lower() for name in key] != [name.lower() for name in wanted.key]:
            raise ValueError(f"it has the primary key ({', '.join(key)}), and the replica needs ({', '.join(wanted.key)})")
        for name, kind in missing_columns(wanted.columns, (name for name, _ in there)).items():
            self._database.execute(f"ALTER TABLE {wanted.name} ADD COLUMN {quoted(name)} {_TYPES[kind]}")

    def positions(self) -> Mapping[int, Position]:
        """By shard. A database that has become a source has none: its rows are others since."""
        with self._errors(positions.TABLE):
            if is_source(self._database):
                return {}
            found = self._database.execute(f"SELECT * FROM {positions.TABLE} WHERE changelog = ?", (self._changelog,))
            return dict(map(positions.from_columns, found.fetchall()))

    def apply(self, shard: int, changes: Sequence[Change], position: Position) -> None:
        """Portion by portion, in one transaction."""
        with self._transaction():
            for tables in folded(changes):
                for name, rows in tables.items():
                    self._apply(shard, name, rows)
            self._store(shard, position)

    def _apply(self, shard: int, name: str, rows: Mapping[Key, Row | None]) -> None:
        known = self._known(name)
        prefix = [shard] if self.sharded else []
        columns = list(known.table.columns)
        marks = ", ".join("?" * (len(prefix) + len(columns)))
        changed = ", ".join(f"{quoted(column)} = excluded.{quoted(column)}" for column in columns if column not in known.table.key)
        then = f"UPDATE SET {changed}" if changed else "NOTHING"
        upsert = f"INSERT INTO {known.name} ({listed(known.columns)}) VALUES ({marks}) ON CONFLICT ({listed(known.key)}) DO {then}"
        delete = f"DELETE FROM {known.name} WHERE {' AND '.join(f'{quoted(column)} = ?' for column in known.key)}"
        gone = [(key, [*prefix, *map(_to_sql, key)]) for key, row in rows.items() if row is None]
        kept = [(key, [*prefix, *(_to_sql(row.get(column)) for column in columns)]) for key, row in rows.items() if row is not None]
        for statement, these in ((delete, gone), (upsert, kept)):
            self._execute_all(name, statement, these)

    def _execute_all(self, table: str, statement: str, rows: Sequence[tuple[Key, Sequence[Any]]]) -> None:
        try:
            self._database.executemany(statement, [values for _, values in rows])
        except (sqlite3.Error, OverflowError, UnicodeError):
            for key, values in rows:  # to name the one that is refused; the transaction is rolled back anyway
                with self._errors(table, key):
                    self._database.execute(statement, values)
            raise

    def _store(self, shard: int, position: Position) -> None:
        with self._errors(positions.TABLE):
            values = positions.to_columns(self._changelog, shard, position)
            self._database.execute(f"INSERT OR REPLACE INTO {positions.TABLE} VALUES ({', '.join('?' * len(values))})", values)

    def clear(self, shard: int, position: Position) -> None:
        """Remove the rows of a shard; of a former source its triggers and its outbox, too."""
        with self._transaction():
            with self._errors():
                if is_source(self._database):
                    log.warning("a former source becomes a replica, its triggers and its outbox are dropped: database=%s", self._path)
                    remove(self._database)
            for name, known in self._tables.items():
                condition, parameters = known.of_shard(shard)
                with self._errors(name):
                    self._database.execute(f"DELETE FROM {known.name} WHERE {condition}", parameters)
            self._store(shard, position)

    def checksum(self, shard: int, table: str, rows: KeyRange = WHOLE) -> Checksum:
        """Over a range."""
        return checksum_of(row for _, row in self._read(shard, table, rows))

    def middle(self, shard: int, table: str, rows: KeyRange) -> Key | None:
        """The key in the middle."""
        known = self._known(table)
        with self._errors(table):
            condition, parameters = self._range(known, shard, rows)
            (count,) = self._database.execute(f"SELECT count(*) FROM {known.name} WHERE {condition}", parameters).fetchone()
            if count < 2:
                return None
            key = listed(known.table.key)
            found = self._database.execute(
                f"SELECT {key} FROM {known.name} WHERE {condition} ORDER BY {key} LIMIT 1 OFFSET ?", [*parameters, count // 2]
            ).fetchone()
            kinds = [known.table.columns[name] for name in known.table.key]
            middle = tuple(_from_sql(kind, value) for kind, value in zip(kinds, found, strict=True))
            known.check_bound(middle)
            return middle

    def rows(self, shard: int, table: str, rows: KeyRange) -> Sequence[tuple[Key, Row]]:
        """By key."""
        return list(self._read(shard, table, rows))

    def _read(self, shard: int, table: str, rows: KeyRange) -> Iterator[tuple[Key, Row]]:
        known = self._known(table)
        kinds, key = list(known.table.columns.items()), known.table.key
        with self._errors(table):
            condition, parameters = self._range(known, shard, rows)
            statement = f"SELECT {listed(known.table.columns)} FROM {known.name} WHERE {condition} ORDER BY {listed(key)}"
            for values in self._database.execute(statement, parameters):
                row = {name: _from_sql(kind, value) for (name, kind), value in zip(kinds, values, strict=True)}
                yield tuple(row[name] for name in key), row

    def _range(self, known: SqlTable, shard: int, rows: KeyRange) -> tuple[str, list[Any]]:
        condition, parameters = known.in_range(shard, rows)
        return condition, list(map(_to_sql, parameters))

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def _known(self, table: str) -> SqlTable:
        known = self._tables.get(table)
        if known is None:
            raise StoreError(f"SQLite store {self._path}, table {table}: it is not one of the replica's", retriable=False)
        return known

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._errors():
            self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            with self._errors():
                self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise

    @contextmanager
    def _errors(self, table: str = "", key: Key | None = None) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OverflowError, UnicodeError, ValueError) as error:
            where = f"SQLite store {self._path}" + (f", table {table}" if table else "") + (f", key {key!r}" if key is not None else "")
            retriable = isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode in (
                sqlite3.SQLITE_BUSY,
                sqlite3.SQLITE_LOCKED,
            )
            raise StoreError(f"{where}: {error}", retriable=retriable) from error


def _to_sql(value: Value) -> Any:
    match value:
        case bool():
            return int(value)
        case float():
            return _NAN if value != value else value
        case Decimal():
            return str(value)
        case datetime():
            plain = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
            return plain.isoformat(" ", "microseconds") + ("" if value.tzinfo is None else "+00:00")
        case date():
            return value.isoformat()
        case time():
            return value.isoformat("microseconds")
        case _:
            return value


def _from_sql(kind: str, value: Any) -> Value:
    """A value that is not of the column's type is what SQLite has: its columns take any."""
    if type(value) is str:
        if kind in _PARSERS:
            try:
                return _PARSERS[kind](value)  # type: ignore[no-any-return]
            except (ValueError, InvalidOperation):
                return value
    elif kind == "boolean" and type(value) is int and value in (0, 1):
        return bool(value)
    return value  # type: ignore[no-any-return]


def _real(text: str) -> Value:
    return float("nan") if text == _NAN else text


_PARSERS: Final[Mapping[str, Any]] = {
    "real": _real,
    "decimal": Decimal,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timestamp": datetime.fromisoformat,
    "timestamptz": datetime.fromisoformat,
}
