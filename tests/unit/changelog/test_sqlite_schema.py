"""Which tables can be published, and what happens when their schemas change while they are."""

import sqlite3
from pathlib import Path

import pytest

from moldau.changelog.envelope import CommitRecord
from moldau.changelog.errors import ChangelogError
from moldau.changelog.sqlite.connecting import connect, writing
from moldau.changelog.sqlite.errors import SchemaChangedError, SourceError
from moldau.changelog.sqlite.installing import install, refresh, registered, reinstall
from moldau.changelog.sqlite.layout import read_state
from moldau.changelog.sqlite.repairing import tables_to_repair
from moldau.changelog.sqlite.rows import is_reading, publish_next_rows
from moldau.changelog.sqlite.schema import type_of
from moldau.changelog.store import Phase, Position
from moldau.changelog.stores.sqlite import SqliteStore
from moldau.changelog.values import Op, Table
from support.changelog_outbox import commits, database_with, drain

ITEMS = "CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT)"


def published(path: Path, *statements: str, tables: list[str] | None = None) -> sqlite3.Connection:
    return database_with(path / "shop.db", *statements, tables=tables)


REFUSED = [
    ("CREATE TABLE t (a, b)", "t", "table t has no primary key"),
    ("CREATE VIEW t AS SELECT 1 AS a", "t", "t is a view"),
    ("CREATE VIRTUAL TABLE t USING fts5(a)", "t", "t is a virtual table"),
    ("CREATE VIRTUAL TABLE t USING fts5(a)", "t_data", "t_data is part of a virtual table"),
    ("CREATE TABLE u (a)", "t", "there is no table t"),
    ('CREATE TABLE "a b" (id INTEGER PRIMARY KEY)', "a b", "table 'a b' would need the topic 'shop.a b'"),
    ("CREATE TABLE t (id INTEGER PRIMARY KEY, a); CREATE UNIQUE INDEX i ON t (lower(a))", "t", "unique index of expressions only, i"),
    ("CREATE TABLE t (id TEXT PRIMARY KEY); INSERT INTO t VALUES (NULL), (NULL)", "t", "table t has 2 rows with NULL in the primary key"),
    ("CREATE TABLE u (a)", "_changelog_outbox", "_changelog_outbox is a table of SQLite or of a changelog"),
]


@pytest.mark.parametrize(("statements", "table", "reason"), REFUSED, ids=[each[2] for each in REFUSED])
def test_a_table_that_cannot_be_published_is_refused_with_the_reason_and_nothing_is_made(
    tmp_path: Path, statements: str, table: str, reason: str
) -> None:
    database = connect(tmp_path / "shop.db", 5.0)
    database.executescript(statements)
    with pytest.raises(ChangelogError, match=reason):
        install(database, "shop", 0, [table])
    assert read_state(database) is None


def test_without_names_all_ordinary_tables_are_published(tmp_path: Path) -> None:
    database = published(tmp_path, ITEMS, "CREATE TABLE _own (a)", "CREATE TABLE orders (id INTEGER PRIMARY KEY AUTOINCREMENT)")
    assert sorted(each.table.name for each in registered(database).values()) == ["items", "orders"]


def test_a_name_is_found_in_any_case_and_kept_as_the_schema_has_it(tmp_path: Path) -> None:
    database = published(tmp_path, ITEMS, tables=["ITEMS"])
    assert [each.table.name for each in registered(database).values()] == ["items"]


def test_a_database_is_the_source_of_one_changelog(tmp_path: Path) -> None:
    database = published(tmp_path, ITEMS)
    with pytest.raises(SourceError, match=r"is the source of changelog shop, shard 0, and cannot be that of changelog other, shard 0"):
        install(database, "other", 0)


def test_a_database_in_memory_is_refused() -> None:
    with pytest.raises(SourceError, match="journal_mode is memory, and cannot be WAL"):
        connect(":memory:", 1.0)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"no database, and longer than its header would be" * 100)
    with pytest.raises(SourceError, match="not a database"):
        connect(tmp_path / "x", 1.0)


def test_installing_again_changes_nothing(tmp_path: Path) -> None:
    database = published(tmp_path, ITEMS)
    before = database.execute("SELECT * FROM sqlite_master").fetchall()
    state = install(database, "shop", 0)
    assert state == read_state(database)
    assert database.execute("SELECT * FROM sqlite_master").fetchall() == before
    assert not is_reading(database)


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ("INTEGER", "integer"),
        ("UNSIGNED BIG INT", "integer"),
        ("VARCHAR(20)", "text"),
        ("BLOB", "bytes"),
        ("", "bytes"),
        ("ANY", "bytes"),
        ("DOUBLE PRECISION", "real"),
        ("BOOLEAN", "integer"),
        ("DATETIME", "any"),
        ("date", "any"),
        ("ANY_BLOB", "any"),
        ("DECIMAL(10,2)", "decimal"),
        ("DECIMAL_BLOB", "decimal"),
    ],
)
def test_types_are_those_of_the_affinities(declared: str, kind: str) -> None:
    assert type_of(declared) == kind


# Changes of the schema


def followed(database: sqlite3.Connection) -> bool:
    with writing(database):
        return refresh(database)


def test_a_column_that_is_added_is_published_with_all_rows_again(tmp_path: Path) -> None:
    database = published(tmp_path, ITEMS)
    database.execute("INSERT INTO items VALUES (1, 'tea')")
    database.execute("ALTER TABLE items ADD COLUMN price REAL DEFAULT 1.5")
    database.execute("INSERT INTO items VALUES (2, 'rice', 2.5)")
    assert followed(database)
    assert not followed(database)
    database.execute("INSERT INTO items VALUES (3, 'milk', 3.5)")
    assert [each.after for each in drain(database)] == [
        {"id": 1, "name": "tea"},
        {"id": 2, "name": "rice"},
        {"id": 3, "name": "milk", "price": 3.5},
    ]
    while publish_next_rows(database):
        pass
    assert [(each.op, each.after) for each in drain(database)] == [
        (Op.READ, {"id": 1, "name": "tea", "price": 1.5}),
        (Op.READ, {"id": 2, "name": "rice", "price": 2.5}),
        (Op.READ, {"id": 3, "name": "milk", "price": 3.5}),
    ]


def test_a_column_that_is_renamed_is_published_under_its_new_name(tmp_path: Path) -> None:
    database = published(tmp_path, ITEMS)
    database.execute("ALTER TABLE items RENAME COLUMN name TO title")
    database.execute("INSERT INTO items VALUES (1, 'tea')")
    assert followed(database)
    database.execute("INSERT INTO items VALUES (2, 'rice')")
    assert [each.after for each in drain(database)] == [{"id": 1, "name": "tea"}, {"id": 2, "title": "rice"}]


def test_a_column_is_dropped_after_the_triggers_that_name_it(tmp_path: Path) -> None:
    database = published(tmp_path, ITEMS)
    with pytest.raises(sqlite3.OperationalError, match="error in trigger _changelog_items_"):
        database.execute("ALTER TABLE items DROP COLUMN name")
    for kind in ("insert", "update", "delete"):
        database.execute(f"DROP TRIGGER _changelog_items_{kind}")
    database.execute("ALTER TABLE items DROP COLUMN name")
    with writing(database):
        reinstall(database, "shop", "items")
    database.execute("INSERT INTO items VALUES (1)")
    assert [each.after for each in drain(database)] == [{"id": 1}]


def test_an_index_that_is_added_makes_new_triggers_and_a_repair_and_no_rows(tmp_path: Path) -> None:
    database = published(tmp_path, ITEMS)
    database.execute("CREATE UNIQUE INDEX by_name ON items (name)")
    assert followed(database)
    assert not is_reading(database)
    assert tables_to_repair(database) == ["items"]
    database.execute("INSERT INTO items VALUES (1, 'tea')")
    database.execute("REPLACE INTO items VALUES (2, 'tea')")
    assert [(each.op.value, each.key) for each in drain(database)] == [("c", (1,)), ("d", (1,)), ("c", (2,))]


LOST = [
    ("DROP TABLE items", "there is no table items; it was published"),
    ("ALTER TABLE items RENAME TO others", "there is no table items; it was published"),
    (
        "DROP TABLE items; CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT)",
        r"triggers of table items are missing.*repair\('items'\)",
    ),
    ("DROP TRIGGER _changelog_items_delete", r"triggers of table items are missing \(after delete\)"),
    ("DROP TABLE items; CREATE TABLE items (id INTEGER, name TEXT PRIMARY KEY)", "the primary key of table items was id and is name"),
]


@pytest.mark.parametrize(("statements", "reason"), LOST, ids=[each[0] for each in LOST])
def test_a_change_that_loses_changes_is_named(tmp_path: Path, statements: str, reason: str) -> None:
    database = published(tmp_path, ITEMS)
    database.executescript(statements)
    with pytest.raises(SchemaChangedError, match=reason):
        followed(database)


def test_a_table_that_was_made_again_is_installed_again_with_all_its_rows(tmp_path: Path) -> None:
    database = published(tmp_path, ITEMS)
    database.executescript(f"DROP TABLE items; {ITEMS}; INSERT INTO items VALUES (1, 'tea')")
    with writing(database):
        reinstall(database, "shop", "items")
    assert not followed(database)
    while publish_next_rows(database):
        pass
    assert [(each.op, each.key) for each in drain(database)] == [(Op.READ, (1,))]


# Promotion


def test_a_replica_that_is_promoted_continues_the_log_in_the_next_epoch(tmp_path: Path) -> None:
    database = connect(tmp_path / "replica.db", 5.0)
    database.executescript(f"{ITEMS}; INSERT INTO items VALUES (1, 'tea')")
    install(database, "shop", 0, ["items"], promoted_after=CommitRecord(0, 4, 17, 0, {}, {}))
    database.execute("INSERT INTO items VALUES (2, 'rice')")
    found = commits(database)
    assert [(each.number, each.epoch, [change.key for change in each.changes]) for each in found] == [(18, 5, []), (19, 5, [(2,)])]
    assert not is_reading(database)


def test_a_source_cannot_be_promoted(tmp_path: Path) -> None:
    database = published(tmp_path, ITEMS)
    with pytest.raises(SourceError, match="is its source already; only a replica can be promoted"):
        install(database, "shop", 0, promoted_after=CommitRecord(0, 4, 17, 0, {}, {}))


POSITIONS = [
    (None, "the replica has no position"),
    (Position(Phase.LOADING, 4, 17, 0, {}), "the replica has the phase loading, commit 17 and epoch 4"),
    (Position(Phase.FOLLOWING, 4, 16, 0, {}), "the replica has the phase following, commit 16 and epoch 4"),
    (Position(Phase.FOLLOWING, 3, 17, 0, {}), "the replica has the phase following, commit 17 and epoch 3"),
    (Position(Phase.FOLLOWING, 4, 17, 0, {}), None),
]


@pytest.mark.parametrize(("position", "reason"), POSITIONS, ids=[str(reason) for _, reason in POSITIONS])
def test_a_replica_is_promoted_only_after_the_commit_that_it_has(tmp_path: Path, position: Position | None, reason: str | None) -> None:
    store = SqliteStore(tmp_path / "replica.db")
    store.prepare("shop", [Table("items", {"id": "integer", "name": "text"}, ("id",))])
    if position is not None:
        store.clear(0, position)
    store.close()
    database, last = connect(tmp_path / "replica.db", 5.0), CommitRecord(0, 4, 17, 0, {}, {})
    if reason is None:
        assert install(database, "shop", 0, ["items"], promoted_after=last).sealed == 18
        return
    with pytest.raises(SourceError, match=f"{reason}, and would be promoted after commit 17 of epoch 4"):
        install(database, "shop", 0, ["items"], promoted_after=last)
    assert read_state(database) is None
