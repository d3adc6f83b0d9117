"""The outbox has what became of each row, however a statement has changed it; replayed, it gives the table."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from moldau.changelog.sqlite.connecting import writing
from moldau.changelog.values import Change, Op, Row
from support.changelog_outbox import Rows, apply, database_with, drain, rows_of

ITEMS = "CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT, price)"
USERS = "CREATE TABLE users (id INTEGER PRIMARY KEY, email TEXT UNIQUE, name TEXT)"

Open = Callable[..., sqlite3.Connection]


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    def open_(*statements: str) -> sqlite3.Connection:
        return database_with(tmp_path / "shop.db", *statements)

    return open_


def short(changes: list[Change]) -> list[tuple[str, object]]:
    return [(each.op.value, each.key[0] if len(each.key) == 1 else each.key) for each in changes]


def test_each_statement_is_in_the_outbox_with_the_rows_before_and_after(opened: Open) -> None:
    shop = opened(ITEMS)
    shop.execute("INSERT INTO items VALUES (1, 'tea', 1.5)")
    shop.execute("UPDATE items SET price = 2 WHERE id = 1")
    shop.execute("DELETE FROM items")
    first: Row = {"id": 1, "name": "tea", "price": 1.5}
    second: Row = {"id": 1, "name": "tea", "price": 2}
    assert drain(shop) == [
        Change("items", Op.CREATE, (1,), None, first),
        Change("items", Op.UPDATE, (1,), first, second),
        Change("items", Op.DELETE, (1,), second, None),
    ]


@pytest.mark.parametrize(
    "value", [0, 2**63 - 1, -(2**63), 0.1, 1e300, 5e-324, "", "a\x00b", "ß\U0001f600", b"", b"\x00\xff", None], ids=repr
)
def test_values_are_kept_exactly(opened: Open, value: object) -> None:
    shop = opened(ITEMS)
    shop.execute("INSERT INTO items VALUES (1, 'x', ?)", (value,))
    (change,) = drain(shop)
    assert change.after is not None
    assert (change.after["price"], type(change.after["price"])) == (value, type(value))


def test_text_that_is_not_utf_8_has_surrogates_for_its_bytes(opened: Open) -> None:
    shop = opened(ITEMS)
    shop.execute("INSERT INTO items VALUES (1, CAST(x'61ff' AS TEXT), 1)")
    (change,) = drain(shop)
    assert change.after == {"id": 1, "name": "a\udcff", "price": 1}
    assert shop.execute("SELECT 'ß'").fetchone() == ("ß",)


def test_a_change_of_the_primary_key_is_a_deletion_and_a_creation(opened: Open) -> None:
    shop = opened(ITEMS)
    shop.execute("INSERT INTO items VALUES (1, 'tea', 1)")
    drain(shop)
    shop.execute("UPDATE items SET id = 2")
    assert short(drain(shop)) == [("d", 1), ("c", 2)]


def test_a_key_that_is_equal_and_of_another_type_is_another_key(opened: Open) -> None:
    shop = opened("CREATE TABLE loose (k NOT NULL PRIMARY KEY, v)")
    shop.execute("INSERT INTO loose VALUES (1, 'a')")
    shop.execute("UPDATE loose SET k = 1.0")
    assert [(each.op, type(each.key[0])) for each in drain(shop)] == [(Op.CREATE, int), (Op.DELETE, int), (Op.CREATE, float)]


def test_a_rolled_back_change_is_not_in_the_outbox(opened: Open) -> None:
    shop = opened(ITEMS)
    shop.execute("BEGIN")
    shop.execute("INSERT INTO items VALUES (1, 'tea', 1)")
    shop.execute("ROLLBACK")
    assert drain(shop) == []


@pytest.mark.parametrize("recursive", ["OFF", "ON"])
def test_replace_deletes_rows_with_other_keys_in_the_log_too(opened: Open, recursive: str) -> None:
    """SQLite runs no delete triggers for them, unless recursive triggers are on."""
    shop = opened(USERS)
    shop.execute(f"PRAGMA recursive_triggers = {recursive}")
    shop.execute("INSERT INTO users VALUES (1, 'ann@x', 'Ann'), (2, 'bob@x', 'Bob')")
    rows = apply({}, drain(shop))
    shop.execute("INSERT OR REPLACE INTO users VALUES (3, 'ann@x', 'Anna')")
    changes = drain(shop)
    assert short(changes) == [("d", 1), ("c", 3)]
    assert changes[0].before == {"id": 1, "email": "ann@x", "name": "Ann"}
    assert apply(rows, changes)["users"] == rows_of(shop, "users", ["id"])
    shop.execute("UPDATE OR REPLACE users SET email = 'bob@x' WHERE id = 3")
    changes = drain(shop)
    assert short(changes) == [("d", 2), ("u", 3)]
    assert apply(rows, changes)["users"] == rows_of(shop, "users", ["id"])


def test_a_row_that_is_replaced_by_its_own_key_is_created_again(opened: Open) -> None:
    shop = opened(USERS)
    shop.execute("INSERT INTO users VALUES (1, 'ann@x', 'Ann')")
    drain(shop)
    shop.execute("REPLACE INTO users VALUES (1, 'ann@x', 'Anna')")
    assert short(drain(shop)) == [("c", 1)]


def test_a_constraint_that_says_replace_does_the_same(opened: Open) -> None:
    shop = opened("CREATE TABLE users (id INTEGER PRIMARY KEY, email TEXT UNIQUE ON CONFLICT REPLACE)")
    shop.execute("INSERT INTO users VALUES (1, 'ann@x')")
    shop.execute("INSERT INTO users VALUES (2, 'ann@x')")
    assert short(drain(shop)) == [("c", 1), ("d", 1), ("c", 2)]


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT OR IGNORE INTO users VALUES (2, 'ann@x', 'no')",
        "INSERT INTO users VALUES (2, 'ann@x', 'no') ON CONFLICT DO NOTHING",
    ],
)
def test_a_conflict_that_is_ignored_changes_nothing(opened: Open, statement: str) -> None:
    shop = opened(USERS)
    shop.execute("INSERT INTO users VALUES (1, 'ann@x', 'Ann')")
    drain(shop)
    for _ in range(3):
        shop.execute(statement)
    shop.execute("INSERT INTO users VALUES (9, 'eve@x', 'Eve')")
    assert short(drain(shop)) == [("c", 9)]


def test_a_conflict_that_fails_in_the_middle_keeps_what_was_done_before(opened: Open) -> None:
    shop = opened(USERS)
    shop.execute("INSERT INTO users VALUES (1, 'ann@x', 'Ann')")
    drain(shop)
    with pytest.raises(sqlite3.IntegrityError):
        shop.execute("INSERT OR FAIL INTO users VALUES (2, 'bob@x', 'Bob'), (3, 'ann@x', 'no'), (4, 'eve@x', 'no')")
    assert short(drain(shop)) == [("c", 2)]


def test_what_follows_a_statement_that_has_failed_in_the_middle_is_not_lost(opened: Open) -> None:
    """SQLite gives out numbers of rows again after it, also with AUTOINCREMENT."""
    shop = opened(USERS)
    with pytest.raises(sqlite3.IntegrityError):
        shop.execute("INSERT OR FAIL INTO users VALUES (1, 'ann@x', 'Ann'), (1, 'ann@x', 'no')")
    assert short(drain(shop)) == [("c", 1)]
    shop.execute("UPDATE users SET name = 'Anna'")
    assert short(drain(shop)) == [("u", 1)]


def test_an_upsert_is_an_update(opened: Open) -> None:
    shop = opened(USERS)
    shop.execute("INSERT INTO users VALUES (1, 'ann@x', 'Ann')")
    drain(shop)
    shop.execute("INSERT INTO users VALUES (7, 'ann@x', 'Anna') ON CONFLICT (email) DO UPDATE SET name = excluded.name")
    assert short(drain(shop)) == [("u", 1)]


def test_indexes_with_collations_conditions_and_several_columns(opened: Open) -> None:
    shop = opened(
        "CREATE TABLE users (id INTEGER PRIMARY KEY, email TEXT, team TEXT, active INTEGER)",
        "CREATE UNIQUE INDEX by_email ON users (email COLLATE NOCASE)",
        "CREATE UNIQUE INDEX by_team ON users (team, active) WHERE active = 1",
    )
    shop.execute("INSERT INTO users VALUES (1, 'ann@x', 'red', 1), (2, 'bob@x', 'red', 0), (3, 'eve@x', 'blue', 1)")
    rows = apply({}, drain(shop))
    shop.execute("REPLACE INTO users VALUES (4, 'ANN@X', 'green', 1), (5, 'joe@x', 'blue', 1), (6, 'sue@x', 'red', 0)")
    assert apply(rows, drain(shop))["users"] == rows_of(shop, "users", ["id"])
    assert sorted(rows["users"]) == [(2,), (4,), (5,), (6,)]


def test_a_row_that_is_replaced_by_its_rowid(opened: Open) -> None:
    shop = opened("CREATE TABLE codes (code TEXT NOT NULL PRIMARY KEY, v)")
    shop.execute("INSERT INTO codes (rowid, code) VALUES (1, 'a'), (2, 'b')")
    rows = apply({}, drain(shop))
    shop.execute("REPLACE INTO codes (rowid, code) VALUES (1, 'c')")
    assert apply(rows, drain(shop))["codes"] == rows_of(shop, "codes", ["code"])


@pytest.mark.parametrize("rest", ["", "WITHOUT ROWID", "STRICT"])
def test_keys_of_several_columns(opened: Open, rest: str) -> None:
    shop = opened(f"CREATE TABLE lines (line INTEGER NOT NULL, orders TEXT NOT NULL, v TEXT, PRIMARY KEY (orders, line)) {rest}")
    shop.execute("INSERT INTO lines VALUES (1, 'a', 'x'), (2, 'a', 'y')")
    shop.execute("UPDATE lines SET line = line + 10 WHERE line = 2")
    shop.execute("REPLACE INTO lines VALUES (1, 'a', 'z')")
    shop.execute("DELETE FROM lines WHERE line = 12")
    changes = drain(shop)
    assert short(changes) == [("c", ("a", 1)), ("c", ("a", 2)), ("d", ("a", 2)), ("c", ("a", 12)), ("c", ("a", 1)), ("d", ("a", 12))]
    assert apply({}, changes)["lines"] == rows_of(shop, "lines", ["orders", "line"])


def test_cascades_are_changes_of_the_other_table(opened: Open) -> None:
    shop = opened(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY)",
        "CREATE TABLE parts (id INTEGER PRIMARY KEY, o INTEGER REFERENCES orders ON DELETE CASCADE ON UPDATE CASCADE,"
        " up INTEGER REFERENCES parts ON DELETE CASCADE)",
    )
    shop.execute("PRAGMA foreign_keys = ON")
    shop.execute("INSERT INTO orders VALUES (1), (2)")
    shop.execute("INSERT INTO parts VALUES (1, 1, NULL), (2, 2, 1), (3, 2, 2), (4, 2, NULL)")
    rows = apply({}, drain(shop))
    shop.execute("DELETE FROM orders WHERE id = 1")
    shop.execute("UPDATE orders SET id = 5 WHERE id = 2")
    apply(rows, drain(shop))
    assert rows["orders"] == rows_of(shop, "orders", ["id"])
    assert rows["parts"] == rows_of(shop, "parts", ["id"]) == {(4,): {"id": 4, "o": 5, "up": None}}


NESTED = [
    "CREATE TRIGGER own AFTER INSERT ON items BEGIN UPDATE items SET price = 7 WHERE id = NEW.id; END",
    "CREATE TRIGGER own AFTER INSERT ON items WHEN NEW.id < 100 BEGIN UPDATE items SET id = NEW.id + 100 WHERE id = NEW.id; END",
    "CREATE TRIGGER own AFTER INSERT ON items WHEN NEW.price = 3 BEGIN DELETE FROM items WHERE id = NEW.id; END",
    "CREATE TRIGGER own AFTER UPDATE ON items WHEN NEW.id < 50 BEGIN UPDATE items SET id = NEW.id + 50 WHERE id = NEW.id; END",
    "CREATE TRIGGER own AFTER DELETE ON items WHEN OLD.price <> 9 BEGIN INSERT INTO items VALUES (OLD.id, 'again', 9); END",
    "CREATE TRIGGER own AFTER UPDATE ON items WHEN NEW.id <> OLD.id BEGIN INSERT INTO items VALUES (OLD.id, 'again', 9); END",
    "CREATE TRIGGER own BEFORE INSERT ON items BEGIN DELETE FROM items WHERE name = NEW.name AND id <> NEW.id; END",
]


@pytest.mark.parametrize("before", [True, False], ids=["made before ours", "made after ours"])
@pytest.mark.parametrize("trigger", NESTED, ids=[each[15:45] for each in NESTED])
def test_triggers_of_the_user_may_change_the_row_again(opened: Open, trigger: str, *, before: bool) -> None:
    """In which order the triggers of a table run is undefined."""
    shop = opened(ITEMS, *([trigger] if before else []))
    if not before:
        shop.execute(trigger)
    rows: dict[str, Rows] = {"items": {}}
    for statement in (
        "INSERT INTO items VALUES (1, 'a', 1), (5, 'b', 3)",
        "UPDATE items SET id = id + 1 WHERE id % 100 = 1",
        "INSERT OR REPLACE INTO items VALUES (4, 'a', 1)",
        "UPDATE items SET price = 3",
        "DELETE FROM items WHERE name = 'a'",
    ):
        shop.execute(statement)
        assert apply(rows, drain(shop))["items"] == rows_of(shop, "items", ["id"]), statement


def test_a_new_row_with_null_in_its_key_is_refused_in_the_writer(opened: Open) -> None:
    shop = opened("CREATE TABLE codes (code TEXT PRIMARY KEY, v)")
    with pytest.raises(sqlite3.IntegrityError, match="changelog: table codes: a row with NULL in its primary key cannot be published"):
        shop.execute("INSERT INTO codes VALUES (NULL, 1)")
    shop.execute("INSERT INTO codes VALUES ('a', 1)")
    with pytest.raises(sqlite3.IntegrityError, match="NULL in its primary key"):
        shop.execute("UPDATE codes SET code = NULL")
    assert short(drain(shop)) == [("c", "a")]


EQUAL_KEYS = {
    "nocase": ("CREATE TABLE t (k TEXT COLLATE NOCASE PRIMARY KEY, v)", "a", "A", "b"),
    "rtrim without rowid": ("CREATE TABLE t (k TEXT COLLATE RTRIM PRIMARY KEY, v) WITHOUT ROWID", "a", "a ", "b"),
    "numbers": ("CREATE TABLE t (k PRIMARY KEY, v)", 1, 1.0, 2),
    "decimals of a replica": ("CREATE TABLE t (k DECIMAL_BLOB PRIMARY KEY, v)", 1, 1.0, 2),
    "several columns": ("CREATE TABLE t (v, k NOT NULL, n DEFAULT 1, PRIMARY KEY (n, k)) WITHOUT ROWID", 1.0, 1, 2),
}


@pytest.mark.parametrize(("table", "first", "equal", "other"), EQUAL_KEYS.values(), ids=EQUAL_KEYS)
@pytest.mark.parametrize("recursive", [False, True])
def test_a_row_is_deleted_that_is_replaced_by_one_with_an_equal_key_which_is_another_in_the_log(
    opened: Open, table: str, first: object, equal: object, other: object, *, recursive: bool
) -> None:
    shop = opened(table)
    shop.execute(f"PRAGMA recursive_triggers = {recursive}")

    def keys() -> list[tuple[str, str]]:
        return [(each.op.value, repr(each.key[-1])) for each in drain(shop)]

    shop.execute("INSERT INTO t (k, v) VALUES (?, 1)", (first,))
    shop.execute("INSERT OR IGNORE INTO t (k, v) VALUES (?, 2)", (equal,))
    assert keys() == [("c", repr(first))]
    shop.execute("REPLACE INTO t (k, v) VALUES (?, 3)", (equal,))
    assert keys() == [("d", repr(first)), ("c", repr(equal))]
    shop.execute("REPLACE INTO t (k, v) VALUES (?, 4)", (equal,))
    assert keys() == [*([("d", repr(equal))] if recursive else []), ("c", repr(equal))]
    shop.execute("INSERT INTO t (k, v) VALUES (?, 5)", (other,))
    shop.execute("UPDATE OR REPLACE t SET k = ? WHERE v = 5", (first,))
    assert keys() == [("c", repr(other)), ("d", repr(equal)), ("d", repr(other)), ("c", repr(first))]
    shop.execute("UPDATE t SET k = ?", (equal,))
    assert keys() == [("d", repr(first)), ("c", repr(equal))]


def test_names_may_have_quotes_and_generated_columns_are_published(opened: Open) -> None:
    shop = opened('CREATE TABLE a1 ("the ""key""" INTEGER PRIMARY KEY, "select" TEXT, twice GENERATED ALWAYS AS ("select" || "select"))')
    shop.execute("INSERT INTO a1 VALUES (1, 'x')")
    (change,) = drain(shop)
    assert change.after == {'the "key"': 1, "select": "x", "twice": "xx"}


def instructions(shop: sqlite3.Connection, statement: str, parameters: tuple[object, ...] = ()) -> int:
    """Of SQLite's machine, that a statement and its triggers take."""
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return 0

    shop.set_progress_handler(step, 1)
    shop.execute(statement, parameters)
    shop.set_progress_handler(None, 1)
    return count


STATEMENTS = {
    "insert": "INSERT INTO {table} VALUES (?1 + 100000, ?1 + 100000, ?1)",
    "replace": "REPLACE INTO {table} VALUES (?1 + 100000, ?1 + 100000, ?1)",
    "update": "UPDATE {table} SET v = 'x' WHERE k = ?1 - 1",
    "update of the key": "UPDATE {table} SET k = -?1 WHERE k = ?1 - 1",
    "delete": "DELETE FROM {table} WHERE k = ?1 - 1",
    "ignored": "INSERT OR IGNORE INTO {table} VALUES (-?1, ?1 - 1, 'x')",
}
TABLES = {
    "rowid": "CREATE TABLE t (k INTEGER PRIMARY KEY, u INTEGER UNIQUE, v)",
    "text": "CREATE TABLE t (k TEXT COLLATE NOCASE NOT NULL PRIMARY KEY, u UNIQUE, v)",
    "without rowid": (
        "CREATE TABLE t (k REAL, u TEXT COLLATE RTRIM, v, PRIMARY KEY (k)) WITHOUT ROWID; CREATE UNIQUE INDEX i ON t (u COLLATE NOCASE)"
    ),
}


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_statement_takes_as_long_in_a_large_table_as_in_a_small_one(opened: Open, statement: str, table: str) -> None:
    """Rows are found by indexes, those that a statement may replace, too, of which statements that are ignored leave notes."""
    shop = opened(*table.split("; "))
    took = []
    for first, last in ((1, 20), (20, 1_500)):
        with writing(shop):
            for number in range(first, last):
                shop.execute("INSERT INTO t VALUES (?, ?, 'v')", (number, number))
            for number in range(1, last if "IGNORE" in statement else 1):
                shop.execute("INSERT OR IGNORE INTO t VALUES (?, ?, 'no')", (-number, number))
        took.append(instructions(shop, statement.format(table="t"), (last,)))
    assert took[1] < 1.5 * took[0] + 50
