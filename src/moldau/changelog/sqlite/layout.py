"""Our tables in a database that is published, and its state.

* ``_changelog_state``: one row: changelog, shard, epoch; `sealed`, the number of the last commit, and `sealed_id`, the last row of the
  outbox that is part of a commit; `store`, a name that no other database has.
* ``_changelog_tables``: each published table, once for each schema that it has had; rows of the outbox name the one that they are of.
* ``_changelog_outbox``: changes, in the order in which they were made. `v0`, `v1`, ... are the columns of the row, before the change and
  then after it; they have no types, so values are kept as they are. The last row is never deleted, so that no number is given out again:
  AUTOINCREMENT would, after a statement that has ended with ``OR FAIL``.
* ``_changelog_commits``: commits that are not yet known to be in the log, each with the numbers of its rows of the outbox.
* ``_changelog_reading``: tables whose rows are still to be published; if that has begun, after the key `v0`, `v1`, ...
* ``_changelog_repairing``: tables of which the log may have rows that the table does not have, until deletions of these are in the outbox.
* ``_changelog_replaced``: rows that a statement under way may replace.
* ``_changelog_selected``: tables that were named at a start, so that a start without names does not publish others.
"""

import sqlite3
import uuid
from typing import Final, NamedTuple

from moldau.changelog.sqlite.errors import SourceError
from moldau.changelog.sqlite.schema import OURS, quoted

FORMAT: Final = 1
_TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS _changelog_state (
        id INTEGER PRIMARY KEY CHECK (id = 1), format INTEGER NOT NULL, changelog TEXT NOT NULL, shard INTEGER NOT NULL,
        epoch INTEGER NOT NULL, sealed INTEGER NOT NULL, sealed_id INTEGER NOT NULL, store TEXT NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS _changelog_tables (
        id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, columns TEXT NOT NULL, key TEXT NOT NULL, current INTEGER NOT NULL)""",
    "CREATE TABLE IF NOT EXISTS _changelog_outbox (id INTEGER PRIMARY KEY, t INTEGER NOT NULL, op TEXT NOT NULL)",
    """CREATE TABLE IF NOT EXISTS _changelog_commits (
        number INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, time_ms INTEGER NOT NULL, after_id INTEGER NOT NULL,
        last_id INTEGER NOT NULL, reading INTEGER NOT NULL)""",
    "CREATE TABLE IF NOT EXISTS _changelog_reading (name TEXT PRIMARY KEY, begun INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS _changelog_repairing (name TEXT PRIMARY KEY)",
    "CREATE TABLE IF NOT EXISTS _changelog_replaced (t INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS _changelog_selected (name TEXT PRIMARY KEY)",
)


class State(NamedTuple):
    """What the database says of its changelog."""

    changelog: str
    shard: int
    epoch: int
    sealed: int
    sealed_id: int
    store: str


def make_tables(database: sqlite3.Connection) -> None:
    """In the caller's transaction."""
    for statement in _TABLES:
        database.execute(statement)


def is_source(database: sqlite3.Connection) -> bool:
    """Whether the database has our tables."""
    return database.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '_changelog_state'").fetchone() is not None


def remove(database: sqlite3.Connection) -> None:
    """Drop our triggers and tables: the database is no source any more. In the caller's transaction."""
    for kind in ("trigger", "table"):
        found = database.execute("SELECT name FROM sqlite_master WHERE type = ?", (kind,)).fetchall()
        for (name,) in found:
            if name.startswith(OURS):
                database.execute(f"DROP {kind} {quoted(name)}")


def widen(database: sqlite3.Connection, table: str, columns: int) -> None:
    """See that a table of ours has so many columns for values."""
    found = {name for _, name, *_ in database.execute(f"PRAGMA table_info({table})")}
    for number in range(columns):
        if f"v{number}" not in found:
            database.execute(f"ALTER TABLE {table} ADD COLUMN v{number}")


def read_state(database: sqlite3.Connection) -> State | None:
    """None before a changelog is installed. SourceError for a later format."""
    if not is_source(database):
        return None
    row = database.execute("SELECT format, changelog, shard, epoch, sealed, sealed_id, store FROM _changelog_state").fetchone()
    if row is None:
        return None
    if row[0] != FORMAT:
        raise SourceError(f"changelog {row[1]}: the outbox has format {row[0]}, and this version knows {FORMAT}: a later one has made it")
    return State(*row[1:])


def make_state(database: sqlite3.Connection, changelog: str, shard: int, epoch: int, sealed: int) -> State:
    """In the caller's transaction."""
    state = State(changelog, shard, epoch, sealed, 0, uuid.uuid4().hex)
    database.execute(
        "INSERT INTO _changelog_state (id, format, changelog, shard, epoch, sealed, sealed_id, store) VALUES (1, ?, ?, ?, ?, ?, ?, ?)",
        (FORMAT, *state),
    )
    return state
