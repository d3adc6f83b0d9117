"""A replica in SQLite becomes the source of its shard, and the one before can publish nothing any more.

1. The publisher of the shard is fenced, and the log's last commit is final as long as the former source does not start again.
2. The replica applies all up to that commit.
3. Its database becomes a source in the next epoch, and publishes a first commit, without changes.

If the former source starts again between 1 and 3, it fences this one, and step 3 is repeated. If it has published, its commit is in the log
and acknowledged: the first commit of the new epoch is refused, the database becomes a replica again, and all begins again. If the process
dies in between, the next promotion continues.
"""

import logging
import os
import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from moldau.changelog.envelope import CommitRecord
from moldau.changelog.errors import PublisherFencedError, SequenceError
from moldau.changelog.publisher import Publisher
from moldau.changelog.replica import Replica
from moldau.changelog.sqlite.connecting import connect, writing
from moldau.changelog.sqlite.errors import SourceError
from moldau.changelog.sqlite.layout import State, read_state, remove
from moldau.changelog.sqlite.outbox import STORE
from moldau.changelog.sqlite.source import BUSY_TIMEOUT_S, Source
from moldau.changelog.store import SHARD_COLUMN
from moldau.changelog.stores.sqlite import SqliteStore
from moldau.changelog.values import Table

log = logging.getLogger(__name__)

_ATTEMPTS: Final = 5
_KINDS_OF_KEYS: Final = ("any", "bytes", "integer", "real", "text")
"""Their values are in SQLite what they are in the log."""


def promote(
    path: str | os.PathLike[str],
    bootstrap_servers: str,
    changelog: str,
    shard: int = 0,
    *,
    shards: int = 1,
    tables: Sequence[str] | None = None,
    address: str = "",
    timeout_s: float = 60.0,
    **options: Any,
) -> int:
    """The number of the first commit of the new epoch, which is in the log. After that the database is opened with `Store` or `Source`.

    `path` is a replica that no process runs. `timeout_s`: for applying what it lacks. `tables` are published by it, None: all whose names
    do not begin with an underscore. NotAppliedError, SourceError, ReplicaError, WorldError, PeerError; SequenceError,
    PublisherFencedError where another publisher starts again and again.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        if _pending(path, changelog, shard) is None:
            known = _check_replica(path, changelog, shard)
            publisher = Publisher(bootstrap_servers, changelog, shard, shards=shards, **options)
            _check_keys(changelog, known, publisher.look())
            with publisher:
                last = publisher.last
            if last is None:
                raise SourceError(f"changelog {changelog}, shard {shard}: the log has no commit: there is nothing to be promoted after")
            with Replica(bootstrap_servers, changelog, SqliteStore(path), shards=[shard]) as replica:
                if replica.wait_for(shard, last.commit, timeout_s).commit != last.commit and attempt < _ATTEMPTS:
                    continue  # the former source has started again
        else:
            last = None
        try:
            with Source(
                path, bootstrap_servers, changelog, shard, shards=shards, tables=tables, promoted_after=last, address=address, **options
            ) as source:
                return source.publish()
        except (PublisherFencedError, SequenceError) as error:
            if attempt == _ATTEMPTS:
                raise
            log.warning("promotion begins again: changelog=%s shard=%d database=%s reason=%s", changelog, shard, os.fspath(path), error)
            if isinstance(error, SequenceError):
                _withdraw(path, changelog, shard)
    raise AssertionError("the last attempt returns or raises")


def _check_replica(path: str | os.PathLike[str], changelog: str, shard: int) -> Sequence[Table]:
    """Its tables. SourceError for a database that is none: the publisher of the shard is not fenced for that."""
    store, subject = SqliteStore(path), f"changelog {changelog}, shard {shard}"
    try:
        position = store.look(changelog).get(shard)
        if position is None:
            raise SourceError(f"{subject}: database {os.fspath(path)} has no position of it; only a replica can be promoted")
        store.look(changelog, list(position.tables.values()))
        if store.sharded:
            raise SourceError(
                f"{subject}: database {os.fspath(path)} has the column {SHARD_COLUMN}, for several shards; only a replica of a single shard"
                " can be promoted"
            )
        return list(position.tables.values())
    finally:
        store.close()


def _check_keys(changelog: str, tables: Sequence[Table], last: CommitRecord | None) -> None:
    """SourceError where the log has keys that SQLite would publish otherwise: `{"decimal": "1.50"}` as a text. Each row that is changed
    would be in the log a second time, under another key. What another database in SQLite has published is written as it was.
    """
    if last is None or STORE in last.source:
        return
    for table in tables:
        for column in table.key:
            if table.columns[column] not in _KINDS_OF_KEYS:
                raise SourceError(
                    f"changelog {changelog}, shard {last.shard}: table {table.name}: column {column} of its primary key is of type"
                    f" {table.columns[column]},"
                    " which SQLite does not have: rows would be published under other keys, beside those that are in the log; a replica of"
                    " this changelog cannot be promoted"
                )


def _pending(path: str | os.PathLike[str], changelog: str, shard: int) -> State | None:
    """See `_pending_in`."""
    database = connect(path, BUSY_TIMEOUT_S)
    try:
        return _pending_in(database, changelog, shard)
    finally:
        database.close()


def _pending_in(database: sqlite3.Connection, changelog: str, shard: int) -> State | None:
    """The state of a database whose promotion was interrupted before it was in the log, or is not known to be; None for a replica.

    SourceError for a source that has commits of its own.
    """
    state = read_state(database)
    if state is None:
        return None
    commits = database.execute("SELECT number, epoch, after_id, last_id FROM _changelog_commits").fetchall()
    (written,) = database.execute("SELECT count(*) FROM _changelog_outbox").fetchone()
    if (state.changelog, state.shard) == (changelog, shard) and not written and commits == [(state.sealed, state.epoch, 0, 0)]:
        return state
    raise SourceError(
        f"changelog {changelog}, shard {shard}: the database is the source of changelog {state.changelog}, shard {state.shard};"
        " only a replica can be promoted"
    )


def _withdraw(path: str | os.PathLike[str], changelog: str, shard: int) -> None:
    """A promotion that is not in the log: the rows are still those of the replica's position."""
    database = connect(path, BUSY_TIMEOUT_S)
    try:
        with writing(database):
            if _pending_in(database, changelog, shard) is not None:  # no client has written since
                remove(database)
    finally:
        database.close()
