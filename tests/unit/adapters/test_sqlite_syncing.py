"""What is written to the tree's file is on disk when it is answered, on a thread of its own; the log stays short."""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.adapters import sqlite_coordination
from moldau.adapters.sqlite_coordination import COPY_AGAIN_MS
from moldau.model.errors import CoordinationError
from moldau.ports.coordination import Create, Multi, MultiDone, Outcome
from moldau.testing.background import FakeBackground
from support.trees import AskedTree

BLOCK = 4096


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "tree.db")


@pytest.fixture
def thread() -> FakeBackground:
    return FakeBackground()


class Time:
    """Milliseconds that a test advances."""

    def __init__(self) -> None:
        self.now_ms = 1

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def tree(path: str, thread: FakeBackground, time: Time) -> Iterator[AskedTree]:
    """A tree that carries out requests on its thread; the test has that run."""
    tree = AskedTree(path, time)
    tree.create("/topics")
    tree.run_on(thread)
    yield tree
    tree.close()
    thread.run_all()


def log_bytes(path: str) -> int:
    return os.stat(f"{path}-wal").st_size


def write(tree: AskedTree, *names: str, size: int = 0) -> list[Outcome]:
    """Nodes that are made in a write each; the list gets the outcomes."""
    outcomes: list[Outcome] = []
    for name in names:
        tree.submit(Multi((Create(f"/topics/{name}", b"x" * size),)), outcomes.append)
    return outcomes


def error_of(outcomes: list[Outcome]) -> str:
    (error,) = outcomes
    assert isinstance(error, CoordinationError), error
    return str(error)


def names_in(path: str) -> list[str]:
    """What another process finds that opens a copy of the file as it is now."""
    copied = shutil.copyfile(path, f"{path}.copied")
    shutil.copyfile(f"{path}-wal", f"{path}.copied-wal")
    found = AskedTree(copied, lambda: 1)
    names = list(found.children("/topics"))
    found.close()
    return names


class NotingDatabase:
    """A connection that notes how each of its transactions is synced, and the copy when it is closed."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self.database = database
        self.synchronous: list[str] = []

    def execute(self, statement: str, *parameters: Any) -> Any:
        if statement == "COMMIT" or "wal_checkpoint" in statement:
            self.note()
        return self.database.execute(statement, *parameters)

    def close(self) -> None:
        self.note()
        self.database.close()

    def note(self) -> None:
        self.synchronous.append(("OFF", "NORMAL", "FULL")[self.database.execute("PRAGMA synchronous").fetchone()[0]])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.database, name)


def test_requests_are_carried_out_by_the_thread_in_order_each_on_disk_when_it_is_answered(
    tree: AskedTree, path: str, thread: FakeBackground, monkeypatch: pytest.MonkeyPatch
) -> None:
    noting = NotingDatabase(tree._transactions.database)
    monkeypatch.setattr(tree._transactions, "database", noting)
    outcomes = write(tree, "a", "b", "c")
    assert (outcomes, noting.synchronous) == ([], [])
    thread.run_next()
    assert ([type(outcome) for outcome in outcomes], noting.synchronous) == ([MultiDone], ["FULL"])
    assert names_in(path) == ["a"]
    thread.run_all()
    assert names_in(path) == ["a", "b", "c"]
    assert noting.synchronous == ["FULL"] * 3


def test_a_long_log_is_copied_by_the_thread_and_short_again(
    tree: AskedTree, path: str, thread: FakeBackground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_coordination, "LOG_BYTES_MAX", 100_000)
    outcomes = write(tree, *map(str, range(20)), size=9000)
    for _ in range(20):
        thread.run_next()
    assert len(outcomes) == 20, "none waits for the copy but what comes after it"
    assert log_bytes(path) > 100_000
    thread.run_all()
    assert log_bytes(path) < 100_000
    write(tree, "after")
    thread.run_all()
    assert len(names_in(path)) == 21
    write(tree, *(f"more{number}" for number in range(40)), size=9000)
    thread.run_all()
    assert log_bytes(path) < 150_000, "again and again"
    assert len(names_in(path)) == 61


def test_before_there_is_a_thread_a_request_is_carried_out_within_the_call_and_nothing_is_copied(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_coordination, "LOG_BYTES_MAX", 20_000)
    tree = AskedTree(path, lambda: 1)
    tree.create("/topics")
    assert len(write(tree, *map(str, range(20)), size=3000)) == 20
    assert log_bytes(path) > 60_000
    tree.close()


class FullDatabase:
    """A connection whose file has no room for what is copied from the log; the log has."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self.database = database
        self.copies = 0

    def execute(self, statement: str, *parameters: Any) -> Any:
        if statement == "PRAGMA wal_checkpoint(TRUNCATE)":
            self.copies += 1
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        return self.database.execute(statement, *parameters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.database, name)


def test_a_failed_copy_for_want_of_room_is_tried_again_after_a_while(
    tree: AskedTree, path: str, thread: FakeBackground, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_coordination, "LOG_BYTES_MAX", 5000)
    full = FullDatabase(tree._transactions.database)

    def change(name: str) -> None:
        outcomes = write(tree, name, size=9000)
        thread.run_all()
        assert [type(outcome) for outcome in outcomes] == [MultiDone]

    with monkeypatch.context() as patched:
        patched.setattr(tree._transactions, "database", full)
        for number in range(10):
            change(f"a{number}")
        assert full.copies == 1
        time.now_ms += COPY_AGAIN_MS
        for number in range(10):
            change(f"b{number}")
        assert full.copies == 2
        time.now_ms -= 10 * COPY_AGAIN_MS
        change("c")
        assert full.copies == 3, "a clock that was set back does not keep it waiting"
    time.now_ms += COPY_AGAIN_MS
    change("d")
    assert log_bytes(path) < 10_000
    assert len(names_in(path)) == 22


class FailingDatabase:
    """A connection that cannot sync what one of its statements writes."""

    def __init__(self, database: sqlite3.Connection, failing: str) -> None:
        self.database = database
        self.failing = failing

    def execute(self, statement: str, *parameters: Any) -> Any:
        if statement == self.failing:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
            raise error
        return self.database.execute(statement, *parameters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.database, name)


@pytest.mark.parametrize("failing", ["COMMIT", "PRAGMA wal_checkpoint(TRUNCATE)"])
def test_after_a_failed_sync_no_write_is_taken_and_reads_are(
    tree: AskedTree, thread: FakeBackground, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """The kernel reports an error once, and forgets which pages it was: a second sync would succeed."""
    monkeypatch.setattr(sqlite_coordination, "LOG_BYTES_MAX", 5000)
    with monkeypatch.context() as patched:
        patched.setattr(tree._transactions, "database", FailingDatabase(tree._transactions.database, failing))
        outcomes = write(tree, "a", size=9000)
        thread.run_all()
        assert (failing == "COMMIT") == ("disk I/O error" in str(outcomes[0]))
    outcomes = write(tree, "b")
    thread.run_all()
    assert "no change is taken until the broker is started again" in error_of(outcomes)
    thread.immediate = True
    assert tree.children("/topics") == ([] if failing == "COMMIT" else ["a"])


def test_a_copy_that_ends_in_a_bug_has_failed(tree: AskedTree, thread: FakeBackground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_coordination, "LOG_BYTES_MAX", 5000)
    write(tree, "a", size=9000)
    thread.run_next()
    (_, copied), thread.jobs[:] = thread.jobs[0], []
    with pytest.raises(MemoryError):
        copied(None, MemoryError())
    outcomes = write(tree, "b")
    thread.run_all()
    assert "until the broker is started again" in error_of(outcomes)


@pytest.mark.parametrize("fails", [False, True])
def test_a_stop_removes_the_log_only_after_it_has_synced_the_copy(
    tree: AskedTree, path: str, thread: FakeBackground, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """SQLite copies the log and removes it when it is closed: without a sync a power cut would take what was answered."""
    noting = NotingDatabase(tree._transactions.database)
    monkeypatch.setattr(tree._transactions, "database", noting)
    write(tree, "a")
    thread.run_all()
    if fails:
        tree._transactions.note_failure(OSError(5, "Input/output error"))
    tree.close()
    thread.run_all()
    assert noting.synchronous[-1] == "FULL"
    assert not os.path.exists(f"{path}-wal")


def crashed(path: str, missing: range, log: bytes) -> AskedTree:
    """The tree that is found where these blocks of the log were never written."""
    copy = shutil.copyfile(path, f"{path}.{missing.start}")
    found = bytearray(log)
    for block in missing:
        found[block * BLOCK : (block + 1) * BLOCK] = bytes(len(found[block * BLOCK : (block + 1) * BLOCK]))
    Path(f"{copy}-wal").write_bytes(found)
    return AskedTree(copy, lambda: 1)


def test_a_power_cut_keeps_what_was_on_disk_whichever_later_blocks_were_lost(tree: AskedTree, path: str, thread: FakeBackground) -> None:
    """Of changes that no sync has covered, as an earlier version left them, a beginning is left; the start takes that for no damage. Block
    169 holds no salt of a frame.
    """
    names: list[str] = []

    def write_until(blocks: int) -> None:
        while log_bytes(path) < blocks * BLOCK:
            names.append(f"{len(names):03}")
            write(tree, names[-1], size=3000)
            thread.run_all()

    write_until(160)
    durable, durable_bytes = len(names), log_bytes(path)
    write_until(185)
    log = Path(f"{path}-wal").read_bytes()
    assert durable_bytes < 168 * BLOCK
    for block in range(-(-durable_bytes // BLOCK), -(-len(log) // BLOCK)):
        found = crashed(path, range(block, block + 1), log)
        left = found.children("/topics")
        found.close()
        assert durable <= len(left) <= len(names), block
        assert left == names[: len(left)], block
