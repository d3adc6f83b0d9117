"""A Fetch request that opens or continues a session: what it asks for, and what of its results is answered. See `sessions`."""

from collections.abc import Generator
from typing import TYPE_CHECKING

from moldau.broker.handlers.fetch.call import FetchCall
from moldau.broker.handlers.fetch.operation import FIRST_WITH_TOPIC_IDS, Fetch, Results
from moldau.broker.handlers.fetch.sessions import FetchSession, FetchSessions, PendingFetch
from moldau.broker.handlers.fetch.waiting import WaitingFetch, answer_or_wait
from moldau.model.errors import PeerError
from moldau.model.steps import Pause, Suspension, drain
from moldau.protocol.fast.fetch import NO_EPOCH, FetchFrame

if TYPE_CHECKING:
    from moldau.ports.transport import Part

SHORT_MAX = 64
"""Partitions of a session whose requests are handled in one go."""


class SessionFetch(Fetch):
    """One Fetch request of a session, or that opens one."""

    __slots__ = ("_is_released", "session")

    def __init__(self, call: FetchCall, frame: FetchFrame, session: FetchSession | None) -> None:
        """`frame` with all that it asks for; `session` None for a request that opens one."""
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
    answer = answer_or_wait(_fetch(call, frame, session), call.source, waiting_cost)
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
    return _fetch(call, frame, entered)


def _fetch(call: FetchCall, frame: FetchFrame, session: FetchSession | None) -> Fetch:
    if session is None and (frame.session_epoch == NO_EPOCH or not frame.topics):
        return Fetch(*call, frame)
    return SessionFetch(call, frame, session)
