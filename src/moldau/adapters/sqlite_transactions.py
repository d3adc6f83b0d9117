"""Write transactions of a connection with a store's file, and what its errors mean.

After a failed sync no write is taken until the next start: the kernel reports the error once, and a later sync says nothing about the pages
of this one.
"""

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from moldau.adapters.sqlite_file import translate
from moldau.model.errors import CoordinationError

_LOG = logging.getLogger(__name__)


class Transactions:
    """Of one connection."""

    def __init__(self, path: str, database: sqlite3.Connection) -> None:
        self.path = path
        self.database = database
        self.failure: str | None = None
        """Why no write is taken any more; None if writes are taken."""

    @contextmanager
    def write(self) -> Iterator[None]:
        """One transaction, on disk when it ends. Rolled back on errors."""
        if self.failure is not None:
            raise CoordinationError(self.failure, retriable=False)
        with self.errors():
            self.begin("BEGIN IMMEDIATE")
            try:
                yield
                self.database.execute("COMMIT")
            except BaseException:
                if self.database.in_transaction:
                    self.database.execute("ROLLBACK")
                raise

    def begin(self, statement: str) -> None:
        """Begin a transaction."""
        self.database.execute(statement)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn SQLite's errors into ours; note that a sync has failed."""
        try:
            yield
        except sqlite3.Error as error:
            raise self.translated(error) from error

    def translated(self, error: sqlite3.Error) -> CoordinationError:
        """The error as one of ours, after a failed sync was noted."""
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_FSYNC:
            self.note_failure(error)
        translated = translate(self.path, error)
        translated.__cause__ = error
        return translated

    def note_failure(self, error: BaseException) -> None:
        """A sync has failed: take no write any more."""
        if self.failure is None:
            self.failure = f"{self.path}: not brought to disk: {error}; no change is taken until the broker is started again"
            _LOG.error(
                "sync of the metadata store failed: path=%s reason=%s; no change is taken until the broker is started again",
                self.path,
                error,
            )
