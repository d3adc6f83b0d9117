"""Rows that only the log has, of tables whose changes were not all seen.

Until all their deletions are in the outbox, commits are not complete; so it does not matter where the process ends: the next one begins
with the same tables.
"""

import sqlite3
from typing import TYPE_CHECKING, Final

from moldau.changelog.committed import CommittedRecords
from moldau.changelog.envelope import Tombstone, decode_change
from moldau.changelog.naming import table_topic
from moldau.changelog.sqlite.connecting import writing
from moldau.changelog.sqlite.installing import refresh, registered
from moldau.changelog.sqlite.layout import State
from moldau.changelog.sqlite.outbox import seal
from moldau.changelog.sqlite.schema import quoted, source_table
from moldau.changelog.values import Op
from moldau.model.identity import TopicPartition

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster

_CHUNK: Final = 1_000


def tables_to_repair(database: sqlite3.Connection) -> list[str]:
    """Tables of which the log may have rows that they do not have."""
    return [name for (name,) in database.execute("SELECT name FROM _changelog_repairing ORDER BY name")]


def delete_missing(database: sqlite3.Connection, cluster: "Cluster", state: State, table: str) -> int:
    """Put deletions of these rows into the outbox, and seal them as the commit that is complete again: how many.

    The log has all commits of the database when it begins, and nothing else writes to it. RecordError, WorldError, PeerError.
    """
    database.execute("CREATE TEMP TABLE IF NOT EXISTS _changelog_keys (key BLOB PRIMARY KEY, offset INTEGER NOT NULL) WITHOUT ROWID")
    database.execute("DELETE FROM temp._changelog_keys")
    where = TopicPartition(table_topic(state.changelog, table), state.shard)
    _read_keys(database, cluster, where)
    deleted, after = 0, b""
    while True:
        chunk = database.execute(
            "SELECT key, offset FROM temp._changelog_keys WHERE key > ? ORDER BY key LIMIT ?", (after, _CHUNK)
        ).fetchall()
        if not chunk:
            break
        deleted += _delete(database, state, table, where, chunk)
        after = chunk[-1][0]
    with writing(database):
        database.execute("DELETE FROM _changelog_repairing WHERE name = ?", (table,))
        refresh(database)  # which may find that it has to be repaired again
        seal(database, empty=not tables_to_repair(database))
    database.execute("DROP TABLE temp._changelog_keys")
    return deleted


def _read_keys(database: sqlite3.Connection, cluster: "Cluster", where: TopicPartition) -> None:
    """Keys of rows that the log has."""
    records = CommittedRecords(cluster, where)
    database.execute("BEGIN")
    try:
        for record in records.between(*records.bounds()):
            found = decode_change(*where, record.offset, record.key, record.value)
            if isinstance(found, Tombstone) or found.change.op is Op.DELETE:
                database.execute("DELETE FROM temp._changelog_keys WHERE key = ?", (record.key,))
            else:
                database.execute("INSERT OR REPLACE INTO temp._changelog_keys (key, offset) VALUES (?, ?)", (record.key, record.offset))
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def _delete(database: sqlite3.Connection, state: State, name: str, where: TopicPartition, chunk: list[tuple[bytes, int]]) -> int:
    with writing(database):
        table = source_table(database, state.changelog, name)
        number, schema = next(
            (number, each) for number, each in registered(database).items() if each.current and each.table.name == table.name
        )
        equal = " AND ".join(f"{quoted(column)} = ? COLLATE {quoted(collation)}" for column, collation in table.key)
        if not table.exact_key:
            equal += "".join(
                f" AND {quoted(column)} = ? COLLATE BINARY AND typeof({quoted(column)}) = typeof(?)" for column, _ in table.key
            )
        values = ", ".join(f"v{schema.columns.index(column)}" for column, _ in table.key)
        places = ", ".join("?" for _ in table.key)
        deleted = 0
        for key, offset in chunk:
            values_of_key = decode_change(*where, offset, key, None)
            assert isinstance(values_of_key, Tombstone)
            row = values_of_key.key
            compared = row if table.exact_key else [*row, *(value for each in row for value in (each, each))]
            if database.execute(f"SELECT 1 FROM {quoted(table.name)} WHERE {equal}", compared).fetchone() is None:
                database.execute(f"INSERT INTO _changelog_outbox (t, op, {values}) VALUES (?, 'k', {places})", (number, *row))
                deleted += 1
        return deleted
