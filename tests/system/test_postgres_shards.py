"""A database of PostgreSQL whose rows are divided over the shards of a changelog by the hash of their keys (mission I5): each row is in one
shard, a transaction is a commit in each shard that it has changed and in the log as a whole, and replicas of shards can take over.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from moldau.changelog.all_shards import PARTS, SHARDS, TRANSACTION, shard_of
from moldau.changelog.checksums import compare
from moldau.changelog.columns import key_text
from moldau.changelog.divided_copy import DividedCopy
from moldau.changelog.envelope import CommitRecord
from moldau.changelog.errors import PublisherFencedError
from moldau.changelog.masters import masters
from moldau.changelog.postgres import source as source_module
from moldau.changelog.postgres.errors import SlotLostError, SlotState
from moldau.changelog.postgres.slots import READING
from moldau.changelog.postgres.source import Choices, Republish
from moldau.changelog.postgres.store import PostgresStore
from moldau.changelog.publisher import Publisher
from moldau.changelog.replica import Replica
from moldau.changelog.sqlite import Store, promote
from moldau.changelog.sqlite.errors import SourceError
from moldau.changelog.store import WHOLE, KeyRange, Phase
from moldau.changelog.stores.sqlite import SqliteStore
from moldau.changelog.values import ALL_SHARDS, Commit, Table
from moldau.client.cluster import Cluster
from moldau.testing.broker import Broker
from support.postgres import PostgresServer
from support.postgres_changelog import LIMIT_S, PublishedDatabase, RunningSource, last_rows

pytestmark = pytest.mark.system

NUMBERS = count(1)
COUNT = 3
SCHEMA = "CREATE TABLE items (id integer PRIMARY KEY, name text, price numeric); CREATE TABLE notes (id integer PRIMARY KEY, item integer)"
Databases = Callable[..., PublishedDatabase]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def databases(server: PostgresServer, broker: Broker) -> Iterator[Databases]:
    made: list[PublishedDatabase] = []

    def make(schema: str = SCHEMA, tables: Sequence[str] = ("items", "notes")) -> PublishedDatabase:
        made.append(PublishedDatabase(server, broker.bootstrap_servers, f"divided_{next(NUMBERS)}", schema, tables, COUNT))
        return made[-1]

    yield make
    for each in made:
        each.close()


def home(*key: Any) -> int:
    """The shard of a row of items or notes."""
    return shard_of(key_text(["id"], key).encode(), COUNT)


def rows_by_shard(database: PublishedDatabase, table: str) -> list[Mapping[tuple[Any, ...], Any]]:
    return [last_rows(log, table) for log in database.logs()]


def check_rows(database: PublishedDatabase) -> None:
    """Each row is in its shard, once, and as the database has it."""
    for table in ("items", "notes"):
        found: dict[Any, Any] = {}
        for shard, rows in enumerate(rows_by_shard(database, table)):
            assert {key: home(*key) for key in rows} == dict.fromkeys(rows, shard)
            found |= {key: tuple(row.values()) for key, row in rows.items()}
        assert found == {row[:1]: row for row in database.execute(f"SELECT * FROM {table}").fetchall()}


def test_each_row_is_in_the_shard_of_its_key_from_the_snapshot_on(databases: Databases, tmp_path: Path) -> None:
    database = databases()
    database.execute("INSERT INTO items SELECT number, 'x', 0.5 FROM generate_series(1, 3000) number")
    with database.published() as running:
        database.execute("UPDATE items SET price = 2 WHERE id % 3 = 0")
        database.execute("DELETE FROM items WHERE id % 5 = 0")
        database.execute("INSERT INTO notes SELECT number, number FROM generate_series(1, 50) number")
        running.wait_published()
    check_rows(database)
    sizes = [len(rows) for rows in rows_by_shard(database, "items")]
    assert min(sizes) > 0.8 * sum(sizes) / COUNT
    assert database.replicate(SqliteStore(tmp_path / "copy.db", sharded=True)) == database.checksums()


def test_a_transaction_is_a_commit_in_each_shard_that_it_has_changed(databases: Databases) -> None:
    """With one number over all shards, the place in the server's log, and how many shards have a part of it."""
    database = databases()
    with database.published() as running:
        running.wait_published()
        last = running.source.statistics().commit
        for number in range(20):
            with database.connection.transaction():
                database.execute("INSERT INTO items VALUES (%s, 'x', 1.5)", [number])
                database.execute("INSERT INTO notes VALUES (%s, %s)", [number + 100, number])
        running.wait_published()
    logs, found = database.logs(), transactions(database)
    assert sorted(found) == [*range(1, max(found) + 1)]
    for transaction, parts in found.items():
        assert {each.source[PARTS] for each in parts.values()} == {len(parts)}
        assert {each.source[SHARDS] for each in parts.values()} == {COUNT}
        assert len({(each.source["lsn"], each.epoch, each.time_ms) for each in parts.values()}) == 1
        number = transaction - last - 1
        if 0 <= number < 20:
            assert set(parts) == {home(number), home(number + 100)}
            assert {(each.table, *each.key) for shard, part in parts.items() for each in logs[shard].of_commit(part.commit)} == {
                ("items", number),
                ("notes", number + 100),
            }


def test_a_key_that_changes_moves_its_row_to_another_shard(databases: Databases, tmp_path: Path) -> None:
    database = databases()
    database.execute("INSERT INTO items SELECT number, 'x', 0 FROM generate_series(1, 40) number")
    with database.published() as running:
        database.execute("UPDATE items SET id = id + 1000")
        running.wait_published()
    check_rows(database)
    assert {key for rows in rows_by_shard(database, "items") for (key,) in rows} == {*range(1001, 1041)}
    assert database.replicate(SqliteStore(tmp_path / "copy.db", sharded=True)) == database.checksums()


def test_a_truncation_deletes_the_rows_of_all_shards(databases: Databases, tmp_path: Path) -> None:
    database = databases()
    database.execute("INSERT INTO items SELECT number, 'x', 0 FROM generate_series(1, 50) number")
    with database.published() as running:
        database.execute("BEGIN; INSERT INTO items VALUES (51, 'y', 0); TRUNCATE items; INSERT INTO items VALUES (7, 'z', 0); COMMIT")
        running.wait_published()
    check_rows(database)
    assert database.replicate(SqliteStore(tmp_path / "copy.db", sharded=True)) == database.checksums()


def test_a_transaction_larger_than_memory_is_divided(databases: Databases, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from moldau.changelog.postgres import transactions

    monkeypatch.setattr(transactions, "MEMORY_CHANGES", 100)
    database = databases()
    with database.published() as running:
        database.execute("INSERT INTO items SELECT number, 'x', 0 FROM generate_series(1, 2000) number")
        running.wait_published()
    check_rows(database)
    assert database.replicate(SqliteStore(tmp_path / "copy.db", sharded=True)) == database.checksums()


def test_all_shards_are_reading_until_all_rows_are_in_the_log(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a shard that has none of the first rows: else its replica would follow before it has any."""
    database = databases()
    database.execute("INSERT INTO items SELECT number, 'x', 0 FROM generate_series(1, 500) number")
    monkeypatch.setattr("moldau.changelog.postgres.snapshot.ROWS_FIRST", 1)
    publish, published = Publisher.publish, count(1)

    def fail_at_the_third(self: Publisher, commits: Sequence[Commit], tables: Mapping[str, Table]) -> None:
        if next(published) == 3:
            raise KeyError("it ends here")
        publish(self, commits, tables)

    with monkeypatch.context() as patched:
        patched.setattr(Publisher, "publish", fail_at_the_third)
        assert isinstance(RunningSource(database).wait_failed(), KeyError)
    assert [log.commits[-1].source[READING] for log in database.logs()] == ["all"] * COUNT
    with database.published() as running:
        running.wait_published()
    assert all(READING not in log.commits[-1].source for log in database.logs())
    check_rows(database)


def transactions(database: PublishedDatabase) -> dict[int, dict[int, CommitRecord]]:
    """By number and shard."""
    found: dict[int, dict[int, CommitRecord]] = {}
    for shard, log in enumerate(database.logs()):
        for record in log.commits:
            found.setdefault(int(record.source[TRANSACTION]), {})[shard] = record
    return found


def test_all_shards_are_reading_when_a_publisher_that_runs_publishes_all_again(databases: Databases) -> None:
    database = databases()
    database.execute("INSERT INTO items VALUES (1, 'x', 0)")
    with database.published(Choices(republish=Republish.LOST)) as running:
        running.wait_published()
        last = running.source.statistics().commit
        database.drop_used_slot()
        running.wait_published()
    again = [
        parts for number, parts in sorted(transactions(database).items()) if number > last and READING in next(iter(parts.values())).source
    ]
    assert (len(again[0]), len(again[-1])) == (COUNT, 1), "before the rows, and the only item"
    check_rows(database)


def test_a_publisher_that_starts_again_describes_tables_with_a_commit_in_each_shard(databases: Databases) -> None:
    """A description without a commit after it would wait there, and a replica with it."""
    database = databases()
    with database.published() as running:
        running.wait_published()
        last = running.source.statistics().commit
    with database.published() as running:
        running.wait_published()
        running.wait_published()
    assert [len(parts) for number, parts in sorted(transactions(database).items()) if number > last] == [COUNT, 1]


def test_a_table_that_changes_is_described_in_all_shards(databases: Databases, tmp_path: Path) -> None:
    """The rows that are published again end with a commit in each shard, so that no replica stays `loading`."""
    database = databases()
    database.execute("INSERT INTO items SELECT number, 'x', 0 FROM generate_series(1, 30) number")
    store = SqliteStore(tmp_path / "copy.db", sharded=True)
    with database.published() as running:
        database.execute("ALTER TABLE items ADD COLUMN colour text DEFAULT 'red'")
        database.execute("UPDATE items SET price = 1 WHERE id = 1")
        running.wait_published()
    logs = database.logs()
    assert [set(log.tables["items"].columns) for log in logs] == [{"id", "name", "price", "colour"}] * COUNT
    assert all(READING not in log.commits[-1].source for log in logs)
    assert {row["colour"] for rows in rows_by_shard(database, "items") for row in rows.values()} == {"red"}
    assert database.replicate(store) == database.checksums()


def test_a_log_that_grows_without_changes_of_the_tables_is_released(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a commit in each shard."""
    monkeypatch.setattr(source_module, "MARK_BYTES", 200_000)
    database = databases(f"{SCHEMA}; CREATE TABLE others (words text)")
    with database.published() as running:
        running.wait_published()
        before = [len(log.commits) for log in database.logs()]
        lsn = running.source.statistics().lsn
        while running.source.statistics().lsn == lsn:
            database.execute("INSERT INTO others SELECT repeat('x', 100) FROM generate_series(1, 500)")
    after = [[commit for commit in log.commits[length:] if not commit.counts] for log, length in zip(database.logs(), before, strict=True)]
    assert all(after)


def test_a_dropped_slot_has_all_shards_published_again(databases: Databases, tmp_path: Path) -> None:
    database = databases()
    database.execute("INSERT INTO items SELECT number, 'x', 0 FROM generate_series(1, 100) number")
    with database.published() as running:
        running.wait_published()
    database.wait_slot_free()
    database.execute("SELECT pg_drop_replication_slot(%s)", [database.slot])
    database.execute("DELETE FROM items WHERE id <= 40")
    database.execute("INSERT INTO items VALUES (1000, 'while it was away', 1)")
    error = RunningSource(database).wait_failed()
    assert isinstance(error, SlotLostError)
    assert error.state is SlotState.MISSING
    with database.published(Choices(republish=Republish.LOST)) as running:
        running.wait_published()
    check_rows(database)
    assert database.replicate(SqliteStore(tmp_path / "copy.db", sharded=True)) == database.checksums()


def test_a_replica_of_one_shard_is_compared_with_the_rows_of_that_shard(databases: Databases, tmp_path: Path) -> None:
    database = databases()
    database.execute("INSERT INTO items SELECT number, 'x', number * 1.50 FROM generate_series(1, 4000) number")
    with database.published() as running:
        running.wait_published()
    (log, *_) = logs = database.logs()
    source = PostgresStore(database.conninfo)
    source.prepare("source", list(log.tables.values()))
    divided = DividedCopy(source, COUNT)
    for shard, log in enumerate(logs):
        store = SqliteStore(tmp_path / f"copy{shard}.db")
        with Replica(database.bootstrap, database.name, store, shards=[shard]) as replica:
            replica.wait_for(shard, log.commits[-1].commit, LIMIT_S)
            assert divided.checksum(shard, "items", WHOLE) == store.checksum(shard, "items", WHOLE)
            half = KeyRange((1000,), (2000,))
            assert divided.checksum(shard, "items", half) == store.checksum(shard, "items", half)
            assert list(compare(divided, store, shard, "items", rows_max=50)) == []
    gone, changed, new = (next(number for number in range(start, 4000) if home(number) == 1) for start in (10, 2000, 3000))
    database.execute("UPDATE items SET name = 'other' WHERE id = %s", [changed])
    database.execute("DELETE FROM items WHERE id = %s", [gone])
    database.execute("UPDATE items SET id = id + 10000 WHERE id = %s", [new])
    store = SqliteStore(tmp_path / "copy1.db")
    store.look(database.name, list(log.tables.values()))
    found = {(each.kind.value, *each.key) for each in compare(divided, store, 1, "items", rows_max=50)}
    moved = {("missing", new + 10000)} if home(new + 10000) == 1 else set()
    assert found == {("extra", gone), ("different", changed), ("extra", new), *moved}
    source.close()
    store.close()


def test_a_publisher_of_one_shard_fences_that_of_all_and_is_fenced_by_it(databases: Databases) -> None:
    database = databases()
    with database.published() as running:
        running.wait_published()
        with Publisher(database.bootstrap, database.name, 1, shards=COUNT) as single:
            database.execute("INSERT INTO items SELECT number, 'x', 0 FROM generate_series(1, 40) number")
            error = running.wait_failed()
            assert isinstance(error, PublisherFencedError)
            assert f"changelog {database.name}, all shards: fenced after transaction" in str(error)
            with database.published() as again:
                again.wait_published()
            with pytest.raises(PublisherFencedError):
                single.publish([Commit(1, 1, single.commit + 1, 0, [])], {})
    check_rows(database)


def test_replicas_of_the_shards_are_promoted_and_the_database_is_fenced(databases: Databases, tmp_path: Path) -> None:
    """The promotion of one shard fences all; no acknowledged commit is lost. Published again the database is the master of all, in an epoch
    of its own, and rows that masters have written to other shards than the hash names are deleted there.
    """
    database = databases()
    database.execute("INSERT INTO items SELECT number, 'x', 0 FROM generate_series(1, 60) number")
    with database.published(Choices(address="database")) as running:
        running.wait_published()
        for shard, log in enumerate(database.logs()):
            with Replica(database.bootstrap, database.name, SqliteStore(tmp_path / f"copy{shard}.db"), shards=[shard]) as replica:
                replica.wait_for(shard, log.commits[-1].commit, LIMIT_S)
        database.execute("INSERT INTO items SELECT number, 'acknowledged', 0 FROM generate_series(61, 120) number")
        running.wait_published()
        promote(str(tmp_path / "copy0.db"), database.bootstrap, database.name, 0, shards=COUNT, address="copy0")
        database.execute("INSERT INTO items SELECT number, 'never acknowledged', 0 FROM generate_series(121, 160) number")
        assert isinstance(running.wait_failed(), PublisherFencedError)
    for republish in (Republish.NEVER, Republish.LOST):
        error = RunningSource(database, Choices(republish=republish)).wait_failed()
        assert isinstance(error, SlotLostError)
        assert error.state is SlotState.REPLACED
    with Cluster(database.bootstrap) as cluster:
        assert [(each.epoch, each.address) for each in masters(cluster, database.name)] == [(2, "copy0"), (1, "database"), (1, "database")]
    for shard in (1, 2):
        promote(str(tmp_path / f"copy{shard}.db"), database.bootstrap, database.name, shard, shards=COUNT, address=f"copy{shard}")
    assert {key for rows in rows_by_shard(database, "items") for (key,) in rows} == {*range(1, 121)}
    stranger = next(number for number in range(1000, 2000) if home(number) != 1)
    with Store(tmp_path / "copy1.db", database.bootstrap, database.name, 1, shards=COUNT) as store:
        with store.transaction() as transaction:
            transaction.execute("INSERT INTO items (id, name) VALUES (?, 'in the wrong shard'), (1, 'also')", (stranger,))
        store.publish()
    database.wait_slot_free()
    with database.published(Choices(republish=Republish.NOW)) as running:
        running.wait_published()
    check_rows(database)
    assert {log.commits[-1].epoch for log in database.logs()} == {3}
    assert database.replicate(SqliteStore(tmp_path / "copy.db", sharded=True)) == database.checksums()


@pytest.mark.parametrize("before", ["one", "all"])
def test_another_division_of_the_rows_is_named(databases: Databases, before: str) -> None:
    """The publisher that is right is not fenced for that."""
    database = databases()

    def source(*, all_shards: bool, choices: Choices | None = None) -> RunningSource:
        database.shard = ALL_SHARDS if all_shards else 0
        return RunningSource(database, choices)

    first = source(all_shards=before == "all")
    first.wait_streaming()
    for choices in (Choices(), Choices(republish=Republish.NOW)):
        error = source(all_shards=before == "one", choices=choices).wait_failed()
        assert isinstance(error, SlotLostError)
        assert error.state is SlotState.DIVIDED, "a row would be in two shards"
    wanted, there = (COUNT, 1) if before == "one" else (1, COUNT)
    assert f"was made with rows divided over {there} shards, and {wanted} are wanted" in str(error)
    first.wait_published()
    first.stop()


def test_a_replica_of_all_shards_is_at_a_commit_of_each(databases: Databases, tmp_path: Path) -> None:
    """Under load, and continued by another process of it; it is never `following` with rows that no commit of the shard had."""
    database = databases()
    database.execute("INSERT INTO items SELECT number, 'x', 0 FROM generate_series(1, 300) number")
    chosen = random.Random(5)
    with database.published() as running:
        for turn in range(4):
            for _ in range(50):
                database.execute("UPDATE items SET price = price + 1 WHERE id < %s", [chosen.randrange(2, 300)])
            running.wait_published()
            found = database.replicate(SqliteStore(tmp_path / "copy.db", sharded=True))
            assert found == database.checksums(), turn
    store = SqliteStore(tmp_path / "copy.db")
    assert {position.phase for position in store.look(database.name).values()} == {Phase.FOLLOWING}
    store.close()


def test_keys_of_all_types_have_one_shard_in_the_snapshot_and_in_the_stream(databases: Databases) -> None:
    """And in the comparison: the key is read from the database as it is in the log."""
    kinds = {
        "number": "numeric", "moment": "timestamptz", "words": "text", "raw": "bytea", "day": "date", "ident": "uuid", "single": "real",
        "padded": "char(6)",
    }  # fmt: skip
    values = {
        "number": "1.50", "moment": "2026-02-28 01:02:03.5+05", "words": "žluť \"\\", "raw": "\\x00ff", "day": "2026-02-28",
        "ident": "6f1c0a52-6a0b-4b5e-9d6e-0c1a2b3c4d5e", "single": "0.1", "padded": "ab",
    }  # fmt: skip
    columns = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
    database = databases(f"CREATE TABLE things (id integer, {columns}, PRIMARY KEY ({', '.join([*kinds, 'id'])}))", ["things"])

    def insert(start: int) -> None:
        for number in range(start, start + 20):
            database.execute(f"INSERT INTO things (id, {', '.join(values)}) VALUES ({number}, {', '.join(['%s'] * len(values))})",
                             list(values.values()))  # fmt: skip

    insert(0)
    with database.published() as running:
        insert(20)
        database.execute("UPDATE things SET number = number WHERE id % 2 = 0")
        running.wait_published()
    rows = rows_by_shard(database, "things")
    assert sum(map(len, rows)) == 40
    assert all(rows)
    source = PostgresStore(database.conninfo)
    source.prepare("source", list(database.log().tables.values()))
    divided = DividedCopy(source, COUNT)
    assert [divided.checksum(shard, "things", WHOLE).rows for shard in range(COUNT)] == [len(each) for each in rows]
    source.close()


@pytest.mark.parametrize(
    ("kind", "alteration", "first"),
    [
        ("numeric(10, 1)", "ALTER id TYPE numeric(10, 2)", "1.00"),
        ("integer", "ALTER id TYPE bigint USING id + 1000", "1001"),
        ("integer", "DROP COLUMN id, ADD COLUMN id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "1"),
    ],
)
def test_rows_with_other_keys_after_an_alteration_are_not_doubled(
    databases: Databases, tmp_path: Path, kind: str, alteration: str, first: str
) -> None:
    """Neither in their shard nor in another one."""
    database = databases(f"CREATE TABLE things (id {kind} PRIMARY KEY, name text)", ["things"])
    database.execute("INSERT INTO things SELECT number, 'x' FROM generate_series(1, 60) number WHERE number NOT IN (2, 3)")
    with database.published() as running:
        database.execute(f"ALTER TABLE things {alteration}")
        database.execute(f"UPDATE things SET name = 'y' WHERE id = {first}")
        running.wait_published()
    assert database.replicate(SqliteStore(tmp_path / "copy.db", sharded=True)) == database.checksums()


def test_keys_that_are_equal_numbers_are_one_row_after_publishing_again(
    databases: Databases, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1.0 is 1.00 now, and in a replica of numbers the deletion of the former may not come after the row."""
    monkeypatch.setattr(PostgresStore, "portion", 20)
    database = databases("CREATE TABLE prices (id numeric PRIMARY KEY, name text)", ["prices"])
    database.execute("INSERT INTO prices SELECT number::numeric(10, 1), 'x' FROM generate_series(1, 300) number")
    with database.published() as running:
        running.wait_published()
    store = PostgresStore(server.create(f"{database.name}_copy"), sharded=True)
    assert database.replicate(store) == database.checksums()
    database.wait_slot_free()
    database.execute("SELECT pg_drop_replication_slot(%s)", [database.slot])
    database.execute("UPDATE prices SET id = id::numeric(10, 2)")
    with database.published(Choices(republish=Republish.LOST)) as running:
        running.wait_published()
    assert database.replicate(store) == database.checksums()
    store.close()


def test_keys_of_a_promoted_replica_that_are_no_text_are_deleted(databases: Databases, tmp_path: Path) -> None:
    """SQLite takes bytes as text that are not UTF-8; the shard of their records is that of the bytes in the log."""
    database = databases("CREATE TABLE words (word text PRIMARY KEY)", ["words"])
    database.execute("INSERT INTO words SELECT 'w' || number FROM generate_series(1, 20) number")
    with database.published() as running:
        running.wait_published()
        copy = tmp_path / "copy.db"
        with Replica(database.bootstrap, database.name, SqliteStore(copy), shards=[1]) as replica:
            replica.wait_for(1, database.log(1).commits[-1].commit, LIMIT_S)
    promote(str(copy), database.bootstrap, database.name, 1, shards=COUNT)
    with Store(copy, database.bootstrap, database.name, 1, shards=COUNT) as store:
        with store.transaction() as transaction:
            for byte in range(0xF0, 0x100):
                transaction.execute(f"INSERT INTO words VALUES (CAST(X'66{byte:x}61' AS TEXT))")
        store.publish()
    database.wait_slot_free()
    with database.published(Choices(republish=Republish.NOW)) as running:
        running.wait_published()
    assert {key for rows in rows_by_shard(database, "words") for (key,) in rows} == {f"w{number}" for number in range(1, 21)}


def test_a_table_that_was_not_published_again_to_its_end_is_when_the_next_publisher_starts(
    databases: Databases, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without a change of it; else a replica would follow with some rows as they were before."""
    monkeypatch.setattr("moldau.changelog.postgres.snapshot.ROWS_FIRST", 1)
    database = databases()
    database.execute("INSERT INTO items SELECT number, 'x', 0 FROM generate_series(1, 200) number")
    publish, chunks = Publisher.publish, count(1)

    def fail_in_the_rows(self: Publisher, commits: Sequence[Commit], tables: Mapping[str, Table]) -> None:
        if commits[0].source.get(READING) == "items" and next(chunks) == 2:
            raise KeyError("it ends here")
        publish(self, commits, tables)

    with database.published() as running:
        running.wait_published()
    with monkeypatch.context() as patched:
        patched.setattr(Publisher, "publish", fail_in_the_rows)
        running = RunningSource(database)
        running.wait_streaming()
        database.execute("ALTER TABLE items ADD COLUMN colour text DEFAULT 'red'")
        database.execute("UPDATE items SET price = 1 WHERE id = 1")
        assert isinstance(running.wait_failed(), KeyError)
    running.publisher.close()
    with database.published() as again:
        again.wait_published()
    assert database.replicate(SqliteStore(tmp_path / "copy.db", sharded=True)) == database.checksums()


@pytest.mark.parametrize("kind", ["numeric", "timestamptz", "boolean"])
def test_a_replica_with_keys_that_sqlite_would_publish_otherwise_is_not_promoted(databases: Databases, tmp_path: Path, kind: str) -> None:
    """Each row would be in the log twice. The publisher is not fenced for that."""
    database = databases(f"CREATE TABLE things (id {kind} PRIMARY KEY, name text)", ["things"])
    with database.published() as running:
        running.wait_published()
        with Replica(database.bootstrap, database.name, SqliteStore(tmp_path / "copy.db"), shards=[1]) as replica:
            replica.wait_for(1, database.log(1).commits[-1].commit, LIMIT_S)
        with pytest.raises(SourceError, match="shard 1: table things: column id of its primary key is of type"):
            promote(str(tmp_path / "copy.db"), database.bootstrap, database.name, 1, shards=COUNT)
        running.wait_published()


def test_a_key_that_was_altered_twice_leaves_no_rows_of_the_keys_between(databases: Databases, tmp_path: Path) -> None:
    """The rows that are published again are those of the last keys, and changes of the keys before come after them in the stream."""
    database = databases("CREATE TABLE things (id numeric(10, 1) PRIMARY KEY, name text)", ["things"])
    database.execute("INSERT INTO things SELECT number, 'x' FROM generate_series(1, 30) number")
    with database.published() as running:
        running.wait_published()
    database.execute("ALTER TABLE things ALTER id TYPE numeric(10, 2)")
    for number in range(1, 10):
        database.execute("UPDATE things SET name = 'y' WHERE id = %s", [number])
    database.execute("ALTER TABLE things ALTER id TYPE numeric(10, 3)")
    with database.published() as running:
        running.wait_published()
        running.wait_published()
    assert database.replicate(SqliteStore(tmp_path / "copy.db", sharded=True)) == database.checksums()
