"""The coordination tree of a simulation: one that outlives the brokers, with a session for each incarnation of one."""

from collections.abc import Callable

from moldau.ports.clock import Clock
from moldau.ports.coordination import Done, Listener, Request
from moldau.testing.coordination import FakeSession, FakeTree

Enter = Callable[[str], object]


class SimulatedTree:
    """The servers, and the sessions of those that ask them."""

    def __init__(self, clock: Clock) -> None:
        self._tree = FakeTree(clock)

    def session(self, enter: Enter) -> "SimulatedSession":
        """A session for a process. `enter` is called before each request."""
        return SimulatedSession(self._tree.session(), enter)


class SimulatedSession:
    """A :class:`moldau.ports.coordination.Coordination`: every request is a port call of its process."""

    def __init__(self, session: FakeSession, enter: Enter) -> None:
        self._session = session
        self._enter = enter
        self._is_over = False
        """Whether the process has ended: it receives no answer and no event any more."""

    @property
    def session_id(self) -> int:
        """Id of the session; 0 while there is none."""
        return self._session.session_id

    def submit(self, request: Request, done: Done) -> None:
        """Have a request carried out."""
        self._enter("submit")
        self._session.submit(request, lambda outcome: None if self._is_over else done(outcome))

    def listen(self, listener: Listener) -> None:
        """Have `listener` called with every event."""
        self._session.listen(lambda event: None if self._is_over else listener(event))

    def close(self, done: Callable[[], object] = lambda: None) -> None:
        """End the session."""
        self._session.close(done)

    def process_ended(self) -> None:
        """The process is gone: its ephemeral nodes go with it."""
        self._is_over = True
        self._session.suspend()
        self._session.expire()
