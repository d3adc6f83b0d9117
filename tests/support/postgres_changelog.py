"""A database of PostgreSQL that is published in a thread, and what the log and replicas have of it."""

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from psycopg.errors import ObjectInUse

from moldau.changelog.postgres.lsn import lsn_of
from moldau.changelog.postgres.published_keys import PublishedKeys
from moldau.changelog.postgres.slots import slot_name
from moldau.changelog.postgres.source import Choices, PostgresSource, SourceState
from moldau.changelog.postgres.store import PostgresStore
from moldau.changelog.publisher import Publisher
from moldau.changelog.replica import Replica
from moldau.changelog.store import WHOLE, Checksum, ReplicaStore
from moldau.changelog.values import ALL_SHARDS
from support.changelog_log import ChangelogLog, read_log
from support.postgres import DROP_FREE_SLOTS, PostgresServer

if TYPE_CHECKING:
    import psycopg

LIMIT_S: Final = 60.0
POLL_S: Final = 0.01
MARKS: Final = "CREATE TABLE marks (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY)"
"""A table that each of these databases has: a row in it is published after all that was committed before."""


class PublishedDatabase:
    """A new database with tables, as a changelog of the same name. `tables` are published, beside the marks; their rows are divided over
    `shards`.
    """

    def __init__(self, server: PostgresServer, bootstrap: str, name: str, schema: str, tables: Iterable[str], shards: int = 1) -> None:
        self.server, self.bootstrap, self.name, self.shards = server, bootstrap, name, shards
        self.shard = ALL_SHARDS if shards > 1 else 0
        self.slot = slot_name(name)
        self.conninfo = server.create(name)
        self.tables = ["marks", *tables]
        self.connection = server.connect(name)
        self.execute(MARKS)
        self.execute(schema)

    def execute(self, statement: str, parameters: Any = None) -> "psycopg.Cursor[Any]":
        return self.connection.execute(statement.encode(), parameters)

    def reopen(self) -> None:
        """After its server was restarted."""
        self.connection.close()
        self.connection = self.server.connect(self.name)

    def row(self, statement: str) -> tuple[Any, ...]:
        (row,) = self.execute(statement).fetchall()
        return tuple(row)

    def publisher(self, **options: Any) -> Publisher:
        return Publisher(self.bootstrap, self.name, self.shard, shards=self.shards, transaction_timeout_ms=20_000, **options)

    def source(self, choices: Choices | None = None) -> tuple[PostgresSource, Publisher]:
        publisher = self.publisher()
        keys = PublishedKeys(self.bootstrap, self.name, self.shard)
        return PostgresSource(self.conninfo, self.tables, publisher, keys, choices), publisher

    @contextmanager
    def published(self, choices: Choices | None = None) -> Iterator["RunningSource"]:
        """While it streams."""
        running = RunningSource(self, choices)
        try:
            running.wait_streaming()
            yield running
        finally:
            running.stop()

    def wait_slot_free(self) -> None:
        """The server has noticed that the connection of the source before has ended."""
        end = time.monotonic() + LIMIT_S
        while self.row(f"SELECT count(*) FROM pg_replication_slots WHERE slot_name = '{self.slot}' AND active") != (0,):
            assert time.monotonic() < end, "the slot is still in use"
            time.sleep(POLL_S)

    def drop_used_slot(self) -> None:
        """While a source streams, which may be back at the slot before the server has dropped it: then its connection is ended again."""
        end = time.monotonic() + LIMIT_S
        while True:
            self.execute("SELECT pg_terminate_backend(active_pid, 10000) FROM pg_replication_slots WHERE slot_name = %s", [self.slot])
            try:
                self.execute("SELECT pg_drop_replication_slot(%s)", [self.slot])
            except ObjectInUse:
                assert time.monotonic() < end, "the slot is still in use"
            else:
                return

    def wait_source(self, since: float) -> None:
        """A source has connected after that time, in seconds since 1970, and asked the server something."""
        asked = "application_name = %s AND query <> '' AND backend_start >= to_timestamp(%s)"
        end = time.monotonic() + LIMIT_S
        while not self.execute(f"SELECT pid FROM pg_stat_activity WHERE {asked}", [self.slot, since]).fetchall():
            assert time.monotonic() < end, "no source has connected"
            time.sleep(POLL_S)

    def log(self, shard: int = 0) -> ChangelogLog:
        found = read_log(self.bootstrap, self.name, *self.tables, shard=shard)
        found.check()
        return found

    def logs(self) -> Sequence[ChangelogLog]:
        """By shard."""
        return [self.log(shard) for shard in range(self.shards)]

    def replicate(self, store: ReplicaStore) -> dict[str, Checksum]:
        """Bring a store to the end of the log; checksums of its tables."""
        with Replica(self.bootstrap, self.name, store) as replica:
            for shard, log in enumerate(self.logs()):
                replica.wait_for(shard, log.commits[-1].commit, LIMIT_S)
            return self.checksums_in(store)

    def checksums_in(self, store: ReplicaStore) -> dict[str, Checksum]:
        """Of the tables of a replica, of all shards together."""
        return {table: together([store.checksum(shard, table, WHOLE) for shard in range(self.shards)]) for table in self.tables}

    def checksums(self) -> dict[str, Checksum]:
        """Of the database itself, by the types that the log has."""
        tables = self.log().tables
        store = PostgresStore(self.conninfo)
        store.prepare("source", [tables[name] for name in self.tables])
        try:
            return {table: store.checksum(0, table, WHOLE) for table in self.tables}
        finally:
            store.close()

    def close(self) -> None:
        self.execute(DROP_FREE_SLOTS)
        self.connection.close()


def together(checksums: Iterable[Checksum]) -> Checksum:
    """Of the rows of all of them."""
    rows, values = zip(*checksums, strict=True)
    return Checksum(sum(rows), sum(values) % 2**64)


class RunningSource:
    """A source in a thread; what ended it is in `error`."""

    def __init__(self, database: PublishedDatabase, choices: Choices | None = None) -> None:
        self._database = database
        self.source, self.publisher = database.source(choices)
        self.error: Exception | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="moldau-source")
        self._thread.start()

    def _run(self) -> None:
        try:
            self.source.run(self._stop)
        except Exception as error:
            self.error = error

    def wait_streaming(self) -> None:
        self._wait(lambda: self.source.statistics().state is SourceState.STREAMING, "it does not stream")

    def wait_published(self) -> None:
        """All that was committed before is in the log."""
        before = lsn_of(self._database.row("SELECT pg_current_wal_insert_lsn()::text")[0])
        self._database.execute("INSERT INTO marks DEFAULT VALUES")
        self._wait(lambda: lsn_of(self.source.statistics().lsn) > before, "what was committed is not published")

    def wait_failed(self) -> Exception:
        """The error that ends it."""
        self._thread.join(LIMIT_S)
        assert self.error is not None, "it has not failed"
        return self.error

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()
        self.publisher.close()

    def _wait(self, condition: Any, what: str) -> None:
        end = time.monotonic() + LIMIT_S
        while not condition():
            if self.error is not None:
                raise self.error
            assert time.monotonic() < end, f"{what}: {self.source.statistics()}"
            time.sleep(POLL_S)


def operations(log: ChangelogLog, table: str) -> list[tuple[str, tuple[Any, ...]]]:
    """Letters and keys of the changes of a table."""
    return [(each.change.op.value, each.change.key) for each in log.changes[table]]


def last_rows(log: ChangelogLog, table: str) -> Mapping[tuple[Any, ...], Any]:
    """By key, as a reader has them after the last commit."""
    rows: dict[tuple[Any, ...], Any] = {}
    for each in log.changes[table]:
        if each.change.after is None:
            rows.pop(each.change.key, None)
        else:
            rows[each.change.key] = each.change.after
    return rows
