"""Replaying the outbox gives the table, after each statement, whatever the statements are: conflicts, replaced rows, changed keys, triggers
and cascades among them.
"""

import sqlite3
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from moldau.changelog.sqlite.connecting import connect
from moldau.changelog.sqlite.installing import install
from moldau.changelog.sqlite.rows import is_reading, publish_next_rows
from support.changelog_outbox import Rows, apply, database_with, drain, rows_of

SMALL = st.integers(0, 4)
POLICY = st.sampled_from(["", "OR REPLACE", "OR IGNORE", "OR FAIL", "OR ABORT", "OR ROLLBACK"])
KEYS = {
    "users": ["id"],
    "codes": ["b", "a"],
}
USERS = (
    "CREATE TABLE users (id INTEGER PRIMARY KEY, email INTEGER UNIQUE, team INTEGER, n INTEGER,"
    " boss INTEGER REFERENCES users ON DELETE CASCADE)"
)
TEAMS = "CREATE UNIQUE INDEX by_team ON users (team, n) WHERE n > 1"
CODES = "CREATE TABLE codes (a INTEGER NOT NULL, b INTEGER NOT NULL, u INTEGER UNIQUE, PRIMARY KEY (b, a))"
WORDS = "CREATE TABLE words (word TEXT COLLATE NOCASE NOT NULL PRIMARY KEY, u INTEGER UNIQUE) WITHOUT ROWID"
TRIGGERS = [
    "CREATE TRIGGER own AFTER INSERT ON users WHEN NEW.n = 3 BEGIN UPDATE users SET n = 4 WHERE id = NEW.id; END",
    "CREATE TRIGGER own AFTER DELETE ON users WHEN OLD.n = 2 BEGIN INSERT OR IGNORE INTO users VALUES (OLD.id, 9, 9, 0, NULL); END",
    "CREATE TRIGGER own AFTER UPDATE ON users WHEN NEW.n = 1 BEGIN UPDATE OR REPLACE users SET id = 3 WHERE id = NEW.id; END",
    "CREATE TRIGGER own BEFORE INSERT ON users BEGIN DELETE FROM users WHERE team = NEW.team; END",
    "CREATE TRIGGER own AFTER UPDATE ON users WHEN NEW.id <> OLD.id BEGIN INSERT OR IGNORE INTO users VALUES (OLD.id, 9, 9, 0, NULL); END",
    "SELECT 1",
]


@st.composite
def statements(draw: st.DrawFn) -> str:
    numbers = [draw(SMALL) for _ in range(10)]
    a, b, c, d, e, f, g, h, *_ = numbers
    policy = draw(POLICY)
    boss = "NULL" if h > 2 else str(h)
    return draw(
        st.sampled_from(
            [
                f"INSERT {policy} INTO users VALUES ({a}, {b}, {c}, {d}, {boss}), ({e}, {f}, {g}, {d}, NULL)",
                f"UPDATE {policy} users SET email = {a}, n = {b} WHERE id = {c}",
                f"UPDATE {policy} users SET id = id + {a} WHERE team = {b}",
                f"UPDATE {policy} users SET team = {a}, n = n + 1 WHERE n < {c}",
                f"INSERT INTO users VALUES ({a}, {b}, {c}, {d}, NULL) ON CONFLICT (email) DO UPDATE SET n = n + 1, id = {e}",
                f"DELETE FROM users WHERE n = {a}",
                "DELETE FROM users",
                f"INSERT {policy} INTO codes VALUES ({a}, {b}, {c}), ({d}, {e}, {f})",
                f"INSERT {policy} INTO codes (rowid, a, b, u) VALUES ({a}, {b}, {c}, {d})",
                f"UPDATE {policy} codes SET a = {a}, u = {b} WHERE b = {c}",
                f"DELETE FROM codes WHERE u = {a}",
            ]
        )
    )


@given(
    script=st.lists(statements(), max_size=12),
    recursive=st.booleans(),
    cascades=st.booleans(),
    trigger=st.sampled_from(TRIGGERS),
    trigger_first=st.booleans(),
)
def test_replaying_the_outbox_gives_the_table(
    script: list[str], trigger: str, *, recursive: bool, cascades: bool, trigger_first: bool
) -> None:
    with TemporaryDirectory() as directory:
        database = database_with(Path(directory) / "t.db", USERS, TEAMS, CODES, *([trigger] if trigger_first else []))
        if not trigger_first:
            database.execute(trigger)
        database.execute(f"PRAGMA recursive_triggers = {recursive}")
        database.execute(f"PRAGMA foreign_keys = {cascades}")
        database.execute("PRAGMA synchronous = OFF")
        rows: dict[str, Rows] = {name: {} for name in KEYS}
        for statement in script:
            with suppress(sqlite3.IntegrityError, sqlite3.OperationalError):
                database.execute(statement)
            apply(rows, drain(database))
            for name, key in KEYS.items():
                assert rows[name] == rows_of(database, name, key), statement
        database.close()


@given(
    before=st.lists(statements(), max_size=8),
    script=st.lists(statements(), max_size=8),
    count=st.integers(1, 3),
    trigger=st.sampled_from(TRIGGERS),
)
def test_publishing_rows_that_were_there_while_others_write_gives_the_table(
    before: list[str], script: list[str], count: int, trigger: str
) -> None:
    with TemporaryDirectory() as directory:
        database = connect(Path(directory) / "t.db", 5.0)
        database.execute("PRAGMA synchronous = OFF")
        for statement in (USERS, TEAMS, CODES, trigger, *before):
            with suppress(sqlite3.IntegrityError, sqlite3.OperationalError):
                database.execute(statement)
        install(database, "shop", 0)
        rows: dict[str, Rows] = {name: {} for name in KEYS}
        for statement in script:
            with suppress(sqlite3.IntegrityError, sqlite3.OperationalError):
                database.execute(statement)
            publish_next_rows(database, count)
            apply(rows, drain(database))
        while is_reading(database):
            publish_next_rows(database, count)
        apply(rows, drain(database))
        for name, key in KEYS.items():
            assert rows[name] == rows_of(database, name, key)
        database.close()


@st.composite
def statements_of_words(draw: st.DrawFn) -> str:
    policy = draw(st.sampled_from(["", "OR REPLACE", "OR REPLACE", "OR IGNORE"]))
    first, second = draw(SMALL), draw(SMALL)
    word, other = (draw(st.sampled_from(["a", "A", "b", "B"])) for _ in range(2))
    return draw(
        st.sampled_from(
            [
                f"INSERT {policy} INTO words VALUES ('{word}', {first}), ('{other}', {second})",
                f"INSERT INTO words VALUES ('{word}', {first}) ON CONFLICT (word) DO UPDATE SET word = '{other}', u = u + 1",
                f"UPDATE {policy} words SET word = '{word}', u = {first} WHERE word = '{other}'",
                f"UPDATE {policy} words SET u = u + {first}",
                f"DELETE FROM words WHERE u = {first}",
            ]
        )
    )


@given(script=st.lists(statements_of_words(), max_size=12), recursive=st.booleans())
def test_replaying_the_outbox_gives_a_table_whose_keys_are_equal_in_any_case(script: list[str], *, recursive: bool) -> None:
    with TemporaryDirectory() as directory:
        database = database_with(Path(directory) / "t.db", WORDS)
        database.execute(f"PRAGMA recursive_triggers = {recursive}")
        database.execute("PRAGMA synchronous = OFF")
        rows: dict[str, Rows] = {"words": {}}
        for statement in script:
            with suppress(sqlite3.IntegrityError, sqlite3.OperationalError):
                database.execute(statement)
            apply(rows, drain(database))
            assert rows["words"] == rows_of(database, "words", ["word"]), statement
        database.close()
