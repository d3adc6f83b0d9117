"""A replica in a database of PostgreSQL: ordinary tables, which any program may read while the replica runs.

Rows go in as arrays, one for each column, so that a portion of changes is one statement for each table; rows and position are one
transaction. A table SCHEMA.TABLE of the changelog is in that schema, others are in `public`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from moldau.changelog import positions
from moldau.changelog.postgres.sessions import Server, one_line
from moldau.changelog.postgres.tables import DEFAULT_SCHEMA, TableName, name_of
from moldau.changelog.row_hash import checksum_of
from moldau.changelog.store import WHOLE, Checksum, KeyRange, Position, StoreError
from moldau.changelog.stores.folding import folded
from moldau.changelog.stores.sql import SqlTable, listed, quoted
from moldau.changelog.values import Change, Key, Row, Table, Value
from moldau.model.errors import WorldError

if TYPE_CHECKING:
    from psycopg import Connection

_TYPES: Final[Mapping[str, str]] = {
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
_CONVERTED: Final[Mapping[str, Callable[[Any], Value]]] = {"real": float, "decimal": Decimal}
"""Arrays are of one type; JSON has integers among numbers."""
_PORTION: Final = 5_000
_ROWS: Final = 2_000
"""Read at once."""
_COLUMNS: Final = """
SELECT a.attname::text, format_type(a.atttypid, -1) FROM pg_attribute a
WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
"""With the types of columns, but not how long their values may be: a cast to that would cut them off, where storing them is an error."""
_TRIGGERS: Final = """
SELECT tgname::text FROM pg_trigger WHERE tgrelid = %s::regclass AND NOT tgisinternal AND tgenabled IN ('O', 'A') ORDER BY tgname
"""
_KEY: Final = """
SELECT a.attname::text FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE i.indrelid = %s::regclass AND i.indisprimary AND k.place <= i.indnkeyatts ORDER BY k.place
"""


class _StoredTable:
    """A table of the replica, as it is in the database. Statements have `%s` for parameters."""

    def __init__(self, table: Table, types: Mapping[str, str], *, sharded: bool) -> None:
        known = SqlTable(table, sharded)
        self.table = table
        self.name = name_of(table.name).quoted
        self.columns = {name: kind for name, kind in known.columns.items() if name in types}
        self.key = list(known.key)
        self.condition = f"{quoted(self.key[0])} = %s" if sharded else "TRUE"
        """For the rows of one shard."""
        self.check_bound = known.check_bound
        rest = [name for name in self.columns if name not in self.key]
        changed = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in rest)
        then = f"UPDATE SET {changed}" if changed else "NOTHING"
        self.upsert = _escaped(
            f"INSERT INTO {self.name} ({listed(self.columns)}) OVERRIDING SYSTEM VALUE SELECT {self._unnested(self.columns, types)}"
            f" ON CONFLICT ({listed(self.key)}) DO {then}"
        )
        keys = ", ".join(f"gone.k{place}::{types[name]}" for place, name in enumerate(self.key))
        aliases = ", ".join(f"k{place}" for place in range(len(self.key)))
        arrays = ", ".join(f"?::{_TYPES[self.columns[name]]}[]" for name in self.key)
        self.delete = _escaped(f"DELETE FROM {self.name} USING unnest({arrays}) AS gone ({aliases}) WHERE ({listed(self.key)}) = ({keys})")
        self.order = ", ".join(_ordered(name, table.columns[name], types[name]) for name in table.key)
        self.selected = ", ".join(_read(name, kind, types[name]) for name, kind in table.columns.items())
        self.selected_key = ", ".join(_read(name, table.columns[name], types[name]) for name in table.key)

    def _unnested(self, columns: Iterable[str], types: Mapping[str, str]) -> str:
        return ", ".join(f"unnest(?::{_TYPES[self.columns[name]]}[])::{types[name]}" for name in columns)

    def where(self, shard: int, rows: KeyRange) -> tuple[str, list[Any]]:
        """A condition for a range of a shard, and its parameters. ValueError for a range over decimals."""
        condition = self.condition
        parameters: list[Any] = [shard] if "%s" in condition else []
        marks = ", ".join(f"%s::{_TYPES[self.table.columns[name]]}" for name in self.table.key)
        for bound, compared in ((rows.low, ">="), (rows.high, "<")):
            if bound is not None:
                self.check_bound(bound)
                condition += f" AND ({self.order.replace('%', '%%')}) {compared} ({marks})"
                parameters += bound
        return condition, parameters


def _read(name: str, kind: str, stored: str) -> str:
    """A column as the stream has it: a number of single precision is that of its text, and a padded text has its blanks."""
    if stored == "real":
        return f"{quoted(name)}::text::{_TYPES[kind]}"
    if stored == "bpchar":
        return f"textin(bpcharout({quoted(name)}))"
    return f"{quoted(name)}::{_TYPES[kind]}"


def _ordered(name: str, kind: str, stored: str) -> str:
    """For an order by code points, whatever the collation of the database is."""
    if kind != "text":
        return quoted(name)
    return quoted(name) + ("" if stored == "text" else "::text") + ' COLLATE "C"'


def _escaped(statement: str) -> str:
    """With `%s` instead of `?`; names may have both."""
    parts = statement.split('"')
    return '"'.join(
        part.replace("%", "%%") if place % 2 else part.replace("%", "%%").replace("?", "%s") for place, part in enumerate(parts)
    )


class PostgresStore:
    """In the database of a connection string of libpq. With `sharded` it takes rows of several shards. Tables that are there keep the types
    of their columns. MissingExtraError, RefusedError.
    """

    def __init__(self, conninfo: str, *, sharded: bool = False) -> None:
        self.sharded = sharded
        self._server = Server(conninfo)
        self._changelog = ""
        self._tables: dict[str, _StoredTable] = {}
        self._connection: Connection[tuple[Any, ...]] | None = None

    def prepare(self, changelog: str, tables: Sequence[Table]) -> None:
        """Make tables, and columns that they have got."""
        self._changelog = changelog
        prepared = {}
        with self._transaction():
            columns = ", ".join(f"{name} {_TYPES[kind]} NOT NULL" for name, kind in positions.COLUMNS.items())
            self._execute(f"CREATE TABLE IF NOT EXISTS {_POSITIONS} ({columns}, PRIMARY KEY ({listed(positions.KEY)}))")
            for table in tables:
                with self._errors(table.name):
                    prepared[table.name] = self._prepare(SqlTable(table, self.sharded))
        self._tables = prepared

    def _prepare(self, wanted: SqlTable) -> _StoredTable:
        name = name_of(wanted.table.name)
        if not self._execute("SELECT to_regclass(%s) IS NOT NULL", [name.quoted]).fetchall()[0][0]:
            if name.schema != DEFAULT_SCHEMA:
                self._execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(name.schema)}")
            columns = ", ".join(f"{quoted(column)} {_TYPES[kind]}" for column, kind in wanted.columns.items())
            self._execute(f"CREATE TABLE {name.quoted} ({columns}, PRIMARY KEY ({listed(wanted.key)}))")
        key = [column for (column,) in self._execute(_KEY, [name.quoted]).fetchall()]
        if key != list(wanted.key):
            raise ValueError(f"it has the primary key ({', '.join(key)}), and the replica needs ({', '.join(wanted.key)})")
        if triggers := [trigger for (trigger,) in self._execute(_TRIGGERS, [name.quoted]).fetchall()]:
            raise ValueError(
                f"its trigger {triggers[0]} would run for the rows of the replica, which have come with what it has done in the source:"
                f" ALTER TABLE {name.quoted} DISABLE TRIGGER {quoted(triggers[0])}"
            )
        there = dict(self._execute(_COLUMNS, [name.quoted]).fetchall())
        for column in wanted.columns:
            if column not in there:
                kind = _TYPES[wanted.columns[column]]
                self._execute(f"ALTER TABLE {name.quoted} ADD COLUMN {quoted(column)} {kind}")
                there[column] = kind
        return _StoredTable(wanted.table, there, sharded=self.sharded)

    def positions(self) -> Mapping[int, Position]:
        """By shard."""
        with self._transaction(), self._errors(positions.TABLE):
            found = self._execute(f"SELECT {listed(positions.COLUMNS)} FROM {_POSITIONS} WHERE changelog = %s", [self._changelog])
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
        gone = [(key, [shard, *key] if self.sharded else list(key)) for key, row in rows.items() if row is None]
        columns, prefix = list(known.table.columns), [shard] if self.sharded else []
        kept = [(key, [*prefix, *map(row.get, columns)]) for key, row in rows.items() if row is not None]
        for statement, names, these in ((known.delete, known.key, gone), (known.upsert, list(known.columns), kept)):
            if these:
                self._execute_all(known, statement, names, these)

    def _execute_all(self, known: _StoredTable, statement: str, names: Sequence[str], rows: Sequence[tuple[Key, Sequence[Value]]]) -> None:
        """In one statement; if it is refused, row by row, to name the one that is refused. There may be none: psycopg takes no array whose
        values are of different types, as they are before and after a column has got another one.
        """
        import psycopg

        kinds = [known.columns[name] for name in names]
        self._execute("SAVEPOINT portion")
        try:
            self._execute(statement, _arrays(kinds, [values for _, values in rows]))
        except (psycopg.DataError, psycopg.IntegrityError, psycopg.ProgrammingError, ValueError, ArithmeticError, TypeError):
            self._execute("ROLLBACK TO SAVEPOINT portion")
            for key, values in rows:
                with self._errors(known.table.name, key):
                    self._execute(statement, _arrays(kinds, [values]))
        self._execute("RELEASE SAVEPOINT portion")

    def _store(self, shard: int, position: Position) -> None:
        with self._errors(positions.TABLE):
            values = positions.to_columns(self._changelog, shard, position)
            changed = ", ".join(f"{name} = excluded.{name}" for name in positions.COLUMNS if name not in positions.KEY)
            marks = ", ".join(["%s"] * len(values))
            self._execute(
                f"INSERT INTO {_POSITIONS} VALUES ({marks}) ON CONFLICT ({listed(positions.KEY)}) DO UPDATE SET {changed}", values
            )

    def clear(self, shard: int, position: Position) -> None:
        """Remove the rows of a shard."""
        with self._transaction():
            for name, known in self._tables.items():
                condition, parameters = known.where(shard, WHOLE)
                with self._errors(name):
                    self._execute(f"DELETE FROM {known.name.replace('%', '%%')} WHERE {condition}", parameters)
            self._store(shard, position)

    def checksum(self, shard: int, table: str, rows: KeyRange = WHOLE) -> Checksum:
        """Over a range."""
        return checksum_of(row for _, row in self._read(shard, table, rows))

    def middle(self, shard: int, table: str, rows: KeyRange) -> Key | None:
        """The key in the middle."""
        known = self._known(table)
        with self._transaction(), self._errors(table):
            condition, parameters = known.where(shard, rows)
            of_range = f"FROM {known.name.replace('%', '%%')} WHERE {condition}"
            count = self._execute(f"SELECT count(*) {of_range}", parameters).fetchall()[0][0]
            if count < 2:
                return None
            order = f"ORDER BY {known.order} LIMIT 1 OFFSET {count // 2}".replace("%", "%%")
            (middle,) = self._execute(f"SELECT {known.selected_key.replace('%', '%%')} {of_range} {order}", parameters).fetchall()
            known.check_bound(middle)
            return tuple(middle)

    def rows(self, shard: int, table: str, rows: KeyRange) -> Sequence[tuple[Key, Row]]:
        """By key."""
        return list(self._read(shard, table, rows))

    def _read(self, shard: int, table: str, rows: KeyRange) -> Iterator[tuple[Key, Row]]:
        known = self._known(table)
        names, key = list(known.table.columns), known.table.key
        with self._transaction(), self._errors(table):
            condition, parameters = known.where(shard, rows)
            selected, name, order = (part.replace("%", "%%") for part in (known.selected, known.name, known.order))
            assert self._connection is not None
            with self._connection.cursor(name="moldau_rows") as cursor:
                cursor.itersize = _ROWS
                cursor.execute(f"SELECT {selected} FROM {name} WHERE {condition} ORDER BY {order}".encode(), parameters)
                for values in cursor:
                    row = dict(zip(names, values, strict=True))
                    yield tuple(row[column] for column in key), row

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _execute(self, statement: str, parameters: Sequence[Any] | None = None) -> Any:
        assert self._connection is not None, "inside of a transaction"
        return self._connection.execute(statement.encode(), parameters)

    def _known(self, table: str) -> _StoredTable:
        known = self._tables.get(table)
        if known is None:
            raise StoreError(f"{self._subject(table)}: it is not one of the replica's", retriable=False)
        return known

    def _subject(self, table: str = "", key: Key | None = None) -> str:
        return self._server.name + (f", table {table}" if table else "") + (f", key {key!r}" if key is not None else "")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Over a new connection if the last one was lost."""
        if self._connection is None or self._connection.closed:
            try:
                self._connection = self._server.connect("moldau replica")
            except WorldError as error:
                raise StoreError(str(error), retriable=error.retriable) from error
        with self._errors(), self._connection.transaction():
            yield

    @contextmanager
    def _errors(self, table: str = "", key: Key | None = None) -> Iterator[None]:
        import psycopg

        try:
            yield
        except psycopg.Error as error:
            translated = self._server.translation(error)
            raise StoreError(f"{self._subject(table, key)}: {one_line(error)}", retriable=isinstance(translated, WorldError)) from error
        except (ValueError, ArithmeticError, TypeError) as error:
            raise StoreError(f"{self._subject(table, key)}: {error}", retriable=False) from error


_POSITIONS: Final = TableName(DEFAULT_SCHEMA, positions.TABLE).quoted


def _arrays(kinds: Sequence[str], rows: Sequence[Sequence[Value]]) -> list[list[Value]]:
    """Of each column its values."""
    arrays = [list(column) for column in zip(*rows, strict=True)]
    for place, kind in enumerate(kinds):
        convert = _CONVERTED.get(kind)
        if convert is not None:
            arrays[place] = [None if value is None else convert(value) for value in arrays[place]]
    return arrays
