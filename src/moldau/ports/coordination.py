"""The coordination tree: ZooKeeper's shape, for any implementation.

Paths are absolute (``/brokers/ids/0``), data is bytes. Versions count the writes of a node from 0. Ephemeral nodes end with the session. In
a `Multi` all writes happen or none. An outcome is a value: a result, or the error that the request ended with.

Guarantees of every keeper, each with a row in the contract suite:

* Order: requests of a session take effect in the order of `submit`, and `done` is called in that order, exactly once, with errors too. Only
  a request beyond the bound on waiting ones, or after `close`, is answered at once.
* One stream: the event of a change comes before the answer of any request of this session that shows the change. A watch set by a read
  sees every change after that read.
* Calls back: `done` may be called before `submit` returns, but never inside another `done` or listener; what is submitted there is answered
  after it returns.
* Watches fire once. Several changes may be one event: read when it is processed, and compare. A read that fails sets no watch, but `Exists`
  of a missing node does. SUSPENDED ends all watches without an event each.
* Sessions: at SUSPENDED requests on their way are answered `ConnectionLostError`; those submitted meanwhile wait, and are sent in order at
  CONNECTED or answered `SessionExpiredError`. EXPIRED comes before the CONNECTED of the next session, which has another id.
* `created_id` grows over the whole tree and survives restarts: no path gets an id twice, and a later request a larger one. Nodes made by
  one `Multi` share it.
* The name of a sequential node is larger than every earlier one of its parent; the numbers may have gaps.
"""

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import NamedTuple, Protocol

from moldau.model.errors import CoordinationError
from moldau.model.value import Value


class NodeError(CoordinationError):
    """A request that the state of a node refuses."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}", retriable=False)
        self.path = path
        self.index: int | None = None
        """In a `Multi` the place of the write that failed, from 0."""


class NoNodeError(NodeError):
    """The node does not exist."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "no such node")


class NodeExistsError(NodeError):
    """The node exists already."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "node exists")


class BadVersionError(NodeError):
    """The node has another version than the caller expected."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "version differs")


class NotEmptyError(NodeError):
    """The node has children."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "node has children")


class EphemeralParentError(NodeError):
    """The parent is an ephemeral node, which has no children."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "an ephemeral node has no children")


class ConnectionLostError(CoordinationError):
    """The connection ended before the answer came: the request may have been carried out or not."""

    def __init__(self) -> None:
        super().__init__("connection to the coordination tree lost; the request may have been carried out or not", retriable=True)


class SessionExpiredError(CoordinationError):
    """The session expired before the request was sent: it was not carried out."""

    def __init__(self) -> None:
        super().__init__("session with the coordination tree expired; the request was not sent", retriable=True)


class SessionClosedError(CoordinationError):
    """The session was closed by its owner: the request was not carried out."""

    def __init__(self) -> None:
        super().__init__("session with the coordination tree is closed", retriable=False)


class TooManyRequestsError(CoordinationError):
    """As many requests wait as may: this one was not carried out."""

    def __init__(self, requests_max: int) -> None:
        super().__init__(f"{requests_max} requests wait for the coordination tree; no more are taken", retriable=True)


class NodeStat(NamedTuple):
    """What the tree knows about a node."""

    version: int
    created_id: int
    created_ms: int
    modified_ms: int
    owner: int
    """Id of the session whose end removes the node; 0 for one that lasts."""
    children: int

    @property
    def is_ephemeral(self) -> bool:
        """Whether the node ends with a session."""
        return self.owner != 0


class EventType(Enum):
    """What a watch saw."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    CHILDREN = "children"


class SessionState(Enum):
    """The client's relation to the tree. At EXPIRED and CLOSED all its ephemeral nodes are deleted."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"
    CLOSED = "closed"


class WatchEvent(Value):
    """A one-shot watch fired."""

    type: EventType
    path: str


Change = tuple[EventType, str]
"""What a write did to the node of a path: of most there is no watch, so that an event is made only where one fires."""


class SessionEvent(Value):
    """The session's state changed; `session_id` is that of the session which the event is about."""

    state: SessionState
    session_id: int
    granted_ms: int | None = None
    """With CONNECTED: the session timeout, where it is another one than was asked for."""


class Create(Value):
    """Create a node: `Created`. `sequential` appends ten digits to the path.

    NodeExistsError; NoNodeError and EphemeralParentError name the parent.
    """

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


class SetData(Value):
    """Replace a node's data: `NodeStat`. `version` -1 takes any. NoNodeError, BadVersionError."""

    path: str
    data: bytes
    version: int = -1


class Delete(Value):
    """Delete a node without children: None. `version` -1 takes any. NoNodeError, BadVersionError, NotEmptyError."""

    path: str
    version: int = -1


class Check(Value):
    """Do nothing, but fail the `Multi` if the node has another version: None. NoNodeError, BadVersionError."""

    path: str
    version: int


class GetData(NamedTuple):
    """`Data` of a node. NoNodeError."""

    path: str
    watch: bool = False


class Exists(Value):
    """`NodeStat` of a node, or None; a watch also sees its creation."""

    path: str
    watch: bool = False


class GetChildren(Value):
    """`Children` of a node. NoNodeError."""

    path: str
    watch: bool = False


Write = Create | SetData | Delete | Check


class Multi(Value):
    """All writes or none: `MultiDone`. The error is that of the first which cannot be done, with its `index`. Below 1 MB together."""

    writes: tuple[Write, ...]


class Data(NamedTuple):
    """Answer to `GetData`."""

    data: bytes
    stat: NodeStat


class Children(Value):
    """Answer to `GetChildren`: names of the direct children, sorted."""

    names: Sequence[str]
    stat: NodeStat


class Created(Value):
    """Answer to `Create`: the path made."""

    path: str
    stat: NodeStat


class MultiDone(Value):
    """Answer to `Multi`: those to its writes, in their order."""

    results: tuple[Created | NodeStat | None, ...]


READS = (GetData, Exists, GetChildren)
Request = GetData | Exists | GetChildren | Create | SetData | Delete | Multi
Result = Data | NodeStat | Children | Created | MultiDone | None
Outcome = Result | CoordinationError
Done = Callable[[Outcome], object]
Listener = Callable[[WatchEvent | SessionEvent], object]

REQUESTS_MAX = 10_000
"""Requests that wait for their answer in one session."""


def nothing() -> None:
    """The `done` of those who do not wait."""


class Coordination(Protocol):
    """One client's sessions with the tree, one after another. Everything is called on the broker's thread."""

    @property
    def session_id(self) -> int:
        """Id of the session; 0 while there is none."""

    def submit(self, request: Request, done: Done) -> None:
        """Have a request carried out. Never blocks, and raises only ValueError, for a malformed path."""

    def listen(self, listener: Listener) -> None:
        """Have `listener` called with every event from now on; first with CONNECTED if the session is connected."""

    def close(self, done: Callable[[], object] = nothing) -> None:
        """End the session, and with it its ephemeral nodes. What waits is answered, then CLOSED comes, then `done`.

        Watches on nodes that go with the session may fire before CLOSED, or not at all. What is submitted later is answered
        `SessionClosedError`.
        """


def check_paths(request: Request) -> None:
    """ValueError for a request with a malformed path."""
    for each in request.writes if isinstance(request, Multi) else (request,):
        path = each.path
        if not path.startswith("/") or "//" in path or (path.endswith("/") and path != "/"):
            raise ValueError(f"not a path of the tree: {path!r}")


class Watches:
    """The watches of one session, on the side of the tree."""

    def __init__(self) -> None:
        self._data: set[str] = set()
        self._children: set[str] = set()

    def note(self, request: Request, outcome: Outcome) -> None:
        """Set the watch that a request asks for, when it is carried out."""
        if isinstance(request, READS) and request.watch and not isinstance(outcome, CoordinationError):
            (self._children if isinstance(request, GetChildren) else self._data).add(request.path)

    def take(self, changes: Sequence[Change]) -> list[WatchEvent]:
        """The events of watches that changes concern, which end with that. One for a deleted node, also if both watches were set."""
        seen: list[WatchEvent] = []
        if not self._data and not self._children:
            return seen
        for kind, path in changes:
            of_children = kind in (EventType.CHILDREN, EventType.DELETED) and path in self._children
            of_data = kind is not EventType.CHILDREN and path in self._data
            if of_children:
                self._children.discard(path)
            if of_data:
                self._data.discard(path)
            if of_children or of_data:
                seen.append(WatchEvent(kind, path))
        return seen

    def take_all(self) -> list[WatchEvent]:
        """An event of each watch, which end with that: anything may have changed."""
        changed = [WatchEvent(EventType.CHANGED, path) for path in sorted(self._data)]
        children = [WatchEvent(EventType.CHILDREN, path) for path in sorted(self._children)]
        self.clear()
        return changed + children

    def clear(self) -> None:
        """End all of them."""
        self._data.clear()
        self._children.clear()


class Stream:
    """Events and answers of one session in their order, never one inside another."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._calls: deque[Callable[[], object]] = deque()
        self._is_calling = False

    def listen(self, listener: Listener) -> None:
        """Have `listener` called with every event."""
        self._listeners.append(listener)

    def fire(self, events: Sequence[WatchEvent | SessionEvent]) -> None:
        """Call the listeners with events."""
        self.add(events)
        self.run()

    def put(self, call: Callable[[], object]) -> None:
        """Call; when a call of this stream is in progress, after that has returned."""
        self._calls.append(call)
        self.run()

    def answer(self, done: Done, outcome: Outcome) -> None:
        """Call `done` with the outcome of a request, as `put` does. Short, since a start makes thousands of requests."""
        if self._is_calling or self._calls:  # those that an error has left come first
            self._calls.append(partial(done, outcome))
            self.run()
            return
        self._is_calling = True
        try:
            done(outcome)
        finally:
            self._is_calling = False
        if self._calls:
            self.run()

    def add(self, events: Sequence[WatchEvent | SessionEvent]) -> None:
        """Have `run` call the listeners with events."""
        self._calls.extend(partial(listener, event) for event in events for listener in self._listeners)

    def run(self) -> None:
        """Make the calls that wait, unless one is in progress, after which they are made."""
        if self._is_calling:
            return
        self._is_calling = True
        try:
            while self._calls:
                self._calls.popleft()()
        finally:
            self._is_calling = False


def parent_of(path: str) -> str:
    """The path of a node's parent; the root's is the root."""
    return path[: path.rindex("/")] or "/"
