"""The records of ``__consumer_offsets``, in Kafka's formats (``docs/formats/consumer-offsets.md``; do not change).

A key begins with its kind, called version: 0 and 1 for the offset of a group in a partition, 2 for the group itself, higher ones for the
newer kinds of groups, which are left alone. A value begins with its version. All versions of a value that Kafka has written are read;
written are those that Kafka 4.3 writes: offsets as 4, or 1 where a client asked for a time of expiry (which only that version can carry;
the leader epoch is lost then), groups as 3.

The value of a group is Kafka's ``GroupMetadataValue``. Fields by version, ``+n`` from that one on::

    protocol type, generation (int32), protocol (or null), leader (or null), +2 time of the state (int64), members:
        member id, +3 instance id (or null), client id, client host, +1 rebalance timeout (int32), session timeout (int32),
        subscription (bytes), assignment (bytes)

Version 4 of both values is the first with compact lengths and tagged fields; that of groups knows no tags.
"""

import struct
from struct import Struct
from typing import NamedTuple

from moldau.broker.groups.offsets import NO_TOPIC_ID, NOT_SET, CommittedOffset
from moldau.broker.groups.states import NO_REBALANCE_TIMEOUT, NO_TIMESTAMP, GroupSnapshot, MemberState
from moldau.model.errors import ErrorCode, PeerError, ProtocolError
from moldau.protocol.varint import read_uvarint, uvarint

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_OFFSET_AND_EPOCH = Struct(">qi")
_TWO_TIMES = Struct(">qq")
_START_4 = Struct(">hqi")
_START_1 = Struct(">hq")

_OFFSET_KEY = 1
_GROUP_KEY = 2
_WITH_EXPIRY = 1
_WITH_EPOCH = 3
_FLEXIBLE = 4
_GROUP_VERSION = 3
_GROUP_LAST_VERSION = 4
_WITH_REBALANCE_TIMEOUT = 1
_WITH_TIMESTAMP = 2
_WITH_INSTANCE_ID = 3
_TOPIC_ID_TAG = 0
_ONE_TOPIC_ID = uvarint(1) + uvarint(_TOPIC_ID_TAG) + uvarint(len(NO_TOPIC_ID))
_TAGS_SIZE = len(_ONE_TOPIC_ID) + len(NO_TOPIC_ID)
_NO_TAGS = uvarint(0)
_committed_offset = tuple.__new__


class OffsetKey(NamedTuple):
    """Key of the offset of a group in a partition."""

    group_id: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """Key of a group."""

    group_id: str


class UnknownKey(NamedTuple):
    """Key of something else."""

    version: int


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """The key of an offset."""
    return offset_key_start(group_id, topic) + _INT32.pack(partition)


def offset_key_start(group_id: str, topic: str) -> bytes:
    """The keys of all offsets of a group in a topic, without the partition's number."""
    return _INT16.pack(_OFFSET_KEY) + _text(group_id) + _text(topic)


pack_partition = _INT32.pack
"""A partition's number, the end of such a key."""
PARTITION_SIZE = _INT32.size


def unpack_partition(key: bytes) -> int:
    """The partition's number in such a key."""
    partition: int = _INT32.unpack_from(key, len(key) - PARTITION_SIZE)[0]
    return partition


def group_key(group_id: str) -> bytes:
    """The key of a group."""
    return _INT16.pack(_GROUP_KEY) + _text(group_id)


def decode_key(key: bytes | None) -> OffsetKey | GroupKey | UnknownKey:
    """What a record is about. PeerError INVALID_RECORD for a malformed key."""
    if key is None:
        raise _malformed("a record without a key")
    try:
        version: int = _INT16.unpack_from(key)[0]
        if 0 <= version <= _OFFSET_KEY:
            group_id, position = _read_text(key, _INT16.size)
            topic, position = _read_text(key, position)
            partition: int = _INT32.unpack_from(key, position)[0]
            _check_end(key, position + _INT32.size)
            return OffsetKey(group_id, topic, partition)
        if version == _GROUP_KEY:
            group_id, position = _read_text(key, _INT16.size)
            _check_end(key, position)
            return GroupKey(group_id)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise _malformed(f"a key of {len(key)} bytes: {error}") from error
    return UnknownKey(version)


def offset_value(committed: CommittedOffset) -> bytes:
    """The value of an offset."""
    offset, leader_epoch, text, commit_timestamp_ms, expire_timestamp_ms, topic_id, _ = committed
    metadata = text.encode()
    if expire_timestamp_ms != NOT_SET:
        times = _TWO_TIMES.pack(commit_timestamp_ms, expire_timestamp_ms)
        return b"".join((_START_1.pack(_WITH_EXPIRY, offset), _INT16.pack(len(metadata)), metadata, times))
    start = _START_4.pack(_FLEXIBLE, offset, leader_epoch)
    tags = _NO_TAGS if topic_id == NO_TOPIC_ID else _ONE_TOPIC_ID + topic_id
    return b"".join((start, uvarint(len(metadata) + 1), metadata, _INT64.pack(commit_timestamp_ms), tags))


def decode_offset(value: bytes, order: int, topic_ids: dict[bytes, bytes]) -> CommittedOffset:
    """An offset from its value; `order` is the offset of the record. `topic_ids`: those that were decoded before, so that offsets of a
    topic share one. PeerError INVALID_RECORD.
    """
    try:
        version: int = _INT16.unpack_from(value)[0]
        if version == _FLEXIBLE:
            return _decode_offset_4(value, order, topic_ids)
        if 0 <= version < _FLEXIBLE:
            return _decode_old_offset(value, version, order)
    except (IndexError, struct.error, UnicodeDecodeError, ProtocolError) as error:
        raise _malformed(f"the value of an offset of {len(value)} bytes: {error}") from error
    raise _malformed(f"the value of an offset has the unknown version {version}")


def _decode_offset_4(value: bytes, order: int, topic_ids: dict[bytes, bytes]) -> CommittedOffset:
    _, offset, epoch = _START_4.unpack_from(value)
    length, position = read_uvarint(value, _START_4.size)
    end = position + max(length - 1, 0)
    metadata = value[position:end].decode()
    timestamp: int = _INT64.unpack_from(value, end)[0]
    position = end + _INT64.size
    tags = value[position:]
    if tags.startswith(_ONE_TOPIC_ID) and len(tags) == _TAGS_SIZE:  # as nearly always
        topic_id = tags[len(_ONE_TOPIC_ID) :]
    else:
        topic_id = _decode_topic_id(value, position)
    topic_id = topic_ids.setdefault(topic_id, topic_id)
    committed: CommittedOffset = _committed_offset(CommittedOffset, (offset, epoch, metadata, timestamp, NOT_SET, topic_id, order))
    return committed


def _decode_topic_id(value: bytes, position: int) -> bytes:
    """The topic id among the tagged fields at the end of a value."""
    topic_id = NO_TOPIC_ID
    count, position = read_uvarint(value, position)
    for _ in range(count):
        tag, position = read_uvarint(value, position)
        size, position = read_uvarint(value, position)
        if tag == _TOPIC_ID_TAG and size == len(NO_TOPIC_ID):
            topic_id = value[position : position + size]
        position += size
    _check_end(value, position)
    return topic_id


def _decode_old_offset(value: bytes, version: int, order: int) -> CommittedOffset:
    position = _INT16.size
    epoch, expires = NOT_SET, NOT_SET
    if version == _WITH_EPOCH:
        offset, epoch = _OFFSET_AND_EPOCH.unpack_from(value, position)
        position += _OFFSET_AND_EPOCH.size
    else:
        (offset,) = _INT64.unpack_from(value, position)
        position += _INT64.size
    metadata, position = _read_text(value, position)
    if version == _WITH_EXPIRY:
        timestamp, expires = _TWO_TIMES.unpack_from(value, position)
        position += _TWO_TIMES.size
    else:
        (timestamp,) = _INT64.unpack_from(value, position)
        position += _INT64.size
    _check_end(value, position)
    return CommittedOffset(offset, epoch, metadata, timestamp, expires, NO_TOPIC_ID, order)


def group_value(state: GroupSnapshot) -> bytes:
    """The value of a group."""
    parts = [
        _INT16.pack(_GROUP_VERSION),
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


def decode_group(value: bytes) -> GroupSnapshot:
    """A group from its value. PeerError INVALID_RECORD."""
    try:
        reader = _Reader(value)
        state = _group(reader)
        reader.tags()
        if reader.position != len(value):
            raise IndexError(f"it should end at byte {reader.position}")
    except (IndexError, struct.error, UnicodeDecodeError, ProtocolError) as error:
        raise _malformed(f"the value of a group of {len(value)} bytes: {error}") from error
    return state


def _group(reader: "_Reader") -> GroupSnapshot:
    version = reader.version
    protocol_type, generation = reader.string(), reader.number(_INT32)
    protocol, leader = reader.nullable_string(), reader.nullable_string()
    timestamp_ms = reader.number(_INT64) if version >= _WITH_TIMESTAMP else NO_TIMESTAMP
    members = tuple(_member(reader) for _ in range(reader.length(_INT32)))
    return GroupSnapshot(protocol_type, generation, protocol, leader, timestamp_ms, members)


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
        if not 0 <= self.version <= _GROUP_LAST_VERSION:
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


def _read_text(data: bytes, position: int) -> tuple[str, int]:
    (length,) = _INT16.unpack_from(data, position)
    start = position + _INT16.size
    end = start + length
    if length < 0 or end > len(data):
        raise IndexError(f"text of {length} bytes at byte {start}")
    return data[start:end].decode(), end


def _check_end(data: bytes, position: int) -> None:
    if position != len(data):
        raise IndexError(f"it should end at byte {position}")


def _malformed(what: str) -> PeerError:
    return PeerError(ErrorCode.INVALID_RECORD, what)
