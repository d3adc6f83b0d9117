"""A database of PostgreSQL into a changelog, with a real server (mission I5): rows that are there, transactions, and what goes wrong."""

import random
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import count
from pathlib import Path

import psycopg
import pytest

from moldau.changelog.envelope import CommitRecord
from moldau.changelog.errors import PublisherFencedError
from moldau.changelog.postgres import source as source_module
from moldau.changelog.postgres.errors import RefusedError, SlotLostError, SlotState, TableError, UnreachableServerError
from moldau.changelog.postgres.lsn import lsn_of
from moldau.changelog.postgres.published_keys import PublishedKeys
from moldau.changelog.postgres.replication import Exported, ReplicationConnection
from moldau.changelog.postgres.sessions import Server
from moldau.changelog.postgres.source import Choices, Republish
from moldau.changelog.postgres.store import PostgresStore
from moldau.changelog.publisher import Publisher
from moldau.changelog.stores.sqlite import SqliteStore
from moldau.changelog.values import Commit, Key, Table
from moldau.testing.broker import Broker
from support.interrupted_commit import interrupt_next_commit
from support.postgres import PostgresServer
from support.postgres_changelog import LIMIT_S, PublishedDatabase, RunningSource, last_rows, operations

pytestmark = pytest.mark.system

NUMBERS = count(1)
ITEMS = "CREATE TABLE items (id integer PRIMARY KEY, name text, price numeric)"
LONG = "".join(map(chr, random.Random(15).choices(range(33, 1000), k=20_000)))
"""Longer than a page, and not to be compressed into one."""
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

    def make(schema: str = ITEMS, tables: Sequence[str] = ("items",)) -> PublishedDatabase:
        made.append(PublishedDatabase(server, broker.bootstrap_servers, f"bank_{next(NUMBERS)}", schema, tables))
        return made[-1]

    yield make
    for each in made:
        each.close()


TYPES = """
CREATE TYPE mood AS ENUM ('glad', 'sad');
CREATE DOMAIN small AS integer CHECK (VALUE < 100);
CREATE TABLE types (
    id bigint PRIMARY KEY, flag boolean, short smallint, normal integer, single real, precise double precision, number numeric,
    exact numeric(12, 4),
    words text, name varchar(20), padded char(4), ident uuid, doc json, docb jsonb, raw bytea, day date, hour time, moment timestamp,
    instant timestamptz, span interval, list integer[], feeling mood, little small, net inet,
    doubled bigint GENERATED ALWAYS AS (id * 2) STORED
)
"""
INSERTED = """
INSERT INTO types VALUES ({0},
    true, -32768, 2147483647, 0.1, 1e-300, 12345678901234567890.123456789, 1.5, E'žluť\\n\\t"\\\\', 'name', 'ab',
    '6f1c0a52-6a0b-4b5e-9d6e-0c1a2b3c4d5e', '{{"b": 1, "a":  2}}', '{{"b": 1, "a":  2}}', '\\x00ff10', '2026-02-28', '23:59:59.5',
    '2026-02-28 01:02:03.000004', '2026-02-28 01:02:03+05', '1 day 02:00:00', '{{1,NULL,3}}', 'sad', 7, '10.0.0.1/8')
"""
ROW = {
    "flag": True,
    "short": -32768,
    "normal": 2147483647,
    "single": 0.1,
    "precise": 1e-300,
    "number": Decimal("12345678901234567890.123456789"),
    "exact": Decimal("1.5000"),
    "words": 'žluť\n\t"\\',
    "name": "name",
    "padded": "ab  ",
    "ident": "6f1c0a52-6a0b-4b5e-9d6e-0c1a2b3c4d5e",
    "doc": '{"b": 1, "a":  2}',
    "docb": '{"a": 2, "b": 1}',
    "raw": b"\x00\xff\x10",
    "day": date(2026, 2, 28),
    "hour": time(23, 59, 59, 500_000),
    "moment": datetime(2026, 2, 28, 1, 2, 3, 4),  # noqa: DTZ001
    "instant": datetime(2026, 2, 27, 20, 2, 3, tzinfo=UTC),
    "span": "1 day 02:00:00",
    "list": "{1,NULL,3}",
    "feeling": "sad",
    "little": "7",
    "net": "10.0.0.1/8",
}
ODD = """
INSERT INTO types (id, number, exact, precise, single, words, raw, day, moment) VALUES
({0}1, 'NaN', -0.5, 'Infinity', '-Infinity', '', '', '0001-01-01', '9999-12-31 23:59:59.999999')
"""


def test_values_of_all_types_reach_the_log_and_the_stores(databases: Databases, server: PostgresServer, tmp_path: Path) -> None:
    """The same by the snapshot and by the stream, whatever the settings of the database are."""
    database = databases(TYPES, ["types"])
    for setting in (
        "datestyle = 'German'",
        "timezone = 'Asia/Tokyo'",
        "bytea_output = 'escape'",
        "extra_float_digits = 0",
        "intervalstyle = iso_8601",
    ):
        database.execute(f"ALTER DATABASE {database.name} SET {setting}")
    for statement in (INSERTED, ODD, "INSERT INTO types (id) VALUES ({0}2)"):
        database.execute(statement.format(1))
    with database.published() as running:
        for statement in (INSERTED, ODD, "INSERT INTO types (id) VALUES ({0}2)"):
            database.execute(statement.format(2))
        database.execute("UPDATE types SET short = short")
        running.wait_published()
    log = database.log()
    rows = last_rows(log, "types")
    assert rows[(1,)] == {"id": 1, **ROW}
    assert rows[(2,)] == {"id": 2, **ROW}
    before = [each.change.before for each in log.changes["types"] if each.change.op.value == "u"]
    assert repr(before) == repr(list(rows.values())), "NaN is not equal to itself"
    assert repr(rows[(11,)]) == repr({**rows[(21,)], "id": 11})
    assert log.tables["types"].columns["little"] == "text"
    wanted = database.checksums()
    assert database.replicate(SqliteStore(tmp_path / "copy.db")) == wanted
    assert database.replicate(PostgresStore(server.create(f"{database.name}_copy"))) == wanted


def test_transactions_are_whole_and_in_order(databases: Databases) -> None:
    database = databases(f"{ITEMS}; CREATE TABLE notes (id integer PRIMARY KEY, item integer)", ["items", "notes"])
    with database.published() as running:
        before = len(database.log().commits)
        for number in range(20):
            with database.connection.transaction():
                database.execute("INSERT INTO items VALUES (%s, 'x', 1.5)", [number])
                with database.connection.transaction(force_rollback=True):
                    database.execute("INSERT INTO notes VALUES (%s, 0)", [1000 + number])
                database.execute("INSERT INTO notes VALUES (%s, %s)", [number, number])
                database.execute("UPDATE items SET price = 2 WHERE id = %s", [number])
            with database.connection.transaction(force_rollback=True):
                database.execute("DELETE FROM items")
        running.wait_published()
    log = database.log()
    for number, commit in enumerate(log.commits[before : before + 20]):
        changes = [(each.table, each.op.value, each.key) for each in log.of_commit(commit.commit)]
        assert changes == [("items", "c", (number,)), ("notes", "c", (number,)), ("items", "u", (number,))]
        assert abs(commit.time_ms - log.commits[before].time_ms) < 60_000
    places = [lsn_of(str(commit.source["lsn"])) for commit in log.commits]
    assert places == sorted(places)
    assert len(log.commits) == before + 21


def test_keys_that_change_are_a_deletion_and_a_creation(databases: Databases) -> None:
    for before_images in (True, False):
        database = databases()
        database.execute("INSERT INTO items VALUES (1, 'a', 1), (2, 'b', 2)")
        with database.published(Choices(before_images=before_images)) as running:
            database.execute("UPDATE items SET id = id + 10 WHERE id = 1")
            database.execute("DELETE FROM items WHERE id = 2")
            running.wait_published()
        log = database.log()
        assert operations(log, "items") == [("r", (1,)), ("r", (2,)), ("d", (1,)), ("c", (11,)), ("d", (2,))]
        assert (log.changes["items"][2].change.before is not None) == before_images


def test_keys_that_are_equal_but_written_otherwise_leave_no_rows_behind(databases: Databases) -> None:
    """By a change, by a truncation, and when the table is published again."""

    def keys(database: PublishedDatabase) -> set[str]:
        return {str(key) for (key,) in PublishedKeys(database.bootstrap, database.name, 0).of("prices").values()}

    database = databases("CREATE TABLE prices (price numeric PRIMARY KEY)", ["prices"])
    database.execute("INSERT INTO prices VALUES (1.0), (2.0), (3.0)")
    with database.published() as running:
        database.execute("UPDATE prices SET price = 1.00 WHERE price = 1")
        running.wait_published()
        assert keys(database) == {"1.00", "2.0", "3.0"}
        database.execute("BEGIN; UPDATE prices SET price = 2.00 WHERE price = 2; TRUNCATE prices; INSERT INTO prices VALUES (3.0); COMMIT")
        running.wait_published()
        assert keys(database) == {"3.0"}
    database.wait_slot_free()
    database.execute("SELECT pg_drop_replication_slot(%s)", [database.slot])
    database.execute("UPDATE prices SET price = 3.00")
    with database.published(Choices(republish=Republish.LOST)) as running:
        running.wait_published()
    assert keys(database) == {"3.00"}


def test_a_key_that_gets_another_type_is_an_error(databases: Databases) -> None:
    """The topic would keep its rows under keys of the type before."""
    database = databases()
    database.execute("INSERT INTO items VALUES (1, 'a', 1)")
    with database.published() as running:
        database.execute("ALTER TABLE items ALTER COLUMN id TYPE text")
        database.execute("INSERT INTO items VALUES ('2', 'b', 1)")
        errors = [running.wait_failed()]
    errors += [RunningSource(database, Choices(republish=each)).wait_failed() for each in (Republish.NEVER, Republish.NOW)]
    for error in errors:
        assert isinstance(error, TableError)
        assert "table items: column id of its primary key was of type integer of changelogs, and is text" in str(error)


def test_a_truncation_deletes_the_rows_that_the_log_has(databases: Databases, tmp_path: Path) -> None:
    database = databases()
    database.execute("INSERT INTO items SELECT number, 'x', 0 FROM generate_series(1, 50) number")
    with database.published() as running:
        with database.connection.transaction():
            database.execute("INSERT INTO items VALUES (51, 'y', 0)")
            database.execute("DELETE FROM items WHERE id <= 10")
            database.execute("TRUNCATE items")
            database.execute("INSERT INTO items VALUES (7, 'z', 0)")
        running.wait_published()
    log = database.log()
    assert list(last_rows(log, "items")) == [(7,)]
    deleted = [key for op, key in operations(log, "items") if op == "d"]
    assert sorted(deleted) == [(number,) for number in range(1, 52)]
    assert database.replicate(SqliteStore(tmp_path / "copy.db")) == database.checksums()


def test_a_truncation_of_a_long_table_does_not_cost_the_connection(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its topic may be read for longer than a server waits for a client that says nothing; else it would be read again and again."""
    reading = PublishedKeys.of

    def slow(self: PublishedKeys, table: str) -> dict[str, Key]:
        threading.Event().wait(2.0)
        return reading(self, table)

    database = databases()
    database.execute(f"ALTER DATABASE {database.name} SET wal_sender_timeout = '500ms'")
    with database.published() as running:
        monkeypatch.setattr(PublishedKeys, "of", slow)
        database.execute("INSERT INTO items VALUES (1, 'a', 1); TRUNCATE items; INSERT INTO items VALUES (2, 'b', 1)")
        running.wait_published()
        assert running.source.statistics().connections_lost == 0
    assert list(last_rows(database.log(), "items")) == [(2,)]


def test_values_out_of_line_come_with_the_row_before(databases: Databases) -> None:
    database = databases()
    database.execute("INSERT INTO items VALUES (1, %s, 1)", [LONG])
    with database.published() as running:
        database.execute("UPDATE items SET price = 2")
        running.wait_published()
    assert last_rows(database.log(), "items")[(1,)] == {"id": 1, "name": LONG, "price": Decimal(2)}


def test_a_value_out_of_line_that_is_not_sent_is_an_error_with_table_key_and_column(databases: Databases) -> None:
    database = databases()
    database.execute("INSERT INTO items VALUES (1, %s, 1)", [LONG])
    with database.published(Choices(before_images=False)) as running:
        database.execute("UPDATE items SET price = 2")
        error = running.wait_failed()
    assert isinstance(error, TableError)
    assert str(error).startswith("table items, key 1: column name is stored out of line (TOAST)")
    with database.published(Choices(republish=Republish.NOW)) as running:
        database.execute("UPDATE items SET price = 3")
        running.wait_published()
    assert last_rows(database.log(), "items")[(1,)] == {"id": 1, "name": LONG, "price": Decimal(3)}


def test_tables_that_change_in_the_middle_are_followed(databases: Databases, tmp_path: Path) -> None:
    """A column with a default, and one of another type, change rows that no change is logged of: the table is published again."""
    database = databases()
    database.execute("INSERT INTO items SELECT number, 'x', 0.5 FROM generate_series(1, 30) number")
    with database.published() as running:
        database.execute("UPDATE items SET name = 'before' WHERE id = 1")
        database.execute("ALTER TABLE items ADD COLUMN colour text DEFAULT 'red', ADD COLUMN empty integer")
        database.execute("UPDATE items SET name = 'after' WHERE id = 2")
        database.execute("ALTER TABLE items ALTER COLUMN name TYPE varchar(2) USING left(name, 2)")
        database.execute("DELETE FROM items WHERE id = 3")
        running.wait_published()
        assert last_rows(database.log(), "items")[(30,)] == {"id": 30, "name": "x", "price": Decimal("0.5"), "colour": "red", "empty": None}
        assert last_rows(database.log(), "items")[(2,)]["name"] == "af"
        database.execute("ALTER TABLE items RENAME COLUMN colour TO hue")
    # the next change comes while it does not run
    database.execute("UPDATE items SET price = 1 WHERE id = 4")
    with database.published() as running:
        running.wait_published()
        reads = len(operations(database.log(), "items"))
    with database.published() as running:
        running.wait_published()
    log = database.log()
    assert len(operations(log, "items")) == reads, "what the log has is not published again"
    assert set(log.tables["items"].columns) == {"id", "name", "price", "hue", "empty"}
    assert {row["hue"] for row in last_rows(log, "items").values()} == {"red"}
    assert database.replicate(SqliteStore(tmp_path / "copy.db")) == database.checksums()


def wait_followed(running: RunningSource) -> None:
    """The change is published; then what was committed when it was noticed, which begins the publishing again; then that has ended."""
    for _ in range(3):
        running.wait_published()


DROPPED = "ALTER TABLE items DROP COLUMN price"
ADDED = "ALTER TABLE items ADD COLUMN price numeric"
SWAPPED = "ALTER TABLE items RENAME name TO old; ALTER TABLE items RENAME other TO name; ALTER TABLE items RENAME old TO other"


@pytest.mark.parametrize(
    "statements",
    [[DROPPED, ADDED], [DROPPED, "UPDATE items SET name = 'x' WHERE id = 3", ADDED], ["ALTER TABLE items ADD COLUMN other text", SWAPPED]],
    ids=["at once", "with a change between", "swapped"],
)
@pytest.mark.parametrize("is_running", [True, False])
def test_a_column_that_is_another_one_of_the_same_name_is_published_again(
    is_running: bool, statements: Sequence[str], databases: Databases, tmp_path: Path
) -> None:
    """Rows of which no change is logged have other values in it, or none."""
    database = databases()
    database.execute("INSERT INTO items SELECT number, 'x', 0.5 FROM generate_series(1, 5) number")

    def change() -> None:
        database.execute("UPDATE items SET price = 7 WHERE id = 1")
        for statement in statements:
            database.execute(statement)
        database.execute("UPDATE items SET name = 'after' WHERE id = 2")

    with database.published() as running:
        running.wait_published()
        if is_running:
            change()
            wait_followed(running)
    if not is_running:
        change()
        with database.published() as running:
            wait_followed(running)
    assert database.replicate(SqliteStore(tmp_path / "copy.db")) == database.checksums()
    reads = len(operations(database.log(), "items"))
    with database.published() as running:
        database.execute("UPDATE items SET name = 'last' WHERE id = 2")
        running.wait_published()
    assert len(operations(database.log(), "items")) == reads + 1, "it is not published again without need"


def test_rows_and_a_change_of_their_table_in_one_transaction_keep_the_new_values(databases: Databases, tmp_path: Path) -> None:
    database = databases()
    database.execute("INSERT INTO items VALUES (1, 'a', 1)")
    with database.published() as running:
        with database.connection.transaction():
            database.execute("INSERT INTO items VALUES (2, 'b', 1)")
            database.execute("UPDATE items SET name = 'c' WHERE id = 1")
            database.execute("ALTER TABLE items ADD COLUMN colour text DEFAULT 'red'")
            database.execute("INSERT INTO items VALUES (3, 'd', 1, 'blue')")
        running.wait_published()
    assert {key: row["colour"] for key, row in last_rows(database.log(), "items").items()} == {(1,): "red", (2,): "red", (3,): "blue"}
    assert database.replicate(SqliteStore(tmp_path / "copy.db")) == database.checksums()


def test_commits_are_published_with_the_tables_of_their_time(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those before a change of a table come in one batch with it, when the source was away."""
    published: list[tuple[Commit, Mapping[str, Table]]] = []
    publish = Publisher.publish

    def record(self: Publisher, commits: Sequence[Commit], tables: Mapping[str, Table]) -> None:
        published.extend((commit, dict(tables)) for commit in commits)
        publish(self, commits, tables)

    database = databases()
    with database.published() as running:
        running.wait_published()
    database.execute("INSERT INTO items VALUES (1, 'a', 1)")
    database.execute("ALTER TABLE items DROP COLUMN price")
    database.execute("INSERT INTO items VALUES (2, 'b')")
    monkeypatch.setattr(Publisher, "publish", record)
    receive = ReplicationConnection.receive
    monkeypatch.setattr(ReplicationConnection, "receive", lambda self, _: receive(self, 0.2))  # the batch waits for the next transaction
    with database.published() as running:
        running.wait_published()
    changes = [(change, tables) for commit, tables in published for change in commit.changes if change.table == "items"]
    columns = [(change.after or {}, tables["items"].columns) for change, tables in changes]
    assert [list(row) for row, _ in columns] == [["id", "name", "price"], ["id", "name"]]
    assert [list(row) for row, _ in columns] == [list(of_table) for _, of_table in columns]


@pytest.mark.parametrize("before_images", [True, False])
def test_a_primary_key_that_changes_is_an_error(before_images: bool, databases: Databases) -> None:
    """With REPLICA IDENTITY FULL the stream does not say which columns are the key."""
    database = databases()
    with database.published(Choices(before_images=before_images)) as running:
        database.execute("ALTER TABLE items DROP CONSTRAINT items_pkey, ADD PRIMARY KEY (name)")
        database.execute("INSERT INTO items VALUES (1, 'a', 1)")
        errors = [running.wait_failed()]
    errors += [RunningSource(database, Choices(republish=each)).wait_failed() for each in (Republish.NEVER, Republish.NOW)]
    for error in errors:
        assert isinstance(error, TableError)
        assert "table items: its primary key was changed: it was id, and is of name" in str(error)


def test_writers_are_not_stopped_while_rows_are_published(databases: Databases, server: PostgresServer, tmp_path: Path) -> None:
    database = databases(f"{ITEMS}; CREATE TABLE notes (id integer PRIMARY KEY, item integer)", ["items", "notes"])
    database.execute("INSERT INTO items SELECT number, repeat('x', 200), number FROM generate_series(1, 20000) number")
    database.execute("INSERT INTO notes SELECT number, number FROM generate_series(1, 5000) number")
    done, written = threading.Event(), count()

    def write(seed: int) -> None:
        chosen = random.Random(seed)
        with server.connect(database.name) as connection:
            while not done.is_set():
                with connection.transaction():
                    number = chosen.randrange(1, 25_000)
                    connection.execute("INSERT INTO items VALUES (%s, 'new', 1) ON CONFLICT (id) DO UPDATE SET name = 'changed'", [number])
                    connection.execute("DELETE FROM notes WHERE id = %s", [chosen.randrange(1, 6000)])
                    connection.execute("DELETE FROM items WHERE id = %s", [chosen.randrange(1, 25_000)])
                next(written)

    writers = [threading.Thread(target=write, args=(seed,)) for seed in (1, 2)]
    for each in writers:
        each.start()
    try:
        with database.published() as running:
            during = next(written)
            done.set()
            for each in writers:
                each.join()
            running.wait_published()
    finally:
        done.set()
    assert during > 10
    wanted = database.checksums()
    assert database.replicate(SqliteStore(tmp_path / "copy.db")) == wanted
    assert database.replicate(PostgresStore(server.create(f"{database.name}_copy"))) == wanted


def test_a_transaction_that_alters_a_table_does_not_wait_for_a_source_that_waits_for_it(
    databases: Databases, server: PostgresServer
) -> None:
    database = databases()
    database.execute("INSERT INTO items VALUES (1, 'a', 1)")
    database.execute("ALTER TABLE items REPLICA IDENTITY FULL")
    with server.connect(database.name) as other, other.transaction():
        other.execute("INSERT INTO items VALUES (2, 'b', 1)")
        running = RunningSource(database)
        slot = f"SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'CREATE_REPLICATION_SLOT \"{database.slot}\"%'"
        while database.row(slot) == (0,):
            assert running.error is None
        other.execute("SET LOCAL lock_timeout = '10s'")
        other.execute("ALTER TABLE items ADD COLUMN colour text DEFAULT 'red'")
    running.wait_streaming()
    running.stop()
    assert {key: row["colour"] for key, row in last_rows(database.log(), "items").items()} == {(1,): "red", (2,): "red"}


@pytest.mark.parametrize(
    "statement",
    ["ALTER TABLE items ALTER COLUMN price TYPE text", "ALTER TABLE items ADD COLUMN colour text DEFAULT 'red'", "TRUNCATE items"],
)
def test_a_table_that_changes_before_it_is_locked_is_read_from_a_new_snapshot(
    statement: str, databases: Databases, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A snapshot from before shows no rows of a table that was written again, and has not its new columns."""
    database = databases()
    database.execute("SET lock_timeout = '10s'")
    database.execute("INSERT INTO items VALUES (1, 'a', 1), (2, 'b', 1)")
    made: list[str] = []

    class SlowConnection(ReplicationConnection):
        def create_slot(self, slot: str) -> Exported:
            exported = super().create_slot(slot)
            if not made:
                database.execute(statement)
            made.append(slot)
            return exported

    monkeypatch.setattr(source_module, "ReplicationConnection", SlowConnection)
    with database.published() as running:
        running.wait_published()
    assert len(made) == 2
    assert database.replicate(SqliteStore(tmp_path / "copy.db")) == database.checksums()


def test_a_dropped_slot_is_named_and_the_changelog_published_again(databases: Databases, tmp_path: Path) -> None:
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
    assert f"replication slot {database.slot} is missing" in str(error)
    with database.published(Choices(republish=Republish.LOST)) as running:
        database.execute("UPDATE items SET price = 7 WHERE id = 50")
        running.wait_published()
    log = database.log()
    assert sorted(key for op, key in operations(log, "items") if op == "d") == [(number,) for number in range(1, 41)]
    assert database.replicate(SqliteStore(tmp_path / "copy.db")) == database.checksums()
    with database.published(Choices(republish=Republish.LOST)) as running:
        running.wait_published()
    assert len(operations(database.log(), "items")) == len(operations(log, "items")), "it is not published again without need"


def test_a_slot_that_another_program_advanced_or_made_again_is_named(databases: Databases) -> None:
    database = databases()
    with database.published() as running:
        running.wait_published()
    database.execute("INSERT INTO items VALUES (1, 'a', 1)")
    database.wait_slot_free()
    database.execute("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", [database.slot])
    error = RunningSource(database).wait_failed()
    assert isinstance(error, SlotLostError)
    assert error.state is SlotState.ADVANCED


def test_a_slot_that_changes_while_a_source_connects_is_named(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    database = databases()
    with database.published() as running:
        running.wait_published()
    database.execute("INSERT INTO items VALUES (1, 'a', 1)")
    database.wait_slot_free()

    class LateConnection(ReplicationConnection):
        def __init__(self, server: Server, application: str) -> None:
            super().__init__(server, application)
            database.execute("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", [database.slot])

    monkeypatch.setattr(source_module, "ReplicationConnection", LateConnection)
    error = RunningSource(database).wait_failed()
    assert isinstance(error, SlotLostError)
    assert error.state is SlotState.ADVANCED


def test_a_publication_of_other_tables_is_named(databases: Databases) -> None:
    database = databases()
    with database.published() as running:
        running.wait_published()
    database.execute("CREATE TABLE more (id integer PRIMARY KEY)")
    database.tables.append("more")
    error = RunningSource(database).wait_failed()
    assert isinstance(error, SlotLostError)
    assert error.state is SlotState.TABLES
    assert "of items, marks, wanted are items, marks, more" in str(error)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("DROP PUBLICATION {0}; CREATE PUBLICATION {0} FOR TABLE ONLY marks, ONLY items", "lacks the comment with its tables"),
        ("ALTER PUBLICATION {0} SET (publish = 'insert, truncate')", "does not publish update, delete"),
        ("ALTER PUBLICATION {0} SET TABLE ONLY marks, ONLY items WHERE (id > 5)", "publishes only some of the rows or columns"),
        ("ALTER PUBLICATION {0} SET TABLE ONLY marks, ONLY items (id, name)", "publishes only some of the rows or columns"),
    ],
)
def test_a_publication_that_another_program_has_changed_is_named(statement: str, message: str, databases: Databases) -> None:
    """What was committed while it was otherwise is not in the stream."""
    database = databases()
    database.execute("ALTER TABLE items REPLICA IDENTITY FULL")
    with database.published(Choices(before_images=False)) as running:
        running.wait_published()
    database.execute(statement.format(database.slot))
    error = RunningSource(database).wait_failed()
    assert isinstance(error, SlotLostError)
    assert error.state is SlotState.TABLES
    assert message in str(error)


def test_a_publication_that_is_made_again_under_a_source_is_named(databases: Databases) -> None:
    """The server reads the stream with the catalog of its time, in which the publication is missing for ever."""
    database = databases()
    publication = database.slot
    with database.published() as running:
        database.execute(f"DROP PUBLICATION {publication}")
        database.execute("INSERT INTO items VALUES (1, 'a', 1)")
        database.execute(f"CREATE PUBLICATION {publication} FOR TABLE ONLY marks, ONLY items")
        error = running.wait_failed()
    assert isinstance(error, SlotLostError)
    assert error.state is SlotState.TABLES


def test_a_changelog_whose_last_commit_is_of_another_source_is_not_taken(databases: Databases) -> None:
    """A replica was promoted: the database must not publish again as if nothing had been, and does not fence the one that publishes."""
    database = databases()
    with database.published() as running:
        running.wait_published()
    with Publisher(database.bootstrap, database.name) as promoted:
        assert promoted.last is not None
        promoted.publish([Commit(0, promoted.last.epoch + 1, promoted.commit + 1, 1, [])], {})
        error = RunningSource(database).wait_failed()
        assert isinstance(error, SlotLostError)
        assert error.state is SlotState.REPLACED
        promoted.publish([Commit(0, promoted.last.epoch, promoted.commit + 1, 1, [])], {})
    error = RunningSource(database, Choices(republish=Republish.LOST)).wait_failed()
    assert isinstance(error, SlotLostError), "it was not asked to give up what the other one has published"
    database.execute("INSERT INTO items VALUES (1, 'a', 1)")
    with database.published(Choices(republish=Republish.NOW)) as running:
        running.wait_published()
    log = database.log()
    assert (log.commits[-1].epoch, operations(log, "items")) == (3, [("r", (1,))]), "it is the master again, in an epoch of its own"


def test_a_place_of_another_server_is_not_taken_for_one_of_this(databases: Databases) -> None:
    """A server that was restored or replaced by a copy has another log, with other changes at the same places."""
    database = databases()
    with database.published() as running:
        running.wait_published()
    for other in ({"lsn": "FFFF/0"}, {"system": "1"}, {"timeline": 77}, {"database": 1}):
        with Publisher(database.bootstrap, database.name) as publisher:
            last = publisher.last
            assert last is not None
            publisher.publish([Commit(0, last.epoch, last.commit + 1, 1, [], {**last.source, **other})], {})
        for republish in (Republish.NEVER, Republish.LOST):
            error = RunningSource(database, Choices(republish=republish)).wait_failed()
            assert isinstance(error, SlotLostError)
            assert error.state is SlotState.REPLACED
        with Publisher(database.bootstrap, database.name) as publisher:
            publisher.publish([Commit(0, last.epoch, last.commit + 2, 1, [], last.source)], {})
    with database.published() as running:
        running.wait_published()


def test_a_slot_of_another_database_is_not_touched(databases: Databases) -> None:
    database, other = databases(), databases()
    other.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [database.slot])
    error = RunningSource(database, Choices(republish=Republish.LOST)).wait_failed()
    assert isinstance(error, SlotLostError)
    assert error.state is SlotState.FOREIGN


def test_a_second_source_replaces_the_first(databases: Databases) -> None:
    database = databases()
    with database.published() as first:
        first.wait_published()
        with database.published() as second:
            second.wait_published()
        database.execute("INSERT INTO items VALUES (1, 'a', 1)")
        error = first.wait_failed()
    assert isinstance(error, PublisherFencedError)
    with database.published() as third:
        third.wait_published()
    assert last_rows(database.log(), "items")[(1,)]["name"] == "a"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["stopped", "crashed"])
def test_a_server_that_restarts_under_load_is_followed(
    how: signal.Signals, databases: Databases, server: PostgresServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database = databases()
    done = threading.Event()

    def write() -> None:
        chosen = random.Random(7)
        while not done.is_set():
            try:
                with server.connect(database.name) as connection:
                    while not done.is_set():
                        connection.execute(
                            "INSERT INTO items VALUES (%s, 'a', 1) ON CONFLICT (id) DO UPDATE SET price = items.price + 1",
                            [chosen.randrange(100)],
                        )
            except psycopg.OperationalError:
                done.wait(0.05)

    writer = threading.Thread(target=write)
    with database.published() as running:
        writer.start()
        try:
            for _ in range(2):
                running.wait_published()
                server.restart(how)
                database.reopen()
        finally:
            done.set()
            writer.join()
        running.wait_published()
        assert running.source.statistics().connections_lost >= 2
    lines = [record.message for record in caplog.records if "interrupted, connecting again" in record.message]
    assert 1 <= len(lines) <= 2, "not each attempt is logged; a server that is lost again at once is the same failure"
    assert database.replicate(SqliteStore(tmp_path / "copy.db")) == database.checksums()


def test_a_server_that_restarts_while_a_source_starts_is_followed(
    databases: Databases, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a first connection that is refused is an error: not one that is lost before the source streams."""
    database = databases()
    with database.published() as running:
        running.wait_published()
    look = Publisher.look
    has_looked, is_restarted = threading.Event(), threading.Event()

    def look_and_wait(publisher: Publisher) -> CommitRecord | None:
        found = look(publisher)
        has_looked.set()
        assert is_restarted.wait(LIMIT_S)
        return found

    monkeypatch.setattr(Publisher, "look", look_and_wait)
    running = RunningSource(database)
    try:
        assert has_looked.wait(LIMIT_S)
        server.restart(signal.SIGINT)
        database.reopen()
        is_restarted.set()
        running.wait_streaming()
        database.execute("INSERT INTO items VALUES (1, 'a', 1)")
        running.wait_published()
        assert running.source.statistics().connections_lost >= 1
    finally:
        running.stop()
    assert operations(database.log(), "items") == [("c", (1,))]


def test_a_server_that_shuts_down_does_not_wait_for_a_source_without_changes(databases: Databases, server: PostgresServer) -> None:
    """It waits until its log is confirmed, of which the changelog has only the part up to the last change of its tables."""
    database = databases(f"{ITEMS}; CREATE TABLE others (words text)")
    with database.published() as running:
        running.wait_published()
        database.execute("INSERT INTO others SELECT repeat('x', 100) FROM generate_series(1, 500)")
        server.restart(signal.SIGINT)  # an error after a minute
        database.reopen()
        running.wait_published()


def test_brokers_that_restart_are_waited_for(server: PostgresServer, tmp_path: Path) -> None:
    with Broker() as own:
        database = PublishedDatabase(server, own.bootstrap_servers, f"bank_{next(NUMBERS)}", ITEMS, ["items"])
        with database.published() as running:
            database.execute("INSERT INTO items VALUES (1, 'a', 1)")
            running.wait_published()
            own.stop()
            database.execute("INSERT INTO items VALUES (2, 'b', 1)")
            own.start()
            running.wait_published()
        assert operations(database.log(), "items") == [("c", (1,)), ("c", (2,))]
        database.close()


def test_a_log_that_grows_without_changes_of_the_tables_is_released(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the server would keep its log for as long as nothing happens in the published tables."""
    monkeypatch.setattr(source_module, "MARK_BYTES", 200_000)
    database = databases(f"{ITEMS}; CREATE TABLE others (words text)")
    with database.published() as running:
        running.wait_published()
        before = lsn_of(running.source.statistics().lsn)
        commits = len(database.log().commits)
        while lsn_of(running.source.statistics().lsn) < before + 200_000:
            database.execute("INSERT INTO others SELECT repeat('x', 100) FROM generate_series(1, 500)")
        slot = f"SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = '{database.slot}'"
        running.wait_published()
    assert lsn_of(database.row(slot)[0]) > before + 200_000
    log = database.log()
    assert any(not commit.counts for commit in log.commits[commits:])


def test_what_cannot_be_published_is_named(databases: Databases) -> None:
    schema = """CREATE TABLE keyless (id integer); CREATE VIEW seen AS SELECT 1 AS id;
        CREATE TABLE divided (id integer PRIMARY KEY) PARTITION BY HASH (id);
        CREATE TABLE deferred (id integer PRIMARY KEY DEFERRABLE)"""
    for table, message in {
        "keyless": "table keyless has no primary key",
        "seen": "seen is no ordinary table",
        "divided": "divided is no ordinary table",
        "deferred": "table deferred has a primary key that is DEFERRABLE",
        "sales.nothing": "there is no table sales.nothing",
    }.items():
        database = databases(schema, [table])
        with pytest.raises(TableError, match=message):
            raise RunningSource(database).wait_failed()


def test_settings_that_are_wrong_are_named(broker: Broker) -> None:
    with PostgresServer({"wal_level": "replica"}) as plain:
        database = PublishedDatabase(plain, broker.bootstrap_servers, "plain", ITEMS, ["items"])
        with pytest.raises(RefusedError, match="wal_level is replica"):
            raise RunningSource(database).wait_failed()
        database.connection.close()
    with pytest.raises(UnreachableServerError, match=f"PostgreSQL 127.0.0.1:{plain.port}/plain: .*refused"):
        raise RunningSource(database).wait_failed()


def test_a_value_that_python_does_not_have_is_named_and_can_be_text(databases: Databases) -> None:
    schema = "CREATE TABLE days (id integer PRIMARY KEY, day date)"
    database = databases(schema, ["days"])
    with database.published() as running:
        database.execute("INSERT INTO days VALUES (5, 'infinity')")
        error = running.wait_failed()
    assert "table days, key 5: column day has a value that type date of changelogs lacks, 'infinity'" in str(error)
    with database.published(Choices(republish=Republish.NOW, as_text=["days.day"])) as running:
        database.execute("INSERT INTO days VALUES (6, '4000-01-01 BC')")
        running.wait_published()
    assert [row["day"] for row in last_rows(database.log(), "days").values()] == ["infinity", "4000-01-01 BC"]


def test_a_slot_that_the_server_has_invalidated_is_named(broker: Broker, tmp_path: Path) -> None:
    with PostgresServer({"max_slot_wal_keep_size": "1MB", "wal_keep_size": "0", "min_wal_size": "32MB", "max_wal_size": "48MB"}) as small:
        database = PublishedDatabase(small, broker.bootstrap_servers, "small", f"{ITEMS}; CREATE TABLE others (words text)", ["items"])
        database.execute("INSERT INTO items VALUES (1, 'a', 1)")
        with database.published() as running:
            running.wait_published()
        for _ in range(6):
            database.execute("INSERT INTO others SELECT repeat('x', 1000) FROM generate_series(1, 3000)")
            database.execute("SELECT pg_switch_wal()")
            database.execute("CHECKPOINT")
        error = RunningSource(database).wait_failed()
        assert isinstance(error, SlotLostError)
        assert error.state is SlotState.LOST
        with database.published(Choices(republish=Republish.LOST)) as running:
            running.wait_published()
        assert database.replicate(SqliteStore(tmp_path / "copy.db")) == database.checksums()
        database.close()


def test_a_source_that_was_interrupted_in_a_commit_runs_again_and_writes_no_commit_twice(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while brokers commit: only a new start can say whether the commit is in the log."""
    database = databases()
    with database.published():
        pass
    database.wait_slot_free()
    database.execute("INSERT INTO items VALUES (1, 'tea')")
    source, publisher = database.source()
    start, publish, stop = publisher.start, publisher.publish, threading.Event()

    def start_and_be_interrupted() -> object:
        found = start()
        interrupt_next_commit(publisher)
        return found

    def publish_and_stop(commits: Sequence[Commit], tables: Mapping[str, Table]) -> None:
        publish(commits, tables)
        stop.set()

    with monkeypatch.context() as patched:
        patched.setattr(publisher, "start", start_and_be_interrupted)
        with pytest.raises(KeyboardInterrupt):
            source.run(stop)
    monkeypatch.setattr(publisher, "publish", publish_and_stop)
    database.wait_slot_free()
    database.execute("INSERT INTO items VALUES (2, 'rice')")
    source.run(stop)
    publisher.close()
    assert operations(database.log(), "items") == [("c", (1,)), ("c", (2,))]
