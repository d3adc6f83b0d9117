"""A replica in a database of PostgreSQL: ordinary tables, which any program may read while the replica runs.

Rows go in as arrays, one for each column, so that a portion of changes is one statement for each table; rows and position are one
transaction. A table SCHEMA.TABLE of the changelog is in that schema, others are in `public`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from moldau.changelog import positions
from moldau.changelog.postgres.sessions import Server, one_line
from moldau.changelog.postgres.tables import DEFAULT_SCHEMA, TableName, name_of
from moldau.changelog.store import StoreError
from moldau.changelog.stores.column_types import fits
from moldau.changelog.stores.sql import SqlTable, listed, quoted
from moldau.changelog.stores.sql_store import KeyedValues, SqlStore
from moldau.changelog.values import Key, Table, Value
from moldau.model.errors import WorldError

if TYPE_CHECKING:
    from psycopg import Connection

_TYPES: Final[Mapping[str, str]] = {
    "any": "text",
    "boolean": "boolean",
    "integer": "bigint",
    "real": "double precision",
    "text": "text",
    "bytes": "bytea",
    "decimal": "numeric",
    "date": "date",
    "time": "time",
    "timestamp": "timestamp",
    "timestamptz": "timestamptz",
}
_ROWS: Final = 2_000
"""Read at once."""
_COLUMNS: Final = """
SELECT a.attname::text, format_type(a.atttypid, -1) FROM pg_attribute a
WHERE a.attrelid = ?::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
"""With the types of columns, but not how long their values may be: a cast to that would cut them off, where storing them is an error."""
_TRIGGERS: Final = """
SELECT tgname::text FROM pg_trigger WHERE tgrelid = ?::regclass AND NOT tgisinternal AND tgenabled IN ('O', 'A') ORDER BY tgname
"""
_KEY: Final = """
SELECT a.attname::text FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE i.indrelid = ?::regclass AND i.indisprimary AND k.place <= i.indnkeyatts ORDER BY k.place
"""


_CONVERTED: Final[Mapping[str, Callable[[Any], Value]]] = {"real": float, "decimal": Decimal}
"""Arrays are of one type; JSON has integers among numbers."""


class _StoredTable(SqlTable):
    """A table of the replica, with the types that its columns have in the database."""

    def __init__(self, table: Table, types: Mapping[str, str], *, sharded: bool) -> None:
        super().__init__(table, sharded=sharded)
        self._types = {**{name: _TYPES[kind] for name, kind in self.columns.items()}, **types}
        self.name = name_of(table.name).quoted
        rest = [name for name in self.columns if name not in self.key]
        changed = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in rest)
        then = f"UPDATE SET {changed}" if changed else "NOTHING"
        self.upsert = (
            f"INSERT INTO {self.name} ({listed(self.columns)}) OVERRIDING SYSTEM VALUE SELECT {self._unnested(self.columns)}"
            f" ON CONFLICT ({listed(self.key)}) DO {then}"
        )
        keys = ", ".join(f"gone.k{place}::{self._types[name]}" for place, name in enumerate(self.key))
        aliases = ", ".join(f"k{place}" for place in range(len(self.key)))
        arrays = ", ".join(f"?::{_TYPES[self.columns[name]]}[]" for name in self.key)
        self.delete = f"DELETE FROM {self.name} USING unnest({arrays}) AS gone ({aliases}) WHERE ({listed(self.key)}) = ({keys})"

    def _unnested(self, columns: Iterable[str]) -> str:
        return ", ".join(f"unnest(?::{_TYPES[self.columns[name]]}[])::{self._types[name]}" for name in columns)

    def selected(self, column: str) -> str:
        """As the stream has it: a number of single precision is that of its text, and a padded text has its blanks."""
        kind, stored = _TYPES[self.columns[column]], self._types[column]
        if stored == "real":
            return f"{quoted(column)}::text::{kind}"
        if stored == "bpchar":
            return f"textin(bpcharout({quoted(column)}))"
        return f"{quoted(column)}::{kind}"

    def ordered(self, column: str) -> str:
        """By code points, whatever the collation of the database is."""
        if _TYPES[self.columns[column]] != "text":
            return quoted(column)
        return quoted(column) + ("" if self._types[column] == "text" else "::text") + ' COLLATE "C"'

    def mark(self, column: str) -> str:
        """See SqlTable."""
        return f"?::{_TYPES[self.columns[column]]}"


@lru_cache(maxsize=256)
def _escaped(statement: str) -> bytes:
    """With `%s` instead of `?`; names may have both."""
    parts = statement.split('"')
    return '"'.join(
        part.replace("%", "%%") if place % 2 else part.replace("%", "%%").replace("?", "%s") for place, part in enumerate(parts)
    ).encode()


class PostgresStore(SqlStore[_StoredTable]):
    """In the database of a connection string of libpq. With `sharded` it takes rows of several shards. Tables that are there keep the types
    of their columns. MissingExtraError, RefusedError.
    """

    types = _TYPES
    portion = 5_000
    positions_table = TableName(DEFAULT_SCHEMA, positions.TABLE).quoted

    def __init__(self, conninfo: str, *, sharded: bool = False) -> None:
        self._server = Server(conninfo)
        super().__init__(self._server.name, sharded=sharded)
        self._connection: Connection[tuple[Any, ...]] | None = None
        import psycopg

        self.failures = (psycopg.Error, ValueError, ArithmeticError, TypeError)

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Sequence[tuple[Any, ...]]:
        """See SqlStore."""
        assert self._connection is not None, "inside of a transaction"
        found = self._connection.execute(_escaped(statement), parameters)
        return [] if found.description is None else found.fetchall()

    def read(self, statement: str, parameters: Sequence[Any]) -> Iterator[Sequence[Any]]:
        """See SqlStore."""
        assert self._connection is not None, "inside of a transaction"
        with self._connection.cursor(name="moldau_rows") as cursor:
            cursor.itersize = _ROWS
            cursor.execute(_escaped(statement), parameters)
            yield from cursor

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Over a new connection if the last one was lost."""
        if self._connection is None or self._connection.closed:
            try:
                self._connection = self._server.connect("moldau replica")
            except WorldError as error:
                raise StoreError(str(error), retriable=error.retriable) from error
        with self.errors(), self._connection.transaction():
            yield

    def reading(self) -> AbstractContextManager[None]:
        """See SqlStore."""
        return self.transaction()

    def table(self, table: Table) -> _StoredTable:
        """See SqlStore."""
        name = name_of(table.name)
        return _StoredTable(table, dict(self._columns(name)), sharded=self.sharded)

    def _columns(self, name: TableName) -> Sequence[tuple[Any, ...]]:
        """Names and types; none where there is no such table."""
        if self.execute("SELECT to_regclass(?) IS NOT NULL", [name.quoted]) == [(True,)]:
            return self.execute(_COLUMNS, [name.quoted])
        return []

    def found(self, wanted: _StoredTable) -> tuple[Sequence[str], Sequence[str]]:
        """See SqlStore."""
        columns = [column for column, _ in self._columns(name_of(wanted.table.name))]
        return columns, [column for (column,) in self.execute(_KEY, [wanted.name])] if columns else []

    def prepared(self, table: Table) -> _StoredTable:
        """See SqlStore. ValueError for a table with triggers."""
        schema = name_of(table.name).schema
        if schema != DEFAULT_SCHEMA and self.execute("SELECT to_regnamespace(?) IS NULL", [quoted(schema)]) == [(True,)]:
            self.execute(f"CREATE SCHEMA {quoted(schema)}")
        made = super().prepared(table)
        if triggers := self.execute(_TRIGGERS, [made.name]):
            ((trigger,), *_) = triggers
            raise ValueError(
                f"its trigger {trigger} would run for the rows of the replica, which have come with what it has done in the source:"
                f" ALTER TABLE {made.name} DISABLE TRIGGER {quoted(trigger)}"
            )
        return made

    def same(self, name: str) -> str:
        """See SqlStore."""
        return name

    def upsert(self, known: _StoredTable, rows: Sequence[KeyedValues]) -> None:
        """See SqlStore."""
        self._execute_all(known, known.upsert, list(known.columns), rows)

    def delete(self, known: _StoredTable, keys: Sequence[KeyedValues]) -> None:
        """See SqlStore."""
        self._execute_all(known, known.delete, known.key, keys)

    def _execute_all(self, known: _StoredTable, statement: str, names: Sequence[str], rows: Sequence[KeyedValues]) -> None:
        """In one statement; if it is refused, row by row, to name the one that is refused. There may be none: psycopg takes no array whose
        values are of different types, as they are before and after a column has got another one.
        """
        import psycopg

        kinds = [known.columns[name] for name in names]
        for place in [place for place, kind in enumerate(kinds) if kind == "any"]:
            self._check_texts(known, names[place], [(key, values[place]) for key, values in rows])
        self.execute("SAVEPOINT portion")
        try:
            self.execute(statement, _arrays(kinds, [values for _, values in rows]))
        except (psycopg.DataError, psycopg.IntegrityError, psycopg.ProgrammingError, ValueError, ArithmeticError, TypeError):
            self.execute("ROLLBACK TO SAVEPOINT portion")
            for key, values in rows:
                with self.errors(known.table.name, key):
                    self.execute(statement, _arrays(kinds, [values]))
        self.execute("RELEASE SAVEPOINT portion")

    def _check_texts(self, known: _StoredTable, column: str, values: Sequence[tuple[Key, Value]]) -> None:
        """StoreError for a value that is no text: a column of text would make one of it, and the replica would differ."""
        for key, value in values:
            if not fits("any", value):
                raise StoreError(
                    f"{self.subject(known.table.name, key)}: column {column} is any, and cannot have {value!r}", retriable=False
                )

    def may_pass(self, error: Exception) -> bool:
        """See SqlStore."""
        import psycopg

        return isinstance(error, psycopg.Error) and isinstance(self._server.translation(error), WorldError)

    def reason(self, error: Exception) -> str:
        """See SqlStore."""
        import psycopg

        return one_line(error) if isinstance(error, psycopg.Error) else str(error)

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _arrays(kinds: Sequence[str], rows: Sequence[Sequence[Value]]) -> list[list[Value]]:
    """Of each column its values."""
    arrays = [list(column) for column in zip(*rows, strict=True)]
    for place, kind in enumerate(kinds):
        convert = _CONVERTED.get(kind)
        if convert is not None:
            arrays[place] = [None if value is None else convert(value) for value in arrays[place]]
    return arrays
