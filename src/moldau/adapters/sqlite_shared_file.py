"""The SQLite file of a coordination tree that several processes of one host share, as one of them uses it. For one thread at a time.

Two tables more than `sqlite_file` describes, which a process that holds the file alone does not read:

* ``session``, one row per session: ``id``; ``timeout_ms``, after which others may end it if it does not show that it lives; ``touched``,
  raised when it has shown that after a pause; ``ended``, 1 for one whose process ended without closing it, until a new log begins.
* ``change``, the last `CHANGES_MAX` changes: ``id``, without gaps; ``kind`` and ``path``, what a watch could see.

Each transaction reads in its snapshot whether the session is still there, and which changes have come since its last one. So a result is
never without the changes that it shows, and messages between processes only wake them: any of these may be lost.

A session is ended in one transaction, by any process, which removes its nodes and its row: because its process has ended, or because it was
silent for its timeout and `touched` is still what it was. A process stopped in the middle of a write keeps SQLite's lock; after the timeout
of a session that waits for it, it is continued: nothing else frees the lock without ending it.
"""

import logging
import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from moldau.adapters.session_pipes import OwnPipes, is_alive, remove_leftovers
from moldau.adapters.sqlite_file import SESSION, StoreInUseError, is_busy, join_database, last_of, log_of, note_last, open_database
from moldau.adapters.sqlite_transactions import Transactions
from moldau.adapters.sqlite_tree import SqliteTree
from moldau.model.errors import CoordinationError
from moldau.ports.clock import Clock
from moldau.ports.coordination import READS, Change, EventType, Outcome, Request, SessionExpiredError, parent_of

_LOG = logging.getLogger(__name__)

CHANGES_MAX = 10_000
"""A session that is further behind has all its watches fired."""
WAIT_S = 10.0
"""How long a start waits for others, and a request longer than its session's timeout."""
LOG_BYTES_MAX = 4 << 20
"""A longer write-ahead log is copied into the database."""
_PAUSE_MIN_S, _PAUSE_MAX_S = 0.0005, 0.01
_PRUNE_STEP = 1000
_KINDS = tuple(EventType)
_WRITE_LOCK = 120
"""Which byte of the ``-shm`` file a writer locks, by SQLite's format."""


class SessionRow(NamedTuple):
    """Another session that is not ended."""

    session_id: int
    timeout_ms: int
    touched: int


class Seen(NamedTuple):
    """What a transaction has read or done."""

    outcome: Outcome
    changes: Sequence[Change] | None
    """Those since the transaction before; None if they are not known any more: anything may have changed."""
    has_written: bool = False
    """Whether others have to be notified."""
    peers: Sequence[SessionRow] = ()
    """The other sessions, if they were read."""
    is_log_long: bool = False


class Entered(NamedTuple):
    """The beginning of a session."""

    session_id: int
    pipes: OwnPipes
    at_s: float
    """When it was sure to exist."""


class SharedFile:
    """A connection with the file, and its present session."""

    def __init__(self, path: str, clock: Clock, timeout_ms: int) -> None:
        """Open the file; see `open_shared`."""
        self.directory = f"{path}-sessions"
        """Where the pipes of sessions are."""
        self._path = path
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._position = 0
        """The last change that was seen."""
        self._database = open_shared(path, clock.time_ms())
        self._transactions = _WaitingTransactions(path, self._database, timeout_ms / 1000)
        self._tree: SqliteTree
        self._pipes: OwnPipes | None = None

    # Sessions

    def enter(self) -> Entered:
        """Begin a session, after those whose processes have ended were ended. CoordinationError."""
        pipes: OwnPipes | None = None
        try:
            with self._transactions.write():
                at_s = self._clock.monotonic()
                live = []
                for each in self._sessions():
                    if is_alive(self.directory, each.session_id):
                        live.append(each.session_id)
                    else:
                        self._note(self._remove(each.session_id, has_died=True))
                session_id = last_of(self._database, SESSION) + 1
                remove_leftovers(self.directory, live)
                pipes = OwnPipes(self.directory, session_id)
                note_last(self._database, SESSION, session_id)
                self._database.execute("INSERT INTO session VALUES (?, ?, 0, 0)", (session_id, self._timeout_ms))
                position = self._last_change()
        except BaseException:
            if pipes is not None:
                pipes.close()
                pipes.remove()
            raise
        self._position = position  # it has no watches yet
        self._pipes = pipes
        self._tree = SqliteTree(self._database, self._clock.time_ms, session_id)
        return Entered(session_id, pipes, at_s)

    def touch(self, session_id: int) -> float | None:
        """Show that the session lives, so that no other ends it for its silence: when that was. None if it was ended.

        CoordinationError.
        """
        with self._transactions.write():
            at_s = self._clock.monotonic()
            touched = self._database.execute("UPDATE session SET touched = touched + 1 WHERE id = ? AND ended = 0", (session_id,)).rowcount
        return at_s if touched else None

    def end_others(self, died: Sequence[int], silent: Sequence[SessionRow]) -> Seen:
        """End sessions whose processes have ended, and those that were silent for too long unless they have been touched since."""
        changes: Sequence[Change] | None = ()
        ended: list[Change] = []
        count = 0
        try:
            with self._transactions.write():
                changes = self._new_changes()
                live = {each.session_id: each for each in self._sessions()}
                for session_id in died:
                    if live.pop(session_id, None) is not None:
                        ended += self._remove(session_id, has_died=True)
                        count += 1
                for each in silent:
                    if live.get(each.session_id) == each:
                        del live[each.session_id]
                        ended += self._remove(each.session_id, has_died=False)
                        count += 1
                if count:
                    remove_leftovers(self.directory, list(live))
                last = self._note(ended)
        except CoordinationError as error:
            return Seen(error, changes)
        self._position = last
        return Seen(None, None if changes is None else [*changes, *ended], count > 0)

    def end(self) -> None:
        """End the session, and close the file. CoordinationError."""
        try:
            if self._transactions.failure is None and self._pipes is not None:
                with self._transactions.write():
                    self._note(self._remove(self._tree.session_id, has_died=False))
                    remove_leftovers(self.directory, [each.session_id for each in self._sessions()])
        finally:
            with self._transactions.errors():
                self._database.close()

    # Requests

    def carry_out(self, session_id: int, request: Request) -> Seen:
        """Carry out a request of a session; SessionExpiredError is an outcome, too."""
        changes: Sequence[Change] | None = ()
        try:
            if isinstance(request, READS):
                with self._read():
                    self._check(session_id)
                    changes = self._new_changes()
                    return Seen(self._tree.read(request), changes)
            with self._transactions.write():
                self._check(session_id)
                changes = self._new_changes()
                self._tree.refresh()
                result, made = self._tree.write(request)
                last = self._note(made)
            self._tree.committed()
            self._position = last
            all_changes = None if changes is None else [*changes, *made]
            return Seen(result, all_changes, bool(made), is_log_long=self._log_bytes() > LOG_BYTES_MAX)
        except CoordinationError as error:
            return Seen(error, changes)
        except sqlite3.Error as error:
            return Seen(self._transactions.translated(error), changes)

    def look(self, session_id: int) -> Seen:
        """Read what has changed, and which other sessions there are."""
        try:
            with self._read():
                self._check(session_id)
                peers = [each for each in self._sessions() if each.session_id != session_id]
                return Seen(None, self._new_changes(), peers=peers)
        except CoordinationError as error:
            return Seen(error, ())
        except sqlite3.Error as error:
            return Seen(self._transactions.translated(error), ())

    # The log

    def copy_log(self) -> bool:
        """Bring the log's content into the database, and begin a new log, if no process reads the old one: whether that was done."""
        with self._transactions.errors():
            ended = self._database.execute("SELECT id FROM session WHERE ended = 1").fetchall()
            is_blocked, _, _ = self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if is_blocked:
            return False
        if ended:  # what they were interrupted in is gone with the old log
            with self._transactions.write():
                self._database.executemany("DELETE FROM session WHERE id = ?", ended)
        return True

    def _log_bytes(self) -> int:
        with suppress(OSError):
            return os.stat(log_of(self._path)).st_size
        return 0

    # Inside transactions

    @contextmanager
    def _read(self) -> Iterator[None]:
        """One snapshot."""
        self._transactions.begin("BEGIN")
        try:
            yield
        finally:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")

    def _check(self, session_id: int) -> None:
        if self._database.execute("SELECT 1 FROM session WHERE id = ? AND ended = 0", (session_id,)).fetchone() is None:
            raise SessionExpiredError

    def _sessions(self) -> list[SessionRow]:
        rows = self._database.execute("SELECT id, timeout_ms, touched FROM session WHERE ended = 0 ORDER BY id")
        return [SessionRow(*row) for row in rows]

    def _new_changes(self) -> list[Change] | None:
        rows = self._database.execute("SELECT id, kind, path FROM change WHERE id > ? ORDER BY id", (self._position,)).fetchall()
        if not rows:
            return []
        is_behind = rows[0][0] != self._position + 1
        self._position = rows[-1][0]
        return None if is_behind else [(_KINDS[kind], path) for _, kind, path in rows]

    def _last_change(self) -> int:
        last: int | None = self._database.execute("SELECT max(id) FROM change").fetchone()[0]
        return last or 0

    def _note(self, changes: Sequence[Change]) -> int:
        """Store changes: the id of the last."""
        first = self._last_change() + 1
        rows = [(first + place, _KINDS.index(kind), path) for place, (kind, path) in enumerate(dict.fromkeys(changes))]
        self._database.executemany("INSERT INTO change VALUES (?, ?, ?)", rows)
        last = first - 1 + len(rows)
        if (first - 1) // _PRUNE_STEP != last // _PRUNE_STEP:
            self._database.execute("DELETE FROM change WHERE id <= ?", (last - CHANGES_MAX,))
        return last

    def _remove(self, session_id: int, *, has_died: bool) -> list[Change]:
        """End a session: what that changes."""
        if has_died:
            self._database.execute("UPDATE session SET ended = 1 WHERE id = ?", (session_id,))
        else:
            self._database.execute("DELETE FROM session WHERE id = ?", (session_id,))
        changes: list[Change] = []
        for (path,) in self._database.execute("DELETE FROM node WHERE owner = ? RETURNING path", (session_id,)).fetchall():
            changes += [(EventType.DELETED, path), (EventType.CHILDREN, parent_of(path))]
        return changes


class _WaitingTransactions(Transactions):
    """Transactions that wait for those of other processes."""

    def __init__(self, path: str, database: sqlite3.Connection, timeout_s: float) -> None:
        super().__init__(path, database)
        self._timeout_s = timeout_s

    def begin(self, statement: str) -> None:
        """Begin a transaction, and its snapshot."""

        def attempt() -> bool:
            try:
                self.database.execute(statement)
                self.database.execute("SELECT 1 FROM session LIMIT 1").fetchone()
            except sqlite3.Error as error:
                if self.database.in_transaction:
                    self.database.execute("ROLLBACK")
                if not is_busy(error):
                    raise
                return False
            return True

        begun = time.monotonic()
        pause_s = _PAUSE_MIN_S
        look_after_s = self._timeout_s
        while not attempt():
            waited_s = time.monotonic() - begun
            if waited_s > look_after_s:
                continue_stopped_writer(self.path)
                look_after_s += 1.0
            if waited_s > self._timeout_s + WAIT_S:
                what = f"another process has held the write lock for {waited_s:.0f} s"
                raise CoordinationError(f"{self.path}: {what}", retriable=True)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)


def open_shared(path: str, now_ms: int, sleep: Callable[[float], object] = time.sleep) -> sqlite3.Connection:
    """The checked database, held together with others. The first process prepares it, alone, which others wait for.

    CoordinationError names the file when it cannot be used, or when a process that shares it with none holds it.
    """
    deadline = time.monotonic() + WAIT_S
    pause_s = _PAUSE_MIN_S
    while True:
        with suppress(StoreInUseError):
            _prepare(path, now_ms)
        with suppress(StoreInUseError):
            if (database := join_database(path)) is not None:
                return database
        if time.monotonic() > deadline:
            raise StoreInUseError(path)
        sleep(pause_s)
        pause_s = min(2 * pause_s, _PAUSE_MAX_S)


def _prepare(path: str, now_ms: int) -> None:
    """Check the file, alone, and remove what sessions have left. StoreInUseError if there are other processes."""
    database = open_database(path, now_ms)
    transactions = Transactions(path, database)
    try:
        with transactions.write():
            database.execute(
                "CREATE TABLE IF NOT EXISTS session "
                "(id INTEGER PRIMARY KEY, timeout_ms INTEGER NOT NULL, touched INTEGER NOT NULL, ended INTEGER NOT NULL)"
            )
            database.execute("CREATE TABLE IF NOT EXISTS change (id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, path TEXT NOT NULL)")
            database.execute("DELETE FROM session")
    finally:
        with transactions.errors():
            database.close()


def continue_stopped_writer(path: str) -> int | None:
    """Continue (SIGCONT) the process that holds the file's write lock, if a signal has stopped it: its id. Linux only."""
    with suppress(OSError, ValueError, IndexError):
        inode = str(os.stat(f"{path}-shm").st_ino)
        with open("/proc/locks", encoding="ascii") as locks:
            rows = [line.split() for line in locks]
        for _, kind, _, access, process_id, file, first, last in (row for row in rows if len(row) == 8):
            if (kind, access, file.rpartition(":")[2]) != ("POSIX", "WRITE", inode) or last == "EOF":
                continue
            if int(first) <= _WRITE_LOCK <= int(last) and _is_stopped(int(process_id)):
                os.kill(int(process_id), signal.SIGCONT)
                _LOG.warning(
                    "process continued: pid=%s path=%s; a signal had stopped it while it wrote to the metadata store, and others waited",
                    process_id,
                    path,
                )
                return int(process_id)
    return None


def _is_stopped(process_id: int) -> bool:
    with open(f"/proc/{process_id}/stat", encoding="utf-8", errors="replace") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "T"
