"""A replica in an SQLite database: ordinary tables, which any program may read while the replica runs.

Decimals, dates and times are text; a point in time is text in UTC. A decimal's column has no affinity, so that its digits stay as they are.
"""

import logging
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from moldau.changelog.sqlite.layout import is_source, remove
from moldau.changelog.sqlite.schema import ANY, DECIMAL
from moldau.changelog.store import Position
from moldau.changelog.stores.sql import SqlTable, listed, quoted
from moldau.changelog.stores.sql_store import KeyedValues, SqlStore
from moldau.changelog.values import Table, Value

log = logging.getLogger(__name__)

_BUSY_S: Final = 30.0
_NAN: Final = "NaN"
"""As text: SQLite makes NULL of the number."""


class SqliteStore(SqlStore[SqlTable]):
    """In the database file `path`, in the journal mode WAL. With `sharded` it takes rows of several shards."""

    types = {
        "any": ANY,
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
    failures = (sqlite3.Error, OverflowError, UnicodeError, ValueError)

    def __init__(self, path: str | os.PathLike[str], *, sharded: bool = False) -> None:
        super().__init__(f"SQLite store {os.fspath(path)}", sharded=sharded)
        with self.errors():
            self._database = sqlite3.connect(os.fspath(path), timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            self._database.execute("PRAGMA synchronous = NORMAL")

    def prepare(self, changelog: str, tables: Sequence[Table]) -> None:
        """Make tables, and columns that they have got. The first call makes the write-ahead log."""
        if not self._changelog:
            with self.errors():
                self._database.execute("PRAGMA journal_mode = WAL")
        super().prepare(changelog, tables)

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Sequence[tuple[Any, ...]]:
        """See SqlStore."""
        return self._database.execute(statement, list(map(_to_sql, parameters))).fetchall()

    def read(self, statement: str, parameters: Sequence[Any]) -> Iterator[Sequence[Any]]:
        """See SqlStore."""
        return self._database.execute(statement, list(map(_to_sql, parameters)))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """See SqlStore."""
        with self.errors():
            self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            with self.errors():
                self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise

    def table(self, table: Table) -> SqlTable:
        """See SqlStore."""
        return SqlTable(table, sharded=self.sharded)

    def found(self, wanted: SqlTable) -> tuple[Sequence[str], Sequence[str]]:
        """See SqlStore."""
        there = self.execute("SELECT name, pk FROM pragma_table_info(?)", [wanted.table.name])
        return [name for name, _ in there], [name for name, place in sorted(there, key=lambda each: each[1]) if place]

    def positions(self) -> Mapping[int, Position]:
        """By shard. A database that has become a source has none: its rows are others since."""
        with self.errors():
            return {} if is_source(self._database) else super().positions()

    def upsert(self, known: SqlTable, rows: Sequence[KeyedValues]) -> None:
        """See SqlStore."""
        changed = ", ".join(f"{quoted(column)} = excluded.{quoted(column)}" for column in known.columns if column not in known.key)
        self._execute_all(
            known,
            f"INSERT INTO {known.name} ({listed(known.columns)}) VALUES ({', '.join('?' * len(known.columns))})"
            f" ON CONFLICT ({listed(known.key)}) DO {f'UPDATE SET {changed}' if changed else 'NOTHING'}",
            rows,
        )

    def delete(self, known: SqlTable, keys: Sequence[KeyedValues]) -> None:
        """See SqlStore."""
        self._execute_all(known, f"DELETE FROM {known.name} WHERE {' AND '.join(f'{quoted(column)} = ?' for column in known.key)}", keys)

    def _execute_all(self, known: SqlTable, statement: str, rows: Sequence[KeyedValues]) -> None:
        values = [list(map(_to_sql, row)) for _, row in rows]
        try:
            self._database.executemany(statement, values)
        except self.failures:
            for (key, _), each in zip(rows, values, strict=True):  # to name the one that is refused; the transaction is rolled back anyway
                with self.errors(known.table.name, key):
                    self._database.execute(statement, each)
            raise

    def begin_again(self) -> None:
        """A former source loses its triggers and its outbox."""
        if is_source(self._database):
            log.warning("a former source becomes a replica, its triggers and its outbox are dropped: %s", self.name)
            remove(self._database)

    def value(self, kind: str, found: Any) -> Value:
        """A value that is not of the column's type is what SQLite has: its columns take any."""
        if type(found) is str:
            if kind in _PARSERS:
                try:
                    return _PARSERS[kind](found)  # type: ignore[no-any-return]
                except (ValueError, InvalidOperation):
                    return found
        elif kind == "boolean" and type(found) is int and found in (0, 1):
            return bool(found)
        return found  # type: ignore[no-any-return]

    def may_pass(self, error: Exception) -> bool:
        """See SqlStore."""
        return isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)

    def close(self) -> None:
        """Close the database."""
        self._database.close()


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
