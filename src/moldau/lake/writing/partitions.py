"""Which partition each row belongs to, all rows at once: the one that is given, that of its key, or one in turn."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from moldau.client.partitioning import partition_of

Int64s = NDArray[np.int64]

_MULTIPLIER, _SEED = np.uint32(0x5BD1E995), np.uint32(0x9747B28C)
_KEY_BYTES_MAX = 256
"""Longer keys are hashed one by one."""
ROWS_IN_TURN = 1000
"""So many rows without a key go to one partition before the next has its turn: few large batches, not many small ones."""


def in_turn(first_row: int, count: int, start: int, partitions: int) -> Int64s:
    """Partitions of rows without keys, of which the first is the `first_row`-th of its task; a task begins with partition `start`."""
    turn: Int64s = (start + (first_row + np.arange(count)) // ROWS_IN_TURN) % partitions
    return turn


def by_key(keys: Any, partitions: int) -> Int64s:
    """Partitions of keys by the rule that all Kafka clients agree on; of a null, anything."""
    _, offsets, data = keys.buffers()
    bounds = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    start, length = bounds[:-1], np.diff(bounds)
    content = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    small = np.where(length <= _KEY_BYTES_MAX, length, 0)
    found: Int64s = (_murmur2(content, start, small) & np.uint32(0x7FFFFFFF)).astype(np.int64) % partitions
    for row in np.flatnonzero(length > _KEY_BYTES_MAX):
        found[row] = partition_of(content[bounds[row] : bounds[row + 1]].tobytes(), partitions)
    return found


def _murmur2(data: NDArray[np.uint8], start: Int64s, length: Int64s) -> NDArray[np.uint32]:
    """`moldau.client.partitioning.murmur2` of many keys."""
    state = _SEED ^ length.astype(np.uint32)
    whole = length >> 2
    for word in range(int(whole.max(initial=0))):
        rows = np.flatnonzero(whole > word)
        at = start[rows] + 4 * word
        part = _little_endian(data, at, 4) * _MULTIPLIER
        part = (part ^ part >> np.uint32(24)) * _MULTIPLIER
        state[rows] = state[rows] * _MULTIPLIER ^ part
    for left in (1, 2, 3):
        rows = np.flatnonzero(length & 3 == left)
        state[rows] = (state[rows] ^ _little_endian(data, start[rows] + 4 * whole[rows], left)) * _MULTIPLIER
    state = (state ^ state >> np.uint32(13)) * _MULTIPLIER
    result: NDArray[np.uint32] = state ^ state >> np.uint32(15)
    return result


def _little_endian(data: NDArray[np.uint8], at: Int64s, count: int) -> NDArray[np.uint32]:
    number = np.zeros(len(at), np.uint32)
    for byte in range(count):
        number |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
    return number


def given(column: Any, otherwise: Int64s) -> Int64s:
    """The partitions in `column`, and those of `otherwise` where it has null."""
    numbers: Int64s = column.fill_null(-1).cast(pa.int64()).to_numpy(zero_copy_only=False)
    missing = column.is_null().to_numpy(zero_copy_only=False)
    return np.where(missing, otherwise, numbers)
