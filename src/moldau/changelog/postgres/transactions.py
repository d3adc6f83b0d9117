"""Puts messages of a stream together to transactions: what comes between a begin and its commit, with the rows' values.

The server sends a transaction when it is committed, as a whole. What is in memory of one is bounded; the rest goes to a file.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple

from moldau.changelog.postgres.errors import StreamError, TableError
from moldau.changelog.postgres.pgoutput import Begin, CommitEnd, Delete, Insert, Message, Relation, Truncate, Update
from moldau.changelog.postgres.tables import TableName, TableView
from moldau.changelog.spill import SpilledChanges
from moldau.changelog.values import Change, Key, Op, Table

MEMORY_CHANGES: Final = 20_000
MEMORY_BYTES: Final = 16 << 20
"""Of messages, whose changes are in memory."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """A committed one; `changes` are of published tables, in their order."""

    changes: Sequence[Change]
    end_lsn: int
    time_ms: int
    size: int = 0
    """Of its messages, in bytes."""

    def close(self) -> None:
        """It is published: remove the file that a large one is in."""
        if isinstance(self.changes, SpilledChanges):
            self.changes.close()


class NewView(NamedTuple):
    """A table is from here on as `view` has it; the stream says so at its beginning too."""

    view: TableView


class Truncated(NamedTuple):
    """All rows of tables were deleted, of which the stream has no list: `Transactions.delete_rows` takes it."""

    tables: Sequence[TableView]


Found = Transaction | NewView | Truncated | None


class Transactions:
    """See the module. `keys` are the published tables with their primary keys; `as_text` columns by table."""

    def __init__(self, keys: Mapping[TableName, Sequence[str]], as_text: Mapping[TableName, Collection[str]]) -> None:
        self._keys: Final = keys
        self._as_text: Final = as_text
        self._views: dict[int, TableView] = {}
        self._changes: list[Change] = []
        self._held_bytes = self._size = 0
        self._spilled: SpilledChanges | None = None
        """Those before."""
        self.is_open = False
        """Between a begin and its commit."""

    def tables(self) -> dict[str, Table]:
        """As the stream has named them so far."""
        return {view.table.name: view.table for view in self._views.values()}

    def take(self, message: Message | None, size: int = 0) -> Found:
        """The next message, of so many bytes. TableError, StreamError; SpillError where there is no room for a file."""
        self._held_bytes += size
        if len(self._changes) >= MEMORY_CHANGES or self._held_bytes >= MEMORY_BYTES:
            self._spill()
        match message:
            case Insert(relation, new):
                view = self._view(relation)
                row = view.row(new)
                self._changes.append(Change(view.table.name, Op.CREATE, view.key_of(row), None, row))
            case Update():
                self._update(message)
            case Delete(relation, old, old_is_whole):
                view = self._view(relation)
                before = view.row(old) if old_is_whole else None
                key = view.key_in(old) if before is None else view.key_of(before)
                self._changes.append(Change(view.table.name, Op.DELETE, key, before, None))
            case Begin():
                self._begin()
                self.is_open = True
            case CommitEnd(_, end_lsn, time_us):
                if self._spilled is not None:
                    self._spill()
                found = Transaction(self._spilled or self._changes, end_lsn, time_us // 1000, self._size + self._held_bytes)
                self._begin()
                return found
            case Relation():
                return self._relation(message)
            case Truncate(relations):
                return Truncated([self._view(relation) for relation in relations])
        return None

    def close(self) -> None:
        """Nothing more comes: forget the open transaction."""
        if self._spilled is not None:
            self._spilled.close()
        self._begin()

    def _begin(self) -> None:
        self._changes, self._spilled, self.is_open = [], None, False
        self._held_bytes = self._size = 0

    def _spill(self) -> None:
        if self._changes:
            self._spilled = self._spilled or SpilledChanges()
            self._spilled.extend(self._changes)
            self._changes = []
        self._size += self._held_bytes
        self._held_bytes = 0

    def delete_rows(self, view: TableView, keys: Mapping[str, Key]) -> None:
        """A table was truncated, which had rows with these keys, by their records' keys, when the open transaction began."""
        left = dict(keys)
        for change in chain(self._spilled or (), self._changes):
            if change.table == view.table.name:
                if change.after is None:
                    left.pop(view.record_key(change.key), None)
                else:
                    left[view.record_key(change.key)] = change.key
        self._changes += (Change(view.table.name, Op.DELETE, key, None, None) for key in left.values())

    def _update(self, update: Update) -> None:
        view = self._view(update.relation)
        name, before, old_key = view.table.name, None, None
        if update.old is not None:
            before = view.row(update.old) if update.old_is_whole else None
            old_key = view.key_in(update.old) if before is None else view.key_of(before)
        row = view.row(update.new, before)
        key = view.key_of(row)
        if old_key is None or (old_key == key and view.record_key(old_key) == view.record_key(key)):
            self._changes.append(Change(name, Op.UPDATE, key, before, row))
        else:  # a row of a topic has one key for ever
            self._changes.append(Change(name, Op.DELETE, old_key, before, None))
            self._changes.append(Change(name, Op.CREATE, key, None, row))

    def _relation(self, relation: Relation) -> NewView:
        name = TableName(relation.schema, relation.name)
        if name not in self._keys:
            known = self._views.get(relation.oid)
            was = "" if known is None else f", which was {known.table.name} before,"
            raise TableError(
                f"table {name.published}{was} is none of those that are published: {', '.join(each.published for each in self._keys)}"
            )
        view = TableView.of_relation(relation, self._keys[name], self._as_text.get(name, ()))
        self._views[relation.oid] = view
        return NewView(view)

    def _view(self, relation: int) -> TableView:
        try:
            return self._views[relation]
        except KeyError:
            raise StreamError(f"a change of a table that the stream has not named before, OID {relation}") from None
