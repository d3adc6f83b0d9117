"""The value of a group in ``__consumer_offsets``: Kafka's ``GroupMetadataValue``, versions 0 to 4 read, 3 written (do not change).

Fields by version, ``+n`` from that one on::

    protocol type, generation (int32), protocol (or null), leader (or null), +2 time of the state (int64), members:
        member id, +3 instance id (or null), client id, client host, +1 rebalance timeout (int32), session timeout (int32),
        subscription (bytes), assignment (bytes)

Version 4 is the first with compact lengths and tagged fields, of which it knows none.
"""

import struct
from struct import Struct

from moldau.broker.groups.state import NO_REBALANCE_TIMEOUT, NO_TIMESTAMP, GroupState, MemberState
from moldau.model.errors import ErrorCode, PeerError, ProtocolError
from moldau.protocol.varint import read_uvarint

VERSION = 3
LAST_VERSION = 4
_FLEXIBLE = 4
_WITH_REBALANCE_TIMEOUT = 1
_WITH_TIMESTAMP = 2
_WITH_INSTANCE_ID = 3
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")


def group_value(state: GroupState) -> bytes:
    """The value of a group."""
    parts = [
        _INT16.pack(VERSION),
        _text(state.protocol_type),
        _INT32.pack(state.generation),
        _text(state.protocol),
        _text(state.leader),
        _INT64.pack(state.state_timestamp_ms),
        _INT32.pack(len(state.members)),
    ]
    for member in state.members:
        parts += (
            _text(member.member_id),
            _text(member.group_instance_id),
            _text(member.client_id),
            _text(member.client_host),
            _INT32.pack(member.rebalance_timeout_ms),
            _INT32.pack(member.session_timeout_ms),
            _INT32.pack(len(member.subscription)),
            member.subscription,
            _INT32.pack(len(member.assignment)),
            member.assignment,
        )
    return b"".join(parts)


def decode_group(value: bytes) -> GroupState:
    """A group from its value. PeerError INVALID_RECORD."""
    try:
        reader = _Reader(value)
        state = _group(reader)
        reader.tags()
        if reader.position != len(value):
            raise IndexError(f"it should end at byte {reader.position}")
    except (IndexError, struct.error, UnicodeDecodeError, ProtocolError) as error:
        raise PeerError(ErrorCode.INVALID_RECORD, f"the value of a group of {len(value)} bytes: {error}") from error
    return state


def _group(reader: "_Reader") -> GroupState:
    version = reader.version
    protocol_type, generation = reader.string(), reader.number(_INT32)
    protocol, leader = reader.nullable_string(), reader.nullable_string()
    timestamp_ms = reader.number(_INT64) if version >= _WITH_TIMESTAMP else NO_TIMESTAMP
    members = tuple(_member(reader) for _ in range(reader.length(_INT32)))
    return GroupState(protocol_type, generation, protocol, leader, timestamp_ms, members)


def _member(reader: "_Reader") -> MemberState:
    version = reader.version
    member = MemberState(
        member_id=reader.string(),
        group_instance_id=reader.nullable_string() if version >= _WITH_INSTANCE_ID else None,
        client_id=reader.string(),
        client_host=reader.string(),
        rebalance_timeout_ms=reader.number(_INT32) if version >= _WITH_REBALANCE_TIMEOUT else NO_REBALANCE_TIMEOUT,
        session_timeout_ms=reader.number(_INT32),
        subscription=reader.blob(),
        assignment=reader.blob(),
    )
    reader.tags()
    return member


class _Reader:
    """A place in a value, moving forward."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0
        self.version = self.number(_INT16)
        if not 0 <= self.version <= LAST_VERSION:
            raise IndexError(f"version {self.version} is not known")

    def number(self, layout: Struct) -> int:
        value: int = layout.unpack_from(self._data, self.position)[0]
        self.position += layout.size
        return value

    def length(self, layout: Struct) -> int:
        if self.version < _FLEXIBLE:
            return self.number(layout)
        length, self.position = read_uvarint(self._data, self.position)
        return length - 1

    def nullable_string(self) -> str | None:
        length = self.length(_INT16)
        return None if length == -1 else self._take(length).decode()

    def string(self) -> str:
        return self._take(self.length(_INT16)).decode()

    def blob(self) -> bytes:
        return self._take(self.length(_INT32))

    def tags(self) -> None:
        if self.version < _FLEXIBLE:
            return
        count, self.position = read_uvarint(self._data, self.position)
        for _ in range(count):
            _, self.position = read_uvarint(self._data, self.position)
            size, self.position = read_uvarint(self._data, self.position)
            self._take(size)

    def _take(self, length: int) -> bytes:
        start = self.position
        self.position = start + length
        if length < 0 or self.position > len(self._data):
            raise IndexError(f"{length} bytes at byte {start}")
        return self._data[start : self.position]


def _text(text: str | None) -> bytes:
    if text is None:
        return _INT16.pack(-1)
    encoded = text.encode()
    return _INT16.pack(len(encoded)) + encoded
