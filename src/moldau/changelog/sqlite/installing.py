"""Making a database the source of a changelog, and keeping its triggers in step with the schema."""

import json
import logging
import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from moldau.changelog import positions
from moldau.changelog.naming import check_changelog
from moldau.changelog.sqlite.connecting import writing
from moldau.changelog.sqlite.errors import SchemaChangedError, SourceError
from moldau.changelog.sqlite.layout import State, make_state, make_tables, read_state, widen
from moldau.changelog.sqlite.schema import OURS, SourceTable, ordinary_tables, quoted, source_table
from moldau.changelog.sqlite.triggers import index_of, notes_of, triggers_of
from moldau.changelog.store import Phase, Position
from moldau.changelog.values import Table

if TYPE_CHECKING:
    from moldau.changelog.envelope import CommitRecord

log = logging.getLogger(__name__)


class Registered(NamedTuple):
    """A schema that a published table has or had: rows of the outbox are of it."""

    number: int
    table: Table
    current: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """In the order of the values."""
        return tuple(self.table.columns)


def install(
    database: sqlite3.Connection,
    changelog: str,
    shard: int = 0,
    tables: Sequence[str] | None = None,
    *,
    promoted_after: "CommitRecord | None" = None,
) -> State:
    """Publish these tables from now on; None: those that were named before, or all whose names do not begin with an underscore. What is
    published already stays so.

    Rows that are there are published, too; not those of a replica that is promoted and has all up to the log's last commit,
    `promoted_after`: it continues after that with the next epoch. SourceError for a table that cannot be published, for a database that is
    the source of another changelog, and for a replica of this one that is not promoted, or is not at that commit.
    """
    check_changelog(changelog)
    with writing(database):
        make_tables(database)
        state = read_state(database)
        if state is not None and (state.changelog, state.shard) != (changelog, shard):
            raise SourceError(
                f"the database is the source of changelog {state.changelog}, shard {state.shard}, and cannot be that of changelog"
                f" {changelog}, shard {shard}"
            )
        if promoted_after is not None:
            state = _promote(database, changelog, shard, promoted_after, state)
        elif state is None:
            _check_no_replica(database, changelog, shard)
            state = make_state(database, changelog, shard, epoch=1, sealed=0)
        published = {each.table.name for each in registered(database).values() if each.current}
        for name in _selected(database, tables):
            table = source_table(database, changelog, name)
            if table.name not in published:
                _check_keys(database, changelog, table)
                _register(database, table)
                if promoted_after is None and database.execute(f"SELECT 1 FROM {quoted(table.name)} LIMIT 1").fetchone() is not None:
                    publish_rows(database, table.name)
                log.info("table is published: changelog=%s shard=%d table=%s", changelog, shard, table.name)
    return state


def _selected(database: sqlite3.Connection, named: Sequence[str] | None) -> Sequence[str]:
    """Those that are `named` now, all that were so far, or without any all that there are."""
    if named is not None:
        database.executemany("INSERT OR IGNORE INTO _changelog_selected (name) VALUES (?)", [(name,) for name in named])
        return named
    before = [name for (name,) in database.execute("SELECT name FROM _changelog_selected ORDER BY rowid")]
    return before or ordinary_tables(database)


def refresh(database: sqlite3.Connection) -> bool:
    """Bring triggers in step with the schema; whether something was different. In the caller's transaction.

    It comes before each commit is sealed, so that a commit which lacks something says that it is incomplete. A table whose columns are
    others now is published again: rows that were written since the change may lack the new ones. One with other unique indexes is repaired:
    rows that were replaced because of them may be in the log still.
    SchemaChangedError if it cannot be known which changes are missing.
    """
    state = read_state(database)
    assert state is not None, "installed"
    different = False
    for known in registered(database).values():
        if known.current:
            different |= _refresh(database, state.changelog, known)
    return different


def registered(database: sqlite3.Connection) -> dict[int, Registered]:
    """All schemas that rows of the outbox may be of, by number."""
    rows = database.execute("SELECT id, name, columns, key, current FROM _changelog_tables ORDER BY id")
    return {
        number: Registered(number, Table(name, dict(json.loads(columns)), tuple(json.loads(key))), bool(current))
        for number, name, columns, key, current in rows
    }


def publish_rows(database: sqlite3.Connection, table: str) -> None:
    """Publish all rows of a table, from the first on. In the caller's transaction."""
    database.execute("DELETE FROM _changelog_reading WHERE name = ?", (table,))
    database.execute("INSERT INTO _changelog_reading (name, begun) VALUES (?, 0)", (table,))


def repair_deletions(database: sqlite3.Connection, table: str) -> None:
    """Delete rows that only the log has, before it is complete again. In the caller's transaction."""
    database.execute("INSERT OR IGNORE INTO _changelog_repairing (name) VALUES (?)", (table,))


def _promote(database: sqlite3.Connection, changelog: str, shard: int, last: "CommitRecord", before: State | None) -> State:
    """Its first commit has no changes, and says that the epoch has begun."""
    if before is not None:
        raise SourceError(
            f"changelog {changelog}, shard {shard}: the database is its source already; only a replica can be promoted, which has no outbox"
        )
    _check_replica(database, changelog, shard, last)
    state = make_state(database, changelog, shard, last.epoch + 1, last.commit + 1)
    database.execute(
        "INSERT INTO _changelog_commits (number, epoch, time_ms, after_id, last_id, reading) VALUES (?, ?, ?, 0, 0, 0)",
        (state.sealed, state.epoch, time.time_ns() // 1_000_000),
    )
    return state


def _check_no_replica(database: sqlite3.Connection, changelog: str, shard: int) -> None:
    """The log would refuse the first commit of a replica, which is none any more by then: it has no position as a source."""
    if _has_positions(database) and _position(database, changelog, shard) is not None:
        raise SourceError(
            f"changelog {changelog}, shard {shard}: the database is a replica of it: only a promotion makes it the source"
            " (moldau changelog promote)"
        )


def _has_positions(database: sqlite3.Connection) -> bool:
    return database.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (positions.TABLE,)).fetchone() is not None


def _position(database: sqlite3.Connection, changelog: str, shard: int) -> Position | None:
    row = database.execute(f"SELECT * FROM {positions.TABLE} WHERE changelog = ? AND shard = ?", (changelog, shard)).fetchone()
    return None if row is None else positions.from_columns(row)[1]


def _check_replica(database: sqlite3.Connection, changelog: str, shard: int, last: "CommitRecord") -> None:
    """Where a replica has kept the table, its position is the commit after which it is promoted."""
    if not _has_positions(database):
        return
    found = _position(database, changelog, shard)
    if found is not None and (found.phase, found.epoch, found.commit) == (Phase.FOLLOWING, last.epoch, last.commit):
        return
    there = "no position" if found is None else f"the phase {found.phase.value}, commit {found.commit} and epoch {found.epoch}"
    raise SourceError(
        f"changelog {changelog}, shard {shard}: the replica has {there}, and would be promoted after commit {last.commit} of epoch"
        f" {last.epoch}, of which rows may be missing in it: fence the publisher before, take the last commit of the log, let the"
        " replica follow up to it, and promote then"
    )


def _check_keys(database: sqlite3.Connection, changelog: str, table: SourceTable) -> None:
    if not table.nullable_key:
        return

    is_null = " OR ".join(f"{quoted(name)} IS NULL" for name in table.nullable_key)
    (count,) = database.execute(f"SELECT count(*) FROM {quoted(table.name)} WHERE {is_null}").fetchone()
    if count:
        raise SourceError(
            f"changelog {changelog}: table {table.name} has {count} rows with NULL in the primary key ({', '.join(table.nullable_key)}),"
            " which cannot be told apart in the log: give them keys, or remove them"
        )


def _register(database: sqlite3.Connection, table: SourceTable) -> None:
    """A new schema of a table, and the triggers for it."""
    for (former,) in database.execute("SELECT id FROM _changelog_tables WHERE name = ? AND current", (table.name,)).fetchall():
        database.execute(f"DROP INDEX IF EXISTS {OURS}replaced_{former}")
        database.execute("DELETE FROM _changelog_replaced WHERE t = ?", (former,))
    database.execute("UPDATE _changelog_tables SET current = 0 WHERE name = ?", (table.name,))
    columns, key = json.dumps(table.columns), json.dumps([name for name, _ in table.key])
    made = database.execute("INSERT INTO _changelog_tables (name, columns, key, current) VALUES (?, ?, ?, 1)", (table.name, columns, key))
    assert made.lastrowid is not None
    widen(database, "_changelog_outbox", 2 * len(table.columns))
    widen(database, "_changelog_replaced", len(table.columns))
    widen(database, "_changelog_reading", len(table.key))
    _make_triggers(database, table, made.lastrowid)


def _make_triggers(database: sqlite3.Connection, table: SourceTable, number: int) -> None:

    for name in triggers_on(database, table.name):
        database.execute(f"DROP TRIGGER {quoted(name)}")
    for _, statement in triggers_of(table, number):
        database.execute(statement)
    index = index_of(table, number)
    if index is not None:
        database.execute(index)


def triggers_on(database: sqlite3.Connection, table: str) -> dict[str, str]:
    """Our triggers of a table: statements by name."""

    rows = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?", (table,))
    return {name: statement for name, statement in rows if name.startswith(OURS)}


def _refresh(database: sqlite3.Connection, changelog: str, known: Registered) -> bool:
    name = known.table.name
    try:
        now = source_table(database, changelog, name)
    except SourceError as error:
        raise SchemaChangedError(
            f"{error}; it was published: its rows are still in the log, and what was done to them since is not known. Make the table"
            " again, or begin a new changelog"
        ) from error
    there, wanted = triggers_on(database, name), dict(triggers_of(now, known.number))
    if there == wanted and now.table == known.table:
        return False
    if tuple(now.table.key) != tuple(known.table.key):
        raise SchemaChangedError(
            f"changelog {changelog}: the primary key of table {name} was {', '.join(known.table.key)} and is {', '.join(now.table.key)}:"
            " rows are known in the log by the former; begin a new changelog"
        )
    missing = [kind for kind in ("insert", "update", "delete") if not any(each.endswith(f"_{name}_{kind}") for each in there)]
    if missing:
        raise SchemaChangedError(
            f"changelog {changelog}: the triggers of table {name} are missing (after {', '.join(missing)}): it was made again, or they were"
            f" dropped, and changes since then are not in the outbox. `Source.repair({name!r})` publishes its rows again, and deletes in"
            " the log those that are no more"
        )
    if now.columns == tuple(known.table.columns.items()):
        _make_triggers(database, now, known.number)
        repair_deletions(database, name)
        log.info("triggers made again: changelog=%s table=%s", changelog, name)
        return True
    gone = [each for each in known.table.columns if each not in now.table.columns]
    if gone:
        log.warning("columns are published no more: changelog=%s table=%s columns=%s", changelog, name, ",".join(gone))
    if not _notes_replaced(there, now, known):
        repair_deletions(database, name)
    _register(database, now)
    publish_rows(database, name)
    log.info("schema changed, table is published again: changelog=%s table=%s columns=%s", changelog, name, ",".join(now.table.columns))
    return True


def _notes_replaced(there: Mapping[str, str], now: SourceTable, known: Registered) -> bool:
    """Whether these triggers have noted all rows that may have been replaced."""
    former = dict(triggers_of(replace(now, columns=tuple(known.table.columns.items())), known.number))
    return notes_of(former) == notes_of(there)


def reinstall(database: sqlite3.Connection, changelog: str, name: str) -> None:
    """Make the triggers of a table again, publish its rows, and then delete those that only the log has. In the caller's transaction."""
    table = source_table(database, changelog, name)
    _check_keys(database, changelog, table)
    _register(database, table)
    publish_rows(database, table.name)
    repair_deletions(database, table.name)
