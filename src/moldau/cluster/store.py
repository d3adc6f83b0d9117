"""The cluster's metadata on the coordination tree: values are read, changes are written, events tell what to read again. Decides nothing.

Lost answers are settled here, for all callers. A write whose answer was lost with the connection may have happened or not; its witness (see
`changes`) is read once there is a connection again:

    write, ConnectionLost, read of the witness    shows it          written
                                                  does not          write again
                                                  lost, too         read it again
                                                  session expired   SessionExpiredError

A write that was made again and is refused by the state of a node may have been refused by its own first attempt, which reached the tree
late: so the witness is read again, and decides.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from moldau.cluster import znodes
from moldau.cluster.changes import NOTIFICATION, Change, Witness, shows, witness_of, writes_of
from moldau.model.errors import CoordinationError
from moldau.model.value import Value
from moldau.ports.coordination import (
    Check,
    ConnectionLostError,
    Coordination,
    Created,
    Data,
    Exists,
    GetChildren,
    GetData,
    Multi,
    MultiDone,
    NodeError,
    NoNodeError,
    Outcome,
    Result,
    SessionEvent,
    WatchEvent,
)

T = TypeVar("T")
READS_AT_ONCE = 500
"""Reads of many nodes that are on their way at a time: a session takes a bounded number of requests."""


class WriteResult(Value):
    """Changes are on the tree."""

    created_id: int | None
    """That of the first change's witness; None if that is a node that was removed."""
    notification: str | None
    """Name of the node that notifies brokers of a changed configuration; None without one, or if the answer was lost."""


class BrokersChanged(Value):
    """Live brokers came, went, or registered something else."""


class TopicsChanged(Value):
    """Topics came or went."""


class TopicChanged(Value):
    """The node of a topic changed or was removed."""

    name: str


class ConfigsChanged(Value):
    """There is another notification of a changed configuration."""


class IsrChanged(Value):
    """There is another notification of in-sync sets that leaders have changed."""


class LogDirsChanged(Value):
    """There is another notification of a failed log directory."""


class AdminChanged(Value):
    """A tool wants leaders elected or replicas moved, or that is done."""


class DeletionsChanged(Value):
    """Topics were marked for deletion, or marks removed."""


class ControllerChanged(Value):
    """There is another controller, or none."""


StoreEvent = (
    BrokersChanged
    | TopicsChanged
    | TopicChanged
    | ConfigsChanged
    | DeletionsChanged
    | ControllerChanged
    | IsrChanged
    | LogDirsChanged
    | AdminChanged
)


class MetadataStore:
    """Reads and writes by way of one session."""

    def __init__(self, coordination: Coordination) -> None:
        self._coordination = coordination

    @property
    def session_id(self) -> int:
        """Id of the session; 0 while there is none."""
        return self._coordination.session_id

    def listen(self, listener: Callable[[StoreEvent | SessionEvent], object]) -> None:
        """Have `listener` called when something that was read with a watch has changed, and with what becomes of the session."""

        def heard(event: WatchEvent | SessionEvent) -> None:
            if isinstance(event, SessionEvent):
                listener(event)
            elif (meaning := _meaning(event.path)) is not None:
                listener(meaning)

        self._coordination.listen(heard)

    def read_many(
        self, requests: Sequence[GetData | GetChildren | Exists], done: Callable[[list[Result] | CoordinationError], object]
    ) -> None:
        """Make many reads, some at a time; the results in the order of the requests, None for a node that does not exist.

        SessionExpiredError, CoordinationError.
        """
        _PendingReads(self._coordination, requests, done).start()

    def write(
        self, changes: Sequence[Change], done: Callable[[WriteResult | CoordinationError], object], epoch_version: int | None = None
    ) -> None:
        """Write changes, at least one, all or none; those of a controller only if its epoch's node has still this version.

        NodeError: `index` 0 and the path of the epoch for the check. SessionExpiredError: they may have happened, in a session that ended.
        """
        check = () if epoch_version is None else (Check(znodes.CONTROLLER_EPOCH, epoch_version),)
        request = Multi((*check, *(write for change in changes for write in writes_of(change))))
        _PendingWrite(self._coordination, request, witness_of(changes[0]), done).submit()


class _PendingReads:
    """Many reads until all are answered; one that a lost connection answers is made again, when there is one again."""

    def __init__(
        self,
        coordination: Coordination,
        requests: Sequence[GetData | GetChildren | Exists],
        done: Callable[[list[Result] | CoordinationError], object],
    ) -> None:
        self._coordination = coordination
        self._requests = requests
        self._done = done
        self._results: list[Result] = [None] * len(requests)
        self._next = 0
        self._left = len(requests)

    def start(self) -> None:
        if not self._requests:
            self._done([])
        while self._next < min(READS_AT_ONCE, len(self._requests)):  # those that are answered at once ask for the next ones
            self._ask_next()

    def _ask_next(self) -> None:
        self._next += 1
        self._ask(self._next - 1)

    def _ask(self, place: int) -> None:
        self._coordination.submit(self._requests[place], partial(self._answered, place))

    def _answered(self, place: int, outcome: Outcome) -> None:
        if not self._left:  # it has failed
            return
        if isinstance(outcome, CoordinationError):
            if isinstance(outcome, ConnectionLostError):
                self._ask(place)
                return
            if not isinstance(outcome, NoNodeError):
                self._left = 0
                self._done(outcome)
                return
        else:
            self._results[place] = outcome
        self._left -= 1
        if not self._left:
            self._done(self._results)
        elif self._next < len(self._requests):
            self._ask_next()


class _PendingWrite:
    """One write until its outcome is known."""

    def __init__(
        self, coordination: Coordination, request: Multi, witness: Witness, done: Callable[[WriteResult | CoordinationError], object]
    ) -> None:
        self._coordination = coordination
        self._request = request
        self._witness = witness
        self._done = done
        self._session_id: int | None = None
        """The session whose connection took an answer with it; None if none was lost."""

    def submit(self) -> None:
        self._coordination.submit(self._request, self._answered)

    def _answered(self, outcome: Outcome) -> None:
        if isinstance(outcome, MultiDone):
            self._done(_written(self._request, outcome, self._witness.path))
        elif isinstance(outcome, ConnectionLostError):
            self._session_id = self._coordination.session_id
            self._look(None)
        elif isinstance(outcome, NodeError) and self._session_id is not None:
            self._look(outcome)
        else:
            assert isinstance(outcome, CoordinationError)
            self._done(outcome)

    def _look(self, refused: NodeError | None) -> None:
        self._coordination.submit(GetData(self._witness.path), partial(self._seen, refused))

    def _seen(self, refused: NodeError | None, outcome: Outcome) -> None:
        if isinstance(outcome, ConnectionLostError):
            self._look(refused)
        elif isinstance(outcome, Data | NoNodeError):
            found = outcome if isinstance(outcome, Data) else None
            if self._session_id is not None and shows(self._witness, found, self._session_id):
                self._done(WriteResult(None if found is None else found.stat.created_id, None))
            elif refused is not None:
                self._done(refused)
            else:
                self.submit()
        else:
            assert isinstance(outcome, CoordinationError)
            self._done(outcome)


def _written(request: Multi, outcome: MultiDone, witness: str) -> WriteResult:
    created_id, notification = None, None
    for write, result in zip(request.writes, outcome.results, strict=True):
        if isinstance(result, Created):
            if result.path.startswith(NOTIFICATION):
                notification = result.path.rpartition("/")[2]
            result = result.stat
        if write.path == witness:
            created_id = None if result is None else result.created_id
    return WriteResult(created_id, notification)


def _meaning(path: str) -> StoreEvent | None:
    if path == znodes.BROKER_IDS or path.startswith(f"{znodes.BROKER_IDS}/"):
        return BrokersChanged()
    if path == znodes.TOPICS:
        return TopicsChanged()
    if path.startswith(f"{znodes.TOPICS}/"):
        return TopicChanged(path.split("/")[3])
    if path in (znodes.PREFERRED_ELECTION, znodes.REASSIGNMENT):
        return AdminChanged()
    if path == znodes.ISR_CHANGES:
        return IsrChanged()
    if path == znodes.LOG_DIR_EVENTS:
        return LogDirsChanged()
    if path == znodes.CONFIG_CHANGES:
        return ConfigsChanged()
    if path == znodes.DELETE_TOPICS:
        return DeletionsChanged()
    if path == znodes.CONTROLLER:
        return ControllerChanged()
    return None
