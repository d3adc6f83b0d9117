"""Connections to a database that is published, and transactions on them."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from moldau.changelog.sqlite.errors import SourceError
from moldau.model.errors import WorldError

_PRIMARY = 0xFF
"""The part of an error's code that SQLite has for its kind."""


def connect(path: str | os.PathLike[str], timeout_s: float) -> sqlite3.Connection:
    """A connection in whose transactions commits are on disk, and with a write-ahead log, so that readers do not stop writers.

    A write waits for other writers for `timeout_s`. SourceError for a database that has no write-ahead log, or is none.
    """
    try:
        database = sqlite3.connect(path, timeout=timeout_s, isolation_level=None, check_same_thread=False)
        (mode,) = database.execute("PRAGMA journal_mode = WAL").fetchone()
        database.execute("PRAGMA synchronous = FULL")
    except sqlite3.Error as error:
        raise SourceError(f"database {os.fspath(path)}: {error}") from error
    if mode != "wal":
        database.close()
        raise SourceError(f"database {os.fspath(path)}: journal_mode is {mode}, and cannot be WAL: publish a database in a local file")
    return database


@contextmanager
def writing(database: sqlite3.Connection) -> Iterator[None]:
    """A transaction that no other writer is in; rolled back where an exception leaves it. WorldError while others write for too long."""
    try:
        database.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if not _is_busy(error):
            raise
        (_, _, path) = database.execute("PRAGMA database_list").fetchone()
        raise WorldError(f"database {path}: no transaction can begin: {error}; another writer is in one", retriable=True) from error
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


@contextmanager
def failures(path: str | os.PathLike[str]) -> Iterator[None]:
    """What the disk or other processes do to the database, as WorldError, which names the file. A wrong statement stays what it is."""
    try:
        yield
    except (sqlite3.ProgrammingError, sqlite3.IntegrityError):
        raise
    except sqlite3.DatabaseError as error:
        raise WorldError(f"database {os.fspath(path)}: {error}", retriable=_is_busy(error)) from error


def _is_busy(error: sqlite3.Error) -> bool:
    """Whether others are in its way: also one that puts right what a killed one left, for which the code says more."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)  # those that Python finds, as text that is no UTF-8, have none
    return code & _PRIMARY in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def schema_version(database: sqlite3.Connection) -> int:
    """It is another one after each change of the schema."""
    (version,) = database.execute("PRAGMA schema_version").fetchone()
    return int(version)
