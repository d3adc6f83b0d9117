"""The tree's file is brought to disk in the background: callers are called back, other requests do not wait, and the log stays short."""

import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.adapters import sqlite_coordination
from moldau.adapters.sqlite_coordination import COPY_AGAIN_MS
from moldau.model.errors import CoordinationError
from moldau.ports.coordination import Create, Multi, MultiDone, Outcome, SetData
from moldau.testing.background import FakeBackground
from support.trees import AskedTree

BLOCK = 4096


class Disk:
    """What was synced of which file, in order; `fails` has every further sync of the log fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.synced: list[str] = []
        self.fails = False
        monkeypatch.setattr(os, "fdatasync", self.sync)

    def sync(self, descriptor: int) -> None:
        if self.fails:
            raise OSError(5, "Input/output error")
        self.synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "tree.db")


@pytest.fixture
def background() -> FakeBackground:
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
def tree(path: str, background: FakeBackground, time: Time) -> Iterator[AskedTree]:
    tree = AskedTree(path, time)
    tree.multi([Create("/topics")])
    tree.sync_in(background)
    yield tree
    tree.close()


def log_bytes(path: str) -> int:
    return os.stat(f"{path}-wal").st_size


def test_those_who_write_during_a_sync_share_the_next(tree: AskedTree, background: FakeBackground, disk: Disk) -> None:
    told: list[str] = []
    for name in "abc":
        tree.multi([Create(f"/topics/{name}")])
        tree.when_durable(lambda error, name=name: told.append(name))  # type: ignore[misc]
    assert (told, len(background.jobs)) == ([], 1), "the sync of a has begun; b and c wait for the next"
    background.run_next()
    assert (told, len(background.jobs)) == (["a"], 1)
    background.run_next()
    assert told == ["a", "b", "c"]
    assert disk.synced == ["tree.db-wal"] * 2
    tree.when_durable(lambda _: told.append("nothing new"))
    assert told[-1] == "nothing new"
    assert background.jobs == []


def test_who_wrote_nothing_since_a_sync_began_waits_for_that_one(tree: AskedTree, background: FakeBackground, disk: Disk) -> None:
    told: list[str] = []
    tree.multi([Create("/topics/a")])
    tree.when_durable(lambda _: told.append("writer"))
    tree.when_durable(lambda _: told.append("other"))
    assert told == []
    background.run_next()
    assert told == ["writer", "other"]
    assert background.jobs == []


def test_after_a_failed_sync_nothing_is_promised_and_no_write_taken(tree: AskedTree, background: FakeBackground, disk: Disk) -> None:
    """The kernel reports an error once, and forgets which pages it was: a second sync would succeed."""
    told: list[CoordinationError | None] = []
    disk.fails = True
    for name in "ab":
        tree.multi([Create(f"/topics/{name}")])
        tree.when_durable(told.append)
    background.run_next()
    assert [str(error).partition(": ")[2][:43] for error in told] == ["not brought to disk: [Errno 5] Input/output"] * 2
    disk.fails = False
    with pytest.raises(CoordinationError, match="until the broker is started again"):
        tree.multi([Create("/topics/c")])
    tree.when_durable(told.append)
    assert told[-1] is not None
    assert background.jobs == []


def test_a_long_log_is_copied_in_the_background_and_short_again(
    tree: AskedTree, path: str, background: FakeBackground, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_coordination, "LOG_BYTES_MAX", 100_000)
    told: list[str] = []
    for number in range(20):
        tree.multi([Create(f"/topics/{number}", b"x" * 9000)])
    assert log_bytes(path) > 100_000
    tree.when_durable(lambda _: told.append("durable"))
    background.run_next()
    assert (told, tree.is_writable, len(background.jobs)) == (["durable"], False, 1)
    tree.when_writable(lambda: told.append("writable"))
    tree.when_durable(lambda _: told.append("nothing new"))
    assert told == ["durable", "nothing new"]
    background.run_next()
    assert told == ["durable", "nothing new", "writable"]
    assert tree.is_writable
    assert 0 < log_bytes(path) < 10_000, "the header of the new log is on disk with a transaction of its own"
    tree.multi([Create("/topics/after")])
    tree.when_durable(lambda _: told.append("after"))
    background.run_next()
    assert told[-1] == "after"
    copied = shutil.copyfile(path, f"{path}.crashed")
    shutil.copyfile(f"{path}-wal", f"{path}.crashed-wal")
    found = AskedTree(copied, lambda: 1)
    assert len(found.children("/topics")) == 21
    found.close()


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


def test_a_failed_copy_for_want_of_room_is_tried_again_after_a_while_and_no_change_is_synced_in_the_call(
    tree: AskedTree, path: str, background: FakeBackground, disk: Disk, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_coordination, "LOG_BYTES_MAX", 5000)
    told: list[CoordinationError | None] = []
    full = FullDatabase(tree._database)

    def change(name: str) -> None:
        """One that is brought to disk in the background."""
        durable = len(told)
        tree.multi([Create(f"/topics/{name}", b"x" * 9000)])
        tree.when_durable(told.append)
        assert len(told) == durable, "the sync is not made in the call"
        background.run_all()
        assert told[durable:] == [None]
        assert tree.is_writable

    with monkeypatch.context() as patched:
        patched.setattr(tree, "_database", full)
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
    assert len(tree.children("/topics")) == 22


def test_the_first_write_to_an_empty_log_is_synced_in_the_call(path: str, background: FakeBackground) -> None:
    """Without the header on disk frames of an older log might count again after a power cut."""
    tree = AskedTree(path, lambda: 1)
    tree.sync_in(background)
    told: list[CoordinationError | None] = []
    tree.multi([Create("/a")])
    tree.when_durable(told.append)
    assert (told, background.jobs) == ([None], [])
    tree.multi([SetData("/a", b"x")])
    tree.when_durable(told.append)
    assert len(background.jobs) == 1
    background.run_next()
    assert told == [None, None]
    tree.close()


def test_a_node_that_is_set_alone_is_on_disk_when_the_call_returns(
    tree: AskedTree, path: str, background: FakeBackground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a block of producer ids has to be; the log stays short by these alone, too."""
    told: list[CoordinationError | None] = []
    tree.set("/topics", b"x")
    tree.when_durable(told.append)
    assert (told, background.jobs) == ([None], [])
    monkeypatch.setattr(sqlite_coordination, "LOG_BYTES_MAX", 20_000)
    for _ in range(20):
        tree.set("/topics", b"y" * 1000)
        background.run_all()
    assert log_bytes(path) < 30_000


def test_a_node_that_is_set_is_not_read_again_once_the_log_may_be_being_copied(
    tree: AskedTree, background: FakeBackground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read would wait for the copy that the write has begun."""

    def read(_: object) -> None:
        raise AssertionError("a read after the write")

    monkeypatch.setattr(sqlite_coordination, "LOG_BYTES_MAX", 0)
    tree.create("/topics/a")
    with monkeypatch.context() as patched:
        patched.setattr(tree._tree, "read", read)
        stat = tree.set("/topics", b"x")
    assert not tree.is_writable
    assert (b"x", stat) == tree.get("/topics")
    assert (stat.version, stat.children) == (1, 1)
    background.run_all()


def test_on_a_thread_a_request_is_on_disk_when_it_is_answered_and_the_log_stays_short(
    path: str, background: FakeBackground, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_coordination, "LOG_BYTES_MAX", 20_000)
    tree = AskedTree(path, lambda: 1)
    tree.run_on(background)
    outcomes: list[Outcome] = []
    for number in range(20):
        tree.submit(Multi((Create(f"/{number}", b"x" * 3000),)), outcomes.append)
    assert outcomes == []
    background.run_next()
    told: list[CoordinationError | None] = []
    tree.when_durable(told.append)
    assert (len(outcomes), told, disk.synced) == (1, [None], []), "by SQLite itself, in the transaction"
    assert tree._database.execute("PRAGMA synchronous").fetchone() == (2,)
    background.run_all()
    assert [type(outcome) for outcome in outcomes] == [MultiDone] * 20
    assert log_bytes(path) < 50_000
    tree.close()
    background.run_all()


class FailingDatabase:
    """A connection whose next commit finds that the log cannot be synced."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self.database = database

    def execute(self, statement: str, *parameters: Any) -> Any:
        if statement == "COMMIT":
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
            raise error
        return self.database.execute(statement, *parameters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.database, name)


def test_a_failed_sync_in_a_call_counts_for_what_waits_for_the_background_too(
    tree: AskedTree, background: FakeBackground, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is reported to the call; the sync in the background would succeed, without the pages."""
    told: list[CoordinationError | None] = []
    tree.multi([Create("/topics/a")])
    tree.when_durable(told.append)
    with monkeypatch.context() as patched:
        patched.setattr(tree, "_database", FailingDatabase(tree._database))
        with pytest.raises(CoordinationError, match="disk I/O error"):
            tree.set("/topics", b"x")
    background.run_next()
    assert "not brought to disk" in str(told[0])


class NotingDatabase:
    """A connection that notes how its last transaction, the copy at its end, is synced."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self.database = database
        self.synchronous_at_close = ""

    def close(self) -> None:
        self.synchronous_at_close = ("OFF", "NORMAL", "FULL")[self.database.execute("PRAGMA synchronous").fetchone()[0]]
        self.database.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.database, name)


@pytest.mark.parametrize("fails", [False, True])
def test_a_stop_removes_the_log_only_after_it_has_synced_the_copy(
    tree: AskedTree, path: str, background: FakeBackground, disk: Disk, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """SQLite copies the log and removes it when it is closed: without a sync a power cut would take what was reported durable."""
    noting = NotingDatabase(tree._database)
    monkeypatch.setattr(tree, "_database", noting)
    told: list[CoordinationError | None] = []
    for disk.fails in (False, fails):
        tree.multi([Create(f"/topics/{disk.fails}{len(told)}")])
        tree.when_durable(told.append)
        background.run_all()
    assert [error is None for error in told] == [True, not fails]
    tree.close()
    assert noting.synchronous_at_close == "FULL"
    assert not os.path.exists(f"{path}-wal")


def test_a_sync_that_ends_in_a_bug_has_failed(tree: AskedTree, background: FakeBackground, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that wait are told, and nothing of it is called durable later."""

    def broken(_descriptor: int) -> None:
        raise MemoryError

    told: list[CoordinationError | None] = []
    monkeypatch.setattr(os, "fdatasync", broken)
    tree.multi([Create("/topics/a")])
    tree.when_durable(told.append)
    with pytest.raises(MemoryError):
        background.run_next()
    tree.when_durable(told.append)
    assert [type(error) for error in told] == [CoordinationError] * 2


def test_those_that_wait_for_a_copy_are_resumed_when_it_ends_in_a_bug(
    tree: AskedTree, background: FakeBackground, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_coordination, "LOG_BYTES_MAX", 5000)
    tree.multi([Create("/topics/a", b"x" * 9000)])
    tree.when_durable(lambda _: None)
    background.run_next()
    told: list[str] = []
    tree.when_writable(lambda: told.append("writable"))
    (_, copied), background.jobs[:] = background.jobs[0], []
    with pytest.raises(MemoryError):
        copied(None, MemoryError())
    assert told == ["writable"]
    with pytest.raises(CoordinationError, match="until the broker is started again"):
        tree.multi([Create("/topics/b")])


class CopiesDuringReads:
    """A connection that has the log copied by another thread while a read has begun and not ended."""

    def __init__(self, tree: AskedTree, background: FakeBackground) -> None:
        self.database = tree._database
        self.tree = tree
        self.thread = threading.Thread(target=background.run_next)

    def execute(self, statement: str, *parameters: Any) -> Any:
        found = self.database.execute(statement, *parameters)
        if statement.startswith("SELECT") and self.thread.ident is None:
            waits_for_the_read = self.tree._transactions.locked()
            self.thread.start()
            if not waits_for_the_read:
                self.thread.join()
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self.database, name)


@pytest.mark.parametrize("read", [lambda tree: tree.get("/topics/a"), lambda tree: tree.children("/topics")])
def test_a_read_while_the_log_is_copied_does_not_keep_it_from_being_copied(
    tree: AskedTree,
    path: str,
    background: FakeBackground,
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[AskedTree], object],
) -> None:
    """SQLite says "database table is locked", and no change would be taken until the next start: so the copy waits for the read."""
    monkeypatch.setattr(sqlite_coordination, "LOG_BYTES_MAX", 5000)
    tree.multi([Create("/topics/a", b"x" * 9000)])
    tree.when_durable(lambda _: None)
    background.run_next()
    assert not tree.is_writable
    with monkeypatch.context() as patched:
        database = CopiesDuringReads(tree, background)
        patched.setattr(tree._tree, "_database", database)
        read(tree)
        database.thread.join()
    assert tree.is_writable
    tree.multi([Create("/topics/b")])
    assert log_bytes(path) < 5000 + 3 * BLOCK


class FailsMeanwhile:
    """A lock that is free when a sync in another thread has failed."""

    def __init__(self, tree: AskedTree) -> None:
        self.tree = tree

    def __enter__(self) -> None:
        self.tree._note_failure(OSError(5, "Input/output error"))

    def __exit__(self, *_: object) -> None:
        pass


def test_a_write_that_has_waited_for_a_copy_which_failed_is_not_taken(tree: AskedTree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own sync would succeed, and say nothing about the pages before it."""
    with monkeypatch.context() as patched:
        patched.setattr(tree, "_transactions", FailsMeanwhile(tree))
        with pytest.raises(CoordinationError, match="until the broker is started again"):
            tree.set("/topics", b"x")
    assert tree.get("/topics")[0] == b""


def crashed(path: str, missing: range, log: bytes) -> AskedTree:
    """The tree that is found where these blocks of the log were never written."""
    copy = shutil.copyfile(path, f"{path}.{missing.start}")
    found = bytearray(log)
    for block in missing:
        found[block * BLOCK : (block + 1) * BLOCK] = bytes(len(found[block * BLOCK : (block + 1) * BLOCK]))
    Path(f"{copy}-wal").write_bytes(found)
    return AskedTree(copy, lambda: 1)


def test_a_power_cut_keeps_what_was_reported_durable_whichever_later_blocks_were_lost(
    tree: AskedTree, path: str, background: FakeBackground, disk: Disk
) -> None:
    """Of changes that no sync has covered a beginning is left; the start takes that for no damage. Block 169 holds no salt of a frame."""
    told: list[CoordinationError | None] = []
    names: list[str] = []

    def write() -> None:
        names.append(f"{len(names):03}")
        tree.multi([Create(f"/topics/{names[-1]}", b"x" * 3000)])

    while log_bytes(path) < 160 * BLOCK:
        write()
    tree.when_durable(told.append)
    background.run_next()
    assert told == [None]
    durable, durable_bytes = len(names), log_bytes(path)
    while log_bytes(path) < 185 * BLOCK:
        write()
    log = Path(f"{path}-wal").read_bytes()
    assert durable_bytes < 168 * BLOCK
    for block in range(-(-durable_bytes // BLOCK), -(-len(log) // BLOCK)):
        found = crashed(path, range(block, block + 1), log)
        left = found.children("/topics")
        found.close()
        assert durable <= len(left) <= len(names), block
        assert left == names[: len(left)], block
