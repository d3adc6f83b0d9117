"""A coordination tree in memory that several sessions share, with ZooKeeper's faults on demand.

    tree = FakeTree(clock)
    one, two = tree.session(), tree.session(latency_s=0.5)
    one.submit(Create("/a"), outcomes.append)     # answered inside the call
    two.suspend(); two.expire(); two.resume()     # SUSPENDED, then EXPIRED and CONNECTED with the next session

A request travels for half the latency, takes effect, and its answer and the events travel for the other half. Everything that happens is
called by the clock or by the method that causes it.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, assert_never

from moldau.model.errors import CoordinationError
from moldau.ports.clock import Clock
from moldau.ports.coordination import (
    REQUESTS_MAX,
    BadVersionError,
    Change,
    Check,
    Children,
    ConnectionLostError,
    Create,
    Created,
    Data,
    Delete,
    Done,
    EphemeralParentError,
    EventType,
    Exists,
    GetChildren,
    GetData,
    Listener,
    Multi,
    MultiDone,
    NodeError,
    NodeExistsError,
    NodeStat,
    NoNodeError,
    NotEmptyError,
    Outcome,
    Request,
    Result,
    SessionClosedError,
    SessionEvent,
    SessionExpiredError,
    SessionState,
    SetData,
    Stream,
    TooManyRequestsError,
    Watches,
    Write,
    check_paths,
    nothing,
    parent_of,
)

MULTI_BYTES_MAX = 1_000_000
"""ZooKeeper's servers end the connection at a longer request (``jute.maxbuffer``, less some room for what goes around the writes)."""


class _Node(NamedTuple):
    data: bytes
    version: int
    created_id: int
    created_ms: int
    modified_ms: int
    owner: int


class FakeTree:
    """The servers. Nodes live as long as this object."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.sessions: list[FakeSession] = []
        """All that were made, in their order."""
        self._nodes: dict[str, _Node] = {}
        self._children: dict[str, dict[str, None]] = {}
        self._numbers: dict[str, int] = {}
        """By parent the next number of a sequential child. Deletions count, too: clients must not rely on numbers without gaps."""
        self._undo: list[tuple[str, _Node | None]] = []
        self._last_id = 1
        self._last_session = 0
        now = clock.time_ms()
        self._put("/", _Node(b"", 0, 1, now, now, 0))

    def session(self, latency_s: float = 0.0, requests_max: int = REQUESTS_MAX) -> "FakeSession":
        """A client with a connected session. Without latency its requests are answered inside `submit`."""
        session = FakeSession(self, latency_s, requests_max)
        self.sessions.append(session)
        return session

    def new_session_id(self) -> int:
        """An id for a client's next session."""
        self._last_session += 1
        return self._last_session

    def carry_out(self, request: Request, session_id: int) -> Outcome:
        """Carry out a request of a session; the events are on their way to all sessions when it returns."""
        match request:
            case GetData(path):
                return NoNodeError(path) if (node := self._nodes.get(path)) is None else Data(node.data, self._stat(path))
            case Exists(path):
                return self._stat(path) if path in self._nodes else None
            case GetChildren(path):
                return Children(self._names(path), self._stat(path)) if path in self._nodes else NoNodeError(path)
            case _:
                return self._change(request, session_id)

    def end_session(self, session_id: int) -> None:
        """Remove the ephemeral nodes of a session."""
        changes: list[Change] = []
        for path in [path for path, node in self._nodes.items() if node.owner == session_id]:
            self._delete(Delete(path), changes)
        self._publish(changes)

    def _change(self, request: Create | SetData | Delete | Multi, session_id: int) -> Outcome:
        self._undo.clear()
        self._last_id += 1
        changes: list[Change] = []
        try:
            result: Result
            if isinstance(request, Multi):
                result = self._multi(request, session_id, changes)
            else:
                result = self._write(request, session_id, changes)
        except CoordinationError as error:
            undo, self._undo = self._undo, []
            for path, node in reversed(undo):
                self._put(path, node)
            return error
        self._publish(changes)
        return result

    def _publish(self, changes: list[Change]) -> None:
        for session in self.sessions:
            session.see(changes)
        for session in self.sessions:  # a change made by a listener comes after this one, for all
            session.tell()

    def _multi(self, request: Multi, session_id: int, changes: list[Change]) -> MultiDone:
        results = []
        for index, write in enumerate(request.writes):
            try:
                results.append(self._write(write, session_id, changes))
            except NodeError as error:
                error.index = index
                raise
        return MultiDone(tuple(results))

    def _write(self, write: Write, session_id: int, changes: list[Change]) -> Created | NodeStat | None:
        match write:
            case Create():
                return self._create(write, session_id, changes)
            case SetData(path, data, version):
                node = self._check(path, version)
                self._put(path, node._replace(data=data, version=node.version + 1, modified_ms=self.clock.time_ms()))
                changes.append((EventType.CHANGED, path))
                return self._stat(path)
            case Delete():
                self._delete(write, changes)
            case Check(path, version):
                self._check(path, version)
            case _:
                assert_never(write)
        return None

    def _create(self, write: Create, session_id: int, changes: list[Change]) -> Created:
        parent = parent_of(write.path)
        path = f"{write.path}{self._numbers.get(parent, 0):010d}" if write.sequential else write.path
        if path in self._nodes:
            raise NodeExistsError(path)
        if parent not in self._nodes:
            raise NoNodeError(parent)
        if self._nodes[parent].owner:
            raise EphemeralParentError(parent)
        now = self.clock.time_ms()
        self._put(path, _Node(write.data, 0, self._last_id, now, now, session_id if write.ephemeral else 0))
        changes.append((EventType.CREATED, path))
        changes.append((EventType.CHILDREN, parent))
        return Created(path, self._stat(path))

    def _delete(self, write: Delete, changes: list[Change]) -> None:
        path = write.path
        self._check(path, write.version)
        if path == "/":
            raise CoordinationError("/: the root cannot be deleted", retriable=False)
        if self._children.get(path):
            raise NotEmptyError(path)
        self._put(path, None)
        changes.append((EventType.DELETED, path))
        changes.append((EventType.CHILDREN, parent_of(path)))

    def _check(self, path: str, version: int) -> _Node:
        node = self._nodes.get(path)
        if node is None:
            raise NoNodeError(path)
        if version not in (-1, node.version):
            raise BadVersionError(path)
        return node

    def _put(self, path: str, node: _Node | None) -> None:
        before = self._nodes.get(path)
        self._undo.append((path, before))
        if node is not None:
            self._nodes[path] = node
        elif before is not None:
            del self._nodes[path]
        if (before is None) != (node is None) and path != "/":
            parent = parent_of(path)
            self._numbers[parent] = self._numbers.get(parent, 0) + 1
            names = self._children.setdefault(parent, {})
            if node is not None:
                names[path] = None
            else:
                del names[path]

    def _names(self, path: str) -> list[str]:
        return [child.rpartition("/")[2] for child in sorted(self._children.get(path, ()))]

    def _stat(self, path: str) -> NodeStat:
        node = self._nodes[path]
        return NodeStat(node.version, node.created_id, node.created_ms, node.modified_ms, node.owner, len(self._children.get(path, ())))


class FakeSession:
    """A client: a :class:`moldau.ports.coordination.Coordination`, and the faults of its connection and its session."""

    def __init__(self, tree: FakeTree, latency_s: float, requests_max: int) -> None:
        self.session_id = tree.new_session_id()
        self.latency_s = latency_s
        self.state = SessionState.CONNECTED
        self._tree = tree
        self._requests_max = requests_max
        self._stream = Stream()
        self._watches = Watches()
        self._connection = 0
        """Counts the connections: what travels on one that has ended does not arrive."""
        self._on_their_way: deque[Done] = deque()
        self._parked: deque[tuple[Request, Done]] = deque()
        """Submitted without a connection."""
        self._arrived: deque[Callable[[], object]] = deque()
        """What has reached the tree and has not taken effect: it is held, or an earlier one is being carried out."""
        self._is_holding = False
        self._is_working = False
        self._failures: deque[tuple[CoordinationError, bool]] = deque()
        """Answers to the next requests, and whether these are carried out all the same."""
        self._lose_in = 0
        self._has_expired = False
        """Whether the tree has ended the session, which the client learns at `resume`."""
        self._closing: Callable[[], object] | None = None

    # The port

    def submit(self, request: Request, done: Done) -> None:
        """Have a request carried out; see the port. ValueError for a `Multi` that is too long."""
        check_paths(request)
        if isinstance(request, Multi) and sum(_bytes_of(write) for write in request.writes) > MULTI_BYTES_MAX:
            raise ValueError(f"a multi of more than {MULTI_BYTES_MAX} bytes")
        if self.state is SessionState.CLOSED or self._closing is not None:
            self._stream.answer(done, SessionClosedError())
        elif len(self._on_their_way) + len(self._parked) >= self._requests_max:
            self._stream.answer(done, TooManyRequestsError(self._requests_max))
        elif self.state is SessionState.CONNECTED and not self._parked:
            self._send(request, done)
        else:
            self._parked.append((request, done))

    def listen(self, listener: Listener) -> None:
        """Have `listener` called with events; see the port."""
        self._stream.listen(listener)
        if self.state is SessionState.CONNECTED:
            self._stream.put(partial(listener, SessionEvent(SessionState.CONNECTED, self.session_id)))

    def close(self, done: Callable[[], object] = nothing) -> None:
        """End the session; see the port."""
        if self.state is SessionState.CLOSED or self._closing is not None:
            self._stream.put(done)
            return
        self._closing = done
        if self.state is SessionState.CONNECTED:
            self._travel(partial(self._arrive, self._end_at_tree))
            return
        parked, self._parked = self._parked, deque()
        for _, answer in parked:
            self._stream.answer(answer, SessionClosedError())
        self._tree.end_session(self.session_id)
        self._closed()

    # Faults

    def hold(self) -> None:
        """Keep requests that reach the tree from now on, before they take effect."""
        self._is_holding = True

    def release(self, count: int | None = None) -> None:
        """Carry out the next `count` requests that are held; without a number all, and hold no more."""
        self._is_holding = count is not None
        self._work(count)

    @property
    def held(self) -> int:
        """Requests that are held."""
        return len(self._arrived)

    def suspend(self) -> None:
        """End the connection. What is held or has not reached the tree does not happen; answers on their way are lost."""
        if self.state is not SessionState.CONNECTED:
            return
        self.state = SessionState.SUSPENDED
        self._connection += 1
        self._arrived.clear()
        self._watches.clear()
        lost, self._on_their_way = self._on_their_way, deque()
        self._stream.fire([SessionEvent(SessionState.SUSPENDED, self.session_id)])
        for done in lost:
            self._stream.answer(done, ConnectionLostError())
        if self._closing is not None and self.session_id:  # or a listener has closed it
            self._tree.end_session(self.session_id)
            self._closed()

    def resume(self) -> None:
        """Connect again: to the same session, or after `expire` to the next one."""
        if self.state is not SessionState.SUSPENDED:
            return
        if self._has_expired:
            self._has_expired = False
            ended, self.session_id = self.session_id, 0
            self.state = SessionState.EXPIRED
            parked, self._parked = self._parked, deque()
            self._stream.fire([SessionEvent(SessionState.EXPIRED, ended)])
            for _, done in parked:
                self._stream.answer(done, SessionExpiredError())
            self.session_id = self._tree.new_session_id()
        self._stream.fire([SessionEvent(SessionState.CONNECTED, self.session_id)])
        self.state = SessionState.CONNECTED
        while self._parked and self.state is SessionState.CONNECTED:
            self._send(*self._parked.popleft())

    def expire(self) -> None:
        """Have the tree end the session: its ephemeral nodes go now, and the client, SUSPENDED, learns it at `resume`."""
        if self.state in (SessionState.CONNECTED, SessionState.SUSPENDED) and not self._has_expired:
            self.suspend()
            self._has_expired = True
            self._tree.end_session(self.session_id)

    def lose_answer(self, nth: int = 1) -> None:
        """Carry out the nth request from now, and end the connection before its answer."""
        self._lose_in = nth

    def fail_next(self, error: CoordinationError, *, is_carried_out: bool = False) -> None:
        """Answer the next request with an error, without carrying it out, or although it was."""
        self._failures.append((error, is_carried_out))

    # On the way

    def see(self, changes: list[Change]) -> None:
        """The tree has changed. Without latency `tell` has the listeners called."""
        if events := self._watches.take(changes):
            self._travel(partial(self._stream.fire if self.latency_s else self._stream.add, events))

    def tell(self) -> None:
        """Call the listeners with the events that have arrived."""
        self._stream.run()

    def _send(self, request: Request, done: Done) -> None:
        self._on_their_way.append(done)
        self._travel(partial(self._arrive, partial(self._carry_out, request)))

    def _travel(self, call: Callable[[], object]) -> None:
        """Over the connection, in order, one way."""
        if not self.latency_s:
            call()
            return
        connection = self._connection

        def arrived() -> None:
            if connection == self._connection:
                call()

        self._tree.clock.call_later(self.latency_s / 2, arrived)

    def _arrive(self, act: Callable[[], object]) -> None:
        self._arrived.append(act)
        self._work(0 if self._is_holding else None)

    def _work(self, count: int | None) -> None:
        """Carry out what has arrived: `count` of it, or until `hold`. One after the other, also when a listener submits more."""
        if self._is_working:
            return
        self._is_working = True
        try:
            while self._arrived and (not self._is_holding if count is None else count):
                count = None if count is None else count - 1
                self._arrived.popleft()()
        finally:
            self._is_working = False

    def _carry_out(self, request: Request) -> None:
        failure, is_carried_out = self._failures.popleft() if self._failures else (None, True)
        if is_carried_out:
            outcome = self._tree.carry_out(request, self.session_id)
            self._watches.note(request, outcome)
        if failure is not None:
            outcome = failure
        if self._lose_in:
            self._lose_in -= 1
            if not self._lose_in:
                self.suspend()
                return
        self._travel(partial(self._answer, outcome))

    def _answer(self, outcome: Outcome) -> None:
        self._stream.answer(self._on_their_way.popleft(), outcome)

    def _end_at_tree(self) -> None:
        self._tree.end_session(self.session_id)
        self._travel(self._closed)

    def _closed(self) -> None:
        ended, self.session_id = self.session_id, 0
        self.state = SessionState.CLOSED
        self._watches.clear()
        done = self._closing or nothing
        self._stream.fire([SessionEvent(SessionState.CLOSED, ended)])
        self._stream.put(done)


def _bytes_of(write: Write) -> int:
    return len(write.path) + (len(write.data) if isinstance(write, Create | SetData) else 0)
