"""The coordination tree means the same whoever keeps it. A further keeper joins by a class in `KEEPERS`."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest

from moldau.adapters.sqlite_coordination import SqliteCoordination
from moldau.adapters.sqlite_file import MEMORY
from moldau.adapters.sqlite_shared import SharedSqliteCoordination
from moldau.adapters.zookeeper_coordination import ZookeeperCoordination
from moldau.model.errors import CoordinationError
from moldau.model.zookeeper_connect import ConnectString
from moldau.ports.coordination import (
    BadVersionError,
    Check,
    Children,
    ConnectionLostError,
    Coordination,
    Create,
    Created,
    Data,
    Delete,
    EphemeralParentError,
    EventType,
    Exists,
    GetChildren,
    GetData,
    Multi,
    MultiDone,
    NodeError,
    NodeExistsError,
    NodeStat,
    NoNodeError,
    NotEmptyError,
    Outcome,
    Request,
    SessionClosedError,
    SessionEvent,
    SessionExpiredError,
    SessionState,
    SetData,
    TooManyRequestsError,
    WatchEvent,
    Write,
)
from moldau.testing.clock import FakeClock
from moldau.testing.coordination import FakeSession, FakeTree
from support import zookeeper
from support.readers import PolledReaders

T = TypeVar("T")
CREATED, CHANGED, DELETED, CHILDREN = EventType.CREATED, EventType.CHANGED, EventType.DELETED, EventType.CHILDREN
CONNECTED, SUSPENDED, EXPIRED, CLOSED = SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.EXPIRED, SessionState.CLOSED


class Client:
    """A session and the stream of what it was called with."""

    def __init__(self, keeper: "Keeper", session: Coordination) -> None:
        self.keeper = keeper
        self.session = session
        self.stream: list[Outcome | WatchEvent | SessionEvent] = []
        session.listen(self.stream.append)

    def submit(self, *requests: Request) -> None:
        for request in requests:
            self.session.submit(request, self.stream.append)

    def outcome(self, request: Request) -> Outcome:
        """Of a request whose answer is waited for; it does not enter the stream, but events do."""
        outcomes: list[Outcome] = []
        self.session.submit(request, outcomes.append)
        self.keeper.settle()
        (outcome,) = outcomes
        return outcome

    def ask(self, request: Request) -> Any:
        """The result of a request that succeeds."""
        outcome = self.outcome(request)
        if isinstance(outcome, CoordinationError):
            raise outcome
        return outcome

    def refused(self, request: Request, error: type[CoordinationError]) -> Any:
        """The error of a request that fails with one."""
        outcome = self.outcome(request)
        assert type(outcome) is error, outcome
        return outcome

    def make(self, *paths: str) -> None:
        for path in paths:
            self.ask(Create(path))

    def data(self, path: str) -> bytes:
        found: Data = self.ask(GetData(path))
        return found.data

    def stat(self, path: str) -> NodeStat:
        found: Data = self.ask(GetData(path))
        return found.stat

    def names(self, path: str) -> list[str]:
        found: Children = self.ask(GetChildren(path))
        return list(found.names)

    def take(self) -> list[Outcome | WatchEvent | SessionEvent]:
        """What came since the last call, without the first CONNECTED."""
        self.keeper.settle()
        taken = self.stream[:]
        self.stream.clear()
        return taken

    def close(self) -> None:
        self.session.close()
        self.keeper.settle()


class Keeper:
    """Opens sessions with one tree."""

    lasts = True
    """Whether the tree outlives a session."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = FakeClock()
        self.clients: list[Client] = []

    def open(self, requests_max: int = 10_000) -> Client:
        client = Client(self, self.session(requests_max))
        self.clients.append(client)
        self.settle()
        assert client.take() == [SessionEvent(CONNECTED, client.session.session_id)]
        return client

    def session(self, requests_max: int) -> Coordination:
        raise NotImplementedError

    def settle(self) -> None:
        """Until everything that was submitted is answered. Time passes."""
        self.clock.advance(10)

    def end(self) -> None:
        for client in self.clients:
            client.session.close()
        self.settle()


class SqliteFile(Keeper):
    def session(self, requests_max: int) -> SqliteCoordination:
        return SqliteCoordination(str(self.directory / "coordination.db"), self.clock.time_ms, requests_max)


class SqliteMemory(Keeper):
    lasts = False

    def session(self, requests_max: int) -> SqliteCoordination:
        return SqliteCoordination(MEMORY, self.clock.time_ms, requests_max)


class OneThread:
    """A :class:`moldau.ports.background.Background` whose answers are given by `settle`."""

    def __init__(self) -> None:
        self.executor = ThreadPoolExecutor(1)
        self.answers: list[Callable[[], object]] = []

    def run(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], object]) -> None:
        self.answers.append(partial(self._answer, self.executor.submit(work), done))

    def _answer(self, future: Future[T], done: Callable[[T | None, BaseException | None], object]) -> None:
        error = future.exception()
        done(None if error else future.result(), error)

    def settle(self) -> None:
        while self.answers:
            self.answers.pop(0)()


class SqliteOnThread(SqliteFile):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.thread = OneThread()

    def session(self, requests_max: int) -> SqliteCoordination:
        session = super().session(requests_max)
        session.run_on(self.thread)
        return session

    def settle(self) -> None:
        super().settle()
        self.thread.settle()

    def end(self) -> None:
        super().end()
        self.thread.executor.shutdown()


class SeveralSessions(Keeper):
    """One with several sessions at a time."""

    def expire(self, client: Client) -> None:
        """End the session of a client that is cut off from the tree. It has not learnt it yet."""
        raise NotImplementedError

    def come_back(self, client: Client) -> None:
        """Let it learn that."""
        raise NotImplementedError

    def carry_out(self) -> None:
        """Until what was submitted comes before what is submitted now, by whichever client. Nothing is answered."""


class Process:
    """What a session has of its process: time, event loop, thread."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.readers = PolledReaders()
        self.thread: OneThread | None = None
        self.is_stopped = False

    def turn(self, seconds: float) -> None:
        """Turn the event loop until there is nothing to do."""
        if self.is_stopped:
            return
        self.clock.advance(seconds)
        is_busy = True
        while is_busy:
            is_busy = self.readers.run()
            if self.thread is not None:
                is_busy |= bool(self.thread.answers)
                self.thread.settle()


class SharedSqlite(SeveralSessions):
    on_thread = False

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.processes: dict[Coordination, Process] = {}

    def session(self, requests_max: int) -> SharedSqliteCoordination:
        process = Process()
        path = str(self.directory / "coordination.db")
        session = SharedSqliteCoordination(path, process.clock, process.readers, 60_000, requests_max)
        if self.on_thread:
            process.thread = OneThread()
            session.run_on(process.thread)
        self.processes[session] = process
        return session

    def settle(self, seconds: int = 10) -> None:
        for _ in range(seconds):
            for process in self.processes.values():
                process.turn(1.0)
        for process in self.processes.values():
            process.turn(0.0)

    def expire(self, client: Client) -> None:
        process = self.processes[client.session]
        process.is_stopped = True
        self.settle(100)
        process.clock.advance_within(100)

    def come_back(self, client: Client) -> None:
        self.processes[client.session].is_stopped = False
        self.settle()

    def end(self) -> None:
        super().end()
        for process in self.processes.values():
            if process.thread is not None:
                process.thread.executor.shutdown()


class SharedSqliteOnThread(SharedSqlite):
    on_thread = True

    def carry_out(self) -> None:
        for process in self.processes.values():
            assert process.thread is not None
            process.thread.executor.submit(lambda: None).result()


class FakeAtOnce(SeveralSessions):
    latency_s = 0.0

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.tree = FakeTree(self.clock)

    def session(self, requests_max: int) -> FakeSession:
        return self.tree.session(self.latency_s, requests_max)

    def settle(self) -> None:
        while True:
            super().settle()
            if not self.clock.pending:
                return

    def expire(self, client: Client) -> None:
        faults(client).expire()

    def come_back(self, client: Client) -> None:
        faults(client).resume()


class FakeWithLatency(FakeAtOnce):
    latency_s = 0.5


class Zookeeper(SeveralSessions):
    """A real server, through a proxy for each session. What arrives here in what time is decided by threads and processes, so `settle` has
    a request of its own answered after all others, in each session.
    """

    numbers = count(1)

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.server = zookeeper.shared_server()
        self.root = f"/{next(self.numbers)}"
        self.loop = asyncio.SelectorEventLoop()
        self.sessions: list[ZookeeperSession] = []

    def session(self, requests_max: int) -> "ZookeeperSession":
        session = ZookeeperSession(self, requests_max)
        self.sessions.append(session)
        return session

    def settle(self) -> None:
        self.run(asyncio.sleep(0.002))  # the server's time in milliseconds passes
        for _ in range(3):  # what an answer submits may be answered, and submit more
            for session in self.sessions:
                session.settle()

    def expire(self, client: Client) -> None:
        faults(client).expire()

    def come_back(self, client: Client) -> None:
        faults(client).resume()

    def carry_out(self) -> None:
        self.settle()

    def run(self, wait: Coroutine[Any, Any, object]) -> None:
        self.loop.run_until_complete(asyncio.wait_for(wait, 30))

    def end(self) -> None:
        for session in self.sessions:
            session.release()
            session.proxy.mend()
        super().end()
        for session in self.sessions:
            session.proxy.close()
        self.run(asyncio.sleep(0))
        self.loop.close()


class ZookeeperSession(ZookeeperCoordination):
    """A session, and the faults of its connection; as those of a :class:`FakeSession`."""

    def __init__(self, keeper: Zookeeper, requests_max: int) -> None:
        self.keeper = keeper
        self.proxy = zookeeper.Proxy(keeper.loop, (zookeeper.HOST, keeper.server.port))
        self.state: SessionState | None = None
        connect = ConnectString(((zookeeper.HOST, self.proxy.port),), keeper.root)
        super().__init__(connect, keeper.loop, session_timeout_ms=10_000, requests_max=requests_max)
        self.listen(self.heard)

    def heard(self, event: WatchEvent | SessionEvent) -> None:
        if isinstance(event, SessionEvent):
            self.state = event.state

    def settle(self) -> None:
        self.keeper.run(self.idle())

    async def idle(self) -> None:
        """Until what was submitted before has been answered, or waits for a connection."""
        answers: list[Outcome] = []
        is_asking = False
        while self.state is not CLOSED:
            if self.proxy.is_cut and self.state is SUSPENDED:
                return
            if self.proxy.is_holding:
                if self.proxy.held >= len(self._sent):
                    return
            elif answers:
                if not isinstance(answers.pop(), CoordinationError):
                    return
                is_asking = False
            elif self.state is CONNECTED and not is_asking:
                is_asking = True
                self.submit(Exists("/"), answers.append)
            await asyncio.sleep(0.001)

    def hold(self) -> None:
        self.proxy.hold()

    def release(self) -> None:
        self.proxy.release()

    def suspend(self) -> None:
        self.proxy.cut()
        self.settle()

    def resume(self) -> None:
        self.proxy.mend()
        self.settle()

    def lose_answer(self, nth: int) -> None:
        self.proxy.lose_in = nth

    def expire(self) -> None:
        session = self._client.client_id
        assert session is not None
        self.suspend()
        zookeeper.end_session(self.keeper.server, session)


REAL = pytest.param(Zookeeper, marks=[pytest.mark.system, pytest.mark.skipif(not zookeeper.has_java(), reason="no Java")])
SEVERAL = [SharedSqlite, SharedSqliteOnThread, FakeAtOnce, FakeWithLatency, REAL]
KEEPERS = [SqliteFile, SqliteMemory, SqliteOnThread, *SEVERAL]
SHARED = [FakeAtOnce, FakeWithLatency, REAL]
"""Those whose connections a test can cut and hold."""


@pytest.fixture(params=KEEPERS, ids=lambda kind: kind.__name__)
def keeper(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Keeper]:
    keeper: Keeper = request.param(tmp_path)
    yield keeper
    keeper.end()


@pytest.fixture
def tree(keeper: Keeper) -> Client:
    return keeper.open()


@pytest.fixture(params=SEVERAL, ids=lambda kind: kind.__name__)
def several(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SeveralSessions]:
    keeper: SeveralSessions = request.param(tmp_path)
    yield keeper
    keeper.end()


@pytest.fixture(params=SHARED, ids=lambda kind: kind.__name__)
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Keeper]:
    keeper: Keeper = request.param(tmp_path)
    yield keeper
    keeper.end()


@pytest.fixture(params=[FakeAtOnce, FakeWithLatency], ids=lambda kind: kind.__name__)
def fakes(request: pytest.FixtureRequest, tmp_path: Path) -> FakeAtOnce:
    keeper: FakeAtOnce = request.param(tmp_path)
    return keeper


def faults(client: Client) -> FakeSession | ZookeeperSession:
    assert isinstance(client.session, FakeSession | ZookeeperSession)
    return client.session


def fake(client: Client) -> FakeSession:
    assert isinstance(client.session, FakeSession)
    return client.session


# Nodes


def test_a_node_holds_bytes_and_counts_its_writes(tree: Client) -> None:
    made: Created = tree.ask(Create("/a", b"one"))
    assert made.path == "/a"
    data, stat = tree.ask(GetData("/a"))
    assert (data, stat) == (b"one", made.stat)
    assert (stat.version, stat.owner, stat.is_ephemeral, stat.children) == (0, 0, False, 0)
    changed: NodeStat = tree.ask(SetData("/a", b"\x00\xff"))
    assert changed.version == 1
    assert changed.modified_ms > stat.modified_ms
    assert (changed.created_ms, changed.created_id) == (stat.created_ms, stat.created_id)
    assert tree.ask(GetData("/a")) == Data(b"\x00\xff", changed)
    assert tree.ask(Exists("/a")) == changed


def test_a_node_needs_its_parent(tree: Client) -> None:
    assert tree.refused(Create("/a/b/c"), NoNodeError).path == "/a/b"
    assert tree.refused(Create("/a/b/n_", sequential=True), NoNodeError).path == "/a/b"


def test_a_path_exists_once(tree: Client) -> None:
    tree.make("/a")
    assert tree.refused(Create("/a"), NodeExistsError).path == "/a"
    assert tree.refused(Create("/"), NodeExistsError).path == "/"


@pytest.mark.parametrize("path", ["", "a", "/a/", "//a", "/a//b", "//"])
def test_a_malformed_path_is_our_own_bug(tree: Client, path: str) -> None:
    writes: list[Write] = [Create(path), SetData(path, b""), Delete(path), Check(path, 0)]
    requests: list[Request] = [*(Multi((Create("/fine"), write)) for write in writes), *writes[:3]]  # type: ignore[list-item]
    for request in (*requests, GetData(path), Exists(path), GetChildren(path)):
        with pytest.raises(ValueError, match="not a path"):
            tree.submit(request)
    assert tree.take() == []
    assert tree.ask(Exists("/fine")) is None


def test_a_missing_node_is_named(tree: Client) -> None:
    for request in (GetData("/no"), SetData("/no", b""), Delete("/no"), GetChildren("/no"), Multi((Check("/no", 0),))):
        assert tree.refused(request, NoNodeError).path == "/no"
    assert tree.ask(Exists("/no")) is None


def test_a_write_with_a_stale_version_is_refused(tree: Client) -> None:
    tree.make("/a")
    tree.ask(SetData("/a", b"1", 0))
    assert tree.refused(SetData("/a", b"2", 0), BadVersionError).path == "/a"
    assert tree.refused(Delete("/a", 0), BadVersionError).path == "/a"
    assert tree.data("/a") == b"1"
    assert tree.ask(Delete("/a", 1)) is None
    assert tree.ask(Exists("/a")) is None


def test_children_are_names_in_order_and_only_the_direct_ones(tree: Client) -> None:
    tree.make("/b", "/b/2", "/b/10", "/b/2/deep", "/bb", "/a")
    assert tree.ask(GetChildren("/b")) == Children(["10", "2"], tree.stat("/b"))
    assert tree.names("/b/10") == []
    assert tree.names("/") == ["a", "b", "bb"]
    assert (tree.stat("/b").children, tree.stat("/").children, tree.stat("/").version) == (2, 3, 0)


def test_a_node_with_children_is_not_deleted(tree: Client) -> None:
    tree.make("/a", "/a/b", "/a0")
    assert tree.refused(Delete("/a"), NotEmptyError).path == "/a"
    tree.ask(Delete("/a/b"))
    tree.ask(Delete("/a"))
    assert tree.names("/") == ["a0"]
    assert isinstance(tree.outcome(Delete("/")), CoordinationError)


def test_sequential_names_grow_also_after_a_deletion_and_in_a_multi(tree: Client) -> None:
    tree.make("/q")
    names = [tree.ask(Create("/q/n_", sequential=True)).path for _ in range(2)]
    tree.ask(Delete(names[1]))
    names.append(tree.ask(Create("/q/n_", sequential=True)).path)
    done: MultiDone = tree.ask(Multi((Create("/q/n_", sequential=True), Create("/q/n_", sequential=True))))
    names += [each.path for each in done.results if isinstance(each, Created)]
    assert len(names) == 5
    assert names == sorted(set(names)), "each is larger than every one before"
    assert all(len(name) == len("/q/n_") + 10 for name in names)
    assert len(tree.names("/q")) == 4


def test_an_ephemeral_node_has_no_children_and_names_its_session(tree: Client) -> None:
    made: Created = tree.ask(Create("/e", ephemeral=True))
    assert made.stat.owner == tree.stat("/e").owner == tree.session.session_id != 0
    assert made.stat.is_ephemeral
    assert tree.refused(Create("/e/child"), EphemeralParentError).path == "/e"
    tree.make("/lasts")
    assert tree.stat("/lasts").owner == 0
    assert tree.ask(SetData("/e", b"x")).owner == tree.session.session_id


def test_created_id_grows_over_the_whole_tree(tree: Client) -> None:
    ids = [tree.ask(Create(path)).stat.created_id for path in ("/a", "/b", "/a/c")]
    tree.ask(SetData("/a", b""))
    for path in ("/a/c", "/a"):
        tree.ask(Delete(path))
    ids.append(tree.ask(Create("/a")).stat.created_id)
    tree.refused(Multi((Create("/m"), Create("/a"))), NodeExistsError)
    done: MultiDone = tree.ask(Multi((Create("/m"), Create("/n"), Delete("/m"))))
    ids.append(tree.stat("/n").created_id)
    assert ids == sorted(set(ids)), "each is larger than every one before"
    assert isinstance(done.results[0], Created)
    assert ids[-2] < done.results[0].stat.created_id <= ids[-1], "those of one multi may share it"


# Multi


def test_a_multi_happens_whole_and_its_writes_see_each_other(tree: Client) -> None:
    tree.ask(Create("/a", b"0"))
    writes = (
        Check("/a", 0),
        Create("/a/b"),
        Create("/a/b/c", b"x"),
        SetData("/a", b"1", 0),
        SetData("/a", b"2", 1),
        Delete("/a/b/c"),
        Delete("/a/b"),
    )
    check, made, _, first, second, *deleted = tree.ask(Multi(writes)).results
    assert (check, deleted, made.path, first.version, second.version) == (None, [None, None], "/a/b", 1, 2)
    assert tree.data("/a") == b"2"
    assert tree.stat("/a") == second._replace(children=0)
    assert tree.names("/a") == []


@pytest.mark.parametrize(
    ("before", "error"),
    [
        ((Create("/n"), Delete("/n")), NoNodeError),
        ((Create("/n"), Create("/n/first"), Delete("/n/first"), Delete("/n")), NoNodeError),
        ((Create("/n", ephemeral=True),), EphemeralParentError),
        ((Create("/n"), Delete("/n"), Create("/n", ephemeral=True)), EphemeralParentError),
    ],
)
def test_a_multi_makes_no_child_of_a_node_that_it_has_deleted_or_made_ephemeral(
    tree: Client, before: tuple[Write, ...], error: type[NodeError]
) -> None:
    refused = tree.refused(Multi((*before, Create("/n/child"))), error)
    assert (refused.path, refused.index) == ("/n", len(before))
    assert tree.refused(Create("/n/child"), NoNodeError).path == "/n", "nor does a later write take it to be there"


@pytest.mark.parametrize(
    ("last", "error", "path"),
    [
        (Create("/a"), NodeExistsError, "/a"),
        (Create("/none/x"), NoNodeError, "/none"),
        (SetData("/a", b"", 7), BadVersionError, "/a"),
        (SetData("/none", b""), NoNodeError, "/none"),
        (Delete("/full"), NotEmptyError, "/full"),
        (Delete("/a", 7), BadVersionError, "/a"),
        (Check("/a", 7), BadVersionError, "/a"),
        (Check("/none", 0), NoNodeError, "/none"),
    ],
)
def test_a_multi_that_fails_at_its_last_write_leaves_nothing(tree: Client, last: Write, error: type[NodeError], path: str) -> None:
    tree.ask(Create("/a", b"before"))
    tree.make("/full", "/full/child")
    before = tree.ask(GetData("/a", watch=True))
    tree.ask(Exists("/new", watch=True))
    tree.ask(GetChildren("/full", watch=True))
    refused = tree.refused(Multi((SetData("/a", b"after"), Create("/new"), Delete("/full/child"), Create("/full/child"), last)), error)
    assert (refused.path, refused.index) == (path, 4)
    assert tree.ask(GetData("/a")) == before
    assert tree.ask(Exists("/new")) is None
    assert tree.refused(Create("/new/child"), NoNodeError).path == "/new"
    assert tree.names("/full") == ["child"]
    assert tree.take() == []


def test_a_check_alone_compares_and_changes_nothing(tree: Client) -> None:
    tree.make("/a")
    stat = tree.ask(Exists("/a", watch=True))
    assert tree.ask(Multi((Check("/a", 0),))) == MultiDone((None,))
    assert tree.refused(Multi((Check("/a", 1),)), BadVersionError).index == 0
    assert tree.stat("/a") == stat
    assert tree.take() == []
    assert tree.ask(Multi(())) == MultiDone(())


def test_the_nodes_of_a_hundred_partitions_fit_into_one_multi(tree: Client) -> None:
    tree.make("/t")
    nodes = [(Create(f"/t/{index}"), Create(f"/t/{index}/state", b"x" * 1000)) for index in range(100)]
    tree.ask(Multi(tuple(write for pair in nodes for write in pair)))
    assert len(tree.names("/t")) == 100


# Watches


def test_a_data_watch_sees_one_change_or_the_end(tree: Client) -> None:
    tree.make("/a")
    tree.ask(GetData("/a", watch=True))
    tree.make("/a/child")
    assert tree.take() == []
    tree.ask(SetData("/a", b"1"))
    tree.ask(SetData("/a", b"2"))
    assert tree.take() == [WatchEvent(CHANGED, "/a")]
    tree.ask(GetData("/a", watch=True))
    tree.ask(Delete("/a/child"))
    tree.ask(Delete("/a"))
    assert tree.take() == [WatchEvent(DELETED, "/a")]


def test_a_watch_on_a_missing_node_sees_its_creation(tree: Client) -> None:
    assert tree.ask(Exists("/a", watch=True)) is None
    tree.make("/a")
    assert tree.take() == [WatchEvent(CREATED, "/a")]
    assert tree.ask(Exists("/a", watch=True)) is not None
    tree.ask(SetData("/a", b"1"))
    assert tree.take() == [WatchEvent(CHANGED, "/a")]
    tree.ask(SetData("/a", b"2"))
    assert tree.take() == []


def test_a_child_watch_sees_a_child_come_or_go_and_the_end(tree: Client) -> None:
    tree.make("/a")
    tree.ask(GetChildren("/a", watch=True))
    tree.ask(SetData("/a", b"not for this watch"))
    assert tree.take() == []
    tree.make("/a/b", "/a/c")
    assert tree.take() == [WatchEvent(CHILDREN, "/a")]
    tree.ask(GetChildren("/a", watch=True))
    tree.ask(Delete("/a/b"))
    assert tree.take() == [WatchEvent(CHILDREN, "/a")]
    tree.ask(Delete("/a/c"))
    tree.ask(GetChildren("/a", watch=True))
    tree.ask(GetData("/a", watch=True))
    tree.ask(Delete("/a"))
    assert tree.take() == [WatchEvent(DELETED, "/a")], "one event for both watches"


def test_a_watch_of_a_read_that_failed_is_not_set(tree: Client) -> None:
    tree.refused(GetData("/a", watch=True), NoNodeError)
    tree.refused(GetChildren("/a", watch=True), NoNodeError)
    tree.make("/a", "/a/b")
    assert tree.take() == []


def test_a_listener_reads_the_whole_of_a_multi(tree: Client) -> None:
    tree.make("/a", "/b")
    tree.ask(GetData("/a", watch=True))
    seen: list[Outcome] = []

    def read(event: WatchEvent | SessionEvent) -> None:
        if isinstance(event, WatchEvent):
            for path in ("/a", "/b"):
                tree.session.submit(GetData(path), seen.append)

    tree.session.listen(read)
    tree.ask(Multi((SetData("/a", b"1"), SetData("/b", b"1"))))
    tree.keeper.settle()
    assert [each.data for each in seen if isinstance(each, Data)] == [b"1", b"1"]


def test_the_event_of_a_change_comes_before_its_answer_and_after_that_of_the_read(tree: Client) -> None:
    tree.make("/a")
    tree.submit(GetData("/a", watch=True), SetData("/a", b"1"), GetData("/a"))
    read, event, changed, again = tree.take()
    assert isinstance(read, Data)
    assert read.data == b""
    assert event == WatchEvent(CHANGED, "/a")
    assert again == Data(b"1", changed)  # type: ignore[arg-type]


# Order


def test_what_the_listener_of_a_change_submits_is_answered_after_the_change(tree: Client) -> None:
    tree.make("/a")
    tree.ask(GetData("/a", watch=True))
    answered: list[str] = []

    def submit(event: WatchEvent | SessionEvent) -> None:
        if isinstance(event, WatchEvent):
            tree.session.submit(Create("/b"), lambda _: answered.append("of the listener"))

    tree.session.listen(submit)
    tree.session.submit(SetData("/a", b"1"), lambda _: answered.append("of the change"))
    for _ in range(2):
        tree.keeper.settle()
    assert answered == ["of the change", "of the listener"]


def test_answers_come_in_the_order_of_the_requests_errors_too(tree: Client) -> None:
    tree.submit(
        Create("/a", b"0"),
        Create("/a"),
        Multi((Create("/b"), Delete("/none"))),
        SetData("/a", b"1", 0),
        GetData("/a"),
        Exists("/b"),
        GetChildren("/"),
        Delete("/a"),
        GetData("/a"),
    )
    kinds = [type(each) for each in tree.take()]
    assert kinds == [Created, NodeExistsError, NoNodeError, NodeStat, Data, type(None), Children, type(None), NoNodeError]


def test_an_answer_never_comes_inside_another(tree: Client) -> None:
    log: list[str] = []

    def second(outcome: Outcome) -> None:
        log.append(f"second {type(outcome).__name__}")

    def first(_: Outcome) -> None:
        log.append("first begins")
        tree.session.submit(GetData("/a"), second)
        tree.session.close(lambda: log.append("closed"))
        tree.session.submit(GetData("/a"), second)
        log.append("first ends")

    tree.session.submit(Create("/a"), first)
    tree.keeper.settle()
    assert log[:2] == ["first begins", "first ends"]
    assert sorted(log[2:]) == ["closed", "second Data", "second SessionClosedError"]
    assert log.index("second Data") < log.index("closed")


def test_a_thousand_requests_may_wait(tree: Client) -> None:
    """Reads and now and then a write, which on a file takes a sync."""
    tree.make("/q")
    tree.submit(*(GetChildren("/q") if number % 20 else Create(f"/q/{number:03}") for number in range(1000)))
    answers = tree.take()
    assert [each.path for each in answers[::20] if isinstance(each, Created)] == [f"/q/{number:03}" for number in range(0, 1000, 20)]
    assert [len(each.names) for each in answers if isinstance(each, Children)] == [
        number // 20 + 1 for number in range(1000) if number % 20
    ]


def test_more_requests_than_may_wait_are_refused_at_once(keeper: Keeper) -> None:
    tree = keeper.open(requests_max=3)
    tree.submit(*(Exists(f"/{number}") for number in range(5)))
    answered_in_the_call = len(tree.stream)
    outcomes = tree.take()
    if answered_in_the_call == 5:
        assert outcomes == [None] * 5, "none has waited"
    else:
        assert [type(each) for each in outcomes] == [TooManyRequestsError] * 2 + [type(None)] * 3
    assert tree.ask(Exists("/")) is not None


# Sessions


def test_a_closed_session_answers_what_waits_once_and_takes_no_more(tree: Client) -> None:
    session_id = tree.session.session_id
    tree.submit(Create("/a"), GetData("/a"))
    closed: list[str] = []
    tree.session.close(lambda: closed.append("first"))
    tree.session.close(lambda: closed.append("second"))
    stream = tree.take()
    assert [type(each) for each in stream] == [Created, Data, SessionEvent]
    assert stream[-1] == SessionEvent(CLOSED, session_id)
    assert sorted(closed) == ["first", "second"]
    assert tree.session.session_id == 0
    tree.submit(Create("/b"), GetData("/"))
    assert [type(each) for each in tree.take()] == [SessionClosedError] * 2


def test_the_next_session_finds_what_lasts_and_nothing_ephemeral(keeper: Keeper) -> None:
    if not keeper.lasts:
        pytest.skip("the tree ends with its session")
    first = keeper.open()
    first_id = first.session.session_id
    first.make("/ids", "/q")
    number = first.ask(Create("/q/n_", sequential=True)).path
    last: Created = first.ask(Create("/ids/0", b"me", ephemeral=True))
    first.close()
    second = keeper.open()
    assert second.names("/ids") == []
    assert second.ask(Create("/q/n_", sequential=True)).path > number
    assert second.stat(number).created_id < last.stat.created_id < second.ask(Create("/ids/0")).stat.created_id
    assert second.session.session_id != first_id


# Several sessions, and faults


def test_a_watch_and_the_read_that_set_it_are_one_order_whoever_changes_the_node(several: SeveralSessions) -> None:
    one, two = several.open(), several.open()
    one.make("/a")
    two.submit(GetData("/a", watch=True))
    several.carry_out()
    one.submit(SetData("/a", b"1"))
    several.carry_out()
    two.submit(GetData("/a"))
    first, event, second = two.take()
    assert (first.data, event, second.data) == (b"", WatchEvent(CHANGED, "/a"), b"1")  # type: ignore[union-attr]


def test_the_change_of_another_session_is_seen_before_the_answer_that_shows_it(shared: Keeper) -> None:
    one, two = shared.open(), shared.open()
    one.make("/a")
    two.ask(GetData("/a", watch=True))
    faults(two).hold()
    two.submit(GetData("/a"))
    shared.settle()
    one.ask(SetData("/a", b"1"))
    faults(two).release()
    event, answer = two.take()
    assert (event, answer.data) == (WatchEvent(CHANGED, "/a"), b"1")  # type: ignore[union-attr]


def test_every_session_sees_the_changes_of_the_others_without_asking(several: SeveralSessions) -> None:
    one, two, three = several.open(), several.open(), several.open()
    one.make("/a", "/b")
    for client in (one, two, three):
        client.ask(GetData("/a", watch=True))
        client.ask(GetChildren("/b", watch=True))
        client.ask(Exists("/c", watch=True))
    two.ask(Multi((SetData("/a", b"1"), Create("/b/x"), Create("/c"))))
    for client in (one, two, three):
        assert client.take() == [WatchEvent(CHANGED, "/a"), WatchEvent(CHILDREN, "/b"), WatchEvent(CREATED, "/c")]


def test_a_refused_request_shows_what_others_have_changed_too(several: SeveralSessions) -> None:
    one, two = several.open(), several.open()
    one.make("/a")
    two.ask(GetData("/a", watch=True))
    one.submit(Delete("/a"))
    several.carry_out()
    two.submit(SetData("/a", b"1"))
    event, refused = two.take()
    assert (event, type(refused)) == (WatchEvent(DELETED, "/a"), NoNodeError)


def test_ids_and_names_grow_over_all_sessions(several: SeveralSessions) -> None:
    one, two = several.open(), several.open()
    assert one.session.session_id < two.session.session_id
    one.make("/q")
    made: list[Created] = [client.ask(Create("/q/n_", sequential=True)) for _ in range(3) for client in (one, two)]
    created_ids = [each.stat.created_id for each in made]
    assert created_ids == sorted(set(created_ids))
    assert [each.path for each in made] == sorted({each.path for each in made})
    assert two.refused(Create("/q"), NodeExistsError).path == "/q"


def test_a_closed_session_takes_its_nodes_with_it_and_others_see_that(several: SeveralSessions) -> None:
    one, two = several.open(), several.open()
    one.make("/ids")
    one.ask(Create("/ids/1", ephemeral=True))
    two.ask(Create("/ids/2", ephemeral=True))
    two.ask(GetChildren("/ids", watch=True))
    two.ask(GetData("/ids/1", watch=True))
    one.close()
    assert two.take() == [WatchEvent(DELETED, "/ids/1"), WatchEvent(CHILDREN, "/ids")]
    assert two.names("/ids") == ["2"]


def test_an_ephemeral_node_passes_from_one_session_to_another_in_one_multi(several: SeveralSessions) -> None:
    """A controller that hangs is replaced: the node is there at every moment, and does not end with the session that had it."""
    one, two, three = several.open(), several.open(), several.open()
    one.make("/epoch")
    old = one.ask(Create("/controller", b"1", ephemeral=True)).stat
    for client in (one, three):
        client.ask(GetData("/controller", watch=True))
    three.ask(GetChildren("/", watch=True))
    replacing = (Delete("/controller", old.version), Create("/controller", b"2", ephemeral=True))
    assert two.refused(Multi((*replacing, SetData("/epoch", b"", 7))), BadVersionError).path == "/epoch"
    assert (three.stat("/controller"), one.take(), three.take()) == (old, [], [])
    *_, made, _ = two.ask(Multi((*replacing, SetData("/epoch", b"", 0)))).results
    assert (made.stat.owner, made.stat.version, made.stat.created_id > old.created_id) == (two.session.session_id, 0, True)
    assert one.take() == [WatchEvent(DELETED, "/controller")]
    assert three.take() == [WatchEvent(DELETED, "/controller"), WatchEvent(CHILDREN, "/")]
    assert one.refused(Multi((*replacing, SetData("/epoch", b"", 0))), BadVersionError).path == "/epoch", (
        "the versions of both nodes are equal"
    )
    one.close()
    assert (three.data("/controller"), three.stat("/controller")) == (b"2", made.stat)
    three.ask(Exists("/controller", watch=True))
    two.close()
    assert three.take() == [WatchEvent(DELETED, "/controller")]
    assert three.ask(Exists("/controller")) is None


def test_a_client_learns_that_its_session_expired_before_anything_else(several: SeveralSessions) -> None:
    one, two = several.open(), several.open()
    first_id = one.session.session_id
    one.make("/ids")
    one.ask(Create("/ids/1", ephemeral=True))
    one.ask(GetData("/ids", watch=True))
    two.ask(GetChildren("/ids", watch=True))
    several.expire(one)
    assert two.take() == [WatchEvent(CHILDREN, "/ids")]
    assert two.names("/ids") == []
    one.submit(Create("/never"))
    several.come_back(one)
    suspended, expired, refused, connected = one.take()
    assert (suspended, expired) == (SessionEvent(SUSPENDED, first_id), SessionEvent(EXPIRED, first_id))
    assert isinstance(refused, SessionExpiredError)
    assert connected == SessionEvent(CONNECTED, one.session.session_id)
    assert one.session.session_id > max(first_id, two.session.session_id)
    assert two.ask(Exists("/never")) is None
    two.ask(SetData("/ids", b"1"))
    assert one.take() == [], "the watch has ended with the session"
    assert one.ask(Create("/ids/1", ephemeral=True)).stat.owner == one.session.session_id


def test_a_suspended_session_does_not_know_what_has_happened(shared: Keeper) -> None:
    one, two = shared.open(), shared.open()
    session_id = one.session.session_id
    faults(one).lose_answer(2)
    one.submit(Create("/happened-1"))
    shared.settle()
    one.submit(Create("/happened-2"))
    assert [type(each) for each in one.take()] == [Created, SessionEvent, ConnectionLostError], "carried out, and the answer lost"
    faults(one).resume()
    assert one.take() == [SessionEvent(CONNECTED, session_id)]
    faults(one).hold()
    one.submit(Create("/not-1"), Create("/not-2"))
    shared.settle()
    faults(one).suspend()
    assert [type(each) for each in one.take()] == [SessionEvent, ConnectionLostError, ConnectionLostError], "lost before it was carried out"
    assert two.names("/") == ["happened-1", "happened-2"]
    assert one.session.session_id == session_id


def test_what_is_submitted_while_suspended_waits_and_keeps_its_order(shared: Keeper) -> None:
    one = shared.open()
    one.make("/q")
    faults(one).suspend()
    assert one.take() == [SessionEvent(SUSPENDED, one.session.session_id)]
    one.submit(Create("/q/1"), Create("/q/2"))
    assert one.take() == []

    def connected(event: WatchEvent | SessionEvent) -> None:
        if isinstance(event, SessionEvent):
            one.submit(Create("/q/3"), GetChildren("/q"))

    one.session.listen(connected)
    faults(one).resume()
    event, *made, children = one.take()
    assert event == SessionEvent(CONNECTED, one.session.session_id)
    assert [each.path for each in made if isinstance(each, Created)] == ["/q/1", "/q/2", "/q/3"]
    assert isinstance(children, Children)
    assert children.names == ["1", "2", "3"]


def test_what_an_answer_submits_comes_after_what_has_waited(shared: Keeper) -> None:
    one = shared.open()
    one.make("/q")
    faults(one).suspend()
    one.session.submit(Create("/q/1"), lambda _: one.submit(GetChildren("/q")))
    one.submit(Create("/q/2"), Create("/q/3"))
    faults(one).resume()
    children = one.take()[-1]
    assert isinstance(children, Children)
    assert children.names == ["1", "2", "3"]


def test_watches_end_with_the_connection_without_an_event(shared: Keeper) -> None:
    one, two = shared.open(), shared.open()
    one.make("/a")
    one.ask(GetData("/a", watch=True))
    one.ask(GetChildren("/a", watch=True))
    faults(one).suspend()
    faults(one).resume()
    one.take()
    two.make("/a/b")
    two.ask(SetData("/a", b"1"))
    assert one.take() == []


def test_an_expired_session_loses_its_nodes_and_others_see_it(shared: Keeper) -> None:
    one, two = shared.open(), shared.open()
    first_id = one.session.session_id
    one.make("/ids")
    one.ask(Create("/ids/1", ephemeral=True))
    two.ask(Create("/ids/2", ephemeral=True))
    two.ask(GetChildren("/ids", watch=True))
    faults(one).hold()
    one.submit(Create("/lost"))
    shared.settle()
    faults(one).expire()
    assert two.take() == [WatchEvent(CHILDREN, "/ids")]
    assert two.names("/ids") == ["2"]
    one.submit(Create("/never"))
    assert [type(each) for each in one.take()] == [SessionEvent, ConnectionLostError], "the client has not learnt it yet"
    faults(one).release()
    faults(one).resume()
    expired, refused, connected = one.take()
    second_id = one.session.session_id
    assert (expired, connected) == (SessionEvent(EXPIRED, first_id), SessionEvent(CONNECTED, second_id))
    assert isinstance(refused, SessionExpiredError)
    assert second_id != first_id
    assert one.ask(Create("/ids/1", ephemeral=True)).stat.owner == second_id
    assert [one.ask(Exists(path)) for path in ("/lost", "/never")] == [None, None]


def test_what_is_submitted_between_two_sessions_belongs_to_the_next(shared: Keeper) -> None:
    one = shared.open()
    ids: list[int] = []

    def at_expiry(event: WatchEvent | SessionEvent) -> None:
        if isinstance(event, SessionEvent) and event.state is EXPIRED:
            ids.append(one.session.session_id)
            one.submit(Create("/e", ephemeral=True))

    one.session.listen(at_expiry)
    faults(one).expire()
    faults(one).resume()
    *_, connected, made = one.take()
    assert ids == [0], "there is no session now"
    assert isinstance(connected, SessionEvent)
    assert isinstance(made, Created)
    assert made.stat.owner == connected.session_id == one.session.session_id


def test_an_error_can_be_planted_and_nothing_has_happened(fakes: FakeAtOnce) -> None:
    one = fakes.open()
    planted = CoordinationError("no room", retriable=True)
    fake(one).fail_next(planted)
    one.submit(Create("/a"), Create("/a"))
    refused, made = one.take()
    assert refused is planted
    assert isinstance(made, Created)


def test_held_requests_are_released_one_by_one(fakes: FakeAtOnce) -> None:
    one, two = fakes.open(), fakes.open()
    fake(one).hold()
    one.submit(*(Create(f"/{number}") for number in range(4)))
    fakes.settle()
    assert (two.names("/"), fake(one).held) == ([], 4)
    fake(one).release(1)
    assert (two.names("/"), fake(one).held) == (["0"], 3)
    fake(one).release()
    fakes.settle()
    assert (len(one.take()), two.names("/")) == (4, ["0", "1", "2", "3"])


@pytest.mark.parametrize("suspended_first", [True, False])
def test_a_session_that_is_closed_without_a_connection_answers_what_waits(fakes: FakeAtOnce, suspended_first: bool) -> None:
    one, two = fakes.open(), fakes.open()
    one.ask(Create("/e", ephemeral=True))
    closed: list[str] = []
    fake(one).hold()
    if suspended_first:
        fake(one).suspend()
    one.submit(Create("/a"))
    fakes.settle()
    one.session.close(lambda: closed.append("closed"))
    fake(one).suspend()
    kinds = [type(each) for each in one.take()]
    if suspended_first:
        assert kinds == [SessionEvent, SessionClosedError, SessionEvent]
    else:
        assert kinds == [SessionEvent, ConnectionLostError, SessionEvent]
    assert closed == ["closed"]
    assert two.names("/") == []


def test_a_session_that_a_listener_closes_when_its_connection_ends_takes_only_its_own_nodes_with_it(fakes: FakeAtOnce) -> None:
    one, two = fakes.open(), fakes.open()
    one.ask(Create("/e", ephemeral=True))
    two.ask(Create("/lasting"))
    closed: list[str] = []

    def heard(event: WatchEvent | SessionEvent) -> None:
        if isinstance(event, SessionEvent) and event.state is SUSPENDED:
            one.session.close(lambda: closed.append("closed"))

    one.session.listen(heard)
    fake(one).suspend()
    assert [each.state for each in one.take() if isinstance(each, SessionEvent)] == [SUSPENDED, CLOSED]
    assert (closed, two.names("/")) == (["closed"], ["lasting"])


def test_a_multi_too_long_for_zookeeper_is_our_own_bug(fakes: FakeAtOnce) -> None:
    one = fakes.open()
    with pytest.raises(ValueError, match="a multi of more than 1000000 bytes"):
        one.submit(Multi((Create("/a", b"x" * 500_000), Create("/b", b"x" * 500_000))))


@pytest.mark.skipif(not zookeeper.has_java(), reason="no Java")
def test_the_session_timeout_that_zookeeper_grants_is_reported_where_it_is_another_one() -> None:
    """The server allows up to twenty of its ticks."""
    server = zookeeper.shared_server()
    loop = asyncio.new_event_loop()
    try:
        seen = []
        for timeout_ms in (10_000, 10_000_000):
            session = ZookeeperCoordination(ConnectString(((zookeeper.HOST, server.port),), ""), loop, session_timeout_ms=timeout_ms)
            connected: asyncio.Future[SessionEvent] = loop.create_future()
            session.listen(partial(_first_event, connected))
            seen.append(loop.run_until_complete(connected).granted_ms)
            closed: asyncio.Future[None] = loop.create_future()
            session.close(partial(closed.set_result, None))
            loop.run_until_complete(closed)
        assert seen[0] is None
        assert seen[1] is not None
        assert 1000 < seen[1] < 10_000_000
    finally:
        loop.close()


def _first_event(found: "asyncio.Future[SessionEvent]", event: object) -> None:
    if isinstance(event, SessionEvent) and not found.done():
        found.set_result(event)
