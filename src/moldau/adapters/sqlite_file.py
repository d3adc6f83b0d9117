"""The SQLite file that holds a coordination tree: its layout, how it is made, checked and brought to the present format.

Layout, which does not change without a new ``user_version``:

* table ``node``, one row per path. ``sequence`` counts the sequential children made under it; ``created_id`` is the transaction that made
  it; ``owner`` the session whose end removes it, or 0; ``checksum`` the CRC-32C of the rest of the row.
* table ``counter``: ``transaction``, the last that made a node, and ``session``, the last that wrote. Each has a checksum, too: a lower
  number would give out ids again.

Format 1 had no checksums; format 2 had no table ``counter``, and instead of ``created_id`` and ``owner`` a column ``ephemeral``. A file of
these is brought to the present format when it is opened, in one transaction: its nodes are numbered in the order of their paths.

Everything is checked when the file is opened: SQLite's own structure, each row, and whether the write-ahead log holds finished transactions
that SQLite would drop. A retention time with a changed digit would cost records. 2,000 nodes take 10 ms.

Of the write-ahead log headers are read. SQLite takes its frames up to the first whose checksum is wrong and drops the rest without a word:
so a transaction ends that a power cut has interrupted. It is also how finished transactions are lost when a byte of an earlier one changes.
The two can be told apart. Of several transactions that wait for one sync, as in a log of an earlier version, a power cut leaves whole
blocks unwritten, zeros, since the file was empty before; no block of a whole frame is zeros. Where none is missing, only one transaction
can be unfinished.

A file that several processes share has two tables more, see `sqlite_shared_file`. Of the transactions that processes were killed in, the
log keeps what later ones have not overwritten, up to one of each.

Layout of the log: 32 bytes of header, then frames of 24 bytes and a page. A frame is of this log if it carries the header's two salts (one
left from an earlier round has neither); it ends a transaction if its second number, the size of the database in pages, is not 0.
"""

import errno
import logging
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from struct import Struct

from fastcrc.crc32 import iscsi as crc32c

from moldau.model.errors import CoordinationError

_HEADER = Struct(">8I")
_FRAME = Struct(">4I")
_MAGIC = (0x377F0682, 0x377F0683)
_FRAME_HEADER_BYTES = 24
_BLOCK_BYTES = 4096


def dropped_transactions(path: str, frames_used: int) -> int | None:
    """How many transactions there are in the frames after the first `frames_used`; None for a log whose header is damaged. OSError.

    Those that a power cut can have interrupted together are one.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return 0
    try:
        size = os.fstat(descriptor).st_size
        if size <= _HEADER.size:
            return 0
        header = _HEADER.unpack(os.pread(descriptor, _HEADER.size, 0))
        magic, _, page_bytes, _, *salts, _, _ = header
        if magic not in _MAGIC or _frame_checksum(header, swapped=magic == _MAGIC[0]) != header[6:]:
            return None
        step = _FRAME_HEADER_BYTES + page_bytes
        ends, unfinished = 0, False
        start = _HEADER.size + frames_used * step
        for position in range(start, size - step + 1, step):
            _, pages, *found = _FRAME.unpack(os.pread(descriptor, _FRAME.size, position))
            if salts[0] != found[0] and salts[1] != found[1]:
                break
            if pages and not ends and _has_hole(descriptor, start, position + step):
                return 1
            ends += pages != 0
            unfinished = not pages
        return ends + unfinished
    finally:
        os.close(descriptor)


def _has_hole(descriptor: int, start: int, end: int) -> bool:
    """Whether one of the blocks that hold these bytes was never written."""
    first = start - start % _BLOCK_BYTES
    return any(os.pread(descriptor, _BLOCK_BYTES, place) == bytes(_BLOCK_BYTES) for place in range(first, end, _BLOCK_BYTES))


def _frame_checksum(header: tuple[int, ...], *, swapped: bool) -> tuple[int, int]:
    """SQLite's own, over the header's first six numbers; `swapped`: taken as little-endian ones."""
    numbers = [int.from_bytes(number.to_bytes(4, "big"), "little") if swapped else number for number in header[:6]]
    first = second = 0
    for even, odd in zip(numbers[::2], numbers[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second


_LOG = logging.getLogger(__name__)

MEMORY = ":memory:"
APPLICATION_ID = 0x4D6F6C64
"""Marks the file as ours ("Mold"). Do not change."""
FORMAT = 3
_WITHOUT_CHECKSUMS = 1
_WITHOUT_OWNERS = 2
TRANSACTION = "transaction"
SESSION = "session"
WAY_OUT = (
    "Restore the file from a backup. Without one, move it away and start with --adopt: "
    "the topics are then recreated from the folders of their partitions, without their settings"
)

_COLUMNS = (
    "(path TEXT PRIMARY KEY, parent TEXT NOT NULL, data BLOB NOT NULL, version INTEGER NOT NULL, sequence INTEGER NOT NULL, "
    "created_id INTEGER NOT NULL, created_ms INTEGER NOT NULL, modified_ms INTEGER NOT NULL, owner INTEGER NOT NULL, "
    "checksum INTEGER NOT NULL) WITHOUT ROWID"
)
_PARENT_INDEX = "CREATE INDEX node_by_parent ON node (parent, path)"
_COUNTER_TABLE = "CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL, checksum INTEGER NOT NULL) WITHOUT ROWID"
ROW = "path, parent, data, version, sequence, created_id, created_ms, modified_ms, owner"
_TYPES = (str, str, bytes, int, int, int, int, int, int)
_OLD_ROW = "path, parent, data, version, sequence, ephemeral, created_ms, modified_ms"
_OLD_TYPES = _TYPES[:-1]


def open_database(path: str, now_ms: int) -> sqlite3.Connection:
    """The checked database, held by this process alone. CoordinationError names the file when it cannot be used."""
    with _errors(path):
        if path != MEMORY:
            _refuse_irregular(path)
            if not os.path.exists(path):
                _create_file(path, now_ms)
        database = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        with _errors(path):
            _prepare(database, path, now_ms)
    except BaseException:
        database.close()
        raise
    return database


class StoreInUseError(CoordinationError):
    """Another process holds the file."""

    def __init__(self, path: str) -> None:
        advice = "stop the broker that runs over this directory, or choose another one with --data (log.dirs)"
        super().__init__(f"{path}: in use by another process; {advice}", retriable=False)


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another process holds a lock."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def join_database(path: str) -> sqlite3.Connection | None:
    """The checked database, which other processes hold open too; None if none of them has prepared it yet. Errors as `open_database`."""
    with _errors(path):
        _refuse_irregular(path)
        database = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        with _errors(path):
            database.create_function("node_checksum", 9, node_checksum, deterministic=True)
            database.execute("PRAGMA synchronous=FULL")
            database.execute("PRAGMA wal_autocheckpoint=0")
            database.execute("BEGIN")
            is_prepared = _check_format(database, path) == FORMAT and has_table(database, "session")
            if is_prepared:
                _check_content(database, path, FORMAT)
            database.execute("COMMIT")
    except BaseException:
        database.close()
        raise
    if not is_prepared:
        database.close()
        return None
    return database


def has_table(database: sqlite3.Connection, name: str) -> bool:
    """Whether there is a table of this name."""
    return database.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)).fetchone() is not None


@contextmanager
def _errors(path: str) -> Iterator[None]:
    """Turn SQLite's errors into ours, with the file's path."""
    try:
        yield
    except sqlite3.Error as error:
        raise translate(path, error) from error
    except UnicodeDecodeError as error:  # the names in a damaged schema, which Python makes text of
        raise _damaged(path, "not text") from error


def has_no_room(error: sqlite3.Error) -> bool:
    """Whether the disk is full."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL


def node_checksum(
    path: object,
    parent: object,
    data: object,
    version: object,
    sequence: object,
    created_id: object,
    created_ms: object,
    modified_ms: object,
    owner: object,
) -> int:
    """Of a row's columns without the last: as `_checksum`, but faster."""
    before, after = f"{path}\0{parent}\0", f"\0{version}\0{sequence}\0{created_id}\0{created_ms}\0{modified_ms}\0{owner}"
    return crc32c(before.encode() + (data if isinstance(data, bytes) else str(data).encode()) + after.encode())


def note_last(database: sqlite3.Connection, counter: str, value: int) -> None:
    """Store a counter's value, inside the transaction that uses it."""
    database.execute("UPDATE counter SET value = ?, checksum = ? WHERE name = ?", (value, _checksum(counter, value), counter))


def last_of(database: sqlite3.Connection, counter: str) -> int:
    """A counter's value."""
    value: int = database.execute("SELECT value FROM counter WHERE name = ?", (counter,)).fetchone()[0]
    return value


def _checksum(*columns: object) -> int:
    """Of columns in their order, with a zero byte between. Do not change."""
    return crc32c(b"\0".join(column if isinstance(column, bytes) else str(column).encode() for column in columns))


def _prepare(database: sqlite3.Connection, path: str, now_ms: int) -> None:
    database.create_function("node_checksum", 9, node_checksum, deterministic=True)
    database.execute("PRAGMA locking_mode=EXCLUSIVE")
    database.execute("PRAGMA synchronous=FULL")
    if path == MEMORY:
        _create_schema(database, now_ms)
        return
    version = _check_format(database, path)
    _check_log(database, path)
    _check_content(database, path, version)
    database.execute("PRAGMA wal_autocheckpoint=0")  # it would begin a new log at any write, also where no sync follows
    database.execute("DELETE FROM node WHERE owner != 0")


def _check_format(database: sqlite3.Connection, path: str) -> int:
    (application_id,) = database.execute("PRAGMA application_id").fetchone()
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if application_id != APPLICATION_ID:
        raise CoordinationError(f"{path}: an SQLite file, but not one of Moldau's", retriable=False)
    if version not in (FORMAT, _WITHOUT_OWNERS, _WITHOUT_CHECKSUMS):
        raise CoordinationError(f"{path}: format {version}, this version reads {FORMAT}", retriable=False)
    return int(version)


def _check_log(database: sqlite3.Connection, path: str) -> None:
    """CoordinationError if the write-ahead log holds transactions that were finished, and that SQLite skips."""
    _, frames, _ = database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    log = log_of(path)
    dropped = dropped_transactions(log, max(frames, 0))
    if dropped is None or dropped > _unfinished_max(database):
        what = "its header" if dropped is None else f"{dropped} transactions after its frame {frames}"
        raise CoordinationError(f"{log}: damaged: {what} cannot be used, and would be lost. {WAY_OUT}", retriable=False)
    if dropped:
        _LOG.warning("transaction dropped: path=%s frame=%d; it was not whole, as after a power cut in the middle of it", log, frames)
    if frames > 0 or dropped:  # where a power cut leaves a hole in the next log, there shall be nothing of this one
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _unfinished_max(database: sqlite3.Connection) -> int:
    """How many transactions at the end of the log may have been interrupted since it began: of each process that shared the file one, and
    one of a process that had no session yet.
    """
    if not has_table(database, "session"):
        return 1
    sessions: int = database.execute("SELECT count(*) FROM session").fetchone()[0]
    return 1 + sessions


def _check_content(database: sqlite3.Connection, path: str, version: int) -> None:
    """CoordinationError for a file whose structure or whose rows are not what was written. An older file gets the present format."""
    (found,) = database.execute("PRAGMA integrity_check(1)").fetchone()
    if found != "ok":
        raise _damaged(path, found.splitlines()[-1])
    if version == _WITHOUT_OWNERS:
        _check_rows(database, path, f"SELECT {_OLD_ROW}, checksum FROM node", _checksum, _OLD_TYPES)
    if version != FORMAT:
        _migrate(database)
    _check_rows(database, path, f"SELECT {ROW}, checksum FROM node", node_checksum, _TYPES)
    counters = database.execute("SELECT name, value, checksum FROM counter").fetchall()
    if {name for name, value, checksum in counters if checksum == _checksum(name, value) and type(value) is int} != {TRANSACTION, SESSION}:
        raise _damaged(path, "the checksum of a counter does not match")


def _check_rows(database: sqlite3.Connection, path: str, select: str, checksum_of: Callable[..., int], types: tuple[type, ...]) -> None:
    try:
        for *row, checksum in database.execute(select):
            if checksum != checksum_of(*row) or tuple(map(type, row)) != types:  # one flipped bit makes bytes of a text
                raise _damaged(path, f"the checksum of node {row[0]!r} does not match")
    except sqlite3.Error as error:  # a path that is no text any more
        raise _damaged(path, str(error)) from error


def _migrate(database: sqlite3.Connection) -> None:
    """Bring a file of format 1 or 2 to the present one. Nodes of sessions that ended in a crash go."""
    database.execute("BEGIN IMMEDIATE")
    try:
        database.execute(f"CREATE TABLE migrated {_COLUMNS}")
        database.execute(
            "INSERT INTO migrated SELECT path, parent, data, version, sequence, row_number() OVER (ORDER BY path), "
            "created_ms, modified_ms, 0, 0 FROM node WHERE ephemeral = 0"
        )
        database.execute("DROP TABLE node")
        database.execute("ALTER TABLE migrated RENAME TO node")
        database.execute(_PARENT_INDEX)
        database.execute(f"UPDATE node SET checksum = node_checksum({ROW})")
        (last,) = database.execute("SELECT max(created_id) FROM node").fetchone()
        _create_counters(database, last)
        database.execute(f"PRAGMA user_version={FORMAT}")
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def log_of(path: str) -> str:
    """The path of the write-ahead log."""
    return f"{path}-wal"


def translate(path: str, error: sqlite3.Error) -> CoordinationError:
    """What an error of SQLite's means."""
    if is_busy(error):
        return StoreInUseError(path)
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return _damaged(path, str(error))
    return CoordinationError(f"{path}: {error}", retriable=has_no_room(error))


def _damaged(path: str, what: str) -> CoordinationError:
    return CoordinationError(f"{path}: damaged: {what}. {WAY_OUT}", retriable=False)


def _refuse_irregular(path: str) -> None:
    """CoordinationError for a link or a FIFO in the place of one of the database's files: SQLite would follow it, or wait for ever."""
    for each in (path, log_of(path), f"{path}-journal", f"{path}-shm"):
        with suppress(FileNotFoundError):  # or another process has just removed it
            if not stat.S_ISREG(os.lstat(each).st_mode):
                raise CoordinationError(f"{each}: is not a regular file; move it away. {WAY_OUT}", retriable=False)


def _create_file(path: str, now_ms: int) -> None:
    """Make the file aside, sync it once, and give it its name: no half-made file under that name, and a third of the syncs.

    Aside it needs no journal on disk.
    """
    aside = f"{path}.{os.getpid()}"
    try:
        database = sqlite3.connect(aside, isolation_level=None)
        try:
            database.execute("PRAGMA synchronous=OFF")
            database.execute("PRAGMA journal_mode=MEMORY")
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
    database.execute("BEGIN")
    database.execute(f"CREATE TABLE node {_COLUMNS}")
    database.execute(_PARENT_INDEX)
    database.execute(f"PRAGMA application_id={APPLICATION_ID}")
    database.execute(f"PRAGMA user_version={FORMAT}")
    row = ("/", "", b"", 0, 0, 1, now_ms, now_ms, 0)
    database.execute("INSERT INTO node VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (*row, node_checksum(*row)))
    _create_counters(database, 1)
    database.execute("COMMIT")


def _create_counters(database: sqlite3.Connection, last_transaction: int) -> None:
    database.execute(_COUNTER_TABLE)
    counters = ((TRANSACTION, last_transaction), (SESSION, 0))
    database.executemany("INSERT INTO counter VALUES (?, ?, ?)", [(name, value, _checksum(name, value)) for name, value in counters])


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
