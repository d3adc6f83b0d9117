"""The triggers of a published table, as SQL.

They write what is so when they run: the row as the table has it, and a deletion only of a key that the table has no more. The order in
which SQLite runs the triggers of a table is undefined, so triggers of the user may have changed the row again before ours runs; what those
did is in the outbox already.

`INSERT OR REPLACE`, `UPDATE OR REPLACE` and `ON CONFLICT REPLACE` delete rows for which delete triggers run only with
`PRAGMA recursive_triggers`. A row with the same key is replaced in the log as well. One with another key, that has the same values in
another unique index, is noted before the statement changes anything, and is deleted in the log if it is missing afterwards. So is one whose
key is equal to the new one by a collation, or as a number of another type, and is another key in the log.
"""

from collections.abc import Iterable, Mapping, Sequence

from moldau.changelog.sqlite.schema import OURS, SourceTable, UniqueIndex, quoted

Trigger = tuple[str, str]
"""Name and statement."""


def triggers_of(table: SourceTable, number: int) -> list[Trigger]:
    """Of a table whose schema has this number in our tables. The statements are as SQLite keeps them."""
    return _Triggers(table, number).all()


def notes_of(triggers: Mapping[str, str]) -> dict[str, str]:
    """Those of a table that note rows before a statement replaces them."""
    return {name: statement for name, statement in triggers.items() if name.endswith(("_before_insert", "_before_update"))}


def index_of(table: SourceTable, number: int) -> str | None:
    """The statement that makes the index of the rows that are noted; None where none are."""
    if not table.unique:
        return None
    columns = [name for name, _ in table.columns]
    key = ", ".join(f"v{columns.index(name)}" for name, _ in table.key)
    return f"CREATE INDEX IF NOT EXISTS {OURS}replaced_{number} ON {OURS}replaced ({key}) WHERE t = {number}"


class _Triggers:
    def __init__(self, table: SourceTable, number: int) -> None:
        self._name = quoted(table.name)
        self._prefix = f"{OURS}{table.name}"
        self._changelog_number = number
        self._columns = [name for name, _ in table.columns]
        self._places = [self._columns.index(name) for name, _ in table.key]
        self._source = table
        self._where = f"FROM {self._name} AS o WHERE"

    def all(self) -> list[Trigger]:
        """In the order in which they are made."""
        found = [self._on_insert(), self._on_update(), self._on_delete()]
        if self._source.unique:
            found += [self._before_insert(), self._before_update()]
        return found

    def _on_insert(self) -> Trigger:
        return self._trigger(
            "insert",
            "AFTER INSERT",
            [*self._null_check(), *self._replaced(), self._into("c", self._o(), f"{self._where} {self._same('NEW')}")],
        )

    def _on_update(self) -> Trigger:
        is_new, is_old = f"{self._where} {self._same('NEW')}", f"{self._where} {self._same('OLD')}"
        kept = " AND ".join(f"OLD.{quoted(name)} = NEW.{quoted(name)} COLLATE {quoted(collation)}" for name, collation in self._source.key)
        return self._trigger(
            "update",
            "AFTER UPDATE",
            [
                *self._null_check(),
                *self._replaced(),
                self._into("u", [*self._of("OLD"), *self._o()], f"{is_new} AND (({kept}) OR NOT EXISTS (SELECT 1 {is_old}))"),
                self._into("c", self._o(), f"{is_new} AND NOT ({kept}) AND EXISTS (SELECT 1 {is_old})"),
                self._into("d", self._of("OLD"), f"WHERE NOT EXISTS (SELECT 1 {is_new}) AND NOT EXISTS (SELECT 1 {is_old})"),
            ],
        )

    def _on_delete(self) -> Trigger:
        steps = [self._into("d", self._of("OLD"), f"WHERE NOT EXISTS (SELECT 1 {self._where} {self._same('OLD')})")]
        if self._source.unique:
            key = " AND ".join(f"v{place} = +OLD.{quoted(self._columns[place])}" for place in self._places)
            steps.append(f"DELETE FROM _changelog_replaced WHERE t = {self._changelog_number} AND {key}")
        return self._trigger("delete", "AFTER DELETE", steps)

    def _before_insert(self) -> Trigger:
        return self._trigger("before_insert", "BEFORE INSERT", [self._note(index, "") for index in self._source.unique])

    def _before_update(self) -> Trigger:
        other = f" AND NOT ({self._same('OLD')})"
        return self._trigger("before_update", "BEFORE UPDATE", [self._note(index, other) for index in self._source.unique])

    def _note(self, index: UniqueIndex, condition: str) -> str:
        """Rows that conflict with the new one in a unique index, if they are not noted yet. Without a conflict clause: that of the
        statement which runs the trigger would count instead.
        """
        equal = " AND ".join(f"o.{quoted(name)} = NEW.{quoted(name)} COLLATE {quoted(collation)}" for name, collation in index.columns)
        if index.of_key:
            equal += f" AND NOT ({self._identical([f'NEW.{quoted(name)}' for name, _ in index.columns])})"
        noted = " AND ".join(f"r.v{place} = +o.{quoted(self._columns[place])}" for place in self._places)  # + has no affinity
        if not self._source.exact_key:
            noted += f" AND {self._identical([f'r.v{place}' for place in self._places])}"
        return (
            f"INSERT INTO _changelog_replaced (t, {_values(len(self._columns))}) SELECT {self._changelog_number}, {', '.join(self._o())}"
            f" {self._where} {equal}{condition}"
            f" AND NOT EXISTS (SELECT 1 FROM _changelog_replaced AS r WHERE r.t = {self._changelog_number} AND {noted})"
        )

    def _identical(self, key: Sequence[str]) -> str:
        """Whether the key of a row is the same as this one in the log, too."""
        names = [f"o.{quoted(name)}" for name, _ in self._source.key]
        return " AND ".join(
            f"{name} = {value} COLLATE BINARY AND typeof({name}) = typeof({value})" for name, value in zip(names, key, strict=True)
        )

    def _replaced(self) -> list[str]:
        """What was noted and is no more."""
        if not self._source.unique:
            return []
        count = len(self._columns)
        key = " AND ".join(
            f"o.{quoted(name)} = r.v{place} COLLATE {quoted(collation)}"
            for (name, collation), place in zip(self._source.key, self._places, strict=True)
        )
        if not self._source.exact_key:
            key += f" AND {self._identical([f'r.v{place}' for place in self._places])}"
        values = ", ".join(f"r.v{number}" for number in range(count))
        deleted = (
            f"INSERT INTO _changelog_outbox (t, op, {_values(count)}) SELECT r.t, 'd', {values} FROM _changelog_replaced AS r"
            f" WHERE r.t = {self._changelog_number} AND NOT EXISTS (SELECT 1 {self._where} {key})"
        )
        return [deleted, f"DELETE FROM _changelog_replaced WHERE t = {self._changelog_number}"]

    def _null_check(self) -> list[str]:
        if not self._source.nullable_key:
            return []
        is_null = " OR ".join(f"NEW.{quoted(name)} IS NULL" for name in self._source.nullable_key)
        reason = f"changelog: table {self._source.name}: a row with NULL in its primary key cannot be published"
        return [f"SELECT RAISE(ABORT, {_text(reason)}) WHERE {is_null}"]

    def _into(self, op: str, values: Sequence[str], rest: str) -> str:
        return (
            f"INSERT INTO _changelog_outbox (t, op, {_values(len(values))})"
            f" SELECT {self._changelog_number}, '{op}', {', '.join(values)} {rest}"
        )

    def _o(self) -> list[str]:
        return self._of("o")

    def _of(self, row: str) -> list[str]:
        return [f"{row}.{quoted(name)}" for name in self._columns]

    def _same(self, row: str) -> str:
        return " AND ".join(f"o.{quoted(name)} = {row}.{quoted(name)} COLLATE {quoted(collation)}" for name, collation in self._source.key)

    def _trigger(self, kind: str, when: str, steps: Iterable[str]) -> Trigger:
        name = f"{self._prefix}_{kind}"
        return name, f"CREATE TRIGGER {quoted(name)} {when} ON {self._name} BEGIN {'; '.join(steps)}; END"


def _values(count: int) -> str:
    return ", ".join(f"v{number}" for number in range(count))


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
