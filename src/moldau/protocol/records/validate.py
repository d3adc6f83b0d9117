"""The full walk over a produced batch, for topics with `produce.validation=records` and for compacted ones.

It follows every number of every record and keeps nothing. What `check_batch` takes on trust is checked
here: that the records are as many as the header says, each exactly of its size, with offset deltas 0, 1, 2, ..., and nothing after them;
and that they do not have more headers than they may.
"""

from typing import NamedTuple

from moldau.model.errors import ErrorCode, PeerError
from moldau.protocol.records.header import BatchHeader
from moldau.protocol.records.walk import (
    BATCH_HEADERS_MAX,
    RECORD_HEADERS_MAX,
    long_varint,
    refuse_batch_headers,
    refuse_record,
    refuse_record_headers,
)


class RecordsSummary(NamedTuple):
    """What the walk saw. Timestamps are those of the records, whatever the batch's header says."""

    timestamp_min: int
    timestamp_max: int
    first_null_key: int
    """Index of the first record without a key, -1 if all have one."""


def validate_records(
    data: bytes, header: BatchHeader, *, record_headers_max: int = RECORD_HEADERS_MAX, batch_headers_max: int = BATCH_HEADERS_MAX
) -> RecordsSummary:
    """Walk all records of a batch, which are decompressed. PeerError INVALID_RECORD names the first one that is malformed.

    BeyondBoundError for more headers than a record, or all of them together, may have.
    """
    position, summary = _walk(data, header.record_count, header.base_timestamp, record_headers_max, batch_headers_max)
    if position != len(data):
        raise PeerError(
            ErrorCode.INVALID_RECORD, f"{len(data) - position} bytes follow the {header.record_count} records that the batch says it holds"
        )
    return summary


def _walk(data: bytes, count: int, base_timestamp: int, record_headers_max: int, batch_headers_max: int) -> tuple[int, RecordsSummary]:
    """Position after the records, and what they hold. Numbers stay in zigzag form: -1 is 1, other negative ones are odd."""
    null_key = -1
    lowest, highest = (0, 0) if count == 0 else (1 << 64, -(1 << 64))
    start = p = index = headers = 0
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
                n = data[p]
                p += 1
                if n >= 0x80:
                    n, p = long_varint(data, p - 1)
                if n & 1:
                    break
                n >>= 1
                headers += n
                if n > record_headers_max or headers > batch_headers_max:
                    if 2 * n > len(data) - p:  # a header takes two bytes: the count is malformed
                        break
                    if n > record_headers_max:
                        refuse_record_headers(f"record {index} of the batch", n, record_headers_max)
                    refuse_batch_headers(f"record {index}", batch_headers_max)
                p = _skip_headers(data, p, n)
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


def _skip_headers(data: bytes, position: int, count: int) -> int:
    """Position after `count` headers; IndexError if they are malformed or reach beyond the data."""
    p = position
    for _ in range(count):
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
