"""Reading record batches: one, or a stretch of a log. Building them: :mod:`moldau.protocol.records.builder`.

Batches are read one after the other, and a batch's records a few hundred at a time, so that looking at the first records of a large
log costs little.
"""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import repeat
from struct import Struct

from moldau.model.errors import BeyondBoundError, CorruptBatchError, ErrorCode, PeerError
from moldau.protocol.records.builder import RecordBatchBuilder, encode_batch, recompress
from moldau.protocol.records.compression import Compression, decompress
from moldau.protocol.records.header import HEADER_SIZE, LENGTH_OFFSET, LOG_OVERHEAD, BatchHeader, read_header
from moldau.protocol.records.record import CREATE_TIME, LOG_APPEND_TIME, Columns, Record, read_records
from moldau.protocol.records.walk import BATCH_HEADERS_MAX

__all__ = [
    "CREATE_TIME",
    "LOG_APPEND_TIME",
    "Columns",
    "Compression",
    "Record",
    "RecordBatchBuilder",
    "batches",
    "decompressed_records",
    "encode_batch",
    "iterate",
    "iterate_log",
    "read_columns",
    "recompress",
]

MAX_OFFSET = 2**63 - 1

_RECORDS_AT_A_TIME = 256
_LENGTH = Struct(">i")

_make_record = tuple.__new__


def iterate(view: memoryview, *, max_decompressed_bytes: int, with_headers: bool = True) -> Iterator[Record]:
    """Records of the one batch that fills `view`, those of a control batch too. The checksum is not looked at (`verify_crc`).

    CorruptBatchError for a header or a compressed block that is malformed, PeerError INVALID_RECORD for a record, BeyondBoundError for
    more than is read: it names the offset. Offsets ascend. Without headers, those of the records are skipped, at any number.
    """
    header = read_header(view)
    timestamp_type = _timestamp_type(header)
    data = decompressed_records(view, header, max_decompressed_bytes)
    position = index = 0
    headers_left = BATCH_HEADERS_MAX
    while index < header.record_count:
        columns = Columns(headers_left)
        count = min(_RECORDS_AT_A_TIME, header.record_count - index)
        position = read_records(data, count, header.base_offset, header.base_timestamp, columns, position, index, with_headers=with_headers)
        headers_left = columns.headers_left
        index += count
        _check_end(header, columns, index, len(data) - position)
        timestamps = repeat(header.max_timestamp) if timestamp_type == LOG_APPEND_TIME else columns.timestamps
        for fields in zip(columns.offsets, timestamps, repeat(timestamp_type), columns.keys, columns.values, columns.headers):
            record: Record = _make_record(Record, fields)
            yield record


def batches(view: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Header and bytes of each batch in a stretch of a log. A last one that is cut off is left out: a fetch may end with one.

    CorruptBatchError where the next batch should begin and does not.
    """
    position, end = 0, len(view)
    while end - position >= LOG_OVERHEAD:
        length: int = _LENGTH.unpack_from(view, position + LENGTH_OFFSET)[0]
        if length + LOG_OVERHEAD > end - position:
            return
        header = read_header(view, position)
        start, position = position, position + header.size
        yield header, view[start:position]


def iterate_log(view: memoryview, *, max_decompressed_bytes: int) -> Iterator[Record]:
    """Records of all whole batches in a stretch of a log, as a consumer sees them: without control batches. Errors as for `iterate`."""
    for header, batch in batches(view):
        if not header.is_control:
            yield from iterate(batch, max_decompressed_bytes=max_decompressed_bytes)


def read_columns(
    view: memoryview, into: Columns, *, max_decompressed_bytes: int, first_offset: int = 0, end_offset: int = MAX_OFFSET
) -> None:
    """Append the records of all whole batches in a stretch of a log, from `first_offset` to before `end_offset`, to `into`.

    Control batches are left out, and batches beyond either end are not decompressed. Errors as for `iterate`; the columns are of no
    use after one.
    """
    for header, batch in batches(view):
        if header.is_control or header.last_offset < first_offset or header.base_offset >= end_offset:
            continue
        start = len(into)
        into.headers_left = BATCH_HEADERS_MAX
        data = decompressed_records(batch, header, max_decompressed_bytes)
        position = read_records(data, header.record_count, header.base_offset, header.base_timestamp, into)
        _check_end(header, into, header.record_count, len(data) - position)
        if header.timestamp_type_is_log_append:
            into.timestamps[start:] = [header.max_timestamp] * header.record_count
        into.timestamp_types += [_timestamp_type(header)] * header.record_count
        if header.last_offset >= end_offset:
            into.cut(bisect_left(into.offsets, end_offset, start), len(into))
        if header.base_offset < first_offset:
            into.cut(start, bisect_left(into.offsets, first_offset, start))


def decompressed_records(view: memoryview, header: BatchHeader, max_decompressed_bytes: int) -> bytes:
    """The decompressed records of the one batch in `view`. CorruptBatchError, BeyondBoundError."""
    if header.size != len(view):
        raise CorruptBatchError(f"record batch at offset {header.base_offset} has {header.size} bytes, {len(view)} are here")
    if header.record_count < 0:
        raise CorruptBatchError(f"record batch at offset {header.base_offset} says that it holds {header.record_count} records")
    try:
        return decompress(view[HEADER_SIZE:], header.compression, max_decompressed_bytes)
    except BeyondBoundError as error:
        raise BeyondBoundError(f"record batch at offset {header.base_offset}: {error.message}") from error


def _timestamp_type(header: BatchHeader) -> int:
    return LOG_APPEND_TIME if header.timestamp_type_is_log_append else CREATE_TIME


def _check_end(header: BatchHeader, columns: Columns, index: int, left: int) -> None:
    """The records read so far, `index` of the batch, stay below its last offset; after all of them nothing is left."""
    if columns.offsets and columns.offsets[-1] > header.last_offset:
        reason = f"record {index - 1} has offset {columns.offsets[-1]}, the last of its batch is {header.last_offset}"
    elif left and index == header.record_count:
        reason = f"{left} bytes follow the {index} records of the batch at offset {header.base_offset}"
    else:
        return
    raise PeerError(ErrorCode.INVALID_RECORD, reason)
