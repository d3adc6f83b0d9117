"""A database that is written and published by the same process: its transactions are commits of the changelog.

with Store("shop.db", "localhost:9092", "shop") as store:
    with store.transaction() as transaction:
        transaction.execute("INSERT INTO orders (id, item) VALUES (?, ?)", (1, "tea"))
    store.publish(transaction.commit)  # acknowledged: the log has it
"""

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

from moldau.changelog.points import reached
from moldau.changelog.sqlite.connecting import connect, schema_version, writing
from moldau.changelog.sqlite.installing import refresh
from moldau.changelog.sqlite.outbox import seal
from moldau.changelog.sqlite.source import BUSY_TIMEOUT_S, Source


class WriteTransaction:
    """Statements of one transaction."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database: sqlite3.Connection | None = database
        self.commit: int | None = None
        """Its number, once the transaction has ended; None for one without changes of published tables."""

    def execute(self, statement: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> sqlite3.Cursor:
        """As `sqlite3.Connection.execute`. RuntimeError after the end of the transaction."""
        return self._open.execute(statement, parameters)

    def executemany(self, statement: str, parameters: Iterable[Sequence[Any]]) -> sqlite3.Cursor:
        """As `sqlite3.Connection.executemany`. RuntimeError after the end of the transaction."""
        return self._open.executemany(statement, parameters)

    @property
    def _open(self) -> sqlite3.Connection:
        if self._database is None:
            raise RuntimeError("the transaction has ended")
        return self._database

    def end(self) -> None:
        """No more statements."""
        self._database = None


class Store:
    """The database at `path`; arguments and `options` are those of a `Source`. Any thread may use it: transactions wait for each other, and
    so do publications.

    Threads that publish at the same time share transactions of the log: the first one publishes what all have committed.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        bootstrap_servers: str,
        changelog: str,
        shard: int = 0,
        *,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
        **options: Any,
    ) -> None:
        self.source = Source(path, bootstrap_servers, changelog, shard, busy_timeout_s=busy_timeout_s, **options)
        self._database = connect(path, busy_timeout_s)
        self._lock = threading.Lock()
        self._version = -1
        """Of the schema, that triggers are in step with."""
        self._writer: int | None = None
        """The thread that has a transaction open."""

    @contextmanager
    def transaction(self) -> Iterator[WriteTransaction]:
        """A transaction, rolled back where an exception leaves it. Its changes are one commit, with nothing of other writers in it.

        It is on disk afterwards, and not yet in the log: `publish` waits for that. RuntimeError within a transaction of the same thread.
        SchemaChangedError if changes may be missing in the outbox, until the table is repaired.
        """
        if self._writer == threading.get_ident():
            raise RuntimeError("this thread has a transaction open already")
        with self._lock:
            with writing(self._database):
                version = self._follow_schema(self._version)
                seal(self._database)  # of writers that do not use this
                transaction = WriteTransaction(self._database)
                self._writer = threading.get_ident()
                try:
                    yield transaction
                finally:
                    self._writer = None
                    transaction.end()
                if not self._database.in_transaction:
                    raise RuntimeError("the transaction was ended by a statement: it ends with its `with`")
                version = self._follow_schema(version)
                number = seal(self._database)
                reached("writer: sealed")
            self._version = version
            transaction.commit = number
            reached("writer: committed")

    def _follow_schema(self, version: int) -> int:
        """From the version of the schema that triggers are in step with to the present one."""
        if schema_version(self._database) != version:
            refresh(self._database)
        return schema_version(self._database)

    def publish(self, up_to: int | None = None) -> int:
        """Return once the log has all that is committed by now, or all up to a commit: the number of the last one that it has.

        Errors as for `Source.publish`; what is committed stays so, and the next call continues.
        """
        return self.source.publish(up_to)

    def close(self) -> None:
        """Publish nothing more; what is committed and not published is published by the next store."""
        self.source.close()
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
