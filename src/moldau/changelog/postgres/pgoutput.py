"""Messages of logical replication, as PostgreSQL's plugin `pgoutput` writes them in version 1 of its protocol: bytes in, values out.

Facts: PostgreSQL's documentation, "Logical Replication Message Formats". Values of columns are left in text format, since what they mean
depends on the table, which is looked up elsewhere. Messages that say nothing about rows (Origin, Type) are None.
"""

import struct
from struct import Struct
from typing import Final, NamedTuple

from moldau.changelog.postgres.errors import StreamError

POSTGRES_EPOCH_US: Final = 946_684_800_000_000
"""2000-01-01 in microseconds since 1970."""


class Unchanged:
    """Marks a column whose value is stored out of line (TOAST) and was not changed by an update, so that it is not sent."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = Unchanged()

Columns = list[bytes | Unchanged | None]
"""Of a row, in the order of its relation; None is NULL."""


class Begin(NamedTuple):
    """A transaction begins; all messages up to its commit are its own."""

    commit_lsn: int
    time_us: int
    """Of its commit, since 1970."""
    transaction: int


class CommitEnd(NamedTuple):
    """The transaction ends, committed."""

    commit_lsn: int
    end_lsn: int
    """After the commit: where reading continues."""
    time_us: int


class Column(NamedTuple):
    """Of a relation."""

    name: str
    type_oid: int
    modifier: int
    """Of the type, such as a length; -1 for none."""
    is_identity: bool
    """Part of the replica identity: of the primary key, or any column with REPLICA IDENTITY FULL."""


class Relation(NamedTuple):
    """What a table is from here on; it comes before the first change of a table, and after each change of what it is."""

    oid: int
    schema: str
    name: str
    identity: str
    """`d` the primary key, `f` all columns, `i` an index, `n` nothing."""
    columns: tuple[Column, ...]


class Insert(NamedTuple):
    """A new row."""

    relation: int
    new: Columns


class Update(NamedTuple):
    """A row was changed. With REPLICA IDENTITY FULL `old` is the whole row; else it is the key alone, and there only if the key changed."""

    relation: int
    old: Columns | None
    old_is_whole: bool
    new: Columns


class Delete(NamedTuple):
    """A row was deleted. `old` is the whole row or the key alone, as in an update."""

    relation: int
    old: Columns
    old_is_whole: bool


class Truncate(NamedTuple):
    """All rows of these tables were deleted."""

    relations: tuple[int, ...]


Message = Begin | CommitEnd | Relation | Insert | Update | Delete | Truncate

_BEGIN: Final = Struct(">qqi")
_COMMIT: Final = Struct(">bqqq")
_OID: Final = Struct(">I")
_SHORT: Final = Struct(">H")
_COLUMN: Final = Struct(">Ii")
_TRUNCATE: Final = Struct(">IB")
_SIZE: Final = _OID
_NULL, _UNCHANGED, _TEXT = b"nut"
_NEW: Final = ord("N")


def decode(data: bytes) -> Message | None:
    """The message; None for one that says nothing about rows. StreamError for one that cannot be read."""
    try:
        return _decode(data)
    except (IndexError, ValueError, struct.error) as error:
        raise StreamError(f"message of logical replication cannot be read: {error!r}; its first bytes are {data[:40]!r}") from error


def _decode(data: bytes) -> Message | None:
    match data[:1]:
        case b"I":
            if data[5] != _NEW:
                _expect(data, 5, b"N")
            return Insert(int.from_bytes(data[1:5]), _columns(data, 6)[0])
        case b"U":
            return _update(data)
        case b"D":
            (relation,) = _OID.unpack_from(data, 1)
            _expect(data, 5, b"KO")
            old, _ = _columns(data, 6)
            return Delete(relation, old, data[5:6] == b"O")
        case b"B":
            lsn, time_us, transaction = _BEGIN.unpack_from(data, 1)
            return Begin(lsn, time_us + POSTGRES_EPOCH_US, transaction)
        case b"C":
            _, lsn, end_lsn, time_us = _COMMIT.unpack_from(data, 1)
            return CommitEnd(lsn, end_lsn, time_us + POSTGRES_EPOCH_US)
        case b"R":
            return _relation(data)
        case b"T":
            count, _ = _TRUNCATE.unpack_from(data, 1)
            return Truncate(tuple(_OID.unpack_from(data, 6 + 4 * index)[0] for index in range(count)))
        case b"O" | b"Y":
            return None
        case kind:
            raise ValueError(f"unknown kind of message {kind!r}")


def _update(data: bytes) -> Update:
    (relation,) = _OID.unpack_from(data, 1)
    _expect(data, 5, b"KON")
    old, position = None, 5
    if data[5:6] != b"N":
        old, position = _columns(data, 6)
    _expect(data, position, b"N")
    new, _ = _columns(data, position + 1)
    return Update(relation, old, data[5:6] == b"O", new)


def _relation(data: bytes) -> Relation:
    (oid,) = _OID.unpack_from(data, 1)
    schema, position = _string(data, 5)
    name, position = _string(data, position)
    identity = data[position : position + 1].decode()
    (count,) = _SHORT.unpack_from(data, position + 1)
    position += 3
    columns = []
    for _ in range(count):
        flags = data[position]
        column, position = _string(data, position + 1)
        type_oid, modifier = _COLUMN.unpack_from(data, position)
        position += _COLUMN.size
        columns.append(Column(column, type_oid, modifier, bool(flags & 1)))
    return Relation(oid, schema or "pg_catalog", name, identity, tuple(columns))


def _columns(data: bytes, position: int) -> tuple[Columns, int]:
    """The columns of a row that begins there, and where it ends."""
    count = data[position] << 8 | data[position + 1]
    position += 2
    found: Columns = []
    append, size = found.append, _SIZE.unpack_from
    for _ in range(count):
        kind = data[position]
        if kind == _TEXT:
            start = position + 5
            position = start + size(data, position + 1)[0]
            append(data[start:position])
        elif kind == _NULL:
            found.append(None)
            position += 1
        elif kind == _UNCHANGED:
            found.append(UNCHANGED)
            position += 1
        else:
            raise ValueError(f"unknown kind of column {kind}")
    if position > len(data):
        raise IndexError("a value ends after the message")
    return found, position


def _string(data: bytes, position: int) -> tuple[str, int]:
    end = data.index(0, position)
    return data[position:end].decode(), end + 1


def _expect(data: bytes, position: int, kinds: bytes) -> None:
    if data[position] not in kinds:
        raise ValueError(f"unexpected byte {data[position]} at {position}")
