"""Feeds message streams with the partitions that a member owns: the member decides which and from where, librdkafka fetches them.

Everything runs in the feeder's thread: the tree's event loop has a turn before and after each fetch, and the whole time in which there is
nothing to read. What was fetched before a turn in which the partitions changed is dropped.

A process that was stopped may have lost its session long before its client notices. So after a turn that comes late nothing is fetched
until the tree has answered a request of this session.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from moldau.client.coordinated.member import GroupMember, MemberTiming
from moldau.client.coordinated.offsets import DualOffsets, Offsets, OffsetStore, TreeOffsets
from moldau.client.coordinated.procedure import Procedure, ProcedureRun, Resume, ask
from moldau.client.coordinated.trees import OpenTree, TreeLoop
from moldau.client.failures import ClientError, CommitError, ConsumeError
from moldau.client.message import ConsumedMessage
from moldau.client.session import BEGINNING, END, RebalanceListener, Session
from moldau.cluster import znodes
from moldau.cluster.znodes import MalformedNodeError
from moldau.model.errors import ErrorCode, MoldauError, WorldError
from moldau.model.identity import Offset, TopicPartition
from moldau.ports.coordination import (
    Children,
    Data,
    Exists,
    GetChildren,
    GetData,
    NodeStat,
    Outcome,
    SessionEvent,
    SessionState,
    WatchEvent,
)

log = logging.getLogger("moldau.client")

LATEST = -1
"""As a timestamp of ListOffsets: the end."""
LATE_PART = 1 / 3
"""Of the session's timeout: a turn that comes later after the one before is late."""
TURN_S = 0.05
"""How long the tree has the thread between two fetches, while a rebalance is being made."""
BROKERS_AGAIN_S = 1.0


class SourceOptions(NamedTuple):
    """How a group reads, and where its offsets are."""

    group: str
    consumer: str
    streams: Mapping[str, int]
    timing: MemberTiming
    auto_commit: bool
    begins_at_end: bool
    """Where the group begins in a partition without a committed offset: at the end, or else at the first message."""
    in_tree: bool
    in_brokers: bool
    """Where offsets are committed: one of the two, or both."""
    connection_timeout_s: float
    close_timeout_s: float


class TreeReason:
    """An error of the coordination tree, as the reason of a client's failure (`moldau.client.failures.Reason`)."""

    def __init__(self, error: MoldauError) -> None:
        self._error = error

    def name(self) -> str:
        """Of all of these."""
        return "COORDINATION"

    def code(self) -> int:
        """The protocol has none."""
        return ErrorCode.UNKNOWN_SERVER_ERROR

    def retriable(self) -> bool:
        """Whether the same call may succeed later."""
        return isinstance(self._error, WorldError) and self._error.retriable

    def fatal(self) -> bool:
        """The consumer connects again by itself."""
        return False

    def str(self) -> str:
        """For a person."""
        return f"{self._error}"


class BrokerOffsets:
    """The brokers' group store, as an `OffsetStore`. Each call waits for the group's coordinator."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def read(self, partitions: Sequence[TopicPartition], done: Callable[[Offsets | MoldauError], object]) -> None:
        """See the protocol."""
        try:
            found: Offsets | MoldauError = self._session.committed(partitions)
        except ConsumeError as error:
            found = error
        done(found)

    def commit(self, offsets: Offsets, done: Callable[[MoldauError | None], object]) -> None:
        """See the protocol."""
        failure: MoldauError | None = None
        try:
            self._session.commit(offsets)
        except CommitError as error:
            failure = error
        done(failure)


class CoordinatedSource:
    """A :class:`moldau.client.stream_feeder.StreamSource`. `make_session` takes addresses of brokers, which are found in the tree."""

    def __init__(self, open_tree: OpenTree, make_session: Callable[[Sequence[str]], Session], options: SourceOptions) -> None:
        self.commits_by_itself = options.auto_commit
        self._open_tree = open_tree
        self._make_session = make_session
        self._options = options
        self._listener: RebalanceListener
        self._loop: TreeLoop | None = None
        self._session: Session | None = None
        self._member: GroupMember | None = None
        self._brokers: list[str] | None = None
        """None while they are not known."""
        self._is_connected = False
        self._connect_until = 0.0
        self._assigned: dict[TopicPartition, None] = {}
        self._changes = 0
        """Counts the starts and ends of reading."""
        self._turned_at = 0.0
        self._late_turns = 0
        self._asked_after = 0
        self._confirmed_after = 0
        """How many turns had come late when the tree was last asked whether the session lives, and when it last answered so."""

    # The member's reader

    def start(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Read these. Where a new group begins at the end, that offset is committed: what comes after it is not skipped by the next owner.

        ConsumeError where brokers do not say what the end is.
        """
        assert self._session is not None, "made before the member"
        assert self._member is not None, "it calls"
        new = [where for where, offset in offsets.items() if offset is None]
        ends: dict[TopicPartition, Offset] = {}
        if new and self._options.begins_at_end:
            ends = self._session.offsets_for_times(dict.fromkeys(new, LATEST))
        self._assigned = dict.fromkeys(offsets)
        self._changed()
        self._listener.assigned(list(offsets))
        if offsets:
            new_at = END if self._options.begins_at_end else BEGINNING
            self._session.assign({where: ends.get(where, new_at) if offset is None else offset for where, offset in offsets.items()})
        self._member.commit(ends, self._log_commit)

    def stop(self) -> None:
        """Read nothing any more; what the streams have finished is stored."""
        if self._assigned:
            self._listener.revoked(list(self._assigned))
        self._end_reading()

    def abandon(self) -> None:
        """Read nothing any more; messages that the streams hold do not count."""
        if self._assigned:
            self._listener.lost(list(self._assigned))
        self._end_reading()

    def _end_reading(self) -> None:
        assert self._session is not None, "made before the member"
        if self._assigned:
            self._assigned = {}
            self._session.assign({})
        self._changed()

    def _changed(self) -> None:
        assert self._loop is not None, "opened before the member"
        self._changes += 1
        self._loop.wake()

    def _log_commit(self, error: MoldauError | None) -> None:
        if error is not None:
            log.warning("group %s: the offsets at which it begins are not committed: %s", self._options.group, error)

    # The feeder's source

    def subscribe(self, topics: Iterable[str], listener: RebalanceListener) -> None:
        """Begin to connect. `topics` are those of the options."""
        self._listener = listener
        self._turned_at = time.monotonic()
        self._connect_until = self._turned_at + self._options.connection_timeout_s
        self._loop = TreeLoop(self._open_tree)
        self._loop.tree.listen(self._heard)

    def assignment(self) -> list[TopicPartition]:
        """The partitions that this member owns."""
        return list(self._assigned)

    def stream_of(self, where: TopicPartition) -> int:
        """The thread that owns it, by its number."""
        assert self._member is not None, "a member assigns"
        return int(self._member.owned[where].rpartition("-")[2])

    def fetch(self, count: int, timeout_s: float) -> list[ConsumedMessage]:
        """See the protocol. ConsumeError also where the tree cannot be reached at first."""
        self._turn(0)
        if self._member is None or self._session is None:
            self._connect(timeout_s)
            return []
        if not self._assigned or self._confirmed_after != self._late_turns:
            self._turn(timeout_s)
            return []
        if self._member.is_rebalancing:
            self._turn(TURN_S)
            timeout_s = 0
        changes = self._changes
        found = self._session.fetch(count, timeout_s) if self._assigned else []
        self._turn(0)
        return found if changes == self._changes else []

    def _turn(self, timeout_s: float) -> None:
        """Have the tree's loop run."""
        assert self._loop is not None, "subscribed before"
        if time.monotonic() - self._turned_at > LATE_PART * self._options.timing.session_timeout_s:
            self._late_turns += 1
        if self._asked_after != self._late_turns != self._confirmed_after:
            self._asked_after = self._late_turns
            self._loop.tree.submit(Exists("/"), partial(self._session_answered, self._late_turns))
        self._loop.turn(timeout_s)
        self._turned_at = time.monotonic()

    def _session_answered(self, asked_after: int, outcome: Outcome) -> None:
        if isinstance(outcome, NodeStat):
            self._confirmed_after = asked_after
        elif self._asked_after == asked_after:  # the next turn asks again
            self._asked_after = 0

    def _connect(self, timeout_s: float) -> None:
        """Until there are a session with the tree and addresses of brokers; then become a member."""
        assert self._loop is not None, "subscribed before"
        if not self._is_connected and time.monotonic() > self._connect_until:
            reason = f"no session with the coordination tree within {self._options.connection_timeout_s:g} s (connection_timeout_ms)"
            raise ConsumeError(None, None, None, TreeReason(WorldError(reason, retriable=True)))
        self._turn(timeout_s)
        if self._brokers is not None:
            options = self._options
            self._session = self._make_session(self._brokers)
            self._member = GroupMember(
                self._loop.tree,
                self._loop.clock,
                self._offset_store(self._session),
                self,
                group=options.group,
                consumer=options.consumer,
                streams=options.streams,
                timing=options.timing,
            )
            self._member.start()

    def _offset_store(self, session: Session) -> OffsetStore:
        assert self._loop is not None, "subscribed before"
        in_tree, in_brokers = TreeOffsets(self._loop.tree, self._options.group), BrokerOffsets(session)
        if self._options.in_tree and self._options.in_brokers:
            return DualOffsets(in_brokers, in_tree)
        return in_tree if self._options.in_tree else in_brokers

    def _heard(self, event: WatchEvent | SessionEvent) -> None:
        if isinstance(event, SessionEvent) and event.state is SessionState.CONNECTED and not self._is_connected:
            self._is_connected = True
            self._find_brokers(None)

    def _find_brokers(self, _: object) -> None:
        ProcedureRun(self._brokers_found(), self._brokers_asked).start()

    def _brokers_asked(self, error: MoldauError | None) -> None:
        assert self._loop is not None, "subscribed before"
        if error is not None:
            log.warning("group %s: brokers not found: %s; trying again in %.1f s", self._options.group, error, BROKERS_AGAIN_S)
            self._loop.clock.call_later(BROKERS_AGAIN_S, lambda: self._find_brokers(None))
        else:
            self._loop.wake()

    def _brokers_found(self) -> Procedure:
        """Addresses of the brokers that live."""
        assert self._loop is not None, "subscribed before"
        loop, is_logged = self._loop, False
        while True:
            (listed,) = yield from ask(loop.tree, [GetChildren(znodes.BROKER_IDS)])
            paths = [f"{znodes.BROKER_IDS}/{name}" for name in listed.names] if isinstance(listed, Children) else []
            outcomes = yield from ask(loop.tree, [GetData(path) for path in paths])
            found = []
            for path, outcome in zip(paths, outcomes, strict=True):
                if isinstance(outcome, Data):
                    try:
                        first = znodes.decode_broker(path, outcome.data).endpoints[0]
                        found.append(f"[{first.host}]:{first.port}" if ":" in first.host else f"{first.host}:{first.port}")
                    except MalformedNodeError as error:
                        log.warning("group %s: %s; this broker is not asked", self._options.group, error)
            if found:
                self._brokers = found
                return
            if not is_logged:
                log.warning("group %s: no broker is registered in the coordination tree; waiting for one", self._options.group)
                is_logged = True

            def pause(resume: Resume) -> None:
                loop.clock.call_later(BROKERS_AGAIN_S, lambda: resume(None))

            yield pause

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """See the protocol."""
        if self._session is not None:
            self._session.pause(where for where in partitions if where in self._assigned)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """See the protocol."""
        if self._session is not None:
            self._session.resume(where for where in partitions if where in self._assigned)

    def store(self, offsets: Mapping[TopicPartition, int]) -> None:
        """See the protocol."""
        if self._member is not None:
            self._member.store(offsets)

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """See the protocol. Waits as long as a session may last without the tree."""
        if self._member is None or self._loop is None:
            return
        answer = self._loop.wait(partial(self._member.commit, offsets), self._options.timing.session_timeout_s)
        self._turned_at = time.monotonic()
        if answer is None or answer[0] is not None:
            self._raise_uncommitted(answer[0] if answer else None)

    def _raise_uncommitted(self, error: MoldauError | None) -> None:
        if isinstance(error, ClientError):
            raise error
        assert self._member is not None, "it has failed"
        for where, offset in self._member.uncommitted.items():
            cause = error or WorldError("the coordination tree has not answered in time; the offset may not be committed", retriable=True)
            raise CommitError(self._options.group, *where, offset, TreeReason(cause)) from error

    def seek(self, where: TopicPartition, offset: int) -> None:
        """See the protocol."""
        self._reading().seek(where, offset)

    def bounds(self, where: TopicPartition) -> tuple[Offset, Offset]:
        """See the protocol."""
        return self._reading().bounds(where)

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset]:
        """See the protocol."""
        return self._reading().offsets_for_times(times) if times else {}

    def _reading(self) -> Session:
        assert self._session is not None, "partitions are assigned"
        return self._session

    def close(self) -> None:
        """See the protocol. CommitError for what could not be committed."""
        if self._loop is None:
            return
        end = time.monotonic() + self._options.close_timeout_s
        try:
            self._loop.wait(self._loop.tree.close if self._member is None else self._member.close, self._options.close_timeout_s)
        finally:
            self._loop.close()
            if self._session is not None:
                self._session.close(max(0.0, end - time.monotonic()))
        if self._member is not None:
            self._raise_uncommitted(None)
