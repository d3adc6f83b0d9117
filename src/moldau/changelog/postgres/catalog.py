"""What a changelog has in a database beside the tables: a publication, a replication slot, and the replica identity of the tables."""

import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from moldau.changelog.postgres.errors import RefusedError, TableError, UnreachableServerError
from moldau.changelog.postgres.lsn import lsn_of
from moldau.changelog.postgres.pgoutput import Column
from moldau.changelog.postgres.slots import Origin, ServerPlace, SlotRow
from moldau.changelog.postgres.tables import BY_KEY, FULL, CatalogTable, TableName
from moldau.changelog.stores.sql import quoted

if TYPE_CHECKING:
    from psycopg import Connection

    from moldau.changelog.postgres.sessions import Server

LOCK_TIMEOUT_S: Final = 5
RELEASE_S: Final = 10.0
"""How long the end of a connection that uses a slot is waited for."""
RELEASE_PAUSE_S: Final = 0.05
_OPERATIONS: Final = "insert, update, delete, truncate"
_TABLE: Final = """
SELECT c.relkind::text, c.relreplident::text, c.relfilenode::bigint,
  ARRAY(SELECT a.attname::text FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum),
  ARRAY(SELECT a.atttypid::bigint FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum),
  ARRAY(SELECT a.atttypmod FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum),
  ARRAY(SELECT a.attnum::int FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum),
  ARRAY(SELECT a.attname::text
        FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place)
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.number
        WHERE i.indrelid = c.oid AND i.indisprimary AND k.place <= i.indnkeyatts ORDER BY k.place),
  EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary AND NOT i.indimmediate)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s
"""
_SLOT: Final = """
SELECT plugin::text, database = current_database(), wal_status, confirmed_flush_lsn::text, active_pid
FROM pg_replication_slots WHERE slot_name = %s
"""
_LACKING: Final = """
SELECT array_remove(ARRAY[CASE WHEN NOT pubinsert THEN 'insert' END, CASE WHEN NOT pubupdate THEN 'update' END,
  CASE WHEN NOT pubdelete THEN 'delete' END, CASE WHEN NOT pubtruncate THEN 'truncate' END], NULL),
"""
_ALTERED: Final = f"""{_LACKING}
  EXISTS (SELECT 1 FROM pg_publication_rel r WHERE r.prpubid = p.oid AND (r.prqual IS NOT NULL OR r.prattrs IS NOT NULL))
FROM pg_publication p WHERE p.pubname = %s
"""
_ALTERED_OF_OLD: Final = f"{_LACKING} false FROM pg_publication p WHERE p.pubname = %s"
_FILTERS_SINCE: Final = 150_000
"""The version from which on a publication may have a part of a table."""
_PLACE: Final = """
SELECT (SELECT system_identifier::text FROM pg_control_system()), left(pg_walfile_name(pg_current_wal_flush_lsn()), 8),
  (SELECT oid::bigint FROM pg_database WHERE datname = current_database()), pg_current_wal_flush_lsn()::text
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
            raise RefusedError(
                f"{self._server.name}: wal_level is {level}; a changelog needs wal_level = logical, and a restart of the server"
            )

    def find(self, name: TableName) -> CatalogTable | None:
        """A table as it is now."""
        rows = self._rows(_TABLE, *name)
        if not rows:
            return None
        kind, identity, file, columns, types, modifiers, numbers, key, is_deferrable = rows[0]
        found = [Column(*each, is_identity=each[0] in key) for each in zip(columns, types, modifiers, strict=True)]
        return CatalogTable(name, kind, identity, found, tuple(key), dict(zip(columns, numbers, strict=True)), file, is_deferrable)

    def tables(self, names: Sequence[TableName]) -> list[CatalogTable]:
        """As they are now. TableError for one that is not there, or cannot be published."""
        found = []
        for name in names:
            table = self.find(name)
            if table is None:
                raise TableError(f"{self._server.name}: there is no table {name.published}")
            self.check(table)
            found.append(table)
        return found

    def check(self, table: CatalogTable) -> None:
        """TableError for one that cannot be published."""
        name = table.name.published
        if table.kind != "r":
            raise TableError(f"{self._server.name}: {name} is no ordinary table (a view, or a partitioned table): it cannot be published")
        if not table.key:
            raise TableError(f"{self._server.name}: table {name} has no primary key, which the rows of a changelog need")
        if table.is_deferrable:
            raise TableError(
                f"{self._server.name}: table {name} has a primary key that is DEFERRABLE: two rows may have one key for a moment, and the"
                " changes of both would be taken for those of one row: make it NOT DEFERRABLE"
            )

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

    def publication_flaw(self, publication: str) -> str:
        """What a publication, which is there, does not publish of its tables; empty if nothing."""
        lacking, is_filtered = self._rows(
            _ALTERED if self._connection.info.server_version >= _FILTERS_SINCE else _ALTERED_OF_OLD, publication
        )[0]
        if lacking:
            return f"does not publish {', '.join(lacking)}"
        return "publishes only some of the rows or columns of a table" if is_filtered else ""

    def make_publication(self, publication: str, tables: Sequence[TableName]) -> None:
        """Of these tables, instead of one that has the name."""
        listed = ", ".join(f"ONLY {name.quoted}" for name in tables)
        with self._server.translated(f"publication {publication} was not made"), self._connection.transaction():
            self._connection.execute(f"DROP PUBLICATION IF EXISTS {quoted(publication)}")
            self._connection.execute(f"CREATE PUBLICATION {quoted(publication)} FOR TABLE {listed} WITH (publish = '{_OPERATIONS}')")

    def place(self) -> ServerPlace:
        """What this is a connection to."""
        system, timeline, database, flushed = self._row(_PLACE)
        return ServerPlace(Origin(system, int(timeline, 16), database), lsn_of(flushed))

    def inserted_lsn(self) -> int:
        """What is in the catalog now was committed before."""
        return lsn_of(self._row("SELECT pg_current_wal_insert_lsn()::text")[0])

    def slot(self, slot: str) -> SlotRow | None:
        """None if there is none."""
        rows = self._rows(_SLOT, slot)
        if not rows:
            return None
        plugin, is_here, wal_status, confirmed, active_pid = rows[0]
        return SlotRow(plugin, bool(is_here), wal_status, None if confirmed is None else lsn_of(confirmed), active_pid)

    def release_slot(self, slot: str) -> None:
        """End a connection that uses the slot: that of a publisher which was replaced."""
        self._rows(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s AND active_pid IS NOT NULL", slot
        )

    def drop_slot(self, slot: str) -> None:
        """Drop it, if there is one; a connection that uses it is ended."""
        self.release_slot(slot)
        deadline = time.monotonic() + RELEASE_S
        while True:
            try:
                self._rows("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", slot)
            except UnreachableServerError:  # the connection that uses it has not ended yet
                if time.monotonic() > deadline:
                    raise
                time.sleep(RELEASE_PAUSE_S)
            else:
                return

    def comment(self, publication: str) -> str | None:
        """Of a publication; None without one."""
        rows = self._rows("SELECT obj_description(oid, 'pg_publication') FROM pg_publication WHERE pubname = %s", publication)
        return rows[0][0] if rows else None

    def set_comment(self, publication: str, comment: str) -> None:
        """Of a publication."""
        from psycopg import sql

        with self._server.translated(f"publication {publication}"):
            self._connection.execute(sql.SQL("COMMENT ON PUBLICATION {} IS {}").format(sql.Identifier(publication), sql.Literal(comment)))

    def has_values(self, table: TableName, column: str) -> bool:
        """Whether a row has something else than NULL there now. False if there is no such table or column now."""
        found = self.find(table)
        if found is None or column not in {each.name for each in found.columns}:
            return False
        return bool(self._row(f"SELECT EXISTS (SELECT 1 FROM {table.quoted} WHERE {quoted(column)} IS NOT NULL)")[0])

    def _row(self, query: str) -> tuple[Any, ...]:
        (row,) = self._rows(query)
        return row

    def _rows(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        with self._server.translated():
            return self._connection.execute(query, parameters or None).fetchall()
