"""The coordination tree: ZooKeeper's shape, whoever keeps it.

Paths are absolute (``/brokers/ids/0``), data is bytes. Versions count the writes of a node from 0. Watches fire once.
Ephemeral nodes go with the session. In a `multi` all operations happen or none.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from moldau.model.errors import CoordinationError


class NoNodeError(CoordinationError):
    """The path is not there."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: no such node", retriable=False)
        self.path = path


class NodeExistsError(CoordinationError):
    """The path is there already."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: node exists", retriable=False)
        self.path = path


class BadVersionError(CoordinationError):
    """The node has another version than the caller expected."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: version differs", retriable=False)
        self.path = path


class NotEmptyError(CoordinationError):
    """The node has children."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: node has children", retriable=False)
        self.path = path


class NodeStat(NamedTuple):
    """What the tree knows about a node."""

    version: int
    created_ms: int
    modified_ms: int
    ephemeral: bool
    children: int


class EventType(Enum):
    """What a watch saw."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    CHILDREN = "children"


class SessionState(Enum):
    """The client's relation to the tree. After EXPIRED all its ephemeral nodes are gone."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"


class WatchEvent(NamedTuple):
    """A one-shot watch fired."""

    type: EventType
    path: str


Watch = Callable[[WatchEvent], object]
Durable = Callable[[CoordinationError | None], object]
"""Called with None when writes are on disk, or with the reason why they cannot be brought there."""


class Create(NamedTuple):
    """Create a node (an operation of `multi`); `sequential` appends ten digits to the path."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


class SetData(NamedTuple):
    """Replace a node's data; `version` -1 takes any."""

    path: str
    data: bytes
    version: int = -1


class Delete(NamedTuple):
    """Delete a node without children; `version` -1 takes any."""

    path: str
    version: int = -1


class Check(NamedTuple):
    """Do nothing, but fail the `multi` if the node has another version."""

    path: str
    version: int


Operation = Create | SetData | Delete | Check


class Coordination(Protocol):
    """One client's session with the tree. Watches and listeners are called on the broker's thread."""

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False, parents: bool = False) -> str:
        """Create a node; the path made (`sequential` appends ten digits). NodeExistsError, NoNodeError (parent missing)."""

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, NodeStat]:
        """Data of a node. NoNodeError."""

    def set(self, path: str, data: bytes, version: int = -1) -> NodeStat:
        """Replace data, if the version is `version` or that is -1. NoNodeError, BadVersionError."""

    def delete(self, path: str, version: int = -1, *, recursive: bool = False) -> None:
        """Remove a node. NoNodeError, BadVersionError, NotEmptyError."""

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Names of the children, sorted. NoNodeError."""

    def exists(self, path: str, watch: Watch | None = None) -> NodeStat | None:
        """The node's state, or None; a watch also sees its creation."""

    def multi(self, operations: Sequence[Operation]) -> None:
        """All or nothing; the error is that of the first operation that cannot be done.

        It may not be on disk yet when the call returns: see `when_durable`. What the other methods write is. The order of writes is kept in
        any case: after a crash there is no write without all that came before it.
        """

    def when_durable(self, done: Durable) -> None:
        """Call ``done(None)`` once all that was written before this call is on disk, at once if it is there.

        With an error, the writes are seen in this session, and the next may find them or not.
        """

    @property
    def is_writable(self) -> bool:
        """Whether reads and `multi` do not wait for a disk now."""

    def when_writable(self, resume: Callable[[], object]) -> None:
        """Call `resume` once they do not; at once if they would not now."""

    def on_session(self, listener: Callable[[SessionState], object]) -> None:
        """Hear of every change of the session's state."""

    def close(self) -> None:
        """End the session; its ephemeral nodes go."""
