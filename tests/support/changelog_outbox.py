"""What the outbox of a database says, without a log."""

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path

from moldau.changelog.sqlite.connecting import connect, writing
from moldau.changelog.sqlite.installing import install, registered
from moldau.changelog.sqlite.outbox import commit_of, forget, installed_state, seal, sealed_commits
from moldau.changelog.sqlite.rows import publish_next_rows
from moldau.changelog.values import Change, Commit, Key, Op, Row

Rows = dict[Key, dict[str, object]]


def database_with(path: Path, *statements: str, tables: Sequence[str] | None = None) -> sqlite3.Connection:
    """A database that is published, with these tables, and with no rows."""
    database = connect(path, 5.0)
    for each in statements:
        database.execute(each)
    install(database, "shop", 0, tables)
    while publish_next_rows(database):
        pass
    drain(database)
    return database


def commits(database: sqlite3.Connection) -> list[Commit]:
    """All that is in the outbox, sealed."""
    with writing(database):
        seal(database)
    schemas, state = registered(database), installed_state(database)
    return [
        commit._replace(changes=list(commit.changes))
        for commit in (commit_of(database, state, each, schemas) for each in sealed_commits(database, 0, 1_000_000))
    ]


def drain(database: sqlite3.Connection) -> list[Change]:
    """The changes since the last call."""
    found = [change for commit in commits(database) for change in commit.changes]
    with writing(database):
        forget(database, installed_state(database).sealed)
    return found


def apply(rows: dict[str, Rows], changes: Iterable[Change]) -> dict[str, Rows]:
    """As a replica does."""
    for change in changes:
        table = rows.setdefault(change.table, {})
        if change.op is Op.DELETE:
            table.pop(change.key, None)
        else:
            assert change.after is not None
            table[change.key] = dict(change.after)
    return rows


def rows_of(database: sqlite3.Connection, table: str, key: Sequence[str]) -> Rows:
    """What a table has."""
    cursor = database.execute(f'SELECT * FROM "{table}"')
    names = [each[0] for each in cursor.description]
    found: list[Row] = [dict(zip(names, values, strict=True)) for values in cursor]
    return {tuple(row[name] for name in key): dict(row) for row in found}
