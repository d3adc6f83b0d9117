"""The full walk over a produced batch, for topics with `produce.validation=records` and for compacted ones.

It follows every number of every record and keeps nothing. What `check_batch` takes on trust is checked
here: that the records are as many as the header says, each exactly of its size, with offset deltas 0, 1, 2, ..., and nothing after them.
"""

from typing import NamedTuple

from moldau.model.errors import ErrorCode, PeerError
from moldau.protocol.records.compression import decompress
from moldau.protocol.records.header import HEADER_SIZE, BatchHeader
from moldau.protocol.records.walk import long_varint, refuse_record


class RecordsSummary(NamedTuple):
    """What the walk saw. Timestamps are those of the records, whatever the batch's header says."""

    timestamp_min: int
    timestamp_max: int
    first_null_key: int
    """Index of the first record without a key, -1 if all have one."""


def validate_records(view: memoryview, header: BatchHeader, max_decompressed_bytes: int) -> RecordsSummary:
    """Walk all records of the one batch in `view`. PeerError INVALID_RECORD names the first one that is malformed.

    CorruptBatchError if the records cannot be decompressed.
    """
    data = decompress(view[HEADER_SIZE:], header.compression, max_decompressed_bytes)
    position, summary = _walk(data, header.record_count, header.base_timestamp)
    if position != len(data):
        raise PeerError(
            ErrorCode.INVALID_RECORD, f"{len(data) - position} bytes follow the {header.record_count} records that the batch says it holds"
        )
    return summary


def _walk(data: bytes, count: int, base_timestamp: int) -> tuple[int, RecordsSummary]:
    """Position after the records, and what they hold. Numbers stay in zigzag form: -1 is 1, other negative ones are odd."""
    null_key = -1
    lowest, highest = (0, 0) if count == 0 else (1 << 64, -(1 << 64))
    start = p = index = 0
    try:
        for index in range(count):
            start = p
            n = data[p]
            p += 1
            if n >= 0x80:
                b = data[p]
                if b < 0x80:
                    n += (b << 7) - 0x80
                    p += 1
                else:
                    n, p = long_varint(data, p - 1)
            if n & 1:
                break
            end = p + (n >> 1)

            n = data[p + 1]
            p += 2
            if n >= 0x80:
                b = data[p]
                if b < 0x80:
                    n += (b << 7) - 0x80
                    p += 1
                else:
                    n, p = long_varint(data, p - 1)
            n = ~(n >> 1) if n & 1 else n >> 1
            if n < lowest:
                lowest = n
            if n > highest:
                highest = n

            n = data[p]
            p += 1
            if n >= 0x80:
                b = data[p]
                if b < 0x80:
                    n += (b << 7) - 0x80
                    p += 1
                else:
                    n, p = long_varint(data, p - 1)
            if n != index + index:
                break

            n = data[p]
            p += 1
            if n & 1:
                if n != 1:
                    break
                if null_key < 0:
                    null_key = index
            else:
                if n >= 0x80:
                    b = data[p]
                    if b < 0x80:
                        n += (b << 7) - 0x80
                        p += 1
                    else:
                        n, p = long_varint(data, p - 1)
                p += n >> 1

            n = data[p]
            p += 1
            if n & 1:
                if n != 1:
                    break
            else:
                if n >= 0x80:
                    b = data[p]
                    if b < 0x80:
                        n += (b << 7) - 0x80
                        p += 1
                    else:
                        n, p = long_varint(data, p - 1)
                p += n >> 1

            if data[p]:
                p = _skip_headers(data, p)
            else:
                p += 1
            if p != end:
                break
        else:
            if p <= len(data):
                return p, RecordsSummary(base_timestamp + lowest, base_timestamp + highest, null_key)
    except IndexError:
        pass
    raise refuse_record(data, start, index)


def _skip_headers(data: bytes, position: int) -> int:
    """Position after the headers of a record; IndexError if they are malformed or reach beyond the data."""
    n, p = long_varint(data, position)
    if n & 1:
        raise IndexError
    for _ in range(n >> 1):
        n = data[p]
        p += 1
        if n >= 0x80:
            n, p = long_varint(data, p - 1)
        if n & 1:
            raise IndexError
        p += n >> 1
        n = data[p]
        p += 1
        if n == 1:
            continue
        if n >= 0x80:
            n, p = long_varint(data, p - 1)
        if n & 1:
            raise IndexError
        p += n >> 1
    return p
