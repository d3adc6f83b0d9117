"""The header of a record batch (format v2): read it, check it, stamp it in place.

A batch is 61 bytes of header and then the records, as they are or compressed as one block::

    at  type    field                    at  type    field
     0  int64   base offset              23  int32   last offset delta
     8  int32   batch length             27  int64   base timestamp
    12  int32   partition leader epoch   35  int64   max timestamp
    16  int8    magic (2)                43  int64   producer id
    17  uint32  CRC-32C of [21:]         51  int16   producer epoch
    21  int16   attributes               53  int32   base sequence
                                         57  int32   record count

Batch length counts the bytes after itself, so a batch takes ``length + 12`` bytes. Base offset and leader epoch lie outside the CRC:
the broker sets them in place, in the buffer that the batch came in. Attributes: bits 0-2 compression, 3 timestamp type,
4 transactional, 5 control, 6 delete horizon (base timestamp then holds it).
"""

from struct import Struct
from typing import NamedTuple

from fastcrc.crc32 import iscsi as crc32c

from moldau.model.errors import CorruptBatchError, ErrorCode, PeerError
from moldau.ports.filesystem import Bytes

BASE_OFFSET_OFFSET = 0
LENGTH_OFFSET = 8
LEADER_EPOCH_OFFSET = 12
MAGIC_OFFSET = 16
CRC_OFFSET = 17
CRC_DATA_START = 21
ATTRIBUTES_OFFSET = 21
MAX_TIMESTAMP_OFFSET = 35
LOG_OVERHEAD = 12
"""Bytes of base offset and length: what has to be read to know how long a batch is."""
HEADER_SIZE = 61
MAGIC = 2
RECORD_SIZE_MIN = 7
"""A record without key, value and headers: seven fields of one byte each."""

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

_PRODUCED_MASK = CONTROL_BIT | DELETE_HORIZON_BIT | COMPRESSION_MASK
_CODEC_MAX = 4
_SEQUENCE_MODULUS = 1 << 31

_HEADER = Struct(">qiibIhiqqqhii")
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_UINT32 = Struct(">I")
_INT64 = Struct(">q")
_unpack_header = _HEADER.unpack_from
_set_int64 = _INT64.pack_into
_set_int32 = _INT32.pack_into


class BatchHeader(NamedTuple):
    """The 13 fields of a batch's header, as they stand in its bytes."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        """Offset of the last record, also where compaction has removed it."""
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, -1 without a sequence; after 2^31 - 1 follows 0."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) % _SEQUENCE_MODULUS

    @property
    def compression(self) -> int:
        """Number of the codec, 0 for none."""
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type_is_log_append(self) -> bool:
        """Whether every record's timestamp is the batch's max timestamp, set by the broker."""
        return self.attributes & LOG_APPEND_TIME_BIT != 0

    @property
    def is_transactional(self) -> bool:
        """Whether the batch is part of a transaction."""
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a control record (a transaction's marker) that consumers do not see."""
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Whether base timestamp holds the time from which compaction may drop the tombstones in the batch."""
        return self.attributes & DELETE_HORIZON_BIT != 0


_make_header = tuple.__new__


def read_header(view: Bytes, position: int = 0) -> BatchHeader:
    """Header of the batch that starts at `position`; the batch itself may reach beyond the view.

    CorruptBatchError where no header fits, where the length is too small for one, and where the magic is not 2: for the
    formats 0 and 1 its code is UNSUPPORTED_FOR_MESSAGE_FORMAT. Their magic stands at the same place.
    """
    left = len(view) - position
    if left > MAGIC_OFFSET and view[position + MAGIC_OFFSET] in (0, 1):
        magic = view[position + MAGIC_OFFSET]
        raise CorruptBatchError(f"record set of the old format {magic}; only format 2 is read", ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)
    if left < HEADER_SIZE:
        raise CorruptBatchError(f"{left} bytes are left for the header of a record batch, which takes {HEADER_SIZE}")
    header: BatchHeader = _make_header(BatchHeader, _unpack_header(view, position))
    if header.magic != MAGIC:
        raise CorruptBatchError(f"record batch of unknown format {header.magic}")
    if header.batch_length < HEADER_SIZE - LOG_OVERHEAD:
        raise CorruptBatchError(f"record batch of {header.batch_length} + {LOG_OVERHEAD} bytes is shorter than its header")
    return header


def peek_header(view: Bytes, position: int = 0) -> BatchHeader:
    """The 61 bytes at `position`, which are there, as a header; nothing is checked."""
    header: BatchHeader = _make_header(BatchHeader, _unpack_header(view, position))
    return header


def pack_header(header: BatchHeader) -> bytes:
    """The 61 bytes of a header."""
    return _HEADER.pack(*header)


def verify_crc(view: Bytes) -> bool:
    """Whether the checksum of the one batch that `view` holds, no more and no less, is right."""
    checksum: int = _UINT32.unpack_from(view, CRC_OFFSET)[0]
    return crc32c(view[CRC_DATA_START:]) == checksum


def check_batch(view: memoryview) -> BatchHeader:
    """Header of a produced batch that is fit for the log, at the cost of one unpack and one checksum.

    Exactly one batch fills `view`. The records are not walked: checksum, count and last offset delta are trusted to say the
    same as they do (`produce.validation=header`). Refused as Kafka refuses it: CorruptBatchError (CORRUPT_MESSAGE) where the
    bytes are damaged; PeerError where they are whole and wrong, with INVALID_RECORD, or UNSUPPORTED_COMPRESSION_TYPE for an
    unknown codec. Stricter than Kafka: a producer may not set a delete horizon, nor write transactionally without an id.
    """
    size = len(view)
    if size < HEADER_SIZE:
        raise _refusal(view)
    header: BatchHeader = _make_header(BatchHeader, _unpack_header(view, 0))
    base_offset, length, _, magic, crc, attributes, last_delta, _, _, producer_id, _, sequence, count = header
    if (
        length + LOG_OVERHEAD == size
        and magic == MAGIC
        and crc == crc32c(view[CRC_DATA_START:])
        and count == last_delta + 1
        and count > 0
        and base_offset == 0
        and attributes & _PRODUCED_MASK <= _CODEC_MAX
        and (sequence >= 0 or producer_id < 0)
        and (producer_id >= 0 or not attributes & TRANSACTIONAL_BIT)
        and (attributes & COMPRESSION_MASK or count * RECORD_SIZE_MIN <= size - HEADER_SIZE)
    ):
        return header
    raise _refusal(view)


def _refusal(view: memoryview) -> PeerError:
    """Why `check_batch` does not take this batch: the first rule that it breaks."""
    size = len(view)
    if size == 0:
        return PeerError(ErrorCode.INVALID_RECORD, "no record batch was sent for the partition")
    if size > MAGIC_OFFSET and view[MAGIC_OFFSET] in (0, 1):
        return PeerError(ErrorCode.INVALID_RECORD, f"record set of the old format {view[MAGIC_OFFSET]}; only format 2 is taken")
    try:
        header = read_header(view)
    except CorruptBatchError as error:
        return error
    if header.size > size:
        return CorruptBatchError(f"record batch of {header.size} bytes was cut to {size}")
    if header.size < size:
        return PeerError(ErrorCode.INVALID_RECORD, f"{size - header.size} bytes follow the record batch; exactly one batch is taken")
    if not verify_crc(view):
        return CorruptBatchError(f"record batch has checksum {crc32c(view[CRC_DATA_START:]):#010x}, its header says {header.crc:#010x}")
    code, reason = _broken_rule(header)
    return PeerError(code, reason)


def _broken_rule(header: BatchHeader) -> tuple[ErrorCode, str]:
    count, last_delta = header.record_count, header.last_offset_delta
    if header.compression > _CODEC_MAX:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"record batch is compressed with the unknown codec {header.compression}"
    if header.base_offset != 0:
        reason = f"record batch has base offset {header.base_offset}; a producer sends 0"
    elif count <= 0:
        reason = f"record batch says that it holds {count} records"
    elif count != last_delta + 1:
        reason = f"record batch says that it holds {count} records, but its last offset delta is {last_delta}"
    elif header.is_control:
        reason = "a producer may not write control records"
    elif header.has_delete_horizon:
        reason = "a producer may not set a delete horizon"
    elif header.producer_id >= 0 and header.base_sequence < 0:
        reason = f"record batch of producer {header.producer_id} has the sequence {header.base_sequence}"
    elif header.is_transactional and header.producer_id < 0:
        reason = "transactional record batch without a producer id"
    else:
        reason = f"record batch says that it holds {count} records, but has only {header.size - HEADER_SIZE} bytes of them"
    return ErrorCode.INVALID_RECORD, reason


def stamp(view: memoryview | bytearray, base_offset: int, leader_epoch: int) -> None:
    """Set the two fields that the leader assigns, in place; the checksum does not cover them."""
    _set_int64(view, BASE_OFFSET_OFFSET, base_offset)
    _set_int32(view, LEADER_EPOCH_OFFSET, leader_epoch)


def stamp_log_append_time(view: memoryview | bytearray, now_ms: int) -> None:
    """Give all records of the one batch in `view` the time `now_ms`: attribute, max timestamp and checksum, in place."""
    attributes: int = _INT16.unpack_from(view, ATTRIBUTES_OFFSET)[0]
    _INT16.pack_into(view, ATTRIBUTES_OFFSET, attributes | LOG_APPEND_TIME_BIT)
    _set_int64(view, MAX_TIMESTAMP_OFFSET, now_ms)
    stamp_crc(view)


def stamp_crc(view: memoryview | bytearray) -> None:
    """Set the checksum of the one batch in `view` to what its bytes give, in place."""
    _UINT32.pack_into(view, CRC_OFFSET, crc32c(memoryview(view)[CRC_DATA_START:]))
