"""The time of an event: that of its header for tracked events, of a column where a job of JSON events names one, otherwise the record's
timestamp.

It decides into which table partition a row goes, a dead letter too. The header's time is a zigzag varint right after the schema id: read
for all values of a batch at once, by numpy, without the other bytes.

A header's time is in the years 1 to 9999. A record's timestamp is set by its producer: one that is in no such year counts as the
first or the last moment that there is, so that its row has a day.
"""

from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa

from moldau.tracking.header import TIME_MAX_MS, TIME_MIN_MS

_TIME_AT = 5
_NO_TIME = -(2**63)
_VARINT_BYTES_MAX = 10


def is_time(kind: Any) -> bool:
    """Whether `column_times` reads columns of this Arrow type."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind) or kind == pa.int64())


def column_times(column: Any) -> tuple[Any, Any]:
    """The times in a column in ms since 1970 (int64), and which of them are times at all: not null, and in the years 1 to 9999."""
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("ms"))
    numbers = column.cast(pa.int64()).fill_null(_NO_TIME)
    times = numbers.to_numpy()
    if pa.types.is_timestamp(column.type) and column.type.unit == "us":
        times = np.where(times == _NO_TIME, _NO_TIME, times // 1000)
    return times, (times >= TIME_MIN_MS) & (times <= TIME_MAX_MS)


def event_times(values: Any, timestamps_ms: Any, tracked: Collection[int]) -> Any:
    """The time of each value in ms since 1970 (int64): of the header where the schema id is in `tracked` and the time is one."""
    timestamps_ms = np.clip(timestamps_ms, TIME_MIN_MS, TIME_MAX_MS)
    if not tracked or not len(values):
        return timestamps_ms
    bounds = starts, ends, data = _bounds(values)
    numbers = np.flatnonzero(np.isin(_schema_ids(*bounds), np.fromiter(tracked, np.int64)))
    times, known = _varints(data, starts[numbers] + _TIME_AT, ends[numbers])
    known &= (times >= TIME_MIN_MS) & (times <= TIME_MAX_MS)
    timestamps_ms[numbers[known]] = times[known]
    return timestamps_ms


def schema_ids(values: Any) -> Any:
    """The schema id that each value begins with (int64), -1 where it begins with none."""
    return _schema_ids(*_bounds(values)) if len(values) else np.zeros(0, np.int64)


def _schema_ids(starts: Any, ends: Any, data: Any) -> Any:
    numbers = np.flatnonzero(ends - starts >= _TIME_AT)
    at = starts[numbers]
    ids = data[at + 1].astype(np.int64) << 24 | data[at + 2].astype(np.int64) << 16 | data[at + 3].astype(np.int64) << 8 | data[at + 4]
    found = np.full(len(starts), -1, np.int64)
    found[numbers] = np.where(data[at] == 0, ids, -1)
    return found


def _bounds(values: Any) -> tuple[Any, Any, Any]:
    """Where each value starts and ends in the bytes of all; a null is empty."""
    array = values.cast(pa.binary())
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, np.int32, len(array) + 1, array.offset * 4).astype(np.int64)
    octets = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    ends = np.where(array.is_valid().to_numpy(zero_copy_only=False), bounds[1:], bounds[:-1])
    return bounds[:-1], ends, octets


def _varints(data: Any, at: Any, ends: Any) -> tuple[Any, Any]:
    """The zigzag varint at each place, and whether it is one."""
    result = np.zeros(len(at), np.uint64)
    going = np.ones(len(at), np.bool_)
    good = np.zeros(len(at), np.bool_)
    for number in range(_VARINT_BYTES_MAX):
        inside = going & (at + number < ends)
        octets = np.zeros(len(at), np.uint64)
        octets[inside] = data[at[inside] + number]
        result |= (octets & np.uint64(0x7F)) << np.uint64(7 * number)
        last = inside & (octets < 0x80)
        good |= last
        going = inside & ~last
        if not going.any():
            break
    return (result >> np.uint64(1)).astype(np.int64) ^ -(result & np.uint64(1)).astype(np.int64), good
