"""The nodes of a coordination tree as rows of a table: what each request reads and writes, and which watches it concerns.

Knows nothing of sessions, watches and syncs. The caller begins and ends the transactions.
"""

import sqlite3
from collections.abc import Callable
from typing import assert_never

from moldau.adapters.sqlite_file import SESSION, TRANSACTION, last_of, node_checksum, note_last
from moldau.model.errors import CoordinationError
from moldau.ports.coordination import (
    BadVersionError,
    Change,
    Check,
    Children,
    Create,
    Created,
    Data,
    Delete,
    EphemeralParentError,
    EventType,
    Exists,
    GetChildren,
    GetData,
    Multi,
    MultiDone,
    NodeError,
    NodeExistsError,
    NodeStat,
    NoNodeError,
    NotEmptyError,
    SetData,
    Write,
    parent_of,
)

Read = GetData | Exists | GetChildren
_CHILDREN = "(SELECT count(*) FROM node AS child WHERE child.parent = node.path)"
_STAT = f"version, created_id, created_ms, modified_ms, owner, {_CHILDREN} FROM node WHERE path = ?"
_SELECT_DATA = f"SELECT data, {_STAT}"
_SELECT_STAT = f"SELECT {_STAT}"
_SELECT_OWNER = "SELECT owner FROM node WHERE path = ?"


class SqliteTree:
    """The nodes of one database, and the session that makes its ephemeral ones."""

    def __init__(self, database: sqlite3.Connection, time_ms: Callable[[], int], session_id: int = 0) -> None:
        """`session_id` is that of a session which is stored already; without one the first write stores the next."""
        self._database = database
        self._time_ms = time_ms
        self.session_id = session_id or last_of(database, SESSION) + 1
        """Larger than that of every session which wrote something."""
        self._has_written = session_id != 0
        self._last_transaction = last_of(database, TRANSACTION)
        self._transaction_id = 0
        """That of the present write; 0 before it creates a node."""
        self._now_ms = 0
        self._parents: set[str] = set()
        """Nodes that the present write knows to exist and to be persistent."""
        self._changes: list[Change] = []

    def read(self, request: Read) -> Data | NodeStat | Children | None:
        """Carry out a read."""
        if isinstance(request, GetData):  # first, and without a match: a start reads every node
            row = self._database.execute(_SELECT_DATA, (request.path,)).fetchone()
            if row is None:
                raise NoNodeError(request.path)
            data, *stat = row
            return Data(data, NodeStat(*stat))
        if isinstance(request, Exists):
            return self._stat(request.path)
        return self._children(request.path)

    def write(self, request: Create | SetData | Delete | Multi) -> tuple[Created | NodeStat | MultiDone | None, list[Change]]:
        """Carry out a write inside a transaction that is rolled back on errors: its result, and what changed."""
        self._changes = []
        self._parents.clear()
        self._transaction_id = 0
        self._now_ms = self._time_ms()
        if not self._has_written:
            note_last(self._database, SESSION, self.session_id)
        result = self._multi(request) if isinstance(request, Multi) else self._write(request)
        return result, self._changes

    def committed(self) -> None:
        """The transaction of the last write is committed."""
        self._has_written = True
        self._last_transaction = self._transaction_id or self._last_transaction

    def refresh(self) -> None:
        """Read the last transaction again, inside one: another process may have written since."""
        self._last_transaction = last_of(self._database, TRANSACTION)

    def end_session(self) -> None:
        """Remove all ephemeral nodes, inside a transaction."""
        self._database.execute("DELETE FROM node WHERE owner != 0")

    def _multi(self, request: Multi) -> MultiDone:
        results = []
        for index, write in enumerate(request.writes):
            try:
                results.append(self._write(write))
            except NodeError as error:
                error.index = index
                raise
        return MultiDone(tuple(results))

    def _write(self, write: Write) -> Created | NodeStat | None:
        match write:
            case SetData():
                return self._set(write)
            case Create():
                return self._create(write)
            case Delete():
                self._delete(write)
            case Check(path, version):
                self._check(path, version)
            case _:
                assert_never(write)
        return None

    def _create(self, write: Create) -> Created:
        parent = parent_of(write.path)
        path = f"{write.path}{self._next_number(parent)}" if write.sequential else write.path
        if parent not in self._parents:
            self._check_parent(parent)
        if not self._transaction_id:
            self._transaction_id = self._last_transaction + 1
            note_last(self._database, TRANSACTION, self._transaction_id)
        now = self._now_ms
        stat = NodeStat(0, self._transaction_id, now, now, self.session_id if write.ephemeral else 0, 0)
        columns = (path, parent, write.data, 0, 0, stat.created_id, now, now, stat.owner)
        try:
            self._database.execute("INSERT INTO node VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (*columns, node_checksum(*columns)))
        except sqlite3.IntegrityError as error:  # of its primary key, the path: no other column can break a rule
            raise NodeExistsError(path) from error
        if not write.ephemeral:
            self._parents.add(path)
        self._changes.append((EventType.CREATED, path))
        self._changes.append((EventType.CHILDREN, parent))
        return Created(path, stat)

    def _check_parent(self, parent: str) -> None:
        row = self._database.execute(_SELECT_OWNER, (parent,)).fetchone()
        if row is None:
            raise NoNodeError(parent)
        if row[0]:
            raise EphemeralParentError(parent)
        self._parents.add(parent)

    def _next_number(self, parent: str) -> str:
        row = self._database.execute(
            "UPDATE node SET sequence = sequence + 1, "
            "checksum = node_checksum(path, parent, data, version, sequence + 1, created_id, created_ms, modified_ms, owner) "
            "WHERE path = ? RETURNING sequence",
            (parent,),
        ).fetchone()
        if row is None:
            raise NoNodeError(parent)
        return f"{row[0] - 1:010d}"

    def _set(self, write: SetData) -> NodeStat:
        stat = self._stat(write.path)
        if stat is None:
            raise NoNodeError(write.path)
        if write.version not in (-1, stat.version):
            raise BadVersionError(write.path)
        now = self._now_ms
        self._database.execute(
            "UPDATE node SET data = :data, version = version + 1, modified_ms = :now, "
            "checksum = node_checksum(path, parent, :data, version + 1, sequence, created_id, created_ms, :now, owner) WHERE path = :path",
            {"data": write.data, "now": now, "path": write.path},
        )
        self._changes.append((EventType.CHANGED, write.path))
        return NodeStat(stat.version + 1, stat.created_id, stat.created_ms, now, stat.owner, stat.children)

    def _delete(self, write: Delete) -> None:
        path = write.path
        self._check(path, write.version)
        if path == "/":
            raise CoordinationError("/: the root cannot be deleted", retriable=False)
        if self._database.execute("SELECT 1 FROM node WHERE parent = ? LIMIT 1", (path,)).fetchone() is not None:
            raise NotEmptyError(path)
        self._database.execute("DELETE FROM node WHERE path = ?", (path,))
        self._parents.discard(path)
        self._changes.append((EventType.DELETED, path))
        self._changes.append((EventType.CHILDREN, parent_of(path)))

    def _check(self, path: str, version: int) -> None:
        found = self._version(path)
        if found is None:
            raise NoNodeError(path)
        if version not in (-1, found):
            raise BadVersionError(path)

    def _children(self, path: str) -> Children:
        rows = self._database.execute("SELECT path FROM node WHERE parent = ? ORDER BY path", (path,)).fetchall()
        stat = self._stat(path)
        if stat is None:
            raise NoNodeError(path)
        start = len(path) if path == "/" else len(path) + 1
        return Children([each[start:] for (each,) in rows], stat)

    def _stat(self, path: str) -> NodeStat | None:
        row = self._database.execute(_SELECT_STAT, (path,)).fetchone()
        return None if row is None else NodeStat(*row)

    def _version(self, path: str) -> int | None:
        row = self._database.execute("SELECT version FROM node WHERE path = ?", (path,)).fetchone()
        return None if row is None else row[0]
