"""The records of ``__consumer_offsets``, in Kafka's formats (``docs/formats/consumer-offsets.md``; do not change).

A key begins with its kind, called version: 0 and 1 for the offset of a group in a partition, 2 for the group itself, higher ones for the
newer kinds of groups, which are left alone. A value begins with its version. All versions of a value that Kafka has written are read;
written are those that Kafka 4.3 writes: offsets as 4, or 1 where a client asked for a time of expiry (which only that version can carry;
the leader epoch is lost then), groups as 3.
"""

import struct
from struct import Struct
from typing import NamedTuple

from moldau.broker.groups.offsets import NO_TOPIC_ID, NOT_SET, CommittedOffset
from moldau.model.errors import ErrorCode, PeerError, ProtocolError
from moldau.protocol.varint import read_uvarint, uvarint

_VERSION = Struct(">h")
_PARTITION = Struct(">i")
_OFFSET = Struct(">q")
_OFFSET_AND_EPOCH = Struct(">qi")
_TWO_TIMES = Struct(">qq")
_START_4 = Struct(">hqi")
_START_1 = Struct(">hq")

_OFFSET_KEY = 1
_GROUP_KEY = 2
_WITH_EXPIRY = 1
_WITH_EPOCH = 3
_FLEXIBLE = 4
_TOPIC_ID_TAG = 0
_ONE_TOPIC_ID = uvarint(1) + uvarint(_TOPIC_ID_TAG) + uvarint(len(NO_TOPIC_ID))
_NO_TAGS = uvarint(0)


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
    return offset_key_start(group_id, topic) + _PARTITION.pack(partition)


def offset_key_start(group_id: str, topic: str) -> bytes:
    """The keys of all offsets of a group in a topic, without the partition's number."""
    return _VERSION.pack(_OFFSET_KEY) + _text(group_id) + _text(topic)


pack_partition = _PARTITION.pack
"""A partition's number, the end of such a key."""


def group_key(group_id: str) -> bytes:
    """The key of a group."""
    return _VERSION.pack(_GROUP_KEY) + _text(group_id)


def decode_key(key: bytes | None) -> OffsetKey | GroupKey | UnknownKey:
    """What a record is about. PeerError INVALID_RECORD for a malformed key."""
    if key is None:
        raise _malformed("a record without a key")
    try:
        version: int = _VERSION.unpack_from(key)[0]
        if 0 <= version <= _OFFSET_KEY:
            group_id, position = _read_text(key, _VERSION.size)
            topic, position = _read_text(key, position)
            partition: int = _PARTITION.unpack_from(key, position)[0]
            _check_end(key, position + _PARTITION.size)
            return OffsetKey(group_id, topic, partition)
        if version == _GROUP_KEY:
            group_id, position = _read_text(key, _VERSION.size)
            _check_end(key, position)
            return GroupKey(group_id)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise _malformed(f"a key of {len(key)} bytes: {error}") from error
    return UnknownKey(version)


def offset_value(committed: CommittedOffset) -> bytes:
    """The value of an offset."""
    metadata = committed.metadata.encode()
    if committed.expire_timestamp_ms != NOT_SET:
        start = _START_1.pack(_WITH_EXPIRY, committed.offset)
        times = _TWO_TIMES.pack(committed.commit_timestamp_ms, committed.expire_timestamp_ms)
        return b"".join((start, _VERSION.pack(len(metadata)), metadata, times))
    start = _START_4.pack(_FLEXIBLE, committed.offset, committed.leader_epoch)
    tags = _NO_TAGS if committed.topic_id == NO_TOPIC_ID else _ONE_TOPIC_ID + committed.topic_id
    return b"".join((start, uvarint(len(metadata) + 1), metadata, _OFFSET.pack(committed.commit_timestamp_ms), tags))


def decode_offset(value: bytes, order: int) -> CommittedOffset:
    """An offset from its value; `order` is the offset of the record. PeerError INVALID_RECORD."""
    try:
        version: int = _VERSION.unpack_from(value)[0]
        if version == _FLEXIBLE:
            return _decode_offset_4(value, order)
        if 0 <= version < _FLEXIBLE:
            return _decode_old_offset(value, version, order)
    except (IndexError, struct.error, UnicodeDecodeError, ProtocolError) as error:
        raise _malformed(f"the value of an offset of {len(value)} bytes: {error}") from error
    raise _malformed(f"the value of an offset has the unknown version {version}")


def _decode_offset_4(value: bytes, order: int) -> CommittedOffset:
    _, offset, epoch = _START_4.unpack_from(value)
    length, position = read_uvarint(value, _START_4.size)
    end = position + max(length - 1, 0)
    metadata = value[position:end].decode()
    timestamp: int = _OFFSET.unpack_from(value, end)[0]
    topic_id = NO_TOPIC_ID
    count, position = read_uvarint(value, end + _OFFSET.size)
    for _ in range(count):
        tag, position = read_uvarint(value, position)
        size, position = read_uvarint(value, position)
        if tag == _TOPIC_ID_TAG and size == len(NO_TOPIC_ID):
            topic_id = value[position : position + size]
        position += size
    _check_end(value, position)
    return CommittedOffset(offset, epoch, metadata, timestamp, NOT_SET, topic_id, order)


def _decode_old_offset(value: bytes, version: int, order: int) -> CommittedOffset:
    position = _VERSION.size
    epoch, expires = NOT_SET, NOT_SET
    if version == _WITH_EPOCH:
        offset, epoch = _OFFSET_AND_EPOCH.unpack_from(value, position)
        position += _OFFSET_AND_EPOCH.size
    else:
        (offset,) = _OFFSET.unpack_from(value, position)
        position += _OFFSET.size
    metadata, position = _read_text(value, position)
    if version == _WITH_EXPIRY:
        timestamp, expires = _TWO_TIMES.unpack_from(value, position)
        position += _TWO_TIMES.size
    else:
        (timestamp,) = _OFFSET.unpack_from(value, position)
        position += _OFFSET.size
    _check_end(value, position)
    return CommittedOffset(offset, epoch, metadata, timestamp, expires, NO_TOPIC_ID, order)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _VERSION.pack(len(encoded)) + encoded


def _read_text(data: bytes, position: int) -> tuple[str, int]:
    (length,) = _VERSION.unpack_from(data, position)
    start = position + _VERSION.size
    end = start + length
    if length < 0 or end > len(data):
        raise IndexError(f"text of {length} bytes at byte {start}")
    return data[start:end].decode(), end


def _check_end(data: bytes, position: int) -> None:
    if position != len(data):
        raise IndexError(f"it should end at byte {position}")


def _malformed(what: str) -> PeerError:
    return PeerError(ErrorCode.INVALID_RECORD, what)
