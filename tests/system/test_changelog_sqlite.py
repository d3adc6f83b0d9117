"""A database in SQLite is published as it is written: by our transactions, by other writers, and by rows that were there."""

import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.changelog.errors import PublisherFencedError, SequenceError
from moldau.changelog.sqlite import Source, Store
from moldau.changelog.sqlite.errors import SchemaChangedError, SourceError
from moldau.changelog.sqlite.outbox import READING
from moldau.changelog.values import ALL_SHARDS, Op
from moldau.model.errors import PeerError, WorldError
from moldau.testing.broker import Broker
from support.changelog_log import ChangelogLog, read_log
from support.changelog_outbox import apply, rows_of
from support.interrupted_commit import interrupt_next_commit

pytestmark = pytest.mark.system

ITEMS = "CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT UNIQUE, price)"
LIMIT_S = 30.0


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def changelog(broker: Broker) -> str:
    return broker.unique_topic("shop")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "shop.db"
    with sqlite3.connect(made) as database:
        database.execute(ITEMS)
    database.close()
    return made


def checked(broker: Broker, changelog: str, path: Path) -> ChangelogLog:
    """What the log has, which is whole, and gives the table."""
    found = read_log(broker.bootstrap_servers, changelog, "items")
    found.check()
    database = sqlite3.connect(path)
    assert apply({"items": {}}, found.all_changes())["items"] == rows_of(database, "items", ["id"])
    database.close()
    return found


def test_a_transaction_is_a_commit_that_is_acknowledged_when_the_log_has_it(broker: Broker, changelog: str, path: Path) -> None:
    with Store(path, broker.bootstrap_servers, changelog) as store:
        with store.transaction() as transaction:
            transaction.execute("INSERT INTO items VALUES (1, 'tea', 1.5), (2, 'rice', 2)")
            transaction.execute("UPDATE items SET price = 3 WHERE id = 1")
        assert transaction.commit == 1
        assert store.publish(transaction.commit) == 1
        with store.transaction() as empty:
            empty.execute("DELETE FROM items WHERE id = 9")
        assert empty.commit is None
        with pytest.raises(RuntimeError, match="the transaction has ended"):
            empty.execute("SELECT 1")
    found = checked(broker, changelog, path)
    assert [change.op for change in found.of_commit(1)] == [Op.CREATE, Op.CREATE, Op.UPDATE]
    assert found.tables["items"].key == ("id",)


def test_a_transaction_that_an_exception_leaves_is_in_neither(broker: Broker, changelog: str, path: Path) -> None:
    with Store(path, broker.bootstrap_servers, changelog) as store:
        with pytest.raises(ZeroDivisionError), store.transaction() as transaction:  # noqa: PT012
            transaction.execute("INSERT INTO items VALUES (1, 'tea', 1.5)")
            _ = 1 / 0
        assert store.publish() == 0
        with store.transaction() as transaction:
            transaction.execute("INSERT INTO items VALUES (2, 'rice', 1.5)")
        assert store.publish() == transaction.commit == 1
    assert [change.key for change in checked(broker, changelog, path).all_changes()] == [(2,)]


def test_transactions_are_one_at_a_time_and_end_with_their_block(path: Path) -> None:
    with Store(path, "127.0.0.1:1", "shop") as store:
        with store.transaction(), pytest.raises(RuntimeError, match="this thread has a transaction open already"), store.transaction():
            pass
        with pytest.raises(RuntimeError, match="the transaction was ended by a statement"), store.transaction() as transaction:
            transaction.execute("COMMIT")
        with store.transaction() as transaction:
            transaction.executemany("INSERT INTO items VALUES (?, ?, 1)", [(1, "tea"), (2, "rice")])
        assert store.source.statistics() == {"commit": 0, "sealed": 1, "outbox": 2}


def test_other_writers_are_published_too_and_not_mixed_with_a_transaction_of_ours(broker: Broker, changelog: str, path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    with Store(path, broker.bootstrap_servers, changelog) as store:
        other.execute("INSERT INTO items VALUES (1, 'tea', 1.5)")
        with store.transaction() as transaction:
            transaction.execute("INSERT INTO items VALUES (2, 'rice', 2)")
        assert transaction.commit == 2
        other.execute("DELETE FROM items WHERE id = 1")
        assert store.publish() == 3
    other.close()
    found = checked(broker, changelog, path)
    assert [[change.key for change in found.of_commit(number)] for number in (1, 2, 3)] == [[(1,)], [(2,)], [(1,)]]


def test_a_database_is_one_shard(path: Path) -> None:
    with pytest.raises(SourceError, match="changelog shop: a database in SQLite is one shard"):
        Source(path, "127.0.0.1:9", "shop", ALL_SHARDS, shards=2)


def test_rows_that_were_there_are_published_and_the_next_store_continues(broker: Broker, changelog: str, path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.executemany("INSERT INTO items VALUES (?, ?, 1)", [(number, str(number)) for number in range(2_500)])
    database.close()
    with Store(path, broker.bootstrap_servers, changelog) as store:
        assert store.publish() == 3
    with Store(path, broker.bootstrap_servers, changelog) as store:
        with store.transaction() as transaction:
            transaction.execute("DELETE FROM items WHERE id < 10")
        assert store.publish(transaction.commit) == 4
        assert store.source.statistics() == {"commit": 4, "sealed": 4, "outbox": 10}
    found = checked(broker, changelog, path)
    assert [each.counts["items"] for each in found.commits] == [1_000, 1_000, 500, 10]


def test_many_threads_write_and_each_has_its_acknowledgement(broker: Broker, changelog: str, path: Path) -> None:
    acknowledged: list[int] = []
    with Store(path, broker.bootstrap_servers, changelog) as store:

        def write(first: int) -> None:
            for number in range(first, first + 20):
                with store.transaction() as transaction:
                    transaction.execute("INSERT INTO items VALUES (?, ?, 1)", (number, str(number)))
                assert transaction.commit is not None
                assert store.publish(transaction.commit) >= transaction.commit
                acknowledged.append(transaction.commit)

        threads = [threading.Thread(target=write, args=(first,)) for first in (0, 100, 200, 300)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert sorted(acknowledged) == [*range(1, 81)]
    assert len(checked(broker, changelog, path).commits) == 80


def test_a_source_publishes_what_others_write_while_it_runs(broker: Broker, changelog: str, path: Path) -> None:
    stop = threading.Event()
    with Source(path, broker.bootstrap_servers, changelog) as source:
        thread = threading.Thread(target=source.run, args=(stop,))
        thread.start()
        other = sqlite3.connect(path, isolation_level=None, timeout=LIMIT_S)
        for number in range(50):
            other.execute("INSERT INTO items VALUES (?, ?, 1)", (number, str(number)))
        other.close()
        wait_for(lambda: source.statistics()["outbox"] == 0)
        stop.set()
        thread.join()
    checked(broker, changelog, path)


def wait_for(condition: object) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_broker_that_is_away_delays_what_is_committed(tmp_path: Path, path: Path) -> None:
    with Broker(directory=tmp_path / "broker") as broker, Store(path, broker.bootstrap_servers, "shop") as store:
        with store.transaction() as transaction:
            transaction.execute("INSERT INTO items VALUES (1, 'tea', 1)")
        store.publish(transaction.commit)
        broker.restart()
        with store.transaction() as transaction:
            transaction.execute("INSERT INTO items VALUES (2, 'rice', 1)")
        assert store.publish(transaction.commit) == 2
        checked(broker, "shop", path)


def test_a_source_that_runs_retries_while_the_broker_is_away(tmp_path: Path, path: Path) -> None:
    stop = threading.Event()
    with Broker(directory=tmp_path / "broker") as broker:
        source = Source(path, broker.bootstrap_servers, "shop")
        broker.stop()
        thread = threading.Thread(target=source.run, args=(stop,))
        thread.start()
        other = sqlite3.connect(path, isolation_level=None, timeout=LIMIT_S)
        other.execute("INSERT INTO items VALUES (1, 'tea', 1)")
        broker.start()
        wait_for(lambda: source.commit == 1)
        broker.restart()
        other.execute("INSERT INTO items VALUES (2, 'rice', 1)")
        wait_for(lambda: source.commit == 2)
        other.close()
        stop.set()
        thread.join()
        source.close()
        checked(broker, "shop", path)


def test_without_a_broker_a_transaction_commits_and_its_publication_fails(path: Path) -> None:
    with Store(path, "127.0.0.1:1", "shop") as store:
        with store.transaction() as transaction:
            transaction.execute("INSERT INTO items VALUES (1, 'tea', 1)")
        with pytest.raises((WorldError, PeerError), match=r"127\.0\.0\.1:1"):
            store.publish(transaction.commit)
        assert store.source.statistics() == {"commit": 0, "sealed": 1, "outbox": 1}


def test_a_second_publisher_fences_the_first(broker: Broker, changelog: str, path: Path) -> None:
    with Store(path, broker.bootstrap_servers, changelog) as first, Store(path, broker.bootstrap_servers, changelog) as second:
        with first.transaction() as transaction:
            transaction.execute("INSERT INTO items VALUES (1, 'tea', 1)")
        first.publish()
        second.publish()
        with first.transaction() as transaction:
            transaction.execute("INSERT INTO items VALUES (2, 'rice', 1)")
        for _ in range(2):
            with pytest.raises(PublisherFencedError, match="stop one and start the other again"):
                first.publish()
        assert second.publish() == 2
    checked(broker, changelog, path)


def test_a_copy_that_is_older_than_the_log_is_refused(broker: Broker, changelog: str, path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    with Store(path, broker.bootstrap_servers, changelog) as store:
        with store.transaction() as transaction:
            transaction.execute("INSERT INTO items VALUES (1, 'tea', 1)")
        store.publish()
        with sqlite3.connect(path) as database, sqlite3.connect(copy) as target:
            database.backup(target)
        database.close()
        target.close()
        with store.transaction() as transaction:
            transaction.execute("INSERT INTO items VALUES (2, 'rice', 1)")
        store.publish()
    with (
        Store(copy, broker.bootstrap_servers, changelog) as store,
        pytest.raises(SequenceError, match="the log has commit 2 and this database only commit 1: it is older than the log"),
    ):
        store.publish()


def test_a_copy_that_is_older_than_the_log_is_refused_after_it_was_written(
    broker: Broker, changelog: str, path: Path, tmp_path: Path
) -> None:
    """It has a commit with the number of the log's last one, which is another one."""
    copy = tmp_path / "copy.db"
    with Store(path, broker.bootstrap_servers, changelog) as store:
        with store.transaction() as transaction:
            transaction.execute("INSERT INTO items VALUES (1, 'tea', 1)")
        store.publish()
        with sqlite3.connect(path) as database, sqlite3.connect(copy) as target:
            database.backup(target)
        database.close()
        target.close()
        with store.transaction() as transaction:
            transaction.execute("INSERT INTO items VALUES (2, 'rice', 1)")
        store.publish()
    with Store(copy, broker.bootstrap_servers, changelog) as store:
        for number in (3, 4):
            with store.transaction() as transaction:
                transaction.execute("INSERT INTO items VALUES (?, ?, 1)", (number, str(number)))
            with pytest.raises(SequenceError, match=r"commit 2 in the log is of .* it is older than the log \(a copy, or it was rest"):
                store.publish(transaction.commit)
    checked(broker, changelog, path)


def test_another_database_is_refused(broker: Broker, changelog: str, path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    for each in (path, other):
        with sqlite3.connect(each) as database:
            if each == other:
                database.execute(ITEMS)
            database.execute("INSERT INTO items VALUES (1, 'tea', 1)")
        database.close()
    with Store(path, broker.bootstrap_servers, changelog) as store:
        store.publish()
    with (
        Store(other, broker.bootstrap_servers, changelog) as store,
        pytest.raises(SequenceError, match="commit 1 in the log is of another database"),
    ):
        store.publish()


def test_a_log_that_was_deleted_is_named(broker: Broker, changelog: str, path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("INSERT INTO items VALUES (1, 'tea', 1)")
    database.close()
    for _ in range(2):  # the second one deletes what is in the log from the outbox
        with Store(path, broker.bootstrap_servers, changelog) as store:
            assert store.publish() == 1
    for name in ("items", "_commits"):
        broker.delete_topic(f"{changelog}.{name}")
    with (
        Store(path, broker.bootstrap_servers, changelog) as store,
        pytest.raises(
            SequenceError, match=r"the log ends with commit 0, and the database has deleted commits up to 1 .* begin a new changelog"
        ),
    ):
        store.publish()


def test_a_column_that_is_added_is_in_the_log_with_all_rows(broker: Broker, changelog: str, path: Path) -> None:
    with Store(path, broker.bootstrap_servers, changelog) as store:
        with store.transaction() as transaction:
            transaction.execute("INSERT INTO items VALUES (1, 'tea', 1)")
        store.publish()
        with store.transaction() as transaction:
            transaction.execute("ALTER TABLE items ADD COLUMN stock INTEGER DEFAULT 5")
            transaction.execute("INSERT INTO items VALUES (2, 'rice', 1, 7)")
        store.publish()
    found = checked(broker, changelog, path)
    assert found.tables["items"].columns == {"id": "integer", "name": "text", "price": "bytes", "stock": "integer"}


def test_no_complete_commit_lacks_a_column_that_another_writer_has_added_before_it(broker: Broker, changelog: str, path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    with Store(path, broker.bootstrap_servers, changelog) as store:
        other.execute("INSERT INTO items VALUES (1, 'tea', 1)")
        store.publish()
        for number, publish in ((2, store.publish), (3, lambda: written(store))):
            other.execute(f"ALTER TABLE items ADD COLUMN x{number} DEFAULT 5")
            columns = ", ".join(f"x{each}" for each in range(2, number + 1))
            other.execute(f"INSERT INTO items (id, {columns}) VALUES ({number}, {', '.join('7' * (number - 1))})")
            publish()
    other.close()
    found = checked(broker, changelog, path)
    for number in (2, 3):
        first = next(
            each for each in found.commits if number in [key for (key,) in (change.key for change in found.of_commit(each.commit))]
        )
        assert READING in first.source
    assert READING not in found.commits[-1].source


def written(store: Store) -> None:
    """By a transaction of its own, and published."""
    with store.transaction() as transaction:
        transaction.execute("UPDATE items SET price = 2 WHERE id = 1")
    store.publish()


@pytest.mark.parametrize("own", [False, True], ids=["another writer", "a transaction of ours"])
def test_a_row_that_is_replaced_because_of_a_new_index_is_deleted_in_the_log(
    broker: Broker, changelog: str, path: Path, *, own: bool
) -> None:
    statements = ("CREATE UNIQUE INDEX by_price ON items (price)", "REPLACE INTO items VALUES (2, 'rice', 1)")
    with Store(path, broker.bootstrap_servers, changelog) as store:
        with store.transaction() as transaction:
            transaction.execute("INSERT INTO items VALUES (1, 'tea', 1)")
        store.publish()
        if own:
            with store.transaction() as transaction:
                for each in statements:
                    transaction.execute(each)
        else:
            with sqlite3.connect(path) as database:
                database.executescript("; ".join(statements))
            database.close()
        store.publish()
    found = checked(broker, changelog, path)
    assert READING in found.commits[1].source
    assert READING not in found.commits[-1].source


def test_a_table_that_was_made_again_is_named_and_repaired(broker: Broker, changelog: str, path: Path) -> None:
    with Store(path, broker.bootstrap_servers, changelog) as store:
        with store.transaction() as transaction:
            transaction.execute("INSERT INTO items VALUES (1, 'tea', 1), (2, 'rice', 1), (3, 'milk', 1)")
        store.publish()
        with sqlite3.connect(path) as database:
            database.executescript(f"DROP TABLE items; {ITEMS}; INSERT INTO items VALUES (2, 'rice', 2), (4, 'salt', 1)")
        database.close()
        with pytest.raises(SchemaChangedError, match=r"the triggers of table items are missing.*`Source\.repair\('items'\)`"):
            store.publish()
        assert store.source.repair("items") == 2
    found = checked(broker, changelog, path)
    assert [change.key for change in found.all_changes() if change.op is Op.DELETE] == [(1,), (3,)]


def test_a_repair_that_does_not_end_is_ended_by_the_next_source_and_replicas_load_until_then(
    broker: Broker, changelog: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(path, broker.bootstrap_servers, changelog) as store:
        with store.transaction() as transaction:
            transaction.execute("INSERT INTO items VALUES (1, 'tea', 1), (2, 'rice', 1)")
        store.publish()
        with sqlite3.connect(path) as database:
            database.executescript(f"DROP TABLE items; {ITEMS}; INSERT INTO items VALUES (2, 'rice', 2)")
        database.close()
        with monkeypatch.context() as patched:
            patched.setattr("moldau.changelog.sqlite.source.delete_missing", interrupted)
            with pytest.raises(KeyboardInterrupt):
                store.source.repair("items")
    assert READING in read_log(broker.bootstrap_servers, changelog, "items").commits[-1].source
    with Store(path, broker.bootstrap_servers, changelog) as store:
        store.publish()
    found = checked(broker, changelog, path)
    assert [change.key for change in found.all_changes() if change.op is Op.DELETE] == [(1,)]
    assert READING not in found.commits[-1].source


def interrupted(*_: object) -> int:
    raise KeyboardInterrupt


def test_a_repair_that_fails_while_it_reads_the_log_can_be_done_again(
    broker: Broker, changelog: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(path, broker.bootstrap_servers, changelog) as store:
        with store.transaction() as transaction:
            transaction.execute("INSERT INTO items VALUES (1, 'tea', 1)")
        store.publish()
        with monkeypatch.context() as patched:
            patched.setattr("moldau.changelog.sqlite.repairing.decode_change", interrupted)
            with pytest.raises(KeyboardInterrupt):
                store.source.repair("items")
        with store.transaction() as transaction:
            transaction.execute("INSERT INTO items VALUES (2, 'rice', 1)")
        assert store.source.repair("items") == 0
    checked(broker, changelog, path)


def test_a_repair_deletes_rows_whose_keys_are_only_equal_to_those_of_the_table(broker: Broker, changelog: str, path: Path) -> None:
    codes = "CREATE TABLE codes (k TEXT COLLATE NOCASE PRIMARY KEY, v)"
    with sqlite3.connect(path) as database:
        database.executescript(f"{codes}; INSERT INTO codes VALUES ('a', 1), ('b', 1)")
    database.close()
    with Store(path, broker.bootstrap_servers, changelog, tables=["codes"]) as store:
        store.publish()
        with sqlite3.connect(path) as database:
            database.executescript(f"DROP TABLE codes; {codes}; INSERT INTO codes VALUES ('A', 1), ('b', 1)")
        database.close()
        assert store.source.repair("codes") == 1
    found = read_log(broker.bootstrap_servers, changelog, "codes")
    assert [change.key for change in found.all_changes() if change.op is Op.DELETE] == [("a",)]


def with_tea(path: Path) -> None:
    """Make a replica that has applied the insertion of item 1."""
    with sqlite3.connect(path) as database:
        database.execute(ITEMS)
        database.execute("INSERT INTO items VALUES (1, 'tea', 1)")
    database.close()


def promoted(broker: Broker, changelog: str, path: Path, after: int) -> Store:
    """A replica at `path`, that has applied commits up to this one."""
    last = next(each for each in read_log(broker.bootstrap_servers, changelog, "items").commits if each.commit == after)
    return Store(path, broker.bootstrap_servers, changelog, tables=["items"], promoted_after=last)


def test_a_promoted_replica_continues_the_log_and_the_former_master_is_fenced(
    broker: Broker, changelog: str, path: Path, tmp_path: Path
) -> None:
    replica = tmp_path / "replica.db"
    with Store(path, broker.bootstrap_servers, changelog) as master:
        with master.transaction() as transaction:
            transaction.execute("INSERT INTO items VALUES (1, 'tea', 1)")
        master.publish()
        with_tea(replica)
        with promoted(broker, changelog, replica, 1) as store:
            with store.transaction() as transaction:
                transaction.execute("INSERT INTO items VALUES (2, 'rice', 1)")
            assert store.publish() == 3
            with master.transaction() as transaction:
                transaction.execute("INSERT INTO items VALUES (3, 'lost', 1)")
            with pytest.raises(PublisherFencedError):
                master.publish()
            with store.transaction() as transaction:
                transaction.execute("DELETE FROM items WHERE id = 1")
            assert store.publish() == 4
    with Store(path, broker.bootstrap_servers, changelog) as master, pytest.raises(SequenceError, match=r"in epoch 2 .* in epoch 1"):
        master.publish()
    found = checked(broker, changelog, replica)
    assert [(each.commit, each.epoch, dict(each.counts)) for each in found.commits] == [
        (1, 1, {"items": 1}),
        (2, 2, {}),
        (3, 2, {"items": 1}),
        (4, 2, {"items": 1}),
    ]


def test_a_former_master_that_starts_again_does_not_fence_the_promoted_replica(
    broker: Broker, changelog: str, path: Path, tmp_path: Path
) -> None:
    replica = tmp_path / "replica.db"
    with Store(path, broker.bootstrap_servers, changelog) as master:
        with master.transaction() as transaction:
            transaction.execute("INSERT INTO items VALUES (1, 'tea', 1)")
        master.publish()
    with_tea(replica)
    with promoted(broker, changelog, replica, 1) as store:
        store.publish()
        with Store(path, broker.bootstrap_servers, changelog) as master, pytest.raises(SequenceError, match="another replica was promoted"):
            master.publish()
        with store.transaction() as transaction:
            transaction.execute("INSERT INTO items VALUES (2, 'rice', 1)")
        assert store.publish() == 3
    checked(broker, changelog, replica)


def test_a_replica_that_lacks_commits_cannot_be_promoted(broker: Broker, changelog: str, path: Path, tmp_path: Path) -> None:
    replica = tmp_path / "replica.db"
    with Store(path, broker.bootstrap_servers, changelog) as master:
        for number in (1, 2):
            with master.transaction() as transaction:
                transaction.execute("INSERT INTO items VALUES (?, ?, 1)", (number, str(number)))
            master.publish()
    with sqlite3.connect(replica) as database:
        database.execute(ITEMS)
    database.close()
    lacking = promoted(broker, changelog, replica, 1)
    with lacking, pytest.raises(SequenceError, match="promoted after commit 1, and the log has commit 2 of epoch 1"):
        lacking.publish()


def test_a_publication_that_is_interrupted_writes_no_commit_twice(broker: Broker, changelog: str, path: Path) -> None:
    with Store(path, broker.bootstrap_servers, changelog) as store:
        store.publish()
        interrupt_next_commit(store.source._publisher)
        with store.transaction() as transaction:
            transaction.execute("INSERT INTO items VALUES (1, 'tea', 1)")
        with pytest.raises(KeyboardInterrupt):
            store.publish()
        with store.transaction() as transaction:
            transaction.execute("INSERT INTO items VALUES (2, 'rice', 1)")
        assert store.publish() == 2
    checked(broker, changelog, path)
