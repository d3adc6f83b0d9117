"""A publisher of PostgreSQL and a replica are killed in turn under load, at any moment and at named points, 6 times, 100 in torture size,
while the log is compacted all the time; between that the server is restarted, crashes, and its slot is dropped. In the end the replica is
what the database is, and the log has each row once (mission I5).
"""

import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from moldau.changelog.points import DIE_AFTER, DIE_AT
from moldau.changelog.postgres.slots import READING
from moldau.changelog.postgres.source import Choices, Republish
from moldau.changelog.postgres.store import PostgresStore
from moldau.changelog.replica import Replica
from moldau.changelog.store import WHOLE
from moldau.testing.broker import Broker
from support import changelog_replica_process, changelog_source, postgres_publisher
from support.changelog_log import read_log
from support.postgres import PostgresServer
from support.postgres_changelog import PublishedDatabase
from support.postgres_load import SCHEMA, Load
from support.sizes import TORTURE, sized

pytestmark = [pytest.mark.system, pytest.mark.torture]

KILLS: Final = sized(6, 100)
SEED: Final = 31
ROWS: Final = 4_000
LARGE_EVERY: Final = 200
"""After so many transactions one that changes all items, which is larger than a fetch of a replica and what it holds."""
CONFIGS: Final = {**changelog_source.CONFIGS, "min.compaction.lag.ms": "2000"}
LIMIT_S: Final = 120.0
POLL_S: Final = 0.1
SOURCE_POINTS: Final = ("commit: half sent", "commit: sent", "commit: published", "publisher: started")
REPLICA_POINTS: Final = ("replica: rows written", "replica: applied", "replica: fetched", "replica: spilled", "replica: prepared")
SELDOM: Final = ("publisher: started", "replica: cleared", "replica: prepared", "replica: spilled")
"""Points that a process reaches seldom."""


class Victim:
    """A process that is started again after each kill; it is killed first at the point `first`. Outside of `strike` it runs."""

    def __init__(self, command: Sequence[str], points: Sequence[str], chosen: random.Random, first: str) -> None:
        self._command = [sys.executable, *command]
        self._points, self._chosen = itertools.cycle(points), chosen
        self._named = itertools.cycle([True, False])
        self.environment: dict[str, str] = {}
        self.killed_at: Counter[str] = Counter()
        self._die_at(first)
        self.start()

    def start(self, ordered: Mapping[str, str] | None = None) -> None:
        path = os.pathsep.join(filter(None, sys.path))
        environment = {**os.environ, "PYTHONPATH": path, **self.environment, **(ordered or {})}
        self.started = time.time()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=self._errors, env=environment)

    def strike(self) -> None:
        """A kill at any moment; every other time another one at a named point, each in its turn."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(self._chosen.uniform(0.1, 1.5))
        self.process.kill()
        self._check_killed("any moment")
        if next(self._named):
            self._die_at(next(self._points))
        self.start()

    def _die_at(self, point: str) -> None:
        self.start({DIE_AT: point, DIE_AFTER: "1" if point in SELDOM else str(self._chosen.randrange(1, 20))})
        try:
            self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"it has not reached {point}: {self.failure()}") from None
        self._check_killed(point)

    def _check_killed(self, point: str) -> None:
        error = self.failure()
        assert self.process.returncode == -signal.SIGKILL, error
        self.killed_at[point] += 1

    def failure(self) -> str:
        """What a process that has ended has said."""
        self.process.wait(LIMIT_S)
        with self._errors as errors:
            errors.seek(0)
            return errors.read().decode()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.failure()


@pytest.fixture(params=[1, 3], ids=["one shard", "three shards"])
def database(request: pytest.FixtureRequest) -> Iterator[PublishedDatabase]:
    with PostgresServer() as server, Broker(settings=changelog_source.COMPACTING) as broker:
        database = PublishedDatabase(server, broker.bootstrap_servers, "table", SCHEMA, ["items", "moves"], request.param)
        database.publisher(topic_configs=CONFIGS).make_topics(database.tables)
        yield database
        database.close()


def restart(database: PublishedDatabase, source: Victim, how: signal.Signals) -> None:
    """The server, which a publisher has reached: one that does not find it when it starts is right to end."""
    database.wait_source(source.started)
    database.server.restart(how)
    database.reopen()


def drop_slot(database: PublishedDatabase, source: Victim) -> None:
    """The publisher that comes next names it and ends; the one after that publishes all of the database again."""
    end = time.monotonic() + LIMIT_S
    while (last := database.publisher().look()) is None or READING in last.source:
        assert time.monotonic() < end, "the rows that were there are not all in the log"
        time.sleep(POLL_S)
    source.end()
    database.wait_slot_free()
    database.execute(f"SELECT pg_drop_replication_slot('{database.slot}')")
    source.start()
    assert f"replication slot {database.slot} is missing" in source.failure()
    assert source.process.returncode == 1
    source.environment = {postgres_publisher.REPUBLISH: "lost"}
    source.start()


def test_a_replica_is_what_its_source_is_whatever_dies(database: PublishedDatabase, tmp_path: Path) -> None:
    chosen = random.Random(SEED)
    path = tmp_path / "copy.db"
    bootstrap, name = database.bootstrap, database.name
    database.execute(f"INSERT INTO items SELECT number, 'item ' || number, 0 FROM generate_series(0, {ROWS - 1}) number")
    load = Load(database, ROWS, SEED, large_every=LARGE_EVERY, large=ROWS)
    publisher = [postgres_publisher.__file__, f"--shards={database.shards}", database.conninfo, bootstrap, name, *database.tables]
    source = Victim(publisher, SOURCE_POINTS, chosen, "publisher: started")
    replica = Victim([changelog_replica_process.__file__, bootstrap, name, "sqlite", str(path)], REPLICA_POINTS, chosen, "replica: cleared")
    faults = deque([
        (KILLS // 3, partial(restart, database, source, signal.SIGINT)),
        (KILLS // 2, partial(drop_slot, database, source)),
        (KILLS * 2 // 3, partial(restart, database, source, signal.SIGQUIT)),
    ])  # fmt: skip
    try:
        for victim in itertools.cycle([source, replica]):
            kills = source.killed_at.total() + replica.killed_at.total()
            while faults and kills >= faults[0][0]:
                faults.popleft()[1]()
            if kills >= KILLS:
                break
            victim.strike()
    finally:
        load.stop()
        for each in (source, replica):
            each.end()
    with database.published(Choices(republish=Republish.LOST)) as running:
        running.wait_published()
    logs = [read_log(bootstrap, name, *database.tables, shard=shard) for shard in range(database.shards)]
    print(f"kills of the source {dict(source.killed_at)}, of the replica {dict(replica.killed_at)}")
    moved = []
    for log in logs:
        print(f"{load.transactions} transactions, {log.commits[-1].commit} commits, {len(log.commits)} left in the log")
        if TORTURE:
            assert len(log.commits) < log.commits[-1].commit, "nothing was compacted"
        moved.append([each.change.key for each in log.changes["moves"] if each.change.op.value == "c"])
        assert moved[-1] == sorted(set(moved[-1])), "each once, in order"
    assert len(set().union(*moved)) == sum(map(len, moved)), "each in one shard"
    store = changelog_replica_process.store_of("sqlite", str(path))
    with Replica(bootstrap, name, store) as last:
        for shard, log in enumerate(logs):
            last.wait_for(shard, log.commits[-1].commit, LIMIT_S)
        found = database.checksums_in(store)
    original = PostgresStore(database.conninfo)
    original.prepare("source", list(logs[0].tables.values()))
    assert found == {table: original.checksum(0, table, WHOLE) for table in database.tables}
    original.close()
