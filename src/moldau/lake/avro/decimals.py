"""Avro's decimals to Arrow's, without a Python object each."""

from typing import Any

import numpy as np
import pyarrow as pa


def decimals(raw: Any, kind: Any) -> tuple[Any, Any]:
    """Big-endian two's complement bytes as decimals of a type, and a mask of those that are too long, which are made 0."""
    count = len(raw)
    if count == 0:
        return pa.array([], kind), np.zeros(0, np.bool_)
    offsets = np.frombuffer(raw.buffers()[1], np.int32, count + 1, raw.offset * 4).astype(np.int64)
    data = raw.buffers()[2]
    octets = np.zeros(len(data) + 1 if data is not None else 1, np.uint8)
    if data is not None:
        octets[:-1] = np.frombuffer(data, np.uint8)
    start, end = offsets[:-1], offsets[1:]
    wrong = end - start > 16
    sign = np.where((end > start) & (octets[start] >= 0x80), 0xFF, 0).astype(np.uint8)
    little = np.empty((count, 16), np.uint8)
    for number in range(16):
        place = end - 1 - number
        inside = place >= start
        little[:, number] = np.where(inside, octets[np.where(inside, place, 0)], sign)
    little[wrong] = 0
    whole = pa.Array.from_buffers(pa.decimal128(38, kind.scale), count, [None, pa.py_buffer(little)])
    high, low = little[:, 8:].copy().view("<i8")[:, 0], little[:, :8].copy().view("<u8")[:, 0]
    above, below = _halves(10**kind.precision), _halves(-(10**kind.precision))
    wide = (high > above[0]) | ((high == above[0]) & (low >= above[1])) | (high < below[0]) | ((high == below[0]) & (low <= below[1]))
    wrong |= wide
    if wrong.any():
        little[wrong] = 0
    return pa.Array.from_buffers(kind, count, whole.buffers()), wrong


def _halves(number: int) -> tuple[Any, Any]:
    """A number of 128 bits in two's complement: the upper half with the sign, and the lower one."""
    return np.int64(number >> 64), np.uint64(number & (1 << 64) - 1)
