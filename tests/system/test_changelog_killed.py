"""A process that writes and publishes a database is killed at random and at named points: the log has every commit once, in order, whole,
those that were acknowledged above all, and in the end it gives the tables.
"""

import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.changelog.points import DIE_AFTER, DIE_AT, POINTS
from moldau.changelog.publisher import Publisher
from moldau.changelog.sqlite import Store
from moldau.testing.broker import Broker
from support import changelog_writer
from support.changelog_log import read_log
from support.changelog_outbox import apply, rows_of
from support.changelog_writer import CHANGELOG
from support.sizes import sized

pytestmark = [pytest.mark.system, pytest.mark.torture]

KILLS = sized(6, 36)
SEED = 15
LOOKED_AT_EVERY = 3
"""After the other kills the next process finds what the one before has left."""
SCHEMA = (
    "CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT UNIQUE, price); "
    "CREATE TABLE notes (number INTEGER PRIMARY KEY, item INTEGER, text TEXT)"
)
ROWS_BEFORE = 2_500
ROWS_POINT = "rows: chunk committed"
OFTEN = {"commit: half sent", "commit: sent", "commit: published", "seal: committed", "writer: sealed", "writer: committed"}
OTHER_POINTS = [point for point in dict.fromkeys(("commit: half sent", "commit: sent", *POINTS)) if point != ROWS_POINT]
LINES_MAX = 400
"""Acknowledgements within which a named point is reached."""


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def orders(kill: int, chosen: random.Random) -> dict[str, str]:
    """Every other kill is at a named point, each in its turn; the first one while the rows that were there are published."""
    if kill % 2:
        return {}
    turn = kill // 2
    point = ROWS_POINT if turn == 0 else OTHER_POINTS[(turn - 1) % len(OTHER_POINTS)]
    return {DIE_AT: point, DIE_AFTER: str(chosen.randrange(1, 4) if point in OFTEN else 1)}


def run_until_killed(path: Path, bootstrap: str, kill: int, chosen: random.Random) -> list[int]:
    """The numbers of commits that the process has acknowledged."""
    command = [sys.executable, changelog_writer.__file__, str(path), bootstrap, str(SEED * 1000 + kill)]
    ordered = orders(kill, chosen)
    environment = {**os.environ, **ordered, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    acknowledged: list[int] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdout is not None
        lines = LINES_MAX if ordered else chosen.randrange(1, 30)
        for line in process.stdout:
            acknowledged.append(int(line))
            if len(acknowledged) == lines:
                process.kill()
                break
        acknowledged += [int(line) for line in process.stdout if line.endswith("\n")]
    assert process.returncode == -9
    assert not ordered or len(acknowledged) < LINES_MAX, f"it did not reach {ordered}"
    return acknowledged


def test_the_log_has_every_commit_once_whatever_the_process_dies_of(broker: Broker, tmp_path: Path) -> None:
    chosen = random.Random(SEED)
    path = tmp_path / "killed.db"
    database = sqlite3.connect(path, isolation_level=None)
    database.executescript(SCHEMA)
    database.execute("BEGIN")
    database.executemany("INSERT INTO notes (item, text) VALUES (?, 'old')", [(number % 40,) for number in range(ROWS_BEFORE)])
    database.execute("COMMIT")
    acknowledged = 0
    for kill in range(KILLS):
        acknowledged = max([acknowledged, *run_until_killed(path, broker.bootstrap_servers, kill, chosen)])
        if kill % LOOKED_AT_EVERY == LOOKED_AT_EVERY - 1:
            with Publisher(broker.bootstrap_servers, CHANGELOG) as publisher:  # ends what the killed process has left open
                assert publisher.commit >= acknowledged
            read_log(broker.bootstrap_servers, CHANGELOG, "items", "notes").check()
    with Store(path, broker.bootstrap_servers, CHANGELOG) as store:
        last = store.publish()
    found = read_log(broker.bootstrap_servers, CHANGELOG, "items", "notes")
    found.check()
    assert found.commits[-1].commit == last >= acknowledged
    rows = apply({"items": {}, "notes": {}}, found.all_changes())
    assert rows["items"] == rows_of(database, "items", ["id"])
    assert rows["notes"] == rows_of(database, "notes", ["number"])
    database.close()
