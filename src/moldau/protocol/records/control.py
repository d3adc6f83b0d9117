"""Control records: the markers that end a transaction in each partition that it wrote to.

A control batch holds one record. Its key is two int16, version and type (0 abort, 1 commit); its value an int16 version and the int32
epoch of the transaction coordinator. Later versions may append fields, which are ignored.
"""

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from moldau.model.errors import ErrorCode, PeerError
from moldau.protocol.records.builder import RecordBatchBuilder
from moldau.protocol.records.header import HEADER_SIZE
from moldau.protocol.records.record import Record

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_VERSION = 0
_MARKER_BYTES_MAX = 1024


class ControlType(IntEnum):
    """Kinds of control records that mark the end of a transaction."""

    ABORT = 0
    COMMIT = 1


_ENDS = (ControlType.ABORT, ControlType.COMMIT)


class EndTxnMarker(NamedTuple):
    """How a transaction ended, and the epoch of the coordinator that says so."""

    type: ControlType
    coordinator_epoch: int


def encode_end_txn_marker(
    marker: EndTxnMarker, *, producer_id: int, producer_epoch: int, timestamp: int, base_offset: int = 0, leader_epoch: int = -1
) -> bytes:
    """The control batch that ends the producer's transaction in a partition."""
    builder = RecordBatchBuilder(
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
        leader_epoch=leader_epoch,
    )
    builder.append(timestamp, _KEY.pack(_VERSION, marker.type), _VALUE.pack(_VERSION, marker.coordinator_epoch))
    return builder.build()


_USUAL_SIZE = HEADER_SIZE + 17
_USUAL_START, _USUAL_VALUE = b"\x20\0\0\0\x08", 0x0C
"""How the one record begins (its length, no attributes, the times of the batch, a key of four bytes), and the length of its value."""


def end_txn_marker_of(batch: memoryview) -> EndTxnMarker | None:
    """The marker in a control batch, whose checksum is not looked at; None for one of another kind, or that cannot be read.

    Nearly all have the same layout, and need no more than two unpacks.
    """
    start = HEADER_SIZE + len(_USUAL_START)
    if len(batch) == _USUAL_SIZE and batch[HEADER_SIZE:start] == _USUAL_START and batch[start + _KEY.size] == _USUAL_VALUE:
        kind = _KEY.unpack_from(batch, start)[1]
        return EndTxnMarker(_ENDS[kind], _VALUE.unpack_from(batch, start + _KEY.size + 1)[1]) if 0 <= kind < len(_ENDS) else None
    from moldau.protocol.records.batch import iterate

    try:
        record = next(iter(iterate(batch, max_decompressed_bytes=_MARKER_BYTES_MAX)), None)
        return None if record is None else decode_end_txn_marker(record)
    except PeerError:
        return None


def decode_end_txn_marker(record: Record) -> EndTxnMarker | None:
    """The marker in a record of a control batch, None for a control record of another kind. PeerError INVALID_RECORD if malformed."""
    key, value = record.key, record.value
    if key is None or len(key) < _KEY.size:
        raise PeerError(ErrorCode.INVALID_RECORD, f"control record at offset {record.offset} has a key of {len(key or b'')} bytes")
    kind = _KEY.unpack_from(key)[1]
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if value is None or len(value) < _VALUE.size:
        raise PeerError(ErrorCode.INVALID_RECORD, f"end of transaction at offset {record.offset} has a value of {len(value or b'')} bytes")
    return EndTxnMarker(ControlType(kind), _VALUE.unpack_from(value)[1])
