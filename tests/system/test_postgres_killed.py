"""A process that publishes a database of PostgreSQL is killed under load, at random and at named points, while rows are published too: the
log has every transaction once, in order and whole, and replicas are equal in the end (mission I5).
"""

import os
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from moldau.changelog.points import DIE_AFTER, DIE_AT
from moldau.changelog.postgres.store import PostgresStore
from moldau.changelog.stores.sqlite import SqliteStore
from moldau.testing.broker import Broker
from support import postgres_publisher
from support.postgres import PostgresServer
from support.postgres_changelog import PublishedDatabase
from support.postgres_load import SCHEMA, Load
from support.sizes import sized

pytestmark = [pytest.mark.system, pytest.mark.torture]

KILLS = sized(6, 30)
SEED = 29
ROWS = 8_000
POINTS = ("commit: half sent", "commit: sent", "commit: published", "publisher: started")
LIMIT_S = 60.0


@pytest.fixture(params=[pytest.param(1, id="one shard", marks=pytest.mark.long), pytest.param(3, id="three shards")])
def database(request: pytest.FixtureRequest) -> Iterator[PublishedDatabase]:
    with PostgresServer() as server, Broker() as broker:
        database = PublishedDatabase(server, broker.bootstrap_servers, "killed", SCHEMA, ["items", "moves"], request.param)
        yield database
        database.close()


def run_until_killed(database: PublishedDatabase, kill: int, chosen: random.Random) -> None:
    """Every other kill is at a named point; the first ones while rows are published, later ones in the stream."""
    ordered: Mapping[str, str] = {}
    if kill % 2:
        point = POINTS[kill // 2 % len(POINTS)]
        ordered = {DIE_AT: point, DIE_AFTER: "1" if point == "publisher: started" else str(chosen.randrange(1, 40))}
    where = [f"--shards={database.shards}", database.conninfo, database.bootstrap, database.name]
    command = [sys.executable, postgres_publisher.__file__, *where, *database.tables]
    environment = {**os.environ, **ordered, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        if kill > 2 and not ordered:
            assert process.stdout.readline() == "streams\n"
        try:
            process.wait(LIMIT_S if ordered else chosen.uniform(0.1, 1.5))
        except subprocess.TimeoutExpired:
            process.kill()
        assert process.wait() == -9


def test_the_log_has_every_transaction_once_whatever_the_publisher_dies_of(database: PublishedDatabase, tmp_path: Path) -> None:
    chosen = random.Random(SEED)
    database.execute(f"INSERT INTO items SELECT number, 'item ' || number, 0 FROM generate_series(0, {ROWS - 1}) number")
    load = Load(database, ROWS, SEED)
    try:
        for kill in range(KILLS):
            run_until_killed(database, kill, chosen)
    finally:
        load.stop()
    with database.published() as running:
        running.wait_published()
    every: set[object] = set()
    for log in database.logs():
        moved = [each.change.key for each in log.changes["moves"] if each.change.op.value == "c"]
        assert moved == sorted(set(moved)), "each once, in order"
        assert every.isdisjoint(moved), "each in one shard"
        every.update(moved)
        print(f"{KILLS} kills, {load.transactions} transactions, {len(log.commits)} commits, {sum(map(len, log.changes.values()))} changes")
    wanted, sharded = database.checksums(), database.shards > 1
    assert database.replicate(SqliteStore(tmp_path / "copy.db", sharded=sharded)) == wanted
    assert database.replicate(PostgresStore(database.server.create("copy"), sharded=sharded)) == wanted
