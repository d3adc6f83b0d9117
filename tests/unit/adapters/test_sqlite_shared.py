"""Sessions of several processes on one file: what ends them, what does not, what a crash leaves. For the tree: see the contract suite."""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moldau.adapters import sqlite_shared_file
from moldau.adapters.session_pipes import OwnPipes, PeerPipes
from moldau.adapters.sqlite_shared import TICKS, SharedSqliteCoordination
from moldau.model.errors import CoordinationError
from moldau.ports.coordination import (
    ConnectionLostError,
    Create,
    Data,
    EventType,
    Exists,
    GetChildren,
    GetData,
    Multi,
    Outcome,
    Request,
    SessionEvent,
    SessionState,
    SetData,
    WatchEvent,
)
from moldau.testing.background import FakeBackground
from moldau.testing.clock import FakeClock
from support.readers import PolledReaders
from support.trees import AskedTree

TIMEOUT_MS = 10_000
TICK_S = TIMEOUT_MS / 1000 / TICKS
OLDER_FILE = Path(__file__).parent / "data" / "coordination-format-2.db"


class Process:
    """A session with the time and the event loop of its process."""

    def __init__(self, path: str) -> None:
        self.clock = FakeClock()
        self.readers = PolledReaders()
        self.session = SharedSqliteCoordination(path, self.clock, self.readers, TIMEOUT_MS)
        self.stream: list[Outcome | WatchEvent | SessionEvent] = []
        self.session.listen(self.stream.append)
        self.stream.clear()

    def turn(self, seconds: float = 0.0) -> None:
        self.clock.advance(seconds)
        while self.readers.run():
            pass

    def ask(self, request: Request) -> Outcome:
        outcomes: list[Outcome] = []
        self.session.submit(request, outcomes.append)
        (outcome,) = outcomes
        assert not isinstance(outcome, CoordinationError), outcome
        return outcome

    def take(self) -> list[Outcome | WatchEvent | SessionEvent]:
        taken = self.stream[:]
        self.stream.clear()
        return taken

    def events(self) -> list[SessionState]:
        return [each.state for each in self.take() if isinstance(each, SessionEvent)]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "tree.db")


@pytest.fixture
def begin(path: str) -> Iterator[Callable[[], Process]]:
    """Begins a session; all are closed at the end."""
    processes: list[Process] = []

    def make() -> Process:
        processes.append(Process(path))
        for process in processes:
            process.turn()
        return processes[-1]

    yield make
    for process in processes:
        process.session.close()


def turn(seconds: float, *processes: Process) -> None:
    """Time passes for all of them at the same pace."""
    steps = round(seconds / TICK_S)
    for _ in range(steps):
        for process in processes:
            process.turn(TICK_S)
    for process in processes:
        process.turn()


def names(process: Process, path: str) -> list[str]:
    found = process.ask(GetChildren(path))
    return list(found.names)  # type: ignore[union-attr]


# Silence


def test_a_session_that_was_silent_for_its_timeout_is_ended_and_one_of_a_shorter_silence_is_not(begin: Callable[[], Process]) -> None:
    one, two = begin(), begin()
    one.ask(Create("/one", ephemeral=True))
    turn(TIMEOUT_MS / 1000, two)
    assert names(two, "/") == ["one"]
    turn(2 * TICK_S, two)
    assert names(two, "/") == []


def test_a_pause_shorter_than_the_timeout_suspends_the_session_and_it_continues(begin: Callable[[], Process]) -> None:
    one, two = begin(), begin()
    session_id = one.session.session_id
    one.ask(Create("/one", ephemeral=True))
    one.ask(GetData("/one", watch=True))
    turn(8.0, two)
    one.clock.advance_within(8.0)
    assert (one.ask(Exists("/none")), one.events()) == (None, [SessionState.SUSPENDED, SessionState.CONNECTED])
    turn(8.0, two)
    two.ask(SetData("/one", b"1"))
    one.turn()
    assert (one.session.session_id, names(two, "/"), one.take()) == (session_id, ["one"], []), "and its watches have ended"
    one.clock.advance_within(6.0)
    one.ask(Exists("/none"))
    assert one.events() == [], "less than two thirds of the timeout is no doubt"


def test_a_session_that_comes_back_while_another_ends_it_is_connected_or_expired_and_never_both(begin: Callable[[], Process]) -> None:
    """The other has counted its silence, and has not begun its transaction."""
    one, two = begin(), begin()
    one.ask(Create("/one", ephemeral=True))
    thread = FakeBackground()
    turn(TIMEOUT_MS / 1000, two)
    two.session.run_on(thread)
    turn(TICK_S, two)
    one.clock.advance_within(11.0)
    one.turn()
    assert one.events() == [SessionState.SUSPENDED, SessionState.CONNECTED]
    thread.immediate = True
    thread.run_all()
    assert names(two, "/") == ["one"]
    turn(8.0, one, two)
    assert (names(two, "/"), one.events()) == (["one"], [])


def test_what_was_on_its_way_when_the_session_was_ended_does_not_happen(begin: Callable[[], Process]) -> None:
    one, two = begin(), begin()
    one.ask(Create("/a"))
    thread = FakeBackground()
    one.session.run_on(thread)
    for request in (SetData("/a", b"late"), Create("/late"), Multi((Create("/late", ephemeral=True),))):
        one.session.submit(request, one.stream.append)
    turn(TIMEOUT_MS / 1000 + 2 * TICK_S, two)
    one.clock.advance_within(TIMEOUT_MS / 1000)
    thread.immediate = True
    thread.run_all()
    assert (names(two, "/"), two.ask(GetData("/a"))[0]) == (["a"], b"")  # type: ignore[index]
    suspended, *lost, expired, connected = one.take()
    assert [type(each) for each in lost] == [ConnectionLostError] * 3
    assert [each.state for each in (suspended, expired, connected) if isinstance(each, SessionEvent)] == [
        SessionState.SUSPENDED,
        SessionState.EXPIRED,
        SessionState.CONNECTED,
    ]


def test_a_process_that_was_paused_itself_ends_no_session_for_that(begin: Callable[[], Process]) -> None:
    one, two = begin(), begin()
    for _ in range(3):
        one.clock.advance_within(100.0)
        two.clock.advance_within(100.0)
        two.turn(TICK_S)
        one.turn(TICK_S)
    turn(5.0, one, two)
    assert (one.events(), two.events()) == ([SessionState.SUSPENDED, SessionState.CONNECTED] * 3,) * 2


def test_every_session_that_shows_that_it_lives_stays(begin: Callable[[], Process]) -> None:
    processes = [begin() for _ in range(4)]
    for place, process in enumerate(processes):
        process.ask(Create(f"/{place}", ephemeral=True))
    turn(100.0, *processes)
    assert names(processes[0], "/") == ["0", "1", "2", "3"]
    assert [process.events() for process in processes] == [[]] * 4


# Changes


def test_a_lost_message_delays_an_event_by_a_tick_only(begin: Callable[[], Process]) -> None:
    one, two = begin(), begin()
    one.ask(Create("/a"))
    two.ask(GetData("/a", watch=True))
    one.ask(SetData("/a", b"1"))
    two.session._pipes.receive()
    two.turn()
    assert two.take() == []
    two.turn(TICK_S)
    assert two.take() == [WatchEvent(EventType.CHANGED, "/a")]


def test_a_session_further_behind_than_the_changes_that_are_kept_has_all_watches_fired(
    begin: Callable[[], Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_shared_file, "CHANGES_MAX", 100)
    one, two = begin(), begin()
    one.ask(Create("/a"))
    two.ask(GetData("/a", watch=True))
    two.ask(GetChildren("/a", watch=True))
    two.ask(Exists("/b", watch=True))
    for number in range(10):
        one.ask(Multi(tuple(SetData("/a", b"%d" % number) for _ in range(1))))
        one.ask(Multi(tuple(Create(f"/n{number}-{each}") for each in range(200))))
    found = two.ask(GetData("/a"))
    assert isinstance(found, Data)
    assert (found.data, two.take()) == (
        b"9",
        [WatchEvent(EventType.CHANGED, "/a"), WatchEvent(EventType.CHANGED, "/b"), WatchEvent(EventType.CHILDREN, "/a")],
    )
    two.ask(GetData("/a", watch=True))
    one.ask(SetData("/a", b"again"))
    two.turn()
    assert two.take() == [WatchEvent(EventType.CHANGED, "/a")]
    with sqlite3.connect(f"file:{one.session._file._path}?mode=ro", uri=True) as found_database:
        (count,) = found_database.execute("SELECT count(*) FROM change").fetchone()
    found_database.close()
    assert count < 1500


def test_a_full_pipe_loses_nothing(tmp_path: Path) -> None:
    readers = PolledReaders()
    own = OwnPipes(str(tmp_path / "sessions"), 1)
    peers = PeerPipes(str(tmp_path / "sessions"), readers, lambda _: None)
    assert peers.update([1], 7) == []
    for _ in range(10_000):
        peers.notify(7)
    assert set(own.receive()) == {7}
    own.receive()
    peers.notify(8)
    assert own.receive()[-1] == 8
    peers.close()
    own.close()


# Processes that end


def child(script: str, *arguments: str) -> subprocess.Popen[str]:
    """A process that has printed a line."""
    started = subprocess.Popen([sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    assert started.stdout.readline()
    return started


ENTERS = """
import os, signal, sys
from moldau.adapters.sqlite_shared_file import SharedFile
from moldau.ports.coordination import Create
from moldau.testing.clock import FakeClock
file = SharedFile(sys.argv[1], FakeClock(), 600_000)
entered = file.enter()
file.carry_out(entered.session_id, Create("/child", ephemeral=True))
if len(sys.argv) > 2:
    file._database.execute("BEGIN IMMEDIATE")
print("ready", flush=True)
if len(sys.argv) > 2:
    os.kill(os.getpid(), signal.SIGSTOP)
    file._database.execute("ROLLBACK")
signal.pause()
"""


def test_the_nodes_of_a_killed_process_go_at_once_without_time_passing(begin: Callable[[], Process], path: str) -> None:
    one, two = begin(), begin()
    killed = child(ENTERS, path)
    for process in (one, two):
        process.turn(TICK_S)
    one.ask(Exists("/child", watch=True))
    two.ask(GetChildren("/", watch=True))
    killed.kill()
    killed.communicate()
    for process in (one, two):
        process.turn()
    assert one.take() == [WatchEvent(EventType.DELETED, "/child")]
    assert two.take() == [WatchEvent(EventType.CHILDREN, "/")]
    assert names(two, "/") == []
    assert sorted(os.listdir(f"{path}-sessions")) == ["1", "1-life", "2", "2-life"]


def test_a_process_that_begins_never_sees_the_nodes_of_one_that_was_killed(begin: Callable[[], Process], path: str) -> None:
    one = begin()
    killed = child(ENTERS, path)
    killed.kill()
    killed.communicate()
    late = Process(path)
    assert names(late, "/") == []
    late.session.close()
    one.turn()
    assert one.events() == []


def test_the_last_one_leaves_the_file_alone_and_nothing_beside_it(begin: Callable[[], Process], path: str) -> None:
    one, two = begin(), begin()
    one.ask(Create("/a", ephemeral=True))
    one.ask(Create("/b"))
    one.session.close()
    assert os.path.exists(f"{path}-sessions")
    two.session.close()
    assert sorted(each.name for each in Path(path).parent.iterdir()) == ["tree.db"]
    alone = AskedTree(path, lambda: 1)
    assert alone.children("/") == ["b"]
    alone.close()


def test_a_process_stopped_in_the_middle_of_a_write_is_continued_after_the_timeout(
    begin: Callable[[], Process], path: str, caplog: pytest.LogCaptureFixture
) -> None:
    one = begin()
    stopped = child(ENTERS, path, "stop")
    os.waitpid(stopped.pid, os.WUNTRACED)
    one.session._file._transactions._timeout_s = 0.01
    one.ask(Create("/a"))
    assert f"process continued: pid={stopped.pid} path={path}" in caplog.text
    stopped.kill()
    stopped.communicate()
    one.turn(TICK_S)
    assert names(one, "/") == ["a"]


def test_a_write_waits_for_another_process_but_not_for_ever(
    begin: Callable[[], Process], path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = begin()
    one.ask(Create("/a"))
    monkeypatch.setattr(sqlite_shared_file, "WAIT_S", 0.01)
    one.session._file._transactions._timeout_s = 0.01
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    one.session.submit(SetData("/a", b"1"), one.stream.append)
    (error,) = one.take()
    assert isinstance(error, CoordinationError)
    assert error.retriable
    assert f"{path}: another process has held the write lock for" in str(error)
    assert one.ask(GetData("/a"))[0] == b"", "reads do not wait"  # type: ignore[index]
    other.execute("ROLLBACK")
    other.close()
    one.ask(SetData("/a", b"1"))


# The file


def test_a_file_is_held_alone_or_shared_and_not_both(begin: Callable[[], Process], path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = begin()
    with pytest.raises(CoordinationError, match=r"tree\.db: in use by another process"):
        AskedTree(path, lambda: 1)
    one.ask(Create("/a"))
    one.session.close()
    alone = AskedTree(path, lambda: 1)
    monkeypatch.setattr(sqlite_shared_file, "WAIT_S", 0.01)
    with pytest.raises(CoordinationError, match=r"tree\.db: in use by another process"):
        Process(path)
    assert alone.children("/") == ["a"]
    alone.close()


def test_a_log_that_another_process_removes_while_this_one_looks_at_it_does_not_matter(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of processes that begin at the same moment each may be the last to close the file that it has prepared."""
    Process(path).session.close()
    Path(f"{path}-wal").touch()
    stat_of = os.lstat

    def removed_after(each: str) -> os.stat_result:
        found = stat_of(each)
        if each.endswith("-wal"):
            Path(each).unlink()
        return found

    monkeypatch.setattr(os, "lstat", removed_after)
    Process(path).session.close()


def test_a_file_of_one_broker_is_adopted_and_may_become_that_again(path: str) -> None:
    shutil.copyfile(OLDER_FILE, path)
    shared = Process(path)
    assert names(shared, "/") == ["brokers", "config"]
    created = shared.ask(Create("/later", ephemeral=True))
    assert created.stat.created_id > 8  # type: ignore[union-attr]
    for suffix in ("", "-wal"):
        shutil.copyfile(path + suffix, f"{path}.crashed{suffix}")
    alone = AskedTree(f"{path}.crashed", lambda: 1)
    assert alone.children("/") == ["brokers", "config"]
    assert alone.session_id > shared.session.session_id
    alone.close()
    shared.session.close()


def test_a_damaged_row_is_found_by_each_process_that_begins(begin: Callable[[], Process], path: str) -> None:
    one = begin()
    one.ask(Create("/a", b"604800000"))
    with sqlite3.connect(path) as other:
        other.execute("UPDATE node SET data = ? WHERE path = '/a'", (b"004800000",))
    other.close()
    with pytest.raises(CoordinationError, match=r"tree\.db: damaged: the checksum of node '/a'"):
        Process(path)
    assert one.ask(Exists("/a")) is not None


def test_no_session_begins_where_its_pipes_cannot_be_made(path: str) -> None:
    Path(f"{path}-sessions").write_text("in the way")
    with pytest.raises(CoordinationError, match=r"tree\.db-sessions"):
        Process(path)
    os.unlink(f"{path}-sessions")
    Process(path).session.close()


def left_by_kills(path: str, sizes: list[int]) -> str:
    """A file in whose log each of these writes was interrupted before it was finished, and overwritten in part by the next, shorter one."""
    before = [Path(path + suffix).read_bytes() for suffix in ("", "-wal")]
    log = b""
    for size in sizes:
        copy = f"{path}.{size}"
        for suffix, content in zip(("", "-wal"), before, strict=True):
            Path(copy + suffix).write_bytes(content)
        database = sqlite3.connect(copy, isolation_level=None)
        database.execute("PRAGMA wal_autocheckpoint=0")
        database.create_function("node_checksum", 9, lambda *_: 0)
        database.execute("BEGIN IMMEDIATE")
        database.executemany("INSERT INTO change VALUES (?, 0, ?)", [(1000 + each, "x" * 3000) for each in range(size)])
        database.execute("COMMIT")
        written = Path(f"{copy}-wal").read_bytes()
        database.close()
        log = written + log[len(written) :]
    left = f"{path}.left"
    Path(left).write_bytes(before[0])
    Path(f"{left}-wal").write_bytes(log)
    return left


def test_what_killed_processes_have_left_in_the_log_is_no_damage(begin: Callable[[], Process], path: str) -> None:
    one = begin()
    begin()
    one.ask(Create("/a", b"kept"))
    left = left_by_kills(path, [30, 20, 10, 1])
    found = Process(left)
    assert names(found, "/") == ["a"]
    found.session.close()


def test_more_lost_transactions_than_there_were_processes_are_damage(begin: Callable[[], Process], path: str) -> None:
    one = begin()
    one.ask(Create("/a", b"kept"))
    left = left_by_kills(path, [40, 30, 20, 10, 1])
    with pytest.raises(CoordinationError, match=r"-wal: damaged: 4 transactions"):
        Process(left)


def test_the_log_begins_anew_after_a_kill_and_when_it_is_long(
    begin: Callable[[], Process], path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = begin()
    killed = child(ENTERS, path)
    one.turn(TICK_S)
    killed.kill()
    killed.communicate()
    one.turn()
    with sqlite3.connect(path) as other:
        assert other.execute("SELECT id, ended FROM session").fetchall() == [(1, 0)]
    other.close()
    monkeypatch.setattr(sqlite_shared_file, "LOG_BYTES_MAX", 50_000)
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM node").fetchone()
    for number in range(30):
        one.ask(Create(f"/{number}", b"x" * 5000))
    assert os.stat(f"{path}-wal").st_size > 50_000, "another reads it"
    reader.execute("ROLLBACK")
    reader.close()
    one.turn(TICK_S)
    assert os.stat(f"{path}-wal").st_size < 50_000
