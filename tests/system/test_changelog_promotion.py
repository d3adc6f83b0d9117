"""A promotion that is interrupted continues, and one that a former master has overtaken begins again (mission I5)."""

import sqlite3
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from moldau.changelog import Replica, SqliteStore
from moldau.changelog.envelope import CommitRecord
from moldau.changelog.last_commit import last_commit
from moldau.changelog.masters import masters
from moldau.changelog.sqlite import Source, Store, promote
from moldau.changelog.sqlite.errors import SourceError
from moldau.client.cluster import Cluster
from moldau.testing.broker import Broker

pytestmark = pytest.mark.system

NUMBERS = count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def changelog() -> str:
    return f"bank{next(NUMBERS)}"


@pytest.fixture
def master(broker: Broker, changelog: str, tmp_path: Path) -> Iterator[Store]:
    with sqlite3.connect(tmp_path / "master.db") as database:
        database.execute("CREATE TABLE items (id INTEGER PRIMARY KEY)")
    database.close()
    with Store(tmp_path / "master.db", broker.bootstrap_servers, changelog, address="old") as store:
        write(store, 1)
        yield store


def write(store: Store, number: int) -> None:
    with store.transaction() as transaction:
        transaction.execute("INSERT INTO items VALUES (?)", (number,))
    store.publish()


def replicated(broker: Broker, changelog: str, path: Path) -> CommitRecord:
    """The last commit, which the replica has."""
    with Cluster(broker.bootstrap_servers) as cluster:
        last = last_commit(cluster, changelog, 0)
    assert last is not None
    with Replica(broker.bootstrap_servers, changelog, SqliteStore(path)) as replica:
        replica.wait_for(0, last.commit)
    return last


def items(path: Path) -> list[int]:
    with sqlite3.connect(path) as database:
        found = [number for (number,) in database.execute("SELECT id FROM items ORDER BY id")]
    database.close()
    return found


def test_a_promotion_that_died_before_its_first_commit_was_published_continues(
    broker: Broker, changelog: str, master: Store, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.db"
    last = replicated(broker, changelog, copy)
    Source(copy, broker.bootstrap_servers, changelog, promoted_after=last).close()  # it dies here
    commit = promote(copy, broker.bootstrap_servers, changelog, address="new")
    with Cluster(broker.bootstrap_servers) as cluster:
        (now,) = masters(cluster, changelog)
    assert (commit, now.commit, now.epoch, now.address) == (last.commit + 1, last.commit + 1, 2, "new")


def test_a_promotion_that_the_former_master_has_overtaken_begins_again(
    broker: Broker, changelog: str, master: Store, tmp_path: Path
) -> None:
    """It has published after the replica had become a source, and before the first commit of that: it is acknowledged, and not lost."""
    copy = tmp_path / "copy.db"
    last = replicated(broker, changelog, copy)
    Source(copy, broker.bootstrap_servers, changelog, promoted_after=last).close()
    write(master, 2)
    commit = promote(copy, broker.bootstrap_servers, changelog, address="new")
    assert commit == last.commit + 2
    assert items(copy) == [1, 2]
    with Store(copy, broker.bootstrap_servers, changelog, address="new") as promoted:
        write(promoted, 3)
    last = replicated(broker, changelog, tmp_path / "other.db")
    assert (last.epoch, items(tmp_path / "other.db")) == (2, [1, 2, 3])


def test_a_source_with_commits_of_its_own_is_not_promoted(broker: Broker, changelog: str, master: Store, tmp_path: Path) -> None:
    write(master, 2)
    with pytest.raises(SourceError, match=rf"the database is the source of changelog {changelog}, shard 0; only a replica can be promoted"):
        promote(tmp_path / "master.db", broker.bootstrap_servers, changelog)
    write(master, 3)
    assert items(tmp_path / "master.db") == [1, 2, 3], "it was not fenced"


def test_a_database_that_is_no_replica_is_not_promoted(broker: Broker, changelog: str, master: Store, tmp_path: Path) -> None:
    """A mistake in a path does not fence the master."""
    with sqlite3.connect(tmp_path / "other.db") as database:
        database.execute("CREATE TABLE other (id INTEGER PRIMARY KEY)")
    database.close()
    with pytest.raises(SourceError, match=r"database .*other\.db has no position of it; only a replica can be promoted"):
        promote(tmp_path / "other.db", broker.bootstrap_servers, changelog)
    with Replica(broker.bootstrap_servers, changelog, SqliteStore(tmp_path / "sharded.db", sharded=True)) as replica:
        replica.wait_for(0, 1)
    with pytest.raises(SourceError, match="has the column _shard, for several shards"):
        promote(tmp_path / "sharded.db", broker.bootstrap_servers, changelog)
    write(master, 2)
    assert items(tmp_path / "master.db") == [1, 2], "it was not fenced"
