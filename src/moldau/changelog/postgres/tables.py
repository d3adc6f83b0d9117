"""Tables of PostgreSQL as a changelog has them: names, columns and key out of the server's catalog, and rows out of its text format."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from moldau.changelog.columns import key_text
from moldau.changelog.postgres.errors import TableError
from moldau.changelog.postgres.pgoutput import Column, Columns, Relation
from moldau.changelog.postgres.text_values import Parser, parser_of, type_of
from moldau.changelog.stores.sql import quoted
from moldau.changelog.values import Key, Row, Table, Value

DEFAULT_SCHEMA: Final = "public"
FULL: Final = "f"
"""Of the replica identities: the whole row is logged before each change of it."""
BY_KEY: Final = "d"


ColumnDescription = tuple[str, str, int, int]
"""Name, type in the changelog, OID of the type in the database, and its modifier."""


class TableName(NamedTuple):
    """Of a table in a database."""

    schema: str
    relation: str

    @property
    def published(self) -> str:
        """In the changelog: without the schema `public`."""
        return self.relation if self.schema == DEFAULT_SCHEMA else f"{self.schema}.{self.relation}"

    @property
    def quoted(self) -> str:
        """In SQL."""
        return f"{quoted(self.schema)}.{quoted(self.relation)}"


class CatalogTable(NamedTuple):
    """What the server's catalog has of a table now."""

    name: TableName
    kind: str
    """`r` an ordinary table, `p` a partitioned one, and so on."""
    identity: str
    """See `moldau.changelog.postgres.pgoutput.Relation`."""
    columns: Sequence[Column]
    """Without those that are generated, which are not in the stream."""
    key: Sequence[str]
    numbers: Mapping[str, int]
    """Of the columns: a column that is dropped and added again has another one."""
    file: int
    """In which its rows are: another one after a TRUNCATE, and after an ALTER that writes all rows again."""
    is_deferrable: bool
    """The primary key: it is checked at the end of a statement or transaction, and not for each row."""


def name_of(text: str) -> TableName:
    """Of a table as it is named to us: `orders`, or `sales.orders`."""
    schema, dot, relation = text.rpartition(".")
    return TableName(schema if dot else DEFAULT_SCHEMA, relation)


class TableView:
    """How the rows of one table are read: by its columns at one time.

    `as_text` are columns whose values are text, as PostgreSQL writes them, whatever their type is. TableError.
    """

    def __init__(self, name: TableName, columns: Sequence[Column], key: Sequence[str], as_text: Collection[str] = ()) -> None:
        self.name = name
        types = {column.name: "text" if column.name in as_text else type_of(column.type_oid) for column in columns}
        self.table = Table(name.published, types, tuple(key))
        self.described: Sequence[ColumnDescription] = [
            (column.name, types[column.name], column.type_oid, column.modifier) for column in columns
        ]
        if missing := [column for column in key if column not in types]:
            raise TableError(f"table {name.published}: column {missing[0]} of the primary key is not published (is it generated?)")
        self._columns: list[tuple[str, Parser]] = [(column, parser_of(kind)) for column, kind in types.items()]
        self._key = tuple(key)

    @classmethod
    def of_catalog(cls, found: CatalogTable, as_text: Collection[str] = ()) -> "TableView":
        """As a table is now."""
        return cls(found.name, found.columns, found.key, as_text)

    @classmethod
    def of_relation(cls, relation: Relation, key: Sequence[str], as_text: Collection[str] = ()) -> "TableView":
        """As the stream says that a table was from a change on. TableError if its primary key was another one then."""
        name = TableName(relation.schema, relation.name)
        identity = {column.name for column in relation.columns if column.is_identity}
        if relation.identity not in (FULL, BY_KEY):
            raise TableError(
                f"table {name.published}: its replica identity was changed, and does not have the primary key any more;"
                f" ALTER TABLE {name.quoted} REPLICA IDENTITY FULL, and publish again (republish)"
            )
        if not identity.issuperset(key) or (relation.identity == BY_KEY and identity != set(key)):
            columns = ", ".join(sorted(identity)) or "none"
            raise TableError(
                f"table {name.published}: its primary key was changed: it was {', '.join(key)}, and is of {columns};"
                " the key of a changelog's topic cannot change: publish under another name"
            )
        return cls(name, relation.columns, key, as_text)

    def key_of(self, row: Row) -> Key:
        """Of a row."""
        return tuple([row[column] for column in self._key])

    def record_key(self, key: Key) -> str:
        """The key of the row's records. Keys that Python finds equal may have different ones: decimals 1.0 and 1.00, reals 0.0 and -0.0."""
        return key_text(self._key, key)

    def key_in(self, columns: Columns) -> Key:
        """Of a row of which only the key is known; the other columns are NULL then."""
        return self.key_of(self.row(columns))

    def row(self, columns: Columns, before: Row | None = None) -> Row:
        """A row; values that were not sent since they have not changed are those of `before`.

        TableError names the column with a value that Python's type does not have, or that was not sent and is not known.
        """
        row: dict[str, Value] = {}
        try:
            for (name, parse), text in zip(self._columns, columns, strict=True):
                if type(text) is bytes:
                    row[name] = parse(text)
                elif text is None:
                    row[name] = None
                else:
                    row[name] = self._unchanged(name, columns, before)
        except (ValueError, ArithmeticError) as error:
            raise self._unreadable(columns, error) from error
        return row

    def _unchanged(self, name: str, columns: Columns, before: Row | None) -> Value:
        if before is None:
            raise TableError(
                f"{self._where(columns)}: column {name} is stored out of line (TOAST) and was not changed, so it was not sent,"
                f" and the row before is not known: ALTER TABLE {self.name.quoted} REPLICA IDENTITY FULL, and publish again (republish)"
            )
        return before[name]

    def _unreadable(self, columns: Columns, error: Exception) -> TableError:
        for (name, parse), text in zip(self._columns, columns, strict=False):
            if isinstance(text, bytes):
                try:
                    parse(text)
                except (ValueError, ArithmeticError) as reason:
                    return TableError(
                        f"{self._where(columns)}: column {name} has a value that type {self.table.columns[name]} of changelogs lacks,"
                        f" {text[:100].decode(errors='replace')!r} ({reason}); publish it as text (as_text = {self.table.name}.{name})"
                    )
        return TableError(f"table {self.table.name}: a row has {len(columns)} columns, the table {len(self._columns)}: {error}")

    def _where(self, columns: Columns) -> str:
        texts = {name: text for (name, _), text in zip(self._columns, columns, strict=False) if isinstance(text, bytes)}
        key = ", ".join(texts.get(name, b"?").decode(errors="replace") for name in self._key)
        return f"table {self.table.name}, key {key}"
