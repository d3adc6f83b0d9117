"""A replica in a DuckDB database, for analysis: columns of its own types, but for decimals, which are text, so that their digits stay.

DuckDB is made for large statements: rows go in as lists, a portion of changes in one statement, and commits are applied many at a time.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import duckdb

from moldau.changelog.store import StoreError
from moldau.changelog.stores.column_types import fits
from moldau.changelog.stores.sql import SqlTable, listed, quoted
from moldau.changelog.stores.sql_store import KeyedValues, SqlStore
from moldau.changelog.values import Table, Value

_ROWS: Final = 1_000
"""Read at once."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_AS_TEXT: Final = ("date", "time", "timestamp", "timestamptz")
_COLUMNS: Final = "SELECT column_name FROM duckdb_columns() WHERE table_name = ? AND schema_name = current_schema() ORDER BY column_index"
_KEYS: Final = (
    "SELECT constraint_column_names FROM duckdb_constraints() "
    "WHERE table_name = ? AND schema_name = current_schema() AND constraint_type = 'PRIMARY KEY'"
)


class _DuckdbTable(SqlTable):
    def selected(self, column: str) -> str:
        """A point in time as a number: DuckDB's own way needs another package."""
        return f"epoch_us({quoted(column)})" if self.columns[column] == "timestamptz" else quoted(column)


class DuckdbStore(SqlStore[_DuckdbTable]):
    """In the database file `path`. With `sharded` it takes rows of several shards. While it is open no other process can open the file."""

    types = {
        "any": "VARCHAR",
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
    failures = (duckdb.Error, ValueError, OverflowError)
    portion = 10_000

    def __init__(self, path: str | Path, *, sharded: bool = False) -> None:
        super().__init__(f"DuckDB store {path}", sharded=sharded)
        with self.errors():
            self._database = duckdb.connect(str(path))

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Sequence[tuple[Any, ...]]:
        """See SqlStore."""
        return self._database.execute(statement, parameters).fetchall()

    def read(self, statement: str, parameters: Sequence[Any]) -> Iterator[Sequence[Any]]:
        """See SqlStore."""
        found = self._database.execute(statement, parameters)
        while portion := found.fetchmany(_ROWS):
            yield from portion

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """See SqlStore."""
        with self.errors():
            self._database.begin()
        try:
            yield
            with self.errors():
                self._database.commit()
        except BaseException:
            with suppress(duckdb.TransactionException):  # the failed commit has ended it
                self._database.rollback()
            raise

    def table(self, table: Table) -> _DuckdbTable:
        """See SqlStore."""
        return _DuckdbTable(table, sharded=self.sharded)

    def found(self, wanted: _DuckdbTable) -> tuple[Sequence[str], Sequence[str]]:
        """See SqlStore."""
        columns = [name for (name,) in self.execute(_COLUMNS, [wanted.table.name])]
        keys = self.execute(_KEYS, [wanted.table.name])
        return columns, list(keys[0][0]) if keys else []

    def upsert(self, known: _DuckdbTable, rows: Sequence[KeyedValues]) -> None:
        """See SqlStore."""
        lists = self._lists(known, list(known.columns), rows)
        with self.errors(known.table.name):
            names, values = listed(known.columns), self._unnested(known, known.columns)
            self.execute(f"INSERT OR REPLACE INTO {known.name} ({names}) SELECT {values}", lists)

    def delete(self, known: _DuckdbTable, keys: Sequence[KeyedValues]) -> None:
        """See SqlStore."""
        lists = self._lists(known, known.key, keys)
        with self.errors(known.table.name):
            self.execute(f"DELETE FROM {known.name} WHERE ({listed(known.key)}) IN (SELECT {self._unnested(known, known.key)})", lists)

    def _unnested(self, known: _DuckdbTable, columns: Iterable[str]) -> str:
        return ", ".join(self._unnested_column(known.columns[name]) for name in columns)

    def _unnested_column(self, kind: str) -> str:
        return f"unnest(?::VARCHAR[])::{self.types[kind]}" if kind in _AS_TEXT else f"unnest(?::{self.types[kind]}[])"

    def _lists(self, known: _DuckdbTable, names: Sequence[str], rows: Sequence[KeyedValues]) -> list[Any]:
        """Of each column its values."""
        lists = []
        for place, name in enumerate(names):
            kind = known.columns[name]
            for key, values in rows:
                value = values[place]
                if not fits(kind, value):
                    reason = f"column {name} is {kind}, and cannot have {value!r}"
                    raise StoreError(f"{self.subject(known.table.name, key)}: {reason}", retriable=False)
            lists.append([_to_sql(kind, values[place]) for _, values in rows])
        return lists

    def value(self, kind: str, found: Any) -> Value:
        """See SqlStore."""
        if found is not None:
            if kind == "decimal":
                return Decimal(found)
            if kind == "timestamptz":
                return _EPOCH + int(found) * _MICROSECOND
        return found  # type: ignore[no-any-return]

    def may_pass(self, error: Exception) -> bool:
        """See SqlStore."""
        return False

    def close(self) -> None:
        """Close the database."""
        self._database.close()


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
