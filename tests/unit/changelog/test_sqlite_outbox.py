"""Commits of the outbox are whole, in order, and numbered without gaps; rows that were there before are published by steps between them."""

import sqlite3
import threading
from pathlib import Path

import pytest

from moldau.changelog.sqlite.connecting import connect, writing
from moldau.changelog.sqlite.installing import install
from moldau.changelog.sqlite.outbox import READING, forget, seal
from moldau.changelog.sqlite.rows import is_reading, publish_next_rows
from moldau.changelog.values import Op
from moldau.model.errors import WorldError
from support.changelog_outbox import apply, commits, database_with, drain, rows_of

ITEMS = "CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT)"
CODES = "CREATE TABLE codes (a TEXT COLLATE NOCASE NOT NULL, b NOT NULL, v, PRIMARY KEY (b DESC, a)) WITHOUT ROWID"


def numbers(database: sqlite3.Connection) -> list[tuple[int, list[object]]]:
    return [(commit.number, [change.key[0] for change in commit.changes]) for commit in commits(database)]


def test_what_is_committed_is_sealed_together_and_what_is_not_waits(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    publisher, first = database_with(path, ITEMS), connect(path, 5.0)
    first.execute("INSERT INTO items VALUES (1, 'a')")
    first.execute("INSERT INTO items VALUES (2, 'b')")
    assert numbers(publisher) == [(1, [1, 2])]
    assert numbers(publisher) == [(1, [1, 2])]
    first.execute("BEGIN")
    first.execute("INSERT INTO items VALUES (3, 'c')")
    second = connect(path, 0.0)
    with pytest.raises(WorldError, match=r"shop\.db: no transaction can begin: database is locked"), writing(second):
        pass
    first.execute("COMMIT")
    assert numbers(publisher) == [(1, [1, 2]), (2, [3])]


def test_what_the_log_has_is_deleted_and_numbers_continue(tmp_path: Path) -> None:
    database = database_with(tmp_path / "shop.db", ITEMS)
    database.execute("INSERT INTO items VALUES (1, 'a')")
    commits(database)
    database.execute("INSERT INTO items VALUES (2, 'b')")
    commits(database)
    with writing(database):
        forget(database, 1)
    assert numbers(database) == [(2, [2])]
    with writing(database):
        forget(database, 2)
        assert seal(database) is None
    database.execute("INSERT INTO items VALUES (3, 'c')")
    assert numbers(database) == [(3, [3])]


def test_the_changes_of_a_commit_can_be_read_again_and_by_index(tmp_path: Path) -> None:
    database = database_with(tmp_path / "shop.db", ITEMS)
    with writing(database):
        database.executemany("INSERT INTO items VALUES (?, ?)", [(number, "x") for number in range(2_500)])
    (commit,) = commits(database)
    assert len(commit.changes) == 2_500
    assert [each.key[0] for each in commit.changes] == [*range(2_500)]


def test_rows_that_are_there_are_published_in_steps_and_changes_come_between(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    database = connect(path, 5.0)
    database.execute(ITEMS)
    database.executemany("INSERT INTO items VALUES (?, 'old')", [(number,) for number in range(10)])
    install(database, "shop", 0)
    assert publish_next_rows(database, 4)
    database.execute("UPDATE items SET name = 'new' WHERE id IN (1, 8)")
    database.execute("DELETE FROM items WHERE id IN (2, 9)")
    assert publish_next_rows(database, 4)
    found = commits(database)
    assert [[(change.op.value, change.key[0]) for change in commit.changes] for commit in found] == [
        [("r", 0), ("r", 1), ("r", 2), ("r", 3)],
        [("u", 1), ("u", 8), ("d", 2), ("d", 9)],
        [("r", 4), ("r", 5), ("r", 6), ("r", 7)],
    ]
    assert [commit.source.get(READING) for commit in found] == [1, 1, 1]
    while publish_next_rows(database, 4):
        pass
    last = commits(database)[-1]
    assert [change.after for change in last.changes] == [{"id": 8, "name": "new"}]
    assert READING not in last.source
    assert not is_reading(database)
    assert apply({}, drain(database))["items"] == rows_of(database, "items", ["id"])


@pytest.mark.parametrize("count", [1, 2, 3, 100])
def test_rows_are_published_once_whatever_their_keys_are(tmp_path: Path, count: int) -> None:
    database = connect(tmp_path / "shop.db", 5.0)
    database.execute(CODES)
    keys = [("a", 1), ("B", 1), ("c", 1), ("a", 2.5), ("a", "x"), ("b", "x"), ("a", b"\x00"), ("ä", 1), ("", -1)]
    database.executemany("INSERT INTO codes VALUES (?, ?, 1)", keys)
    install(database, "shop", 0)
    while publish_next_rows(database, count):
        pass
    changes = drain(database)
    assert all(each.op is Op.READ for each in changes)
    assert len(changes) == len(keys)
    assert apply({}, changes)["codes"] == rows_of(database, "codes", ["b", "a"])


@pytest.mark.parametrize("deleted", [0, 4], ids=["all full", "the last ones deleted"])
def test_the_last_step_says_that_all_rows_are_published_if_it_finds_none(tmp_path: Path, deleted: int) -> None:
    database = connect(tmp_path / "shop.db", 5.0)
    database.execute(ITEMS)
    database.executemany("INSERT INTO items VALUES (?, 'old')", [(number,) for number in range(4 + deleted)])
    install(database, "shop", 0)
    assert publish_next_rows(database, 4)
    database.execute("DELETE FROM items WHERE id >= 4")
    while publish_next_rows(database, 4):
        pass
    found = commits(database)
    assert READING in found[0].source
    assert READING not in found[-1].source
    assert len([change for commit in found for change in commit.changes]) == 4 + deleted


def test_a_table_without_rows_makes_no_commit(tmp_path: Path) -> None:
    database = database_with(tmp_path / "shop.db", ITEMS)
    assert commits(database) == []
    assert not is_reading(database)


def test_writers_of_several_threads_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    database = database_with(path, ITEMS)

    def write(first: int) -> None:
        writer = connect(path, 30.0)
        for number in range(first, first + 50):
            writer.execute("INSERT INTO items VALUES (?, 'x')", (number,))
        writer.close()

    threads = [threading.Thread(target=write, args=(first,)) for first in (0, 100, 200)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert apply({}, drain(database))["items"] == rows_of(database, "items", ["id"])
