"""Numbers and spans of many records at once, with numpy, for readers that want no Python object per record.

Only the walk from record to record is a loop in Python: where a record starts depends on the length of the one before. Needs numpy,
so nothing imports this module before it is wanted.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from moldau.model.errors import CorruptBatchError

Int64s = np.ndarray[Any, np.dtype[np.int64]]
Bytes8 = np.ndarray[Any, np.dtype[np.uint8]]
Buffer = bytes | bytearray | memoryview

SLACK = b"\0" * 48
"""Readable bytes to append to the records: numbers of a damaged last record may reach beyond it by at most four of them."""
_VARINT_BYTES_MAX = 10


def record_spans(batches: Sequence[tuple[Buffer, int]]) -> tuple[Bytes8, Int64s, Int64s]:
    """The bytes of the records of batches, each given with its number of records, behind each other, and SLACK; where each record starts
    (after its length) and ends in them. CorruptBatchError for a batch whose records do not fill it.
    """
    joined = b"".join([*(records for records, _ in batches), SLACK])
    positions: list[int] = []
    base = 0
    for records, count in batches:
        _walk(joined, base, len(records), count, positions)
        base += len(records)
    data = np.frombuffer(joined, np.uint8)
    length, start = varints(data, np.array(positions, np.int64))
    return data, start, start + length


def _walk(data: bytes, position: int, size: int, count: int, positions: list[int]) -> None:
    """Append the position of each of `count` records, which fill `size` bytes. CorruptBatchError."""
    start, append = position, positions.append
    try:
        for _ in range(count):
            append(position)
            byte = data[position]
            if byte < 0x80:
                position += 1 + (byte >> 1)  # lengths are positive: the lowest bit of the zigzag number is 0
                continue
            second = data[position + 1]
            if second < 0x80:
                position += 2 + ((byte & 0x7F) >> 1) + (second << 6)
                continue
            length, shift = byte & 0x7F | (second & 0x7F) << 7, 14
            position += 2
            while True:
                byte = data[position]
                position += 1
                length |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
            position += length >> 1
    except IndexError:
        position = len(data)
    if position > start + size:
        raise CorruptBatchError(f"record batch ends before its {count} records do")
    if position < start + size:
        raise CorruptBatchError(f"{count} records take {position - start} bytes of a record batch of {size}")


def varints(data: Bytes8, position: Int64s) -> tuple[Int64s, Int64s]:
    """The zigzag varint at each position, and the positions after them."""
    byte = data[position]
    number = (byte & 0x7F).astype(np.uint64)
    position = position + 1
    longer = np.flatnonzero(byte & 0x80)
    shift = 7
    while longer.size:
        if shift >= 7 * _VARINT_BYTES_MAX:
            raise CorruptBatchError(f"a number in a record is longer than {_VARINT_BYTES_MAX} bytes")
        byte = data[position[longer]]
        number[longer] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        position[longer] += 1
        longer = longer[(byte & 0x80) != 0]
        shift += 7
    one = np.uint64(1)
    return ((number >> one) ^ (~(number & one) + one)).astype(np.int64), position


def spans(data: Bytes8, position: Int64s, limits: Int64s) -> tuple[Int64s, Int64s, Any]:
    """Start and end of the byte array at each position, and which of them are null."""
    length, start = varints(data, position)
    null = length == -1
    end = start + np.where(null, 0, length)
    if ((length < -1) | (end > limits) | (length > limits)).any():
        raise CorruptBatchError("a key, value or header reaches beyond its record")
    return start, end, null
