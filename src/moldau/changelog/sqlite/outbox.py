"""The outbox: sealing what is committed in it as commits, reading them, and deleting those that the log has."""

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, overload

from moldau.changelog.sqlite.errors import SourceError
from moldau.changelog.sqlite.installing import Registered
from moldau.changelog.sqlite.layout import State, read_state
from moldau.changelog.values import Change, Commit, Key, Op, Row, Value

_CHUNK: Final = 1_000
"""Rows of the outbox that are read at a time."""
STORE, READING = "store", "reading"
"""In the `source` of commits: the name of the database, and how many tables the log does not have as they are: their rows are not published
completely, or it has rows that were deleted."""


class Sealed(NamedTuple):
    """A commit of the outbox that is not known to be in the log."""

    number: int
    epoch: int
    time_ms: int
    after_id: int
    """Its rows come after this one."""
    last_id: int
    reading: int
    """Tables that were not published completely then, or not repaired."""

    @property
    def rows(self) -> int:
        """About how many it has: numbers of rows may have gaps."""
        return self.last_id - self.after_id


def seal(database: sqlite3.Connection, *, empty: bool = False) -> int | None:
    """Make one commit of all rows of the outbox that are in none; its number, None without such rows unless it may be `empty`.

    In the caller's transaction.
    """
    state = installed_state(database)
    (last_id,) = database.execute("SELECT max(id) FROM _changelog_outbox").fetchone()
    if last_id is None or last_id <= state.sealed_id:
        if not empty:
            return None
        last_id = state.sealed_id
    incomplete = "(SELECT count(*) FROM _changelog_reading) + (SELECT count(*) FROM _changelog_repairing)"
    (reading,) = database.execute(f"SELECT {incomplete}").fetchone()
    database.execute(
        "INSERT INTO _changelog_commits (number, epoch, time_ms, after_id, last_id, reading) VALUES (?, ?, ?, ?, ?, ?)",
        (state.sealed + 1, state.epoch, time.time_ns() // 1_000_000, state.sealed_id, last_id, reading),
    )
    database.execute("UPDATE _changelog_state SET sealed = ?, sealed_id = ?", (state.sealed + 1, last_id))
    return state.sealed + 1


def unsealed(database: sqlite3.Connection) -> bool:
    """Whether there are rows in no commit."""
    row = database.execute("SELECT 1 FROM _changelog_outbox WHERE id > (SELECT sealed_id FROM _changelog_state) LIMIT 1").fetchone()
    return row is not None


def sealed_commits(database: sqlite3.Connection, after: int, limit: int) -> list[Sealed]:
    """Commits that come after the one with this number, in order."""
    query = "SELECT number, epoch, time_ms, after_id, last_id, reading FROM _changelog_commits WHERE number > ? ORDER BY number LIMIT ?"
    rows = database.execute(query, (after, limit))
    return [Sealed(*row) for row in rows]


def commit_of(
    database: sqlite3.Connection, state: State, sealed: Sealed, schemas: Mapping[int, Registered], source: Mapping[str, str | int] = {}
) -> Commit:
    """The commit, whose changes are read from the outbox each time that they are iterated over. Its `source` has more than that."""
    source = {STORE: state.store, **source}
    if sealed.reading:
        source[READING] = sealed.reading
    return Commit(state.shard, sealed.epoch, sealed.number, sealed.time_ms, OutboxChanges(database, sealed, schemas), source)


def forget(database: sqlite3.Connection, up_to: int) -> None:
    """Delete commits that are in the log, up to this number, and their rows. In the caller's transaction."""
    (last_id,) = database.execute("SELECT max(last_id) FROM _changelog_commits WHERE number <= ?", (up_to,)).fetchone()
    if last_id is not None:
        database.execute("DELETE FROM _changelog_outbox WHERE id <= ? AND id < (SELECT max(id) FROM _changelog_outbox)", (last_id,))
        database.execute("DELETE FROM _changelog_commits WHERE number <= ?", (up_to,))


def changes_left(database: sqlite3.Connection) -> int:
    """Changes that are not known to be in the log."""
    first = "coalesce((SELECT min(after_id) FROM _changelog_commits), (SELECT sealed_id FROM _changelog_state))"
    (count,) = database.execute(f"SELECT count(*) FROM _changelog_outbox WHERE id > {first}").fetchone()
    return int(count)


def installed_state(database: sqlite3.Connection) -> State:
    """SourceError for a database that is not the source of a changelog."""
    state = read_state(database)
    if state is None:
        raise SourceError("the database is not the source of a changelog: install it first")
    return state


class OutboxChanges(Sequence[Change]):
    """The changes of one commit."""

    def __init__(self, database: sqlite3.Connection, sealed: Sealed, schemas: Mapping[int, Registered]) -> None:
        self._database = database
        self._sealed = sealed
        self._schemas = schemas

    def __iter__(self) -> Iterator[Change]:
        """In the order in which they were made; a change of the primary key is a deletion and a creation."""
        after = self._sealed.after_id
        while True:
            rows = self._rows(after)
            for row in rows:
                yield from changes_of(self._schemas[row[1]], row[2], row[3:])
            if len(rows) < _CHUNK:
                return
            after = rows[-1][0]

    def _rows(self, after: int) -> list[tuple[Any, ...]]:
        """Text that is not UTF-8 has lone surrogates for its bytes."""
        query = "SELECT * FROM _changelog_outbox WHERE id > ? AND id <= ? ORDER BY id LIMIT ?"
        bounds = (after, self._sealed.last_id, _CHUNK)
        try:
            return self._database.execute(query, bounds).fetchall()
        except sqlite3.OperationalError as error:
            if "decode" not in str(error):
                raise
        self._database.text_factory = _escaped
        try:
            return self._database.execute(query, bounds).fetchall()
        finally:
            self._database.text_factory = str

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @overload
    def __getitem__(self, index: int) -> Change: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Change]: ...

    def __getitem__(self, index: int | slice) -> Change | Sequence[Change]:
        if isinstance(index, int) and index >= 0:
            for found in islice(self, index, None):
                return found
            raise IndexError(index)
        return list(self)[index]


def changes_of(schema: Registered, op: str, values: Sequence[Value]) -> Iterator[Change]:
    """What a row of the outbox says."""
    names, table = schema.columns, schema.table
    count = len(names)
    first: Row = dict(zip(names, values[:count], strict=True))
    match op:
        case "c" | "r":
            yield Change(table.name, Op(op), _key(table.key, first), None, first)
        case "k":  # a row that only the log has
            yield Change(table.name, Op.DELETE, _key(table.key, first), None, None)
        case "d":
            yield Change(table.name, Op.DELETE, _key(table.key, first), first, None)
        case _:
            second: Row = dict(zip(names, values[count : 2 * count], strict=True))
            before, after = _key(table.key, first), _key(table.key, second)
            if _same(before, after):
                yield Change(table.name, Op.UPDATE, after, first, second)
            else:
                yield Change(table.name, Op.DELETE, before, first, None)
                yield Change(table.name, Op.CREATE, after, None, second)


def _key(columns: Sequence[str], row: Row) -> Key:
    return tuple(row[name] for name in columns)


def _same(left: Key, right: Key) -> bool:
    """1 and 1.0 are different values, as they are in the log."""
    return left == right and [*map(type, left)] == [*map(type, right)]


def _escaped(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")
