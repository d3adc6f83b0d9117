"""Publishing the rows that a table has, for the first time or again: a few at a time through the outbox, while writers write.

Each step is one short transaction: it seals what writers have done, copies the next rows by key into the outbox, and seals these as a
commit of their own. So a row comes into the log as it is at its commit, changes before and after that are in their place, and after a crash
the next step continues where the last one ended.
"""

import sqlite3
from typing import Final

from moldau.changelog.sqlite.connecting import writing
from moldau.changelog.sqlite.installing import refresh, registered
from moldau.changelog.sqlite.outbox import installed_state, seal
from moldau.changelog.sqlite.schema import quoted, source_table

ROWS: Final = 1_000
"""In a step."""


def is_reading(database: sqlite3.Connection) -> bool:
    """Whether there are tables whose rows are not published completely."""
    return database.execute("SELECT 1 FROM _changelog_reading LIMIT 1").fetchone() is not None


def publish_next_rows(database: sqlite3.Connection, count: int = ROWS) -> bool:
    """The next step, of at most so many rows; False if no rows were left to publish."""
    with writing(database):
        refresh(database)
        found = database.execute("SELECT name, begun FROM _changelog_reading ORDER BY name LIMIT 1").fetchone()
        if found is None:
            return False
        seal(database)
        name, begun = found
        if _copy(database, name, count, begun=bool(begun)) < count:
            database.execute("DELETE FROM _changelog_reading WHERE name = ?", (name,))
        seal(database, empty=not is_reading(database))  # the last step says that nothing is left, also if it has found no rows
        return True


def _copy(database: sqlite3.Connection, name: str, count: int, *, begun: bool) -> int:
    """Into the outbox; how many."""
    table = source_table(database, installed_state(database).changelog, name)
    number, schema = next((number, each) for number, each in registered(database).items() if each.current and each.table.name == table.name)
    places = [schema.columns.index(column) for column in schema.table.key]
    keys = ", ".join(f"o.{quoted(column)} COLLATE {quoted(collation)}" for column, collation in table.key)
    after = ", ".join(f"r.v{place}" for place in range(len(places)))
    values = ", ".join(f"v{place}" for place in range(len(schema.columns)))
    columns = ", ".join(f"o.{quoted(column)}" for column in schema.columns)
    copied = database.execute(
        f"INSERT INTO _changelog_outbox (t, op, {values}) SELECT ?, 'r', {columns}"
        f" FROM _changelog_reading AS r CROSS JOIN {quoted(name)} AS o"
        f" WHERE r.name = ? {f'AND ({keys}) > ({after})' if begun else ''} ORDER BY {keys} LIMIT ?",
        (number, name, count),
    ).rowcount
    if copied:
        last = "(SELECT v{} FROM _changelog_outbox ORDER BY id DESC LIMIT 1)"
        position = ", ".join(f"v{index} = {last.format(place)}" for index, place in enumerate(places))
        database.execute(f"UPDATE _changelog_reading SET begun = 1, {position} WHERE name = ?", (name,))
    return copied
