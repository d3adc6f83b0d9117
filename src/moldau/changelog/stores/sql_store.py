"""A replica in a database that has SQL: what SQLite, DuckDB and PostgreSQL do alike. What each does otherwise are methods."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar, Generic, TypeVar

from moldau.changelog import positions
from moldau.changelog.points import reached
from moldau.changelog.row_hash import checksum_of
from moldau.changelog.store import SHARD_COLUMN, WHOLE, Checksum, KeyRange, Position, StoreError
from moldau.changelog.stores.folding import PORTION, folded
from moldau.changelog.stores.sql import SqlTable, listed, quoted
from moldau.changelog.values import Change, Key, Row, Table, Value

KeyedValues = tuple[Key, list[Any]]
"""A key, and values for the columns of a statement: those of the whole row, or of the key in the store."""
T = TypeVar("T", bound=SqlTable)


class SqlStore(ABC, Generic[T]):
    """See `moldau.changelog.store.ReplicaStore`."""

    types: ClassVar[Mapping[str, str]]
    """How columns of each type are declared."""
    failures: tuple[type[Exception], ...]
    """What the database raises, and what its client does for a value that it does not take."""
    portion: ClassVar[int] = PORTION
    """So many changes are applied together."""
    positions_table: ClassVar[str] = positions.TABLE

    def __init__(self, name: str, *, sharded: bool) -> None:
        self.sharded = sharded
        self.name = name
        """For messages."""
        self._changelog = ""
        self._tables: dict[str, T] = {}

    # What databases do otherwise

    @abstractmethod
    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Sequence[tuple[Any, ...]]:
        """All rows of the answer. It may raise one of the `failures`."""

    @abstractmethod
    def read(self, statement: str, parameters: Sequence[Any]) -> Iterator[Sequence[Any]]:
        """Rows of the answer, not all of them in memory; inside of `reading`."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """StoreError where it cannot begin or end."""

    @abstractmethod
    def table(self, table: Table) -> T:
        """As it is in the database. It may not be there yet."""

    @abstractmethod
    def found(self, wanted: T) -> tuple[Sequence[str], Sequence[str]]:
        """The columns that a table has, none if it is not there; and those of its primary key."""

    @abstractmethod
    def upsert(self, known: T, rows: Sequence[KeyedValues]) -> None:
        """Write rows, also those that are there. StoreError names the key."""

    @abstractmethod
    def delete(self, known: T, keys: Sequence[KeyedValues]) -> None:
        """Delete the rows that are there."""

    @abstractmethod
    def may_pass(self, error: Exception) -> bool:
        """Whether the same might succeed later."""

    def reading(self) -> AbstractContextManager[None]:
        """Around statements that read."""
        return self.errors()

    def value(self, kind: str, found: Any) -> Value:
        """What a column of this type has, of what the client returns."""
        return found  # type: ignore[no-any-return]

    def reason(self, error: Exception) -> str:
        """One of the `failures` in words."""
        return str(error)

    def begin_again(self) -> None:
        """In the transaction in which a shard's rows are removed."""

    def same(self, name: str) -> str:
        """Names of columns that are the same for the database."""
        return name.lower()

    # What they do alike

    def look(self, changelog: str, tables: Sequence[Table] = ()) -> Mapping[int, Position]:
        """See ReplicaStore."""
        self._changelog = changelog
        with self.reading(), self.errors():
            known = [self.table(table) for table in tables]
            self.sharded = any(SHARD_COLUMN in self.found(each)[0] for each in known)
            self._tables = {table.name: self.table(table) for table in tables}
            is_replica = bool(self.found(self.table(Table(positions.TABLE, positions.COLUMNS, positions.KEY)))[0])
        return self.positions() if is_replica else {}

    def prepare(self, changelog: str, tables: Sequence[Table]) -> None:
        """Make tables, and columns that they have got."""
        self._changelog = changelog
        prepared = {}
        with self.transaction():
            with self.errors(positions.TABLE):
                columns = ", ".join(f"{quoted(name)} {self.types[kind]} NOT NULL" for name, kind in positions.COLUMNS.items())
                self.execute(f"CREATE TABLE IF NOT EXISTS {self.positions_table} ({columns}, PRIMARY KEY ({listed(positions.KEY)}))")
            for table in tables:
                with self.errors(table.name):
                    prepared[table.name] = self.prepared(table)
        self._tables = prepared

    def prepared(self, table: Table) -> T:
        """A table, which is made if it is not there. ValueError for one with another primary key."""
        wanted = self.table(table)
        there, key = self.found(wanted)
        if not there:
            columns = ", ".join(
                f"{quoted(name)} {self.types[kind]}{' NOT NULL' if name in wanted.key else ''}" for name, kind in wanted.columns.items()
            )
            self.execute(f"CREATE TABLE {wanted.name} ({columns}, PRIMARY KEY ({listed(wanted.key)}))")
            return wanted
        if [*map(self.same, key)] != [*map(self.same, wanted.key)]:
            raise ValueError(f"it has the primary key ({', '.join(key)}), and the replica needs ({', '.join(wanted.key)})")
        have = {self.same(name) for name in there}
        for name, kind in wanted.columns.items():
            if self.same(name) not in have:
                self.execute(f"ALTER TABLE {wanted.name} ADD COLUMN {quoted(name)} {self.types[kind]}")
        return wanted

    def positions(self) -> Mapping[int, Position]:
        """By shard."""
        with self.reading(), self.errors(positions.TABLE):
            rows = self.execute(f"SELECT {listed(positions.COLUMNS)} FROM {self.positions_table} WHERE changelog = ?", [self._changelog])
            return dict(map(positions.from_columns, rows))

    def apply(self, shard: int, changes: Sequence[Change], position: Position) -> None:
        """Portion by portion, in one transaction."""
        with self.transaction():
            for tables in folded(changes, self.portion):
                for name, rows in tables.items():
                    known = self.known(name)
                    columns = list(known.table.columns)
                    gone = [(key, known.stored(shard, key)) for key, row in rows if row is None]
                    kept = [(key, known.stored(shard, [*map(row.get, columns)])) for key, row in rows if row is not None]
                    with self.errors(name):
                        if gone:
                            self.delete(known, gone)
                        if kept:
                            self.upsert(known, kept)
            reached("replica: rows written")
            self.store(shard, position)

    def store(self, shard: int, position: Position) -> None:
        """The position of a shard, in the transaction that is open."""
        values = positions.to_columns(self._changelog, shard, position)
        changed = ", ".join(f"{name} = excluded.{name}" for name in positions.COLUMNS if name not in positions.KEY)
        with self.errors(positions.TABLE):
            self.execute(
                f"INSERT INTO {self.positions_table} VALUES ({', '.join('?' * len(values))})"
                f" ON CONFLICT ({listed(positions.KEY)}) DO UPDATE SET {changed}",
                values,
            )

    def clear(self, shard: int, position: Position) -> None:
        """Remove the rows of a shard."""
        with self.transaction():
            with self.errors():
                self.begin_again()
            for name, known in self._tables.items():
                condition, parameters = known.of_shard(shard)
                with self.errors(name):
                    self.execute(f"DELETE FROM {known.name} WHERE {condition}", parameters)
            self.store(shard, position)

    def checksum(self, shard: int, table: str, rows: KeyRange = WHOLE) -> Checksum:
        """Over a range."""
        return checksum_of(row for _, row in self.scan(shard, table, rows))

    def middle(self, shard: int, table: str, rows: KeyRange) -> Key | None:
        """The key in the middle."""
        known = self.known(table)
        with self.reading(), self.errors(table):
            condition, parameters = known.in_range(shard, rows)
            of_range = f"FROM {known.name} WHERE {condition}"
            ((count,),) = self.execute(f"SELECT count(*) {of_range}", parameters)
            if count < 2:
                return None
            statement = f"SELECT {known.key_selected} {of_range} ORDER BY {known.order} LIMIT 1 OFFSET {count // 2}"
            (found,) = self.execute(statement, parameters)
            middle = tuple(self.value(known.table.columns[name], each) for name, each in zip(known.table.key, found, strict=True))
            known.check_bound(middle)
            return middle

    def rows(self, shard: int, table: str, rows: KeyRange) -> Sequence[tuple[Key, Row]]:
        """By key."""
        return list(self.scan(shard, table, rows))

    def scan(self, shard: int, table: str, rows: KeyRange) -> Iterator[tuple[Key, Row]]:
        """By key, not all of them in memory."""
        known = self.known(table)
        columns, key = list(known.table.columns.items()), known.table.key
        with self.reading(), self.errors(table):
            condition, parameters = known.in_range(shard, rows)
            statement = f"SELECT {known.all_selected} FROM {known.name} WHERE {condition} ORDER BY {known.order}"
            for values in self.read(statement, parameters):
                row = {name: self.value(kind, value) for (name, kind), value in zip(columns, values, strict=True)}
                yield tuple([row[name] for name in key]), row

    def known(self, table: str) -> T:
        """StoreError for a table that is not the replica's."""
        known = self._tables.get(table)
        if known is None:
            raise StoreError(f"{self.subject(table)}: it is not one of the replica's", retriable=False)
        return known

    def subject(self, table: str = "", key: Key | None = None) -> str:
        """For messages."""
        return self.name + (f", table {table}" if table else "") + (f", key {key!r}" if key is not None else "")

    @contextmanager
    def errors(self, table: str = "", key: Key | None = None) -> Iterator[None]:
        """Failures as StoreError."""
        try:
            yield
        except self.failures as error:
            raise StoreError(f"{self.subject(table, key)}: {self.reason(error)}", retriable=self.may_pass(error)) from error
