"""What the schema of an SQLite database says of a table that is to be published."""

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from moldau.changelog.naming import table_topic
from moldau.changelog.sqlite.errors import SourceError
from moldau.changelog.values import Table

OURS: Final = "_changelog_"
"""Names of our tables and triggers begin with it."""
DECIMAL: Final = "DECIMAL_BLOB"
"""How a replica declares decimals: without an affinity, so that their digits stay as they are."""
ANY: Final = "ANY_BLOB"
"""How a replica declares a column that has values of several types: without an affinity."""
_NO_TABLES: Final = {"view": "a view", "virtual": "a virtual table", "shadow": "part of a virtual table"}
_COLUMNS: Final = 'SELECT name, type, "notnull", pk FROM pragma_table_xinfo(?) WHERE hidden <> 1 ORDER BY cid'


@dataclass(frozen=True, slots=True)
class UniqueIndex:
    """Columns of which no two rows have the same values, with the collations by which they are compared; columns of the index that are
    expressions are left out, and so is the condition of a partial one: rows that conflict are among those that are equal here.
    """

    columns: tuple[tuple[str, str], ...]
    of_key: bool = False
    """It is that of the primary key, by which values may be equal that are different in the log ('a' and 'A', 1 and 1.0)."""


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table, its columns in their order."""

    name: str
    columns: tuple[tuple[str, str], ...]
    """Names and types, in the words of `moldau.changelog.values.Table`."""
    key: tuple[tuple[str, str], ...]
    """Columns of the primary key in its order, with their collations."""
    nullable_key: tuple[str, ...]
    """Columns of the key in which SQLite allows NULL."""
    unique: tuple[UniqueIndex, ...]
    """`REPLACE` may delete rows with other keys because of them. The primary key is one if equal keys may be different in the log."""

    @property
    def exact_key(self) -> bool:
        """Whether no keys are equal that are different in the log."""
        return not any(index.of_key for index in self.unique)

    @property
    def table(self) -> Table:
        """As a replica has to know it."""
        return Table(self.name, dict(self.columns), tuple(name for name, _ in self.key))


def quoted(name: str) -> str:
    """A name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def ordinary_tables(database: sqlite3.Connection) -> list[str]:
    """Tables that are published where none are named: all but those whose names begin with an underscore, virtual ones and SQLite's own."""
    rows = database.execute("SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' ORDER BY name")
    return [name for (name,) in rows if not name.startswith(("_", "sqlite_"))]


def source_table(database: sqlite3.Connection, changelog: str, name: str) -> SourceTable:
    """The table of that name. SourceError for one that cannot be published."""
    found = database.execute("SELECT name, type, wr FROM pragma_table_list WHERE schema = 'main' AND name = ? COLLATE NOCASE", (name,))
    row = found.fetchone()
    if row is None:
        raise SourceError(f"changelog {changelog}: there is no table {name}")
    exact, kind, without_rowid = row
    if kind != "table" or exact.startswith((OURS, "sqlite_")):
        what = _NO_TABLES.get(kind, "a table of SQLite or of a changelog")
        raise SourceError(f"changelog {changelog}: {exact} is {what}, which has no triggers; publish ordinary tables")
    table_topic(changelog, exact)
    rows = database.execute(_COLUMNS, (exact,)).fetchall()
    key = [(column, kind, not_null) for column, kind, not_null, place in sorted(rows, key=lambda each: each[3]) if place]
    if not key:
        raise SourceError(
            f"changelog {changelog}: table {exact} has no primary key, by which rows are known in the log; give it one, or name the tables"
            " that are published"
        )
    indexes = database.execute('SELECT name, origin FROM pragma_index_list(?) WHERE "unique" = 1 ORDER BY name', (exact,)).fetchall()
    key_index = next((index for index, origin in indexes if origin == "pk"), None)
    collations = {} if key_index is None else dict(_indexed(database, key_index))
    is_rowid = len(key) == 1 and key_index is None and not without_rowid
    unique = [_unique(database, changelog, exact, index) for index, origin in indexes if origin != "pk"]
    columns = tuple((column, type_of(kind)) for column, kind, *_ in rows)
    key_columns = tuple((column, collations.get(column, "BINARY")) for column, *_ in key)
    if not is_rowid and not _is_exact(collations, key):
        unique.append(UniqueIndex(key_columns, of_key=True))
    if not is_rowid and not without_rowid:
        unique += _rowid({column.lower() for column, *_ in rows})
    return SourceTable(
        exact,
        columns,
        key_columns,
        () if is_rowid or without_rowid else tuple(column for column, _, not_null in key if not not_null),
        tuple(unique),
    )


def _is_exact(collations: Mapping[str, str], key: Iterable[tuple[str, str, int]]) -> bool:
    """Whether equal keys are the same: a collation or a column without an affinity may have others."""
    return all(
        collations.get(name, "BINARY") == "BINARY" and type_of(kind) != "bytes" and kind.upper() not in (ANY, DECIMAL)
        for name, kind, _ in key
    )


def _indexed(database: sqlite3.Connection, index: str) -> list[tuple[str, str]]:
    """Columns of an index, with their collations."""
    rows = database.execute("SELECT name, coll FROM pragma_index_xinfo(?) WHERE key = 1 AND name IS NOT NULL ORDER BY seqno", (index,))
    return rows.fetchall()


def _unique(database: sqlite3.Connection, changelog: str, table: str, index: str) -> UniqueIndex:
    columns = _indexed(database, index)
    if not columns:
        raise SourceError(
            f"changelog {changelog}: table {table} has a unique index of expressions only, {index}: which rows REPLACE deletes"
            " because of it cannot be seen by triggers; use a generated column with a unique index"
        )
    return UniqueIndex(tuple(columns))


def _rowid(columns: set[str]) -> list[UniqueIndex]:
    """Of a table with a key of its own: rows may be replaced by the number that SQLite gives them, too, if it can be named."""
    names = [each for each in ("rowid", "oid", "_rowid_") if each not in columns]
    return [UniqueIndex(((names[0], "BINARY"),))] if names else []


def type_of(declared: str) -> str:
    """The type of a column by the one that it is declared with, in the words of `moldau.changelog.values.Table`.

    SQLite stores any value in any column; the rules are those of its affinities, and where that is NUMERIC the name decides.
    """
    upper = declared.upper()
    if upper in (ANY, DECIMAL):
        return "any" if upper == ANY else "decimal"
    if "INT" in upper:
        return "integer"
    if any(each in upper for each in ("CHAR", "CLOB", "TEXT")):
        return "text"
    if "BLOB" in upper or not upper or upper == "ANY":
        return "bytes"
    if any(each in upper for each in ("REAL", "FLOA", "DOUB")):
        return "real"
    if "BOOL" in upper:
        return "integer"
    if any(each in upper for each in ("DATE", "TIME")):
        return "any"  # text, or a number, as its writers like it
    return "decimal"
