"""Rows that are there already, read in chunks from one snapshot, while others write."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from moldau.changelog.postgres.pgoutput import Columns
from moldau.changelog.postgres.tables import TableName, TableView
from moldau.changelog.stores.sql import listed
from moldau.changelog.values import Row

if TYPE_CHECKING:
    from psycopg import Connection

    from moldau.changelog.postgres.sessions import Server

ROWS_FIRST: Final = 100
ROWS_MAX: Final = 2_000
CHUNK_BYTES: Final = 4_000_000
"""About; the number of rows is set by the size of those before."""


class Snapshot:
    """Over one connection for SQL, until its end. The tables are locked in the mode that a SELECT takes: they can be written, but neither
    altered nor truncated, after which an older snapshot would show no rows. A snapshot that was exported before is compared by the caller.
    """

    def __init__(self, server: "Server", connection: "Connection[tuple[Any, ...]]", tables: Sequence[TableName]) -> None:
        self._server = server
        self._connection = connection
        with server.translated("the snapshot was not read"):
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            connection.execute(f"LOCK TABLE {', '.join(f'ONLY {name.quoted}' for name in tables)} IN ACCESS SHARE MODE")

    def take(self, exported: str | None) -> None:
        """Read what is committed in the exported snapshot with this name; None: what is committed now."""
        with self._server.translated("the snapshot was not read"):
            self._connection.execute("SELECT 1" if exported is None else f"SET TRANSACTION SNAPSHOT '{exported}'")

    def rows(self, view: TableView) -> Iterator[Sequence[Row]]:
        """Chunks of the rows of a table. TableError, UnreachableServerError."""
        columns = listed(view.table.columns)
        with self._server.translated(f"table {view.table.name} was not read"):
            self._connection.execute(f"DECLARE moldau_rows NO SCROLL CURSOR FOR SELECT {columns} FROM ONLY {view.name.quoted}")
        count = ROWS_FIRST
        while True:
            texts = self._fetch(count, view.table.name)
            if texts:
                yield [view.row(each) for each in texts]
            if len(texts) < count:
                break
            size = sum(len(text) for each in texts for text in each if isinstance(text, bytes))
            count = max(1, min(ROWS_MAX, CHUNK_BYTES * len(texts) // (size + 1)))
        with self._server.translated():
            self._connection.execute("CLOSE moldau_rows")

    def close(self) -> None:
        """End it; the connection can be used again."""
        with self._server.translated():
            self._connection.execute("COMMIT")

    def _fetch(self, count: int, table: str) -> list[Columns]:
        with self._server.translated(f"table {table} was not read"):
            result = self._connection.execute(f"FETCH FORWARD {count} FROM moldau_rows").pgresult
        assert result is not None
        return [[result.get_value(row, column) for column in range(result.nfields)] for row in range(result.ntuples)]
