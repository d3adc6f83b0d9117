"""The coordination tree in one SQLite file that several processes of one host share: each is a client with a session, as of ZooKeeper.

Every request is a transaction that reads first what others have changed (`sqlite_shared_file`), so that watches fire before the answer that
shows a change. Between requests a message of the writer (`session_pipes`) has changes read at once. A message may be lost; the next tick,
a tenth of the session's timeout later, reads them too.

A session ends

* at once when its process ends, by whatever cause: the others notice that its pipe has no writer any more;
* when it was silent for its timeout, as when its process is stopped: at each tick a session sends messages to all others, and these count
  their own ticks in which none came. So a pause of their own counts as one tick.

A session whose own last tick is two thirds of the timeout ago is in doubt, which is looked at before anything is delivered or submitted:
it is SUSPENDED. Then it touches its row in the file. Another process ends it only if it was not touched meanwhile: so either it is
CONNECTED again and cannot be ended for that silence, or it was ended, and is EXPIRED: then nothing that it has submitted takes effect any
more.

A request is carried out inside `submit`, until `run_on` gives a thread: from then on each request runs there, in order. It waits for writes
of other processes, so a start may take as long as that.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from moldau.adapters.session_pipes import OwnPipes, PeerPipes, Readers
from moldau.adapters.sqlite_shared_file import Entered, Seen, SessionRow, SharedFile
from moldau.model.errors import CoordinationError
from moldau.ports.background import Background, InlineBackground
from moldau.ports.clock import Clock
from moldau.ports.coordination import (
    REQUESTS_MAX,
    ConnectionLostError,
    Done,
    Listener,
    Request,
    SessionClosedError,
    SessionEvent,
    SessionExpiredError,
    SessionState,
    Stream,
    TooManyRequestsError,
    Watches,
    WatchEvent,
    check_paths,
    nothing,
)

T = TypeVar("T")
_LOG = logging.getLogger(__name__)

TICKS = 10
"""How many times in its timeout a session shows that it lives."""
DOUBT_SHARE = 2 / 3
"""After which share of its timeout without a tick a session is in doubt."""


class SharedSqliteCoordination:
    """One client's sessions with the tree of a file."""

    def __init__(self, path: str, clock: Clock, readers: Readers, timeout_ms: int, requests_max: int = REQUESTS_MAX) -> None:
        """Open or create the file, and begin a session. CoordinationError names the file when it cannot be used.

        `readers` is the event loop, on whose thread all is called.
        """
        self._clock = clock
        self._readers = readers
        self._timeout_s = timeout_ms / 1000
        self._requests_max = requests_max
        self._state = SessionState.SUSPENDED
        self._session_id = 0
        self._watches = Watches()
        self._stream = Stream()
        self._thread: Background = InlineBackground()
        self._jobs = 0
        """Work that was given to the thread and is not answered."""
        self._connection = 0
        """Counts the times that the session was connected: what was on its way at an earlier one is answered already."""
        self._on_their_way: deque[tuple[Request, Done]] = deque()
        self._parked: deque[tuple[Request, Done]] = deque()
        self._is_closing = False
        self._is_entering = False
        self._is_looking = False
        self._looks_again = False
        self._endings = 0
        """Transactions on their way that end others' sessions."""
        self._is_copying = False
        self._copies = False
        """Whether the log is to be copied."""
        self._shown_at_s = 0.0
        """When others were shown last that the session lives."""
        self._silent_ticks: dict[int, int] = {}
        self._rows: dict[int, SessionRow] = {}
        self._file = SharedFile(path, clock, timeout_ms)
        self._peers = PeerPipes(self._file.directory, readers, self._process_ended)
        self._pipes: OwnPipes
        try:
            entered = self._file.enter()
        except BaseException:
            self._file.end()
            raise
        self._entered(entered, None)
        self._timer = clock.call_later(self._tick_s, self._tick)

    # The port

    @property
    def session_id(self) -> int:
        """Id of the session; 0 while there is none."""
        return 0 if self._is_closing else self._session_id

    def submit(self, request: Request, done: Done) -> None:
        """Have a request carried out; see the port."""
        check_paths(request)
        if self._is_closing:
            self._stream.answer(done, SessionClosedError())
        elif len(self._on_their_way) + len(self._parked) >= self._requests_max:
            self._stream.answer(done, TooManyRequestsError(self._requests_max))
        else:
            self._parked.append((request, done))
            self._check_doubt()
            self._send()

    def listen(self, listener: Listener) -> None:
        """Have `listener` called with events; see the port."""
        self._stream.listen(listener)
        if self._state is SessionState.CONNECTED and not self._is_closing:
            self._stream.put(partial(listener, SessionEvent(SessionState.CONNECTED, self._session_id)))

    def run_on(self, thread: Background) -> None:
        """From now on carry out requests in `thread`, which runs what it gets one after the other, in order."""
        self._thread = thread

    def close(self, done: Callable[[], object] = nothing) -> None:
        """End the session; see the port. CoordinationError when the file cannot be closed in order."""
        if self._is_closing:
            self._stream.put(done)
            return
        session_id = self._session_id
        self._is_closing = True
        self._timer.cancel()
        parked, self._parked = self._parked, deque()
        for _, answer in parked:
            self._stream.answer(answer, SessionClosedError())

        def ended(_: None, error: BaseException | None) -> None:
            self._state = SessionState.CLOSED
            self._peers.notify(session_id)
            self._peers.close()
            self._readers.remove_reader(self._pipes.inbox)
            self._pipes.close()
            self._stream.add([SessionEvent(SessionState.CLOSED, session_id)])
            self._stream.put(done)
            if error is not None:
                raise error

        (self._thread if self._jobs else InlineBackground()).run(self._file.end, ended)

    # Requests

    def _send(self) -> None:
        """Have what waits carried out, when the session is connected."""
        while self._parked and self._state is SessionState.CONNECTED and not self._is_closing:
            request, done = self._parked.popleft()
            self._on_their_way.append((request, done))
            self._run(partial(self._file.carry_out, self._session_id, request), partial(self._carried_out, self._connection))

    def _carried_out(self, connection: int, seen: Seen | None, error: BaseException | None) -> None:
        if error is not None:
            self._suspend()  # what it has seen is lost
            raise error
        assert seen is not None, "work without an error has a result"
        self._finish(seen)
        self._check_doubt()
        if isinstance(seen.outcome, SessionExpiredError) and connection == self._connection:
            self._suspend()
        if connection != self._connection:
            return
        request, done = self._on_their_way.popleft()
        self._take(seen)
        self._watches.note(request, seen.outcome)
        self._stream.answer(done, seen.outcome)

    def _take(self, seen: Seen) -> None:
        """Have the events called of what was seen, before anything that is added later."""
        events: list[WatchEvent] = self._watches.take_all() if seen.changes is None else self._watches.take(seen.changes)
        self._stream.add(events)

    def _finish(self, seen: Seen) -> None:
        """What has to be done after a transaction, whatever has become of the session."""
        if seen.has_written:
            self._peers.notify(self._session_id)
        if seen.is_log_long and not self._copies:
            self._copies = True
            self._copy_log()

    def _copy_log(self) -> None:
        if self._copies and not self._is_copying and not self._is_closing:
            self._is_copying = True
            self._copies = False
            self._run(self._file.copy_log, self._copied)

    def _copied(self, is_done: bool | None, error: BaseException | None) -> None:
        """Where it was not done, because others read or there is no room, the next tick tries again."""
        self._is_copying = False
        self._copies = not is_done
        if isinstance(error, CoordinationError):
            _LOG.warning("metadata not copied from the log into the database: reason=%s; trying again in %.1f s", error, self._tick_s)
        elif error is not None:
            raise error

    def _run(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], object]) -> None:
        def answered(result: T | None, error: BaseException | None) -> None:
            self._jobs -= 1
            done(result, error)

        self._jobs += 1
        self._thread.run(work, answered)

    # Others

    @property
    def _tick_s(self) -> float:
        return self._timeout_s / TICKS

    def _woken(self) -> None:
        """There are messages."""
        for sender in self._pipes.receive():
            self._silent_ticks.pop(sender, None)
        self._check_doubt()
        self._look()

    def _look(self) -> None:
        """Read what has changed; once more, if that is being done."""
        if self._state is not SessionState.CONNECTED or self._is_closing:
            return
        self._looks_again = self._is_looking
        if not self._is_looking:
            self._is_looking = True
            self._run(partial(self._file.look, self._session_id), partial(self._looked, self._connection))

    def _looked(self, connection: int, seen: Seen | None, error: BaseException | None) -> None:
        self._is_looking = False
        if error is not None:
            self._suspend()
            raise error
        assert seen is not None, "work without an error has a result"
        self._check_doubt()
        if connection != self._connection:
            self._look()
            return
        if isinstance(seen.outcome, SessionExpiredError):
            self._suspend()
            return
        self._take(seen)
        if seen.outcome is None:
            self._meet(seen.peers)
        self._stream.run()
        if self._looks_again:
            self._look()

    def _meet(self, peers: Sequence[SessionRow]) -> None:
        """These are the other sessions now."""
        for row in peers:
            if self._rows.get(row.session_id) != row:
                self._silent_ticks.pop(row.session_id, None)
        self._rows = {row.session_id: row for row in peers}
        dead = self._peers.update(list(self._rows), self._session_id)
        if dead:
            self._end_others(dead, ())

    def _process_ended(self, session_id: int) -> None:
        self._end_others([session_id], ())

    def _end_others(self, died: Sequence[int], silent: Sequence[SessionRow]) -> None:
        if self._is_closing:
            return
        self._endings += 1
        self._run(partial(self._file.end_others, died, silent), partial(self._ended_others, self._connection, bool(died)))

    def _ended_others(self, connection: int, have_died: bool, seen: Seen | None, error: BaseException | None) -> None:
        self._endings -= 1
        if error is not None:
            self._suspend()
            raise error
        assert seen is not None, "work without an error has a result"
        self._finish(seen)
        if have_died and seen.has_written:  # the log may hold what the process was interrupted in
            self._copies = True
            self._copy_log()
        self._check_doubt()
        if connection == self._connection:
            self._take(seen)
            self._stream.run()
        if isinstance(seen.outcome, CoordinationError):  # the look of the next tick finds them again
            _LOG.warning("sessions of other processes not ended: reason=%s; trying again in %.1f s", seen.outcome, self._tick_s)
        else:
            self._look()

    # Time

    def _tick(self) -> None:
        now = self._clock.monotonic()  # first: a pause that begins further down is noticed at the next look
        self._timer = self._clock.call_later(self._tick_s, self._tick)
        self._check_doubt()
        for sender in self._pipes.receive():
            self._silent_ticks.pop(sender, None)
        if self._state is not SessionState.CONNECTED:
            self._silent_ticks.clear()
            self._reconnect()
            return
        self._shown_at_s = now
        self._peers.notify(self._session_id)
        silent = []
        for session_id, row in self._rows.items():
            ticks = self._silent_ticks.get(session_id, -1) + 1
            self._silent_ticks[session_id] = ticks
            if ticks * self._tick_s * 1000 >= row.timeout_ms:
                silent.append(row)
        if silent and not self._endings:
            self._end_others((), silent)
        self._copy_log()
        self._look()

    def _check_doubt(self) -> None:
        """Suspend the session if others may take it for dead."""
        if (
            self._state is SessionState.CONNECTED
            and self._clock.monotonic() - self._shown_at_s > DOUBT_SHARE * self._timeout_s
            and not self._is_closing
        ):
            self._suspend()

    def _suspend(self) -> None:
        if self._state is not SessionState.CONNECTED or self._is_closing:
            return
        self._state = SessionState.SUSPENDED
        self._connection += 1
        self._watches.clear()
        lost, self._on_their_way = self._on_their_way, deque()
        self._stream.add([SessionEvent(SessionState.SUSPENDED, self._session_id)])
        for _, done in lost:
            self._stream.answer(done, ConnectionLostError())
        self._stream.run()
        self._reconnect()

    def _reconnect(self) -> None:
        """Touch the session, or begin the next one. What fails is tried again at the next tick."""
        if self._is_entering or self._is_closing or self._state is SessionState.CONNECTED:
            return
        self._is_entering = True
        if self._session_id:
            self._run(partial(self._file.touch, self._session_id), self._touched)
        else:
            self._run(self._file.enter, self._entered)

    def _touched(self, at_s: float | None, error: BaseException | None) -> None:
        self._is_entering = False
        if self._has_failed(error) or self._is_closing:
            return
        if at_s is None:
            self._expire()
        else:
            self._connect(at_s)

    def _expire(self) -> None:
        """The session was ended by others."""
        ended, self._session_id = self._session_id, 0
        parked, self._parked = self._parked, deque()
        self._stream.add([SessionEvent(SessionState.EXPIRED, ended)])
        for _, done in parked:
            self._stream.answer(done, SessionExpiredError())
        self._stream.run()
        self._reconnect()

    def _entered(self, entered: Entered | None, error: BaseException | None) -> None:
        self._is_entering = False
        if self._has_failed(error):
            return
        assert entered is not None, "work without an error has a result"
        if hasattr(self, "_pipes"):
            self._readers.remove_reader(self._pipes.inbox)
            self._pipes.close()
        self._pipes = entered.pipes
        self._readers.add_reader(self._pipes.inbox, self._woken)
        self._session_id = entered.session_id
        if not self._is_closing:
            self._connect(entered.at_s)

    def _connect(self, at_s: float) -> None:
        self._shown_at_s = at_s
        self._state = SessionState.SUSPENDED
        self._stream.fire([SessionEvent(SessionState.CONNECTED, self._session_id)])
        if self._is_closing:
            return
        self._state = SessionState.CONNECTED
        self._send()
        self._look()

    def _has_failed(self, error: BaseException | None) -> bool:
        if isinstance(error, CoordinationError):
            _LOG.warning("session with the metadata store not continued: reason=%s; trying again in %.1f s", error, self._tick_s)
        elif error is not None:
            raise error
        return error is not None
