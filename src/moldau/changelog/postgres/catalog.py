"""What a changelog has in a database beside the tables: a publication, a replication slot, and the replica identity of the tables."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from moldau.changelog.postgres.errors import RefusedError, TableError
from moldau.changelog.postgres.lsn import lsn_of
from moldau.changelog.postgres.slots import SlotRow
from moldau.changelog.postgres.tables import BY_KEY, FULL, CatalogTable, TableName, quoted

if TYPE_CHECKING:
    from psycopg import Connection

    from moldau.changelog.postgres.sessions import Server

LOCK_TIMEOUT_S: Final = 5
_OPERATIONS: Final = "insert, update, delete, truncate"
_TABLE: Final = """
SELECT c.oid::bigint, c.relkind::text, c.relreplident::text,
  ARRAY(SELECT a.attname::text FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum),
  ARRAY(SELECT a.atttypid::bigint FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum),
  ARRAY(SELECT a.attname::text
        FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place)
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.number
        WHERE i.indrelid = c.oid AND i.indisprimary AND k.place <= i.indnkeyatts ORDER BY k.place)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s
"""
_SLOT: Final = """
SELECT plugin::text, database = current_database(), wal_status, confirmed_flush_lsn::text, active_pid
FROM pg_replication_slots WHERE slot_name = %s
"""
_PUBLISHED: Final = "SELECT schemaname::text, tablename::text FROM pg_publication_tables WHERE pubname = %s"


class Catalog:
    """Over one connection for SQL. UnreachableServerError, RefusedError, TableError."""

    def __init__(self, server: "Server", connection: "Connection[tuple[Any, ...]]") -> None:
        self._server = server
        self._connection = connection

    def check_settings(self) -> None:
        """RefusedError unless the server writes a log that can be decoded."""
        (level,) = self._row("SHOW wal_level")
        if level != "logical":
            raise RefusedError(f"{self._server.name}: wal_level is {level}; a changelog needs wal_level = logical, and a restart of the server")

    def find(self, name: TableName) -> CatalogTable | None:
        """A table as it is now."""
        rows = self._rows(_TABLE, *name)
        if not rows:
            return None
        oid, kind, identity, columns, types, key = rows[0]
        return CatalogTable(oid, name, kind, identity, tuple(zip(columns, types, strict=True)), tuple(key))

    def tables(self, names: Sequence[TableName]) -> list[CatalogTable]:
        """As they are now. TableError for one that is not there, or cannot be published."""
        found = []
        for name in names:
            table = self.find(name)
            if table is None:
                raise TableError(f"{self._server.name}: there is no table {name.published}")
            if table.kind != "r":
                raise TableError(f"{self._server.name}: {name.published} is no ordinary table (a view, or a partitioned table): it cannot be published")
            if not table.key:
                raise TableError(f"{self._server.name}: table {name.published} has no primary key, which the rows of a changelog need")
            found.append(table)
        return found

    def publish_before_images(self, tables: Sequence[CatalogTable]) -> None:
        """Have the server log each row as it was before a change of it: REPLICA IDENTITY FULL."""
        for table in tables:
            if table.identity != FULL:
                with self._server.translated(f"ALTER TABLE {table.name.quoted} REPLICA IDENTITY FULL"), self._connection.transaction():
                    self._connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S}s'")
                    self._connection.execute(f"ALTER TABLE {table.name.quoted} REPLICA IDENTITY FULL")

    def check_identities(self, tables: Sequence[CatalogTable]) -> None:
        """TableError for a table whose changes would come without its primary key."""
        for table in tables:
            if table.identity not in (FULL, BY_KEY):
                raise TableError(
                    f"{self._server.name}: table {table.name.published} has a replica identity without its primary key:"
                    f" ALTER TABLE {table.name.quoted} REPLICA IDENTITY FULL"
                )

    def published(self, publication: str) -> Collection[TableName] | None:
        """The tables of a publication; None if there is no such publication."""
        if not self._rows("SELECT 1 FROM pg_publication WHERE pubname = %s", publication):
            return None
        return {TableName(*row) for row in self._rows(_PUBLISHED, publication)}

    def make_publication(self, publication: str, tables: Sequence[TableName]) -> None:
        """Of these tables, instead of one that has the name."""
        listed = ", ".join(f"ONLY {name.quoted}" for name in tables)
        with self._server.translated(f"publication {publication} was not made"), self._connection.transaction():
            self._connection.execute(f"DROP PUBLICATION IF EXISTS {quoted(publication)}")
            self._connection.execute(f"CREATE PUBLICATION {quoted(publication)} FOR TABLE {listed} WITH (publish = '{_OPERATIONS}')")

    def slot(self, slot: str) -> SlotRow | None:
        """None if there is none."""
        rows = self._rows(_SLOT, slot)
        if not rows:
            return None
        plugin, is_here, wal_status, confirmed, active_pid = rows[0]
        return SlotRow(plugin, bool(is_here), wal_status, None if confirmed is None else lsn_of(confirmed), active_pid)

    def release_slot(self, slot: str) -> None:
        """End a connection that uses the slot: that of a publisher which was replaced."""
        self._rows("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s AND active_pid IS NOT NULL", slot)

    def drop_slot(self, slot: str) -> None:
        """Drop it."""
        self._rows("SELECT pg_drop_replication_slot(%s)", slot)

    def has_values(self, table: TableName, column: str) -> bool:
        """Whether a row has something else than NULL there now. False if there is no such table or column now."""
        found = self.find(table)
        if found is None or column not in dict(found.columns):
            return False
        return bool(self._row(f"SELECT EXISTS (SELECT 1 FROM {table.quoted} WHERE {quoted(column)} IS NOT NULL)")[0])

    def _row(self, query: str) -> tuple[Any, ...]:
        (row,) = self._rows(query)
        return row

    def _rows(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        with self._server.translated():
            return self._connection.execute(query, parameters or None).fetchall()  # type: ignore[call-overload, no-any-return]
