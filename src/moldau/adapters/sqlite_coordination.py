"""The coordination tree in one SQLite file: the embedded store of a single broker.

One process holds the file, alone, for as long as it runs; a second one is refused. Every write is one transaction in a write-ahead log, so
a `Multi` is seen whole or not at all, also after a crash. A request is carried out inside `submit`, and a write is on disk when it is
answered (``synchronous=FULL``), until `sync_in` gives a background: from then on a `Multi` writes to the page cache, and those that wait in
`when_durable` share one sync of the log.

    Multi, when_durable      a sync starts
    Multi, when_durable      waits for the next
    sync ends                the first is answered; the next sync starts

A log longer than `LOG_BYTES_MAX` is copied into the database in the background. A call would wait for that: `when_writable` calls back when
it does not any more. The log is then cut to nothing, and begun with a transaction that is synced: with frames of the old log, or without a
header on disk, a power cut could bring old pages back. After a failed sync no write is taken until the next start: the kernel reports the
error once, and a later sync says nothing about the pages of this one. A stop copies the log into the database and removes it; both are
synced before, so that what was reported durable is on disk in one of the two at any time.

`run_on` gives a thread instead: from then on each request runs there, in order, and is answered when it is on disk.

The session is connected as long as the file is open, and is never suspended. A session's id is larger than that of every earlier one which
wrote something. Ephemeral nodes of a session that ended in a crash go when the file is opened again, before anyone can see them. The path
":memory:" keeps the tree in memory and forgets it at `close`. For the file's layout see `sqlite_file`.
"""

import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from moldau.adapters.sqlite_file import FORMAT, MEMORY, has_no_room, log_of, open_database, translate
from moldau.adapters.sqlite_tree import SqliteTree
from moldau.model.errors import CoordinationError
from moldau.ports.background import Background, HereAndNow
from moldau.ports.coordination import (
    READS,
    REQUESTS_MAX,
    Done,
    Durable,
    Listener,
    Multi,
    Outcome,
    Request,
    SessionClosedError,
    SessionEvent,
    SessionState,
    Stream,
    TooManyRequestsError,
    Watches,
    WatchEvent,
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
        self._transactions = threading.Lock()
        """Held for each transaction and each read, and while the log is copied: SQLite refuses to copy it during a read."""
        self._background: Background | None = None
        self._full = True
        self._log_file = NO_FILE
        self._log_begun = False
        """Whether the log's header is on disk. Before that no write goes without a sync."""
        self._unsynced = False
        """Whether a write came after the last sync had begun."""
        self._syncing = False
        self._copying = False
        self._no_room_ms: int | None = None
        """When the last copy failed for want of room; None if it did not."""
        self._covered: list[Durable] = []
        """Wait for the sync that runs."""
        self._waiting: list[Durable] = []
        """Wait for the next one."""
        self._held: list[Callable[[], object]] = []
        self._failure: str | None = None
        self._database = open_database(path, time_ms())
        self._tree = SqliteTree(self._database, time_ms)

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
            self._use(thread)

    def close(self, done: Callable[[], object] = nothing) -> None:
        """End the session; see the port. A second call does nothing. CoordinationError when the file cannot be closed in order."""
        session_id = self.session_id
        if self._closed:
            self._stream.put(done)
            return
        self._closed = True

        def ended(_: None, error: BaseException | None) -> None:
            self._close_log()
            self._stream.fire([SessionEvent(SessionState.CLOSED, session_id)])
            self._stream.put(done)
            if error is not None:
                raise error

        (HereAndNow() if self._thread is None else self._thread).run(self._end, ended)

    def _carry_out(self, request: Request) -> tuple[Outcome, list[WatchEvent]]:
        """The outcome, and what changed. In the thread, if there is one."""
        try:
            if isinstance(request, READS):
                with self._transactions:
                    return self._tree.read(request), []
            with self._transaction(may_defer=isinstance(request, Multi)):
                written = self._tree.write(request)
            self._tree.committed()
            return written
        except CoordinationError as error:
            return error, []
        except sqlite3.Error as error:
            return self._translated(error), []

    def _carried_out(
        self, request: Request, done: Done, outcome: tuple[Outcome, list[WatchEvent]] | None, error: BaseException | None
    ) -> None:
        """The thread has carried out a request."""
        self._submitted -= 1
        if error is not None:
            raise error
        assert outcome is not None, "a request without an error has an outcome"
        self._answer(request, done, *outcome)

    def _answer(self, request: Request, done: Done, outcome: Outcome, changes: list[WatchEvent]) -> None:
        """A request was carried out: deliver its events, then its answer."""
        if isinstance(request, READS):
            if request.watch:
                self._watches.note(request, outcome)
        elif not isinstance(outcome, CoordinationError):
            if self._background is not None and (self._thread is not None or not isinstance(request, Multi)):
                self._copy_if_long(os.fstat(self._log_file).st_size)
            self._stream.fire(self._watches.take(changes))
        self._stream.answer(done, outcome)

    # Durability

    def sync_in(self, background: Background) -> None:
        """From now on bring what a `Multi` writes to disk in the background."""
        if self._path != MEMORY:
            self._use(background)

    def _use(self, background: Background) -> None:
        self._background = background
        self._log_file = os.open(log_of(self._path), os.O_RDONLY)  # stays the log also when its directory is moved away

    def when_durable(self, done: Durable) -> None:
        """Hear when all writes so far are on disk; see the port. A failed sync is the answer to all later calls, too."""
        if self._failure is not None:
            done(self._failed())
        elif self._unsynced:
            self._waiting.append(done)
            self._start_sync()
        elif self._syncing:
            self._covered.append(done)
        else:
            done(None)

    @property
    def is_writable(self) -> bool:
        """Whether the log is not being copied."""
        return not self._copying

    def when_writable(self, resume: Callable[[], object]) -> None:
        """Hear when no call waits for the log to be copied; see the port."""
        if self._copying:
            self._held.append(resume)
        else:
            resume()

    def _start_sync(self) -> None:
        if self._syncing or self._copying or not self._waiting or self._background is None:
            return
        self._syncing = True
        self._unsynced = False
        self._covered, self._waiting = self._waiting, []
        self._background.run(self._sync_log, self._synced)

    def _sync_log(self) -> int:
        """In the background. The log's length."""
        os.fdatasync(self._log_file)
        return os.fstat(self._log_file).st_size

    def _synced(self, log_bytes: int | None, error: BaseException | None) -> None:
        self._syncing = False
        if self._closed:
            self._close_log()
            return
        if error is not None or self._failure is not None:
            self._fail(error)
            return
        self._copy_if_long(log_bytes or 0)
        covered, self._covered = self._covered, []
        for done in covered:
            done(None)
        self._start_sync()

    def _copy_if_long(self, log_bytes: int) -> None:
        if log_bytes <= LOG_BYTES_MAX or self._background is None or self._copying or self._syncing:
            return
        if self._no_room_ms is None or not 0 <= self._time_ms() - self._no_room_ms < COPY_AGAIN_MS:
            self._copying = True
            self._background.run(self._copy_log, self._copied)

    def _copy_log(self) -> None:
        """In the background: bring the log's content into the database, and begin a new log. Without room there, continue this one."""
        with self._transactions, self._errors():
            self._log_begun = False
            self._synchronous(full=True)
            try:
                self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            except sqlite3.Error as error:
                if has_no_room(error):
                    self._begin_log()
                raise
            self._begin_log()

    def _begin_log(self) -> None:
        """Have the log's header on disk, by a transaction that is synced and changes nothing."""
        self._database.execute(f"PRAGMA user_version={FORMAT}")
        self._log_begun = True

    def _copied(self, _: None, error: BaseException | None) -> None:
        self._copying = False
        if self._closed:
            return
        try:
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
                self._fail(error)
        finally:
            held, self._held = self._held, []
            for resume in held:
                resume()
            self._start_sync()

    def _fail(self, error: BaseException | None) -> None:
        """Tell all that wait; `error` is None if it has been noted. A bug is a failure too, and is raised after that."""
        if error is not None:
            self._note_failure(error)
        waiting, self._covered, self._waiting = [*self._covered, *self._waiting], [], []
        for done in waiting:
            done(self._failed())
        if error is not None and not isinstance(error, OSError | CoordinationError):
            raise error

    def _note_failure(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = f"{self._path}: not brought to disk: {error}; no change is taken until the broker is started again"
            _LOG.error(
                "sync of the metadata store failed: path=%s reason=%s; no change is taken until the broker is started again",
                self._path,
                error,
            )

    def _close_log(self) -> None:
        """Unless a sync runs, at whose end it is closed."""
        if self._log_file != NO_FILE and not self._syncing:
            os.close(self._log_file)
            self._log_file = NO_FILE

    def _failed(self) -> CoordinationError:
        return CoordinationError(str(self._failure), retriable=False)

    def _end(self) -> None:
        try:
            if self._failure is None:
                with self._transaction():
                    self._tree.end_session()
        finally:
            with self._transactions, self._errors():
                try:
                    self._synchronous(full=True)  # or it would copy the log and remove it without a sync
                finally:
                    self._database.close()

    def _synchronous(self, *, full: bool) -> None:
        if self._full != full:
            self._database.execute(f"PRAGMA synchronous={'FULL' if full else 'OFF'}")
            self._full = full

    @contextmanager
    def _transaction(self, *, may_defer: bool = False) -> Iterator[None]:
        """One transaction; its sync is deferred where that is allowed and possible."""
        with self._transactions, self._errors():
            if self._failure is not None:  # it may be new, where the log was being copied
                raise self._failed()
            deferred = may_defer and self._thread is None and self._background is not None and self._log_begun
            self._synchronous(full=not deferred)
            rows_changed = self._database.total_changes
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise
            self._log_begun |= not deferred and self._database.total_changes > rows_changed
            self._unsynced |= deferred

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn SQLite's errors into ours; note that a sync has failed."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._translated(error) from error

    def _translated(self, error: sqlite3.Error) -> CoordinationError:
        if self._background is not None and getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_FSYNC:
            self._note_failure(error)
        translated = translate(self._path, error)
        translated.__cause__ = error
        return translated
