"""Records out of the decompressed part of a batch.

A record, all of its numbers zigzag varints::

    size, attributes (1 byte, unused), timestamp delta, offset delta,
    key length (-1 for null), key, value length (-1 for null), value,
    number of headers, and for each: key length, key, value length (-1 for null), value

The loop of `read_records` is the one place where the cost of every record counts. So it repeats the varints of one and two bytes in line
(a value of 200 bytes has a length of two), reads from `bytes`, which is faster to index and slice than a view, and looks only once per
record whether everything fitted: positions never move back, and what lies beyond the end reads as too short or fails by itself. A
record that does not fit is walked again by :mod:`moldau.protocol.records.walk`, which finds out why. More headers than the bounds
(:mod:`moldau.protocol.records.walk`) are refused before an object is made of them.
"""

from typing import NamedTuple, Never

from moldau.protocol.records.walk import (
    BATCH_HEADERS_MAX,
    RECORD_HEADERS_MAX,
    long_varint,
    refuse_batch_headers,
    refuse_record,
    refuse_record_headers,
)

CREATE_TIME = 0
LOG_APPEND_TIME = 1

Header = tuple[str, bytes | None]


class Record(NamedTuple):
    """One record. `timestamp` is in milliseconds since 1970, -1 for none; its type is CREATE_TIME or LOG_APPEND_TIME."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[Header]


class Columns:
    """Records column by column, for readers that want no object per record. All lists have the same length.

    `read_records` knows nothing of timestamp types; who calls it fills them in. `headers_left`: how many more headers it takes; who calls
    it sets that for each batch.
    """

    __slots__ = ("headers", "headers_left", "keys", "offsets", "timestamp_types", "timestamps", "values")

    def __init__(self, headers_left: int = BATCH_HEADERS_MAX) -> None:
        self.headers_left = headers_left
        self.offsets: list[int] = []
        self.timestamps: list[int] = []
        self.timestamp_types: list[int] = []
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.headers: list[list[Header]] = []

    def __len__(self) -> int:
        return len(self.offsets)

    def cut(self, start: int, stop: int) -> None:
        """Take out the records ``start:stop``."""
        for column in (self.offsets, self.timestamps, self.timestamp_types, self.keys, self.values, self.headers):
            del column[start:stop]


def read_records(
    data: bytes,
    count: int,
    base_offset: int,
    base_timestamp: int,
    into: Columns,
    position: int = 0,
    index: int = 0,
    *,
    with_headers: bool = True,
) -> int:
    """Append the next `count` records, from `position`, to `into`; the position after them.

    `index` is the number of the first in its batch. Offsets ascend. Without headers, they are skipped by the record's size, unread.
    PeerError INVALID_RECORD for a malformed record, BeyondBoundError for too many headers; the columns are of no use then.
    """
    add_offset, add_timestamp, add_headers = into.offsets.append, into.timestamps.append, into.headers.append
    add_key, add_value = into.keys.append, into.values.append
    start = p = position
    number = index
    delta = -1  # of the offset, still in zigzag form as are all numbers here: a negative one is odd, -1 is 1
    try:
        for number in range(index, index + count):  # noqa: B007 - for the message
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
            add_timestamp(base_timestamp + (~(n >> 1) if n & 1 else n >> 1))

            n = data[p]
            p += 1
            if n >= 0x80:
                b = data[p]
                if b < 0x80:
                    n += (b << 7) - 0x80
                    p += 1
                else:
                    n, p = long_varint(data, p - 1)
            if n & 1 or n <= delta:
                break
            delta = n
            add_offset(base_offset + (n >> 1))

            n = data[p]
            p += 1
            if n & 1:
                if n != 1:
                    break
                add_key(None)
            else:
                if n >= 0x80:
                    b = data[p]
                    if b < 0x80:
                        n += (b << 7) - 0x80
                        p += 1
                    else:
                        n, p = long_varint(data, p - 1)
                n = p + (n >> 1)
                add_key(data[p:n])
                p = n

            n = data[p]
            p += 1
            if n & 1:
                if n != 1:
                    break
                add_value(None)
            else:
                if n >= 0x80:
                    b = data[p]
                    if b < 0x80:
                        n += (b << 7) - 0x80
                        p += 1
                    else:
                        n, p = long_varint(data, p - 1)
                n = p + (n >> 1)
                add_value(data[p:n])
                p = n

            if data[p]:
                if with_headers:
                    headers, p = _read_headers(data, p, into)
                    add_headers(headers)
                else:
                    if p >= end:
                        break
                    add_headers([])
                    p = end
            else:
                add_headers([])
                p += 1
            if p != end:
                break
        else:
            if p <= len(data):
                return p
    except IndexError:
        pass
    raise refuse_record(data, start, number)


def _read_headers(data: bytes, position: int, into: Columns) -> tuple[list[Header], int]:
    """Headers of the record that is being appended to `into`; IndexError if they are malformed or reach beyond the data."""
    n = data[position]
    p = position + 1
    if n >= 0x80:
        n, p = long_varint(data, position)
    if n & 1:
        raise IndexError
    count = n >> 1
    into.headers_left -= count
    if count > RECORD_HEADERS_MAX or into.headers_left < 0:
        _refuse_headers(count, len(data) - p, into)
    headers: list[Header] = []
    for _ in range(count):
        n = data[p]
        p += 1
        if n >= 0x80:
            n, p = long_varint(data, p - 1)
        if n & 1:
            raise IndexError
        end = p + (n >> 1)
        name = str(data[p:end], "utf-8", "replace")
        n = data[end]
        p = end + 1
        if n == 1:
            headers.append((name, None))
            continue
        if n >= 0x80:
            n, p = long_varint(data, end)
        if n & 1:
            raise IndexError
        end = p + (n >> 1)
        headers.append((name, data[p:end]))
        p = end
    return headers, p


def _refuse_headers(count: int, bytes_left: int, into: Columns) -> Never:
    if 2 * count > bytes_left:  # a header takes two bytes: the count is malformed
        raise IndexError
    where = f"the record at offset {into.offsets[-1]}"
    if count > RECORD_HEADERS_MAX:
        refuse_record_headers(where, count, RECORD_HEADERS_MAX)
    refuse_batch_headers(where, BATCH_HEADERS_MAX)
