"""Control records: the markers that end a transaction in each partition that it wrote to.

A control batch holds one record. Its key is two int16, version and type (0 abort, 1 commit); its value an int16 version and the int32
epoch of the transaction coordinator. Later versions may append fields, which are ignored.
"""

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from moldau.model.errors import ErrorCode, PeerError
from moldau.protocol.records.builder import RecordBatchBuilder
from moldau.protocol.records.record import Record

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_VERSION = 0


class ControlType(IntEnum):
    """Kinds of control records that mark the end of a transaction."""

    ABORT = 0
    COMMIT = 1


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
