"""Keys and values of ``__transaction_state``, in Kafka's format: docs/formats/transaction-state.md.

Written is what Kafka 4.3 writes under ``transaction.version`` 2: values of version 1. Read are versions 0 and 1. One field is ours: after
an InitProducerId by which a producer continued (KIP-360) the epoch that it had before, as a tagged field that Kafka ignores; with it a
repeated request is recognised after a restart, which Kafka does not do.
"""

from struct import Struct
from struct import error as struct_error

from moldau.broker.transactions.transaction import (
    EPOCH_PER_TRANSACTION,
    LAST_EPOCH,
    NO_EPOCH,
    NO_PARTITIONS,
    NO_PRODUCER_ID,
    OLD_PROTOCOL,
    Partitions,
    TransactionMetadata,
    TransactionState,
    partitions_of,
)
from moldau.model.errors import ErrorCode, PeerError, ProtocolError
from moldau.model.identity import TopicPartition
from moldau.protocol.varint import read_uvarint, uvarint

KEY_VERSION = 0
VALUE_VERSION = 1
VALUE_VERSION_OLD = 0

PREVIOUS_PRODUCER_ID_TAG = 0
NEXT_PRODUCER_ID_TAG = 1
CLIENT_VERSION_TAG = 2
LAST_EPOCH_TAG = 10_000
"""Ours; far from those that Kafka counts up."""

_NULL = b"\0"
_KEY = Struct(">hh")
_HEAD = Struct(">hqhib")  # version, producer id, epoch, timeout, state
_TIMES = Struct(">qq")  # last update, start
_INT64 = Struct(">q")
_INT32 = Struct(">i")
_INT16 = Struct(">h")
_STATES = {state.value: state for state in TransactionState}
_TAG_COUNTS = tuple(map(uvarint, range(5)))
_LAST_EPOCH_START = uvarint(LAST_EPOCH_TAG) + b"\x02"


def encode_key(transactional_id: str) -> bytes:
    """The key of an id."""
    text = transactional_id.encode()
    return _KEY.pack(KEY_VERSION, len(text)) + text


def decode_key(key: bytes | None) -> str | None:
    """The id; None for a key of another kind. PeerError INVALID_RECORD for one that is malformed."""
    if key is None or len(key) < _INT16.size:
        raise _malformed("key", "it is too short")
    if _INT16.unpack_from(key)[0] != KEY_VERSION:
        return None
    try:
        _, size = _KEY.unpack_from(key)
        text = key[_KEY.size :].decode()
    except (struct_error, UnicodeDecodeError) as error:
        raise _malformed("key", str(error)) from error
    if len(key) != _KEY.size + size:
        raise _malformed("key", f"{len(key) - _KEY.size} bytes of text, {size} announced")
    return text


def encode_value(value: TransactionMetadata) -> bytes:
    """The value of an id."""
    head = _HEAD.pack(VALUE_VERSION, value.producer_id, value.epoch, value.timeout_ms, value.state)
    partitions = _NULL if value.state is TransactionState.EMPTY else value.partitions.encoded()
    return b"".join((head, partitions, _TIMES.pack(value.updated_ms, value.start_ms), _encode_tags(value)))


def decode_value(value: bytes) -> TransactionMetadata:
    """The state of an id. PeerError INVALID_RECORD for a value that is malformed or of an unknown version."""
    try:
        version, producer_id, epoch, timeout_ms, state = _HEAD.unpack_from(value)
        if version == VALUE_VERSION:
            partitions, position = _decode_partitions(value, _HEAD.size)
            updated_ms, start_ms = _TIMES.unpack_from(value, position)
            tags = _decode_tags(value, position + _TIMES.size)
        elif version == VALUE_VERSION_OLD:
            partitions, position = _decode_old_partitions(value, _HEAD.size)
            updated_ms, start_ms = _TIMES.unpack_from(value, position)
            tags = {}
        else:
            raise _malformed("value", f"version {version} is not known")
        transaction = TransactionMetadata(
            producer_id,
            _int64(tags, PREVIOUS_PRODUCER_ID_TAG, NO_PRODUCER_ID),
            _int64(tags, NEXT_PRODUCER_ID_TAG, NO_PRODUCER_ID),
            epoch,
            _int16(tags, LAST_EPOCH_TAG, NO_EPOCH),
            timeout_ms,
            _STATES[state],
            partitions,
            start_ms,
            updated_ms,
            _int16(tags, CLIENT_VERSION_TAG, OLD_PROTOCOL),
        )
    except (struct_error, IndexError, UnicodeDecodeError, ProtocolError) as error:
        raise _malformed("value", str(error)) from error
    except KeyError as error:
        raise _malformed("value", f"state {error} is not known") from error
    if producer_id < 0 or epoch < 0:
        raise _malformed("value", f"producer id {producer_id}, epoch {epoch}")
    return _with_last_epoch(transaction)


def _with_last_epoch(value: TransactionMetadata) -> TransactionMetadata:
    """Under version 2 the end of a transaction raises the epoch by one; so the epoch before need not be stored."""
    if value.client_version < EPOCH_PER_TRANSACTION or not (value.state.is_decided or value.state.is_complete):
        return value
    if value.epoch > 0:
        return value._replace(last_epoch=value.epoch - 1)
    return value._replace(last_epoch=LAST_EPOCH if value.previous_producer_id != value.producer_id else NO_EPOCH)


def _decode_partitions(value: bytes, position: int) -> tuple[Partitions, int]:
    count, position = read_uvarint(value, position)
    if count <= 1:
        return NO_PARTITIONS, position
    partitions: list[TopicPartition] = []
    for _ in range(count - 1):
        size, position = read_uvarint(value, position)
        topic, position = _text(value, position, size - 1)
        size, position = read_uvarint(value, position)
        position = _read_numbers(value, position, size - 1, topic, partitions)
        position = _skip_tags(value, position)
    return partitions_of(partitions), position


def _decode_old_partitions(value: bytes, position: int) -> tuple[Partitions, int]:
    (count,) = _INT32.unpack_from(value, position)
    position += _INT32.size
    partitions: list[TopicPartition] = []
    for _ in range(count):
        (size,) = _INT16.unpack_from(value, position)
        topic, position = _text(value, position + _INT16.size, size)
        (size,) = _INT32.unpack_from(value, position)
        position = _read_numbers(value, position + _INT32.size, size, topic, partitions)
    return partitions_of(partitions), position


def _text(value: bytes, position: int, size: int) -> tuple[str, int]:
    if not 0 <= size <= len(value) - position:
        raise _malformed("value", f"a name of {size} bytes at byte {position} of {len(value)}")
    return value[position : position + size].decode(), position + size


def _read_numbers(value: bytes, position: int, count: int, topic: str, into: list[TopicPartition]) -> int:
    """Partitions of one topic; the position after them."""
    if not 0 <= count <= (len(value) - position) // _INT32.size:
        raise _malformed("value", f"{count} partitions of {topic} at byte {position} of {len(value)}")
    into += (TopicPartition(topic, number) for (number,) in _INT32.iter_unpack(value[position : position + count * _INT32.size]))
    return position + count * _INT32.size


def _encode_tags(value: TransactionMetadata) -> bytes:
    tags: list[bytes] = []
    if value.previous_producer_id != NO_PRODUCER_ID:
        tags.append(b"\x00\x08" + _INT64.pack(value.previous_producer_id))
    if value.next_producer_id != NO_PRODUCER_ID:
        tags.append(b"\x01\x08" + _INT64.pack(value.next_producer_id))
    if value.client_version != OLD_PROTOCOL:
        tags.append(b"\x02\x02" + _INT16.pack(value.client_version))
    if value.state is TransactionState.EMPTY and value.last_epoch != NO_EPOCH:
        tags.append(_LAST_EPOCH_START + _INT16.pack(value.last_epoch))
    return _TAG_COUNTS[len(tags)] + b"".join(tags)


def _decode_tags(value: bytes, position: int) -> dict[int, bytes]:
    count, position = read_uvarint(value, position)
    tags: dict[int, bytes] = {}
    for _ in range(count):
        tag, position = read_uvarint(value, position)
        size, position = read_uvarint(value, position)
        tags[tag] = value[position : position + size]
        position += size
    return tags


def _skip_tags(value: bytes, position: int) -> int:
    if value[position] == 0:
        return position + 1
    count, position = read_uvarint(value, position)
    for _ in range(count):
        _, position = read_uvarint(value, position)
        size, position = read_uvarint(value, position)
        position += size
    return position


def _int64(tags: dict[int, bytes], tag: int, default: int) -> int:
    return int(_INT64.unpack(tags[tag])[0]) if tag in tags else default


def _int16(tags: dict[int, bytes], tag: int, default: int) -> int:
    return int(_INT16.unpack(tags[tag])[0]) if tag in tags else default


def _malformed(part: str, reason: str) -> PeerError:
    return PeerError(ErrorCode.INVALID_RECORD, f"the {part} of a transactional id's record cannot be read: {reason}")
