"""A Fetch request that opens or continues a session: what it asks for, and what of its results is answered. See `sessions`."""

from collections.abc import Generator
from typing import TYPE_CHECKING

from moldau.broker.handlers.fetch.call import FetchCall
from moldau.broker.handlers.fetch.operation import FIRST_WITH_TOPIC_IDS, Fetch, Results
from moldau.broker.handlers.fetch.sessions import FetchSession, FetchSessions, PendingFetch
from moldau.broker.handlers.fetch.waiting import WaitingFetch, answer_or_wait
from moldau.model.errors import PeerError, StorageError
from moldau.model.steps import Pause, Suspension, drain
from moldau.protocol.fast.fetch import NO_EPOCH, FetchFrame

if TYPE_CHECKING:
    from collections.abc import Iterable

    from moldau.broker.handlers.fetch.sessions import SessionPartition
    from moldau.broker.replicas.purgatory import DelayedFetch
    from moldau.ports.transport import Part
    from moldau.protocol.fast.fetch import FetchPartitionResult

_Read = list[tuple["SessionPartition", "FetchPartitionResult"]]

SHORT_MAX = 64
"""Partitions of a session whose requests are handled in one go."""


class SessionFetch(Fetch):
    """One Fetch request of a session, or that opens one."""

    __slots__ = ("_is_released", "session")

    def __init__(self, call: FetchCall, frame: FetchFrame, session: FetchSession | None) -> None:
        """`frame` with what is to be read; `session` None for a request that opens one."""
        super().__init__(*call, frame)
        self.session = session
        self._is_released = session is None

    def encode(self, topics: list[Results], session_id: int = 0) -> "list[Part]":
        """The answer; it is counted."""
        session_id, topics = drain(self.settle(topics))
        self.release()
        return super().encode(topics, session_id)

    def settle(self, topics: list[Results]) -> Generator[Pause, None, tuple[int, list[Results]]]:
        """The session's id, and what of the results the client does not know yet."""
        if self.session is not None:
            news = yield from self.session.news(topics)
            return self.session.id, news
        session_id = yield from self.broker.fetch_sessions.open(self.frame, topics, by_id=self.version >= FIRST_WITH_TOPIC_IDS)
        return session_id, topics

    def release(self) -> None:
        """The session may have its next request handled."""
        if self.session is not None and not self._is_released:
            self._is_released = True
            self.session.release()


class FollowerFetch(SessionFetch):
    """A follower's request in its session: what rests is not read.

    The session has all partitions that the follower fetches from this broker, and of a message one or two of them have changed. To read the
    others would take most of the time that it takes to replicate it. So each of them costs some comparisons (`SessionPartition.rests`),
    and what the fetch proves of the follower's progress is noted. A session of many partitions is read whole, in steps.
    """

    __slots__ = ("_known", "_partitions", "_read")

    def __init__(self, call: FetchCall, frame: FetchFrame, session: FetchSession) -> None:
        super().__init__(call, frame, session)
        self._partitions = session.partitions
        self._read: _Read = []
        """What did not rest."""
        self._known: dict[object, SessionPartition] = {}
        """By partition."""

    def read(self) -> list[Results]:
        """Results of what does not rest."""
        self._known.clear()
        return self._read_those(self._partitions.values())

    def read_again(self, request: "DelayedFetch | None") -> list[Results]:
        """Read what did not rest, and that to which something has happened while the request waited."""
        if request is None:
            return self.read()
        asked = {each: None for each, _ in self._read}
        for partition in request.changed:
            each = self._known.get(partition)
            if each is None:  # its log was opened elsewhere
                return self.read()
            asked[each] = None
        return self._read_those(asked)

    def _read_those(self, asked: "Iterable[SessionPartition]") -> list[Results]:
        self.begin()
        replica_id, replica_epoch = self.frame.replica_id, self.frame.replica_epoch
        now_s = self.started_s if self.reads == 1 else None
        known, led, self._read = self._known, self.led, []
        for each in asked:
            partition = each.rests(replica_id, replica_epoch, now_s)
            if partition is not None:
                led.append(partition)
                known[partition] = each
                continue
            before = len(led)
            (result,) = self.read_some(each.topic, (each.wanted,))
            if len(led) > before:
                known[led[-1]] = each
                if not result.error_code and result.diverging_epoch is None:
                    each.was_read(led[-1], replica_id)
            self._read.append((each, result))
        return _by_topic(self._read)

    def missing_bytes(self) -> int:
        """As of any fetch: what rests has nothing to be read."""
        if self.found >= self.enough:
            return 0
        available = 0
        try:
            for each, result in self._read:
                if result.records or not each.has_all():
                    available += self.available_in(each.topic, (each.wanted,))
        except StorageError:  # the next read reports it
            return 0
        return self.enough - max(self.found, available)

    def encode(self, topics: list[Results], session_id: int = 0) -> "list[Part]":
        """The answer, which has what the follower does not know yet; it is counted."""
        assert self.session is not None
        news = [(each, result) for each, result in self._read if each.learns(result)]
        self.session.move_to_end([each for each, result in news if result.records])
        self.release()
        return Fetch.encode(self, _by_topic(news), self.session.id)


def is_long(sessions: FetchSessions, session_id: int) -> bool:
    """Whether a request of this session has to be handled in steps: it has many partitions, or its request before is still worked on."""
    session = sessions.get(session_id)
    if session is None:
        return False
    if session.pending is not None:
        session.pending.finish()
    return session.pending is not None or len(session.partitions) > SHORT_MAX


def answer_in_session(call: FetchCall, request: FetchFrame, waiting_cost: int) -> "list[Part] | None":
    """The response to a request that is not long; None if it waits."""
    try:
        frame, session = drain(call.broker.fetch_sessions.enter(request, by_id=call.version >= FIRST_WITH_TOPIC_IDS))
    except PeerError as error:
        return Fetch(*call, request).refuse(error.code)
    if session is not None and frame.replica_id >= 0:
        fetch: Fetch = FollowerFetch(call, frame, session)
    else:
        fetch = drain(_fetch(call, frame, session))
    answer = answer_or_wait(fetch, call.source, waiting_cost)
    if not isinstance(answer, WaitingFetch):
        return answer
    if session is not None:
        session.pending = answer
    return None


def enter_in_steps(call: FetchCall, request: FetchFrame, pending: PendingFetch) -> Generator[Pause, None, Fetch]:
    """The same as what is to be read, once the request of the session before it is answered. PeerError. `pending`: what is worked on."""
    sessions = call.broker.fetch_sessions
    while (session := sessions.get(request.session_id)) is not None and session.pending is not None:
        session.pending.finish()
        yield Suspension(session.when_released)
    if session is not None:
        session.pending = pending
    try:
        frame, entered = yield from sessions.enter(request, by_id=call.version >= FIRST_WITH_TOPIC_IDS)
    except BaseException:
        if session is not None:
            session.release()
        raise
    if session is not None and entered is None:  # it is closed
        session.release()
    return (yield from _fetch(call, frame, entered))


def _fetch(call: FetchCall, frame: FetchFrame, session: FetchSession | None) -> Generator[Pause, None, Fetch]:
    if session is not None:
        topics = yield from session.topics()
        frame = frame._replace(topics=topics, forgotten=[])
    elif frame.session_epoch == NO_EPOCH or not frame.topics:
        return Fetch(*call, frame)
    return SessionFetch(call, frame, session)


def _by_topic(read: _Read) -> list[Results]:
    topics: list[Results] = []
    for each, result in read:
        if not topics or topics[-1][0] != each.topic:
            topics.append((each.topic, []))
        topics[-1][1].append(result)
    return topics
