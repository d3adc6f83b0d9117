"""A database in SQLite, its replica in SQLite, and the replica as the source: the whole way (mission I5)."""

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.changelog import Replica, SqliteStore
from moldau.changelog.errors import PublisherFencedError
from moldau.changelog.last_commit import last_commit
from moldau.changelog.sqlite import Store
from moldau.changelog.store import Phase
from moldau.client.cluster import Cluster
from moldau.testing import Broker
from support.changelog_writer import statements
from support.pages import ROOT, block_with

pytestmark = pytest.mark.system

SCHEMA = """
CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT, price NUMERIC);
CREATE TABLE notes (id INTEGER PRIMARY KEY, item INTEGER, text TEXT);
CREATE TABLE odd (a TEXT, b REAL, c BLOB, d ANY, e BOOLEAN, f DATE, PRIMARY KEY (b, a)) WITHOUT ROWID;
"""
QUERIES = [f"SELECT * FROM {table} ORDER BY 1, 2" for table in ("items", "notes", "odd")]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def rows(path: Path) -> list[list[tuple[object, ...]]]:
    database = sqlite3.connect(path)
    try:
        return [database.execute(query).fetchall() for query in QUERIES]
    finally:
        database.close()


def write(store: Store, chosen: random.Random, transactions: int) -> int:
    """The number of the last commit."""
    for _ in range(transactions):
        with store.transaction() as transaction:
            for each in statements(chosen):
                transaction.execute(*each)
            odd = (
                str(chosen.random()),
                chosen.random(),
                chosen.randbytes(3),
                chosen.choice(["x", 5, 0.5, None]),
                1,
                chosen.choice(["2026-01-02", 20260102, 2460000.5]),
            )
            transaction.execute("INSERT INTO odd VALUES (?, ?, ?, ?, ?, ?)", odd)
    return store.publish()


def test_a_replica_of_a_database_has_its_rows_and_can_become_it(broker: Broker, tmp_path: Path) -> None:
    chosen, first, second = random.Random(5), tmp_path / "first.db", tmp_path / "second.db"
    database = sqlite3.connect(first)
    with database:
        database.executescript(SCHEMA)
        database.executemany("INSERT INTO items VALUES (?, ?, ?)", [(number, "there before", number / 4) for number in range(2500)])
    database.close()
    master = Store(first, broker.bootstrap_servers, "shop", tables=["items", "notes", "odd"])
    number = write(master, chosen, 30)
    with Replica(broker.bootstrap_servers, "shop", SqliteStore(second)) as replica:
        assert replica.wait_for(0, number).commit == number
        assert rows(second) == rows(first)
        number = write(master, chosen, 30)
        assert replica.wait_for(0, number).phase is Phase.FOLLOWING
        assert rows(second) == rows(first)
    with Cluster(broker.bootstrap_servers) as cluster:
        last = last_commit(cluster, "shop", 0)
    assert last is not None
    tables = ["items", "notes", "odd"]
    with Store(second, broker.bootstrap_servers, "shop", tables=tables, promoted_after=last) as promoted:
        number = write(promoted, chosen, 10)
        with master.transaction() as transaction:
            transaction.execute("INSERT INTO notes (item, text) VALUES (1, 'never acknowledged')")
        with pytest.raises(PublisherFencedError):
            master.publish()
        master.close()
        again = tmp_path / "first again.db"
        with Replica(broker.bootstrap_servers, "shop", SqliteStore(again)) as replica:
            position = replica.wait_for(0, number)
            assert position.epoch == last.epoch + 1
            assert rows(again) == rows(second)


def test_the_program_of_the_page_waits_for_a_commit(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs" / "changelog-replicas.md"
    database = sqlite3.connect("shop.db")
    database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)")
    database.close()
    with Store("shop.db", broker.bootstrap_servers, "page") as store:
        with store.transaction() as transaction:
            transaction.execute("INSERT INTO orders VALUES (1, 'tea')")
        store.publish()
    exec(block_with(page, "python", "Replica(").replace("127.0.0.1:9092", broker.bootstrap_servers).replace('"shop"', '"page"'), {})
    database = sqlite3.connect("copy.db")
    assert database.execute("SELECT * FROM orders").fetchall() == [(1, "tea")]
    database.close()
