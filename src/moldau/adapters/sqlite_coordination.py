"""The coordination tree in one SQLite file: the embedded store of a single broker.

One process holds the file, alone, for as long as it runs; a second one is refused. Every write is one transaction in a write-ahead log, so
a `Multi` is seen whole or not at all, also after a crash, and is on disk when it is answered (``synchronous=FULL``). A request is carried
out inside `submit`, until `run_on` gives a thread: from then on each request runs there, in order.

A log longer than `LOG_BYTES_MAX` is copied into the database on that thread, and cut to nothing; requests wait meanwhile. A stop
copies the log into the database and removes it.

The session is connected as long as the file is open, and is never suspended. A session's id is larger than that of every earlier one which
wrote something. Ephemeral nodes of a session that ended in a crash go when the file is opened again, before anyone can see them. The path
":memory:" keeps the tree in memory and forgets it at `close`. For the file's layout see `sqlite_file`.
"""

import logging
import os
import sqlite3
from collections.abc import Callable
from functools import partial

from moldau.adapters.sqlite_file import MEMORY, log_of, open_database
from moldau.adapters.sqlite_transactions import Transactions
from moldau.adapters.sqlite_tree import SqliteTree
from moldau.model.errors import CoordinationError
from moldau.ports.background import Background, InlineBackground
from moldau.ports.coordination import (
    READS,
    REQUESTS_MAX,
    Change,
    Done,
    Listener,
    Outcome,
    Request,
    SessionClosedError,
    SessionEvent,
    SessionState,
    Stream,
    TooManyRequestsError,
    Watches,
    check_paths,
    nothing,
)

_LOG = logging.getLogger(__name__)

NO_FILE = -1
LOG_BYTES_MAX = 4 << 20
"""A longer write-ahead log is copied into the database: some 200 changes of topics."""
COPY_AGAIN_MS = 1000
"""When the database had no room for the log, the next copy is tried this long after that at the earliest."""


class SqliteCoordination:
    """One session with the tree of a file."""

    def __init__(self, path: str, time_ms: Callable[[], int], requests_max: int = REQUESTS_MAX) -> None:
        """Open or create the file. CoordinationError names it when it is held by another process, damaged, or not ours."""
        self._path = path
        self._time_ms = time_ms
        self._requests_max = requests_max
        self._watches = Watches()
        self._stream = Stream()
        self._thread: Background | None = None
        self._submitted = 0
        """Requests whose answer has not come from the thread yet."""
        self._closed = False
        self._log_file = NO_FILE
        self._is_copying = False
        self._no_room_ms: int | None = None
        """When the last copy failed for want of room; None if it did not."""
        self._transactions = Transactions(path, open_database(path, time_ms()))
        self._tree = SqliteTree(self._transactions.database, time_ms)

    # Requests, events, answers

    @property
    def session_id(self) -> int:
        """Id of the session; 0 after `close`."""
        return 0 if self._closed else self._tree.session_id

    def submit(self, request: Request, done: Done) -> None:
        """Carry out a request; see the port."""
        check_paths(request)
        if self._closed:
            self._stream.answer(done, SessionClosedError())
        elif self._thread is None:
            self._answer(request, done, *self._carry_out(request))
        elif self._submitted >= self._requests_max:
            self._stream.answer(done, TooManyRequestsError(self._requests_max))
        else:
            self._submitted += 1
            self._thread.run(partial(self._carry_out, request), partial(self._carried_out, request, done))

    def listen(self, listener: Listener) -> None:
        """Have `listener` called with events; see the port."""
        self._stream.listen(listener)
        if not self._closed:
            self._stream.put(partial(listener, SessionEvent(SessionState.CONNECTED, self.session_id)))

    def run_on(self, thread: Background) -> None:
        """From now on carry out requests in `thread`, which runs what it gets one after the other, in order."""
        self._thread = thread
        if self._path != MEMORY:
            self._log_file = os.open(log_of(self._path), os.O_RDONLY)  # stays the log also when its directory is moved away

    def close(self, done: Callable[[], object] = nothing) -> None:
        """End the session; see the port. A second call does nothing. CoordinationError when the file cannot be closed in order.

        On the thread only after requests that it still has: a broker that stops does nothing else, and most have not started the thread.
        """
        session_id = self.session_id
        if self._closed:
            self._stream.put(done)
            return
        self._closed = True

        def ended(_: None, error: BaseException | None) -> None:
            if self._log_file != NO_FILE:
                os.close(self._log_file)
                self._log_file = NO_FILE
            self._stream.fire([SessionEvent(SessionState.CLOSED, session_id)])
            self._stream.put(done)
            if error is not None:
                raise error

        is_busy = self._submitted > 0 or self._is_copying
        (self._thread if self._thread is not None and is_busy else InlineBackground()).run(self._end, ended)

    def _carry_out(self, request: Request) -> tuple[Outcome, list[Change]]:
        """The outcome, and what changed. In the thread, if there is one."""
        try:
            if isinstance(request, READS):
                return self._tree.read(request), []
            with self._transactions.write():
                written = self._tree.write(request)
            self._tree.committed()
            return written
        except CoordinationError as error:
            return error, []
        except sqlite3.Error as error:
            return self._transactions.translated(error), []

    def _carried_out(self, request: Request, done: Done, outcome: tuple[Outcome, list[Change]] | None, error: BaseException | None) -> None:
        """The thread has carried out a request."""
        self._submitted -= 1
        if error is not None:
            raise error
        assert outcome is not None, "a request without an error has an outcome"
        self._answer(request, done, *outcome)

    def _answer(self, request: Request, done: Done, outcome: Outcome, changes: list[Change]) -> None:
        """A request was carried out: deliver its events, then its answer."""
        if isinstance(request, READS):
            if request.watch:
                self._watches.note(request, outcome)
        elif not isinstance(outcome, CoordinationError):
            self._copy_if_long()
            if events := self._watches.take(changes):
                self._stream.add(events)
        self._stream.answer(done, outcome)

    # The log

    def _copy_if_long(self) -> None:
        if self._thread is None or self._log_file == NO_FILE or self._is_copying or os.fstat(self._log_file).st_size <= LOG_BYTES_MAX:
            return
        if self._no_room_ms is None or not 0 <= self._time_ms() - self._no_room_ms < COPY_AGAIN_MS:
            self._is_copying = True
            self._thread.run(self._copy_log, self._copied)

    def _copy_log(self) -> None:
        """In the thread: bring the log's content into the database, and begin a new log. Without room there, continue this one."""
        with self._transactions.errors():
            self._transactions.database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _copied(self, _: None, error: BaseException | None) -> None:
        self._is_copying = False
        self._no_room_ms = None
        if isinstance(error, CoordinationError) and error.retriable:
            self._no_room_ms = self._time_ms()
            _LOG.warning(
                "metadata not copied from the log into the database: path=%s reason=%s; trying again with a change in %d ms or later",
                self._path,
                error,
                COPY_AGAIN_MS,
            )
        elif error is not None:
            self._transactions.note_failure(error)
            if not isinstance(error, CoordinationError):
                raise error

    def _end(self) -> None:
        try:
            if self._transactions.failure is None:
                with self._transactions.write():
                    self._tree.end_session()
        finally:
            with self._transactions.errors():
                self._transactions.database.close()
