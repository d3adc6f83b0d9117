"""The coordination tree of a simulation: one that outlives the brokers, with a session for each incarnation of one.

What the tree sends to a process comes on the process's thread: inside the call that asked for it where that is answered at once, and
otherwise later, in order. A session that is cut off connects again by itself, after `SimulatedTree.away_s`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from moldau.model.errors import CoordinationError
from moldau.ports.clock import Clock
from moldau.ports.coordination import (
    REQUESTS_MAX,
    Children,
    Create,
    Data,
    Delete,
    Done,
    GetChildren,
    GetData,
    Listener,
    Multi,
    Outcome,
    Request,
    SessionEvent,
    SessionState,
    SetData,
    TooManyRequestsError,
)
from moldau.testing.coordination import FakeSession, FakeTree

UNNOTICED_PART = 2 / 3
"""Of a session's time-out: for so long a client may not notice that it is cut off."""
Enter = Callable[[str], object]


Post = Callable[[Callable[[], object], float], object]
"""Has a process make a call after some seconds."""


class WatchedTree(FakeTree):
    """The nodes, and who looks at each change of them."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.on_written: list[Callable[[Request, int], object]] = []
        """Called after each request that has changed something, with it and with the session whose request it was."""

    def carry_out(self, request: Request, session_id: int) -> Outcome:
        """Carry out a request."""
        outcome = super().carry_out(request, session_id)
        if isinstance(request, Create | SetData | Delete | Multi) and not isinstance(outcome, CoordinationError):
            for listener in self.on_written:
                listener(request, session_id)
        return outcome


class SimulatedTree:
    """The servers, and the sessions of those that ask them."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.latency_s = 0.0
        """Of each request, from the next session on."""
        self.linger_s = 0.0
        """How long the session of a process lasts that has ended without closing it."""
        self.away_s = 0.1
        """How long a session is cut off."""
        self.session_s = 0.0
        """Time-out of sessions, after which one expires that is cut off; 0: never by itself."""
        self.nodes = WatchedTree(clock)

    def get(self, path: str) -> Data | None:
        """A node, for those that look at the tree from outside; None if there is none."""
        found = self.nodes.carry_out(GetData(path), 0)
        return found if isinstance(found, Data) else None

    def children(self, path: str) -> list[str]:
        """Names of a node's children, looked at in the same way."""
        found = self.nodes.carry_out(GetChildren(path), 0)
        return list(found.names) if isinstance(found, Children) else []

    @property
    def expires_after_s(self) -> float:
        """How long a session that is cut off lasts; 0 if it does not expire."""
        return self.session_s * (1 - UNNOTICED_PART)

    def session(self, enter: Enter, post: Post) -> "SimulatedSession":
        """A session for a process. `enter` is called before each port call, `post` has the process make a call."""
        return SimulatedSession(self, self.nodes.session(self.latency_s), enter, post)


class SimulatedSession:
    """A :class:`moldau.ports.coordination.Coordination`: every method is a port call of its process."""

    def __init__(self, tree: SimulatedTree, session: FakeSession, enter: Enter, post: Post) -> None:
        self._tree = tree
        self._session = session
        self._enter = enter
        self._post = post
        self._is_over = False
        """Whether the process has ended: it receives no answer and no event any more."""
        self._is_lost = False
        """Whether it never connects again."""
        self._calls = 0
        """Calls of the process that have not returned."""
        self._posted = 0
        """Answers and events on their way to the process: what comes after them waits for its turn too."""
        self.late_s = 0.0
        """Answers and events take so much longer."""
        self.refused_writes = 0
        """So many of the next writes are not carried out, since too many requests wait."""
        self._last_due = 0.0
        session.listen(self._reconnect)

    @property
    def session_id(self) -> int:
        """Id of the session; 0 while there is none."""
        return self._session.session_id

    def submit(self, request: Request, done: Done) -> None:
        """Have a request carried out."""
        self._enter("submit")
        self._calls += 1
        try:
            if self.refused_writes and isinstance(request, Multi):
                self.refused_writes -= 1
                self._receive(done, TooManyRequestsError(REQUESTS_MAX))
            else:
                self._session.submit(request, partial(self._receive, done))
        finally:
            self._calls -= 1

    def listen(self, listener: Listener) -> None:
        """Have `listener` called with every event."""
        self._calls += 1
        try:
            self._session.listen(partial(self._receive, listener))
        finally:
            self._calls -= 1

    def close(self, done: Callable[[], object] = lambda: None) -> None:
        """End the session."""
        self._session.close(lambda: self._receive(lambda _nothing: done(), None))

    # Faults

    def suspend(self) -> None:
        """Cut it off."""
        self._session.suspend()

    def lose(self) -> None:
        """Cut it off for ever, also where it is cut off and about to connect again."""
        self._is_lost = True
        self._session.suspend()
        self._tree.clock.call_later(self._tree.expires_after_s, self._session.expire)

    def expire(self) -> None:
        """Have the tree end the session."""
        self._session.expire()

    def lose_answer(self, nth: int) -> None:
        """Cut it off when the nth request from now has been carried out, before its answer."""
        self._session.lose_answer(nth)

    def hold(self) -> None:
        """Keep requests that reach the tree from now on, before they take effect."""
        self._session.hold()

    def release(self) -> None:
        """Carry out what is held, and hold no more."""
        self._session.release()

    def process_ended(self) -> None:
        """The process is gone: its ephemeral nodes go with it, after some time."""
        self._is_over = True
        self._session.suspend()
        if self._tree.linger_s:
            self._tree.clock.call_later(self._tree.linger_s, self._session.expire)
        else:
            self._session.expire()

    def _reconnect(self, event: object) -> None:
        if isinstance(event, SessionEvent) and event.state is SessionState.SUSPENDED and not (self._is_over or self._is_lost):
            tree = self._tree
            if 0 < tree.expires_after_s < tree.away_s:
                tree.clock.call_later(tree.expires_after_s, self._session.expire)
            tree.clock.call_later(tree.away_s, self._resume)

    def _resume(self) -> None:
        if not (self._is_over or self._is_lost):
            self._session.resume()

    def _receive(self, call: Callable[[Any], object], what: object) -> None:
        if self._is_over:
            return
        if self._calls and not self._posted and not self.late_s:
            call(what)
            return
        self._posted += 1
        now = self._tree.clock.monotonic()
        self._last_due = max(self._last_due, now + self.late_s)
        self._post(partial(self._take, call, what), self._last_due - now)

    def _take(self, call: Callable[[Any], object], what: object) -> None:
        call(what)
        self._posted -= 1
