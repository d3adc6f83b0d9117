"""A publisher of PostgreSQL and a replica are killed in turn under load, at random and at named points, 6 times, 100 in torture size, while
the log is compacted all the time; between that the server is restarted, crashes, and its slot is dropped. In the end the replica is what the
database is, and the log has each row once (mission I5).
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from moldau.changelog.points import DIE_AFTER, DIE_AT
from moldau.changelog.postgres.source import Choices, Republish
from moldau.changelog.postgres.store import PostgresStore
from moldau.changelog.publisher import Publisher
from moldau.changelog.replica import Replica
from moldau.changelog.store import WHOLE, Checksum, ReplicaStore
from moldau.testing.broker import Broker
from support import changelog_replica_process, postgres_publisher
from support.changelog_log import ChangelogLog, read_log
from support.changelog_source import COMPACTING, CONFIGS
from support.postgres import PostgresServer
from support.postgres_changelog import PublishedDatabase
from support.postgres_load import SCHEMA, Load
from support.sizes import TORTURE, sized

pytestmark = [pytest.mark.system, pytest.mark.torture]

KILLS: Final = sized(6, 100)
SEED: Final = 31
ROWS: Final = 2_000
LARGE: Final = 500
LARGE_EVERY: Final = 300
LIMIT_S: Final = 120.0
SOURCE_POINTS: Final = ("commit: half sent", "commit: sent", "commit: published", "publisher: started")
REPLICA_POINTS: Final = ("replica: rows written", "replica: applied", "replica: fetched", "replica: spilled", "replica: prepared")
ONCE: Final = ("publisher: started", "replica: cleared", "replica: prepared", "replica: spilled")
"""Points that a process reaches seldom."""


class Victim:
    """A process that is started again after each kill."""

    def __init__(self, command: Sequence[str], points: Sequence[str], chosen: random.Random, first: str | None = None) -> None:
        self._command = [sys.executable, *command]
        self._points, self._chosen = points, chosen
        self.environment: dict[str, str] = {}
        self.kills = 0
        self.killed_at: Counter[str] = Counter()
        self.start(first)

    def start(self, point: str | None) -> None:
        """It dies at this point by itself; None: by a signal."""
        self._point = point
        ordered: Mapping[str, str] = {}
        if point is not None:
            ordered = {DIE_AT: point, DIE_AFTER: "1" if point in ONCE else str(self._chosen.randrange(1, 20))}
        path = os.pathsep.join(filter(None, sys.path))
        environment = {**os.environ, "PYTHONPATH": path, **self.environment, **ordered}
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=self._errors, env=environment)

    def wait_killed(self) -> None:
        """It is dead; nothing else has ended it."""
        try:
            self.process.wait(LIMIT_S if self._point else self._chosen.uniform(0.1, 1.5))
        except subprocess.TimeoutExpired:
            assert self._point is None, f"it has not reached {self._point}"
            self.process.kill()
        error = self.failure()
        assert self.process.returncode == -signal.SIGKILL, error
        self.kills += 1
        self.killed_at[self._point or "any"] += 1

    def kill_and_start(self) -> None:
        """The next kill; after every other start it is at a named point, each in its turn."""
        self.wait_killed()
        self.start(self._points[self.kills // 2 % len(self._points)] if self.kills % 2 else None)

    def failure(self) -> str:
        """What a process that has ended has said."""
        self.process.wait(LIMIT_S)
        with self._errors as errors:
            errors.seek(0)
            return errors.read().decode()

    def end(self) -> None:
        self.process.kill()
        self.failure()


@pytest.fixture
def database() -> Iterator[PublishedDatabase]:
    with PostgresServer() as server, Broker(settings=COMPACTING) as broker:
        database = PublishedDatabase(server, broker.bootstrap_servers, "table", SCHEMA, ["items", "moves"])
        Publisher(broker.bootstrap_servers, "table", topic_configs=CONFIGS).make_topics(database.tables)
        yield database
        database.close()


def drop_slot(database: PublishedDatabase, source: Victim) -> None:
    """The publisher that comes next names it and ends; the one after that publishes all of the database again."""
    source.end()
    database.wait_slot_free()
    database.execute(f"SELECT pg_drop_replication_slot('moldau_{database.name}')")
    source.start(None)
    assert f"replication slot moldau_{database.name} is missing" in source.failure()
    assert source.process.returncode == 1
    source.environment = {postgres_publisher.REPUBLISH: "lost"}
    source.start(None)


def checksums(store: ReplicaStore, log: ChangelogLog) -> dict[str, Checksum]:
    try:
        return {table: store.checksum(0, table, WHOLE) for table in log.tables}
    finally:
        store.close()


def test_a_replica_is_what_its_source_is_whatever_dies(database: PublishedDatabase, tmp_path: Path) -> None:
    chosen = random.Random(SEED)
    path = tmp_path / "copy.db"
    bootstrap, name = database.bootstrap, database.name
    database.execute(f"INSERT INTO items SELECT number, 'item ' || number, 0 FROM generate_series(0, {ROWS - 1}) number")
    load = Load(database, ROWS, SEED, large_every=LARGE_EVERY, large=LARGE)
    publisher = [postgres_publisher.__file__, database.conninfo, bootstrap, name, *database.tables]
    source = Victim(publisher, SOURCE_POINTS, chosen, "publisher: started")
    source.kill_and_start()
    replica = Victim([changelog_replica_process.__file__, bootstrap, name, "sqlite", str(path)], REPLICA_POINTS, chosen, "replica: cleared")
    try:
        for kill in range(1, KILLS):
            (replica if kill % 2 else source).kill_and_start()
            if kill == KILLS // 3:
                database.server.restart()
                database.reopen()
            if kill == KILLS // 2:
                drop_slot(database, source)
            if kill == KILLS * 2 // 3:
                database.server.restart(signal.SIGQUIT)
                database.reopen()
    finally:
        load.stop()
        for each in (source, replica):
            each.end()
    with database.published(Choices(republish=Republish.LOST)) as running:
        running.wait_published()
    log = read_log(bootstrap, name, *database.tables)
    print(f"{source.kills} kills of the source {dict(source.killed_at)}, {replica.kills} of the replica {dict(replica.killed_at)}")
    print(f"{load.transactions} transactions, {log.commits[-1].commit} commits, {len(log.commits)} left in the log")
    if TORTURE:
        assert len(log.commits) < log.commits[-1].commit, "nothing was compacted"
    moved = [each.change.key for each in log.changes["moves"] if each.change.op.value == "c"]
    assert moved == sorted(set(moved)), "each once, in order"
    store = changelog_replica_process.store_of("sqlite", str(path))
    with Replica(bootstrap, name, store) as last:
        last.wait_for(0, log.commits[-1].commit, LIMIT_S)
        found = {table: store.checksum(0, table, WHOLE) for table in log.tables}
    original = PostgresStore(database.conninfo)
    original.prepare("source", list(log.tables.values()))
    assert found == checksums(original, log)
