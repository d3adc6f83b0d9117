"""The coordination tree in one SQLite file: the embedded store of a single broker.

One process holds the file, alone, for as long as it runs; a second one is refused. Every write is one transaction in a write-ahead log, so
a `multi` is seen whole or not at all, also after a crash. It is on disk when the call returns (``synchronous=FULL``), until `sync_in` gives
a background: from then on a `multi` writes to the page cache, and those that wait in `when_durable` share one sync of the log.

    multi, when_durable      a sync starts
    multi, when_durable      waits for the next
    sync ends                the first is answered; the next sync starts

A log longer than `LOG_BYTES_MAX` is copied into the database in the background. A call would wait for that: `when_writable` calls back when
it does not any more. The log is then cut to nothing, and begun with a transaction that is synced: with frames of the old log, or without a
header on disk, a power cut could bring old pages back. After a failed sync no write is taken until the next start: the kernel reports the
error once, and a later sync says nothing about the pages of this one. A stop copies the log into the database and removes it; both are
synced before, so that what was reported durable is on disk in one of the two at any time.

Ephemeral nodes of a session that ended in a crash go when the file is opened again, before anyone can see them.

Layout, which does not change without a new ``user_version``: table ``node``, one row per path; ``sequence`` counts the sequential children
made under it; ``ephemeral`` is 0 or 1; ``checksum`` is the CRC-32C of the rest of the row. Format 1 had no checksum; a file of that format
gets them when it is opened. The path ":memory:" keeps the tree in memory and forgets it at `close`.

Everything is checked when the file is opened: SQLite's own structure, each row, and whether the write-ahead log holds finished transactions
that SQLite would drop. A retention time with a changed digit would cost records. 2,000 nodes take 10 ms.
"""

import errno
import logging
import os
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from fastcrc.crc32 import iscsi as crc32c

from moldau.adapters.sqlite_wal import dropped_transactions
from moldau.model.errors import CoordinationError
from moldau.ports.background import Background
from moldau.ports.coordination import (
    BadVersionError,
    Check,
    Create,
    Delete,
    Durable,
    EventType,
    NodeExistsError,
    NodeStat,
    NoNodeError,
    NotEmptyError,
    Operation,
    SessionState,
    SetData,
    Watch,
    WatchEvent,
)

_LOG = logging.getLogger(__name__)

MEMORY = ":memory:"
APPLICATION_ID = 0x4D6F6C64
"""Marks the file as ours ("Mold"). Do not change."""
FORMAT = 2
NO_FILE = -1
LOG_BYTES_MAX = 4 << 20
"""A longer write-ahead log is copied into the database: some 200 changes of topics."""
COPY_AGAIN_MS = 1000
"""When the database had no room for the log, the next copy is tried this long after that at the earliest."""
_FORMAT_WITHOUT_CHECKSUMS = 1
_TYPES = (str, str, bytes, int, int, int, int, int)
WAY_OUT = (
    "Restore the file from a backup. Without one, move it away and start with --adopt: "
    "the topics are then recreated from the folders of their partitions, without their settings"
)

_NODE_TABLE = (
    "CREATE TABLE node (path TEXT PRIMARY KEY, parent TEXT NOT NULL, data BLOB NOT NULL, version INTEGER NOT NULL, "
    "sequence INTEGER NOT NULL, ephemeral INTEGER NOT NULL, created_ms INTEGER NOT NULL, modified_ms INTEGER NOT NULL, "
    "checksum INTEGER NOT NULL) WITHOUT ROWID"
)
_ROW = "path, parent, data, version, sequence, ephemeral, created_ms, modified_ms"
_PARENT_INDEX = "CREATE INDEX node_by_parent ON node (parent, path)"


class SqliteCoordination:
    """One session with the tree of a file. Used by one thread."""

    def __init__(self, path: str, time_ms: Callable[[], int]) -> None:
        """Open or create the file. CoordinationError names it when it is held by another process, damaged, or not ours."""
        self._path = path
        self._time_ms = time_ms
        self._data_watches: dict[str, list[Watch]] = {}
        self._child_watches: dict[str, list[Watch]] = {}
        self._listeners: list[Callable[[SessionState], object]] = []
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
        with self._errors():
            if path != MEMORY:
                _refuse_irregular(path)
            if path != MEMORY and not os.path.exists(path):
                _create_file(path, time_ms())
            self._database = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            with self._errors():
                self._prepare()
        except BaseException:
            self._database.close()
            raise

    def _prepare(self) -> None:
        self._database.create_function("node_checksum", 8, _checksum, deterministic=True)
        self._database.execute("PRAGMA locking_mode=EXCLUSIVE")
        self._database.execute("PRAGMA synchronous=FULL")
        if self._path == MEMORY:
            _create_schema(self._database, self._time_ms())
            return
        self._check_format()
        self._check_log()
        self._check_content()
        self._database.execute("PRAGMA wal_autocheckpoint=0")  # it would begin a new log at any write, also where no sync follows
        with self._transaction():
            self._database.execute("DELETE FROM node WHERE ephemeral = 1")

    def _check_format(self) -> None:
        (application_id,) = self._database.execute("PRAGMA application_id").fetchone()
        (version,) = self._database.execute("PRAGMA user_version").fetchone()
        if application_id != APPLICATION_ID:
            raise CoordinationError(f"{self._path}: an SQLite file, but not one of Moldau's", retriable=False)
        if version not in (FORMAT, _FORMAT_WITHOUT_CHECKSUMS):
            raise CoordinationError(f"{self._path}: format {version}, this version reads {FORMAT}", retriable=False)
        self._has_checksums = version == FORMAT

    def _check_log(self) -> None:
        """CoordinationError if the write-ahead log holds transactions that were finished, and that SQLite skips."""
        _, frames, _ = self._database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        log = self._log
        dropped = dropped_transactions(log, max(frames, 0))
        if dropped is None or dropped > 1:
            what = "its header" if dropped is None else f"{dropped} transactions after its frame {frames}"
            raise CoordinationError(f"{log}: damaged: {what} cannot be used, and would be lost. {WAY_OUT}", retriable=False)
        if dropped:
            _LOG.warning("transaction dropped: path=%s frame=%d; it was not whole, as after a power cut in the middle of it", log, frames)
        if frames > 0 or dropped:  # where a power cut leaves a hole in the next log, there shall be nothing of this one
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _check_content(self) -> None:
        """CoordinationError for a file whose structure or whose rows are not what was written. Checksums are added where there are none."""
        (found,) = self._database.execute("PRAGMA integrity_check(1)").fetchone()
        if found != "ok":
            raise _damaged(self._path, found.splitlines()[-1])
        if not self._has_checksums:
            with self._transaction():
                self._database.execute("ALTER TABLE node ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0")
                self._database.execute(f"UPDATE node SET checksum = node_checksum({_ROW})")
                self._database.execute(f"PRAGMA user_version={FORMAT}")
        try:
            for *row, checksum in self._database.execute(f"SELECT {_ROW}, checksum FROM node"):
                if checksum != _checksum(*row) or tuple(map(type, row)) != _TYPES:  # one flipped bit makes bytes of a text
                    raise _damaged(self._path, f"the checksum of node {row[0]!r} does not match")
        except sqlite3.Error as error:  # a path that is no text any more
            raise _damaged(self._path, str(error)) from error

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False, parents: bool = False) -> str:
        """Create a node; see the port."""
        _check_path(path)
        events: list[WatchEvent] = []
        with self._transaction():
            if parents:
                self._create_parents(path, events)
            made = self._create(Create(path, data, ephemeral, sequential), events)
        self._fire(events)
        return made

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, NodeStat]:
        """Data of a node; see the port."""
        with self._transactions, self._errors():
            row = self._row(path)
        if row is None:
            raise NoNodeError(path)
        if watch is not None:
            self._data_watches.setdefault(path, []).append(watch)
        return row[0], _stat_of(row)

    def set(self, path: str, data: bytes, version: int = -1) -> NodeStat:
        """Replace data; see the port."""
        events: list[WatchEvent] = []
        with self._transaction() as deferred:
            self._set(SetData(path, data, version), events)
            row = self._row(path)
        self._written(events, deferred=deferred)
        assert row is not None, "a node that was just set"
        return _stat_of(row)

    def delete(self, path: str, version: int = -1, *, recursive: bool = False) -> None:
        """Remove a node; see the port. With `recursive` the whole branch goes in one transaction."""
        if not recursive:
            self._write([Delete(path, version)], may_defer=False)
            return
        events: list[WatchEvent] = []
        with self._transaction():
            if self._version(path) is None:
                raise NoNodeError(path)
            below = self._database.execute("SELECT path FROM node WHERE path > ? AND path < ? ORDER BY path DESC", (path + "/", path + "0"))
            for (each,) in below.fetchall():
                self._delete(Delete(each), events)
            self._delete(Delete(path, version), events)
        self._fire(events)

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Names of the children; see the port."""
        with self._transactions, self._errors():
            rows = self._database.execute("SELECT path FROM node WHERE parent = ? ORDER BY path", (path,)).fetchall()
            if not rows and self._version(path) is None:
                raise NoNodeError(path)
        if watch is not None:
            self._child_watches.setdefault(path, []).append(watch)
        start = len(path) if path == "/" else len(path) + 1
        return [each[start:] for (each,) in rows]

    def exists(self, path: str, watch: Watch | None = None) -> NodeStat | None:
        """The node's state, or None; see the port."""
        try:
            return self.get(path, watch)[1]
        except NoNodeError:
            if watch is not None:
                self._data_watches.setdefault(path, []).append(watch)
            return None

    def multi(self, operations: Sequence[Operation]) -> None:
        """All or nothing; see the port."""
        self._write(operations, may_defer=True)

    def _write(self, operations: Sequence[Operation], *, may_defer: bool) -> None:
        events: list[WatchEvent] = []
        with self._transaction(may_defer=may_defer) as deferred:
            for operation in operations:
                match operation:
                    case Create():
                        self._create(operation, events)
                    case SetData():
                        self._set(operation, events)
                    case Delete():
                        self._delete(operation, events)
                    case Check():
                        self._check(operation.path, operation.version)
        self._written(events, deferred=deferred)

    def _written(self, events: list[WatchEvent], *, deferred: bool) -> None:
        """A transaction has ended."""
        self._unsynced |= deferred
        if not deferred and self._background is not None:
            self._copy_if_long(os.fstat(self._log_file).st_size)
        self._fire(events)

    def sync_in(self, background: Background) -> None:
        """From now on bring what `multi` writes to disk in the background."""
        if self._path != MEMORY:
            self._background = background
            self._log_file = os.open(self._log, os.O_RDONLY)  # stays the log also when its directory is moved away

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
                if _has_no_room(error):
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

    @property
    def _log(self) -> str:
        return f"{self._path}-wal"

    def on_session(self, listener: Callable[[SessionState], object]) -> None:
        """Hear of the session's end; in a file it is never suspended."""
        self._listeners.append(listener)

    def close(self) -> None:
        """End the session; its ephemeral nodes go. A second call does nothing."""
        if self._closed:
            return
        try:
            if self._failure is None:
                with self._transaction():
                    self._database.execute("DELETE FROM node WHERE ephemeral = 1")
        finally:
            with self._transactions, self._errors():
                self._closed = True
                try:
                    self._synchronous(full=True)  # or it would copy the log and remove it without a sync
                finally:
                    self._database.close()
            self._close_log()
        for listener in self._listeners:
            listener(SessionState.EXPIRED)

    def _create(self, operation: Create, events: list[WatchEvent]) -> str:
        path = operation.path
        _check_path(path)
        parent = _parent(path)
        if operation.sequential:
            path += self._next_number(parent)
        if self._version(path) is not None:
            raise NodeExistsError(path)
        row = self._database.execute("SELECT ephemeral FROM node WHERE path = ?", (parent,)).fetchone()
        if row is None:
            raise NoNodeError(parent)
        if row[0]:
            raise CoordinationError(f"{parent}: an ephemeral node has no children", retriable=False)
        now = self._time_ms()
        row = (path, parent, operation.data, 0, 0, int(operation.ephemeral), now, now)
        self._database.execute("INSERT INTO node VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*row, _checksum(*row)))
        events.append(WatchEvent(EventType.CREATED, path))
        events.append(WatchEvent(EventType.CHILDREN, parent))
        return path

    def _create_parents(self, path: str, events: list[WatchEvent]) -> None:
        missing = []
        parent = _parent(path)
        while self._version(parent) is None:
            missing.append(parent)
            parent = _parent(parent)
        for each in reversed(missing):
            self._create(Create(each), events)

    def _next_number(self, parent: str) -> str:
        row = self._database.execute(
            "UPDATE node SET sequence = sequence + 1, "
            "checksum = node_checksum(path, parent, data, version, sequence + 1, ephemeral, created_ms, modified_ms) "
            "WHERE path = ? RETURNING sequence",
            (parent,),
        ).fetchone()
        if row is None:
            raise NoNodeError(parent)
        return f"{row[0] - 1:010d}"

    def _set(self, operation: SetData, events: list[WatchEvent]) -> None:
        self._check(operation.path, operation.version)
        self._database.execute(
            "UPDATE node SET data = :data, version = version + 1, modified_ms = :now, "
            "checksum = node_checksum(path, parent, :data, version + 1, sequence, ephemeral, created_ms, :now) WHERE path = :path",
            {"data": operation.data, "now": self._time_ms(), "path": operation.path},
        )
        events.append(WatchEvent(EventType.CHANGED, operation.path))

    def _delete(self, operation: Delete, events: list[WatchEvent]) -> None:
        path = operation.path
        self._check(path, operation.version)
        if path == "/":
            raise CoordinationError("/: the root cannot be deleted", retriable=False)
        if self._database.execute("SELECT 1 FROM node WHERE parent = ? LIMIT 1", (path,)).fetchone() is not None:
            raise NotEmptyError(path)
        self._database.execute("DELETE FROM node WHERE path = ?", (path,))
        events.append(WatchEvent(EventType.DELETED, path))
        events.append(WatchEvent(EventType.CHILDREN, _parent(path)))

    def _check(self, path: str, version: int) -> None:
        found = self._version(path)
        if found is None:
            raise NoNodeError(path)
        if version not in (-1, found):
            raise BadVersionError(path)

    def _row(self, path: str) -> tuple[bytes, int, int, int, int, int] | None:
        row: tuple[bytes, int, int, int, int, int] | None = self._database.execute(
            "SELECT data, version, created_ms, modified_ms, ephemeral, "
            "(SELECT count(*) FROM node AS child WHERE child.parent = node.path) FROM node WHERE path = ?",
            (path,),
        ).fetchone()
        return row

    def _version(self, path: str) -> int | None:
        row = self._database.execute("SELECT version FROM node WHERE path = ?", (path,)).fetchone()
        return None if row is None else row[0]

    def _fire(self, events: list[WatchEvent]) -> None:
        """Call the watches that the events concern, each once, after the transaction: what they read is the new state."""
        calls: list[tuple[Watch, WatchEvent]] = []
        for event in events:
            if event.type is not EventType.CHILDREN:
                calls += ((watch, event) for watch in self._data_watches.pop(event.path, ()))
            if event.type in (EventType.CHILDREN, EventType.DELETED):
                calls += ((watch, event) for watch in self._child_watches.pop(event.path, ()))
        for watch, event in calls:
            watch(event)

    def _synchronous(self, *, full: bool) -> None:
        if self._full != full:
            self._database.execute(f"PRAGMA synchronous={'FULL' if full else 'OFF'}")
            self._full = full

    @contextmanager
    def _transaction(self, *, may_defer: bool = False) -> Iterator[bool]:
        """One transaction; given is whether its sync is deferred."""
        with self._transactions, self._errors():
            if self._failure is not None:  # it may be new, where the log was being copied
                raise self._failed()
            deferred = may_defer and self._background is not None and self._log_begun
            self._synchronous(full=not deferred)
            rows_changed = self._database.total_changes
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield deferred
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise
            self._log_begun |= not deferred and self._database.total_changes > rows_changed

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn SQLite's errors into ours, with the file's path."""
        try:
            yield
        except sqlite3.Error as error:
            if self._background is not None and getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_FSYNC:
                self._note_failure(error)
            raise _translate(self._path, error, self._closed) from error
        except UnicodeDecodeError as error:  # the names in a damaged schema, which Python makes text of
            raise _damaged(self._path, "not text") from error


def _stat_of(row: tuple[bytes, int, int, int, int, int]) -> NodeStat:
    _, version, created_ms, modified_ms, ephemeral, children = row
    return NodeStat(version, created_ms, modified_ms, bool(ephemeral), children)


def _translate(path: str, error: sqlite3.Error, closed: bool) -> CoordinationError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if closed:
        return CoordinationError(f"{path}: the session is closed", retriable=False)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        advice = "stop the broker that runs over this directory, or choose another one with --data (log.dirs)"
        return CoordinationError(f"{path}: in use by another process; {advice}", retriable=False)
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return _damaged(path, str(error))
    return CoordinationError(f"{path}: {error}", retriable=_has_no_room(error))


def _has_no_room(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL


def _damaged(path: str, what: str) -> CoordinationError:
    return CoordinationError(f"{path}: damaged: {what}. {WAY_OUT}", retriable=False)


def _checksum(
    path: object,
    parent: object,
    data: object,
    version: object,
    sequence: object,
    ephemeral: object,
    created_ms: object,
    modified_ms: object,
) -> int:
    """Of a row's columns without the last, in their order, with a zero byte between. Do not change."""
    before, after = f"{path}\0{parent}\0", f"\0{version}\0{sequence}\0{ephemeral}\0{created_ms}\0{modified_ms}"
    return crc32c(before.encode() + (data if isinstance(data, bytes) else str(data).encode()) + after.encode())


def _refuse_irregular(path: str) -> None:
    """CoordinationError for a link or a FIFO in the place of one of the database's files: SQLite would follow it, or wait for ever."""
    for each in (path, f"{path}-wal", f"{path}-journal", f"{path}-shm"):
        if os.path.lexists(each) and not stat.S_ISREG(os.lstat(each).st_mode):
            raise CoordinationError(f"{each}: is not a regular file; move it away. {WAY_OUT}", retriable=False)


def _check_path(path: str) -> None:
    if not path.startswith("/") or path.endswith("/") or "//" in path:
        raise ValueError(f"not a path of the tree: {path!r}")


def _parent(path: str) -> str:
    return path[: path.rindex("/")] or "/"


def _create_file(path: str, now_ms: int) -> None:
    """Make the file aside, sync it once, and give it its name: no half-made file under that name, and a third of the syncs."""
    aside = f"{path}.{os.getpid()}"
    try:
        database = sqlite3.connect(aside, isolation_level=None)
        try:
            database.execute("PRAGMA synchronous=OFF")
            _create_schema(database, now_ms)
            database.execute("PRAGMA journal_mode=WAL")
        finally:
            database.close()
        _sync(aside)
        with suppress(FileExistsError):  # another process was faster: theirs is as good, and held by them
            os.link(aside, path)
        _sync(os.path.dirname(path) or ".")
    except OSError as error:
        raise CoordinationError(f"{path}: {error.strerror}", retriable=error.errno == errno.ENOSPC) from error
    finally:
        with suppress(OSError):
            os.unlink(aside)


def _create_schema(database: sqlite3.Connection, now_ms: int) -> None:
    database.execute(_NODE_TABLE)
    database.execute(_PARENT_INDEX)
    database.execute(f"PRAGMA application_id={APPLICATION_ID}")
    database.execute(f"PRAGMA user_version={FORMAT}")
    row = ("/", "", b"", 0, 0, 0, now_ms, now_ms)
    database.execute("INSERT INTO node VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*row, _checksum(*row)))


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
