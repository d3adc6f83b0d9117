"""Values that Arrow reads and a table cannot hold: dates and timestamps in no year from 1 to 9999, which Spark does not have, numbers
beyond a float, of which Arrow makes infinity, and those of 64 bits without a sign that have no place in a long."""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from moldau.tracking.header import TIME_MAX_MS, TIME_MIN_MS

_DAY_MS: Final = 86_400_000
TIMES: Final = {
    pa.date32(): (TIME_MIN_MS // _DAY_MS, TIME_MAX_MS // _DAY_MS),
    pa.date64(): (TIME_MIN_MS, TIME_MAX_MS),
    "s": (TIME_MIN_MS // 1000, TIME_MAX_MS // 1000),
    "ms": (TIME_MIN_MS, TIME_MAX_MS),
    "us": (TIME_MIN_MS * 1000, TIME_MAX_MS * 1000 + 999),
    "ns": (-(2**63), 2**63 - 1),
}
"""Of dates, and of timestamps by their unit: the least and the greatest number in the years 1 to 9999."""
FLOAT_MAX: Final = 3.4028235677973366e38
"""From here on the nearest float of 32 bits is infinity."""


def beyond(table: Any) -> Any:
    """The numbers of the rows that have such a value, in a field of a struct or of a list too (int64, rising)."""
    found = np.zeros(table.num_rows, np.bool_)
    start = 0
    for batch in table.to_batches():
        for column in batch.columns:
            if (rows := _rows_beyond(column)) is not None:
                found[start : start + batch.num_rows] |= rows
        start += batch.num_rows
    return np.flatnonzero(found)


def _rows_beyond(column: Any) -> Any:
    """Which rows of an array have one, as booleans; None if none has."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return _outside(column.cast(pa.int64()), *TIMES[kind.unit])
    if pa.types.is_date(kind):
        return _outside(column.view(pa.int32() if kind == pa.date32() else pa.int64()), *TIMES[kind])
    if kind == pa.uint64():
        return _outside(column, 0, 2**63 - 1)
    if pa.types.is_floating(kind):
        return _booleans(pc.is_inf(column))
    if pa.types.is_struct(kind):
        return _either([_rows_beyond(pc.struct_field(column, [number])) for number in range(kind.num_fields)])
    if pa.types.is_list(kind):
        values = _rows_beyond(pc.list_flatten(column))
        if values is None:
            return None
        rows = np.zeros(len(column), np.bool_)
        rows[pc.list_parent_indices(column).to_numpy(zero_copy_only=False)[values]] = True
        return rows
    return None


def _outside(numbers: Any, low: int, high: int) -> Any:
    bounds = pc.min_max(numbers)
    if bounds["min"].as_py() is None or (bounds["min"].as_py() >= low and bounds["max"].as_py() <= high):
        return None
    least, most = (pa.scalar(each, numbers.type) for each in (low, high))
    return _booleans(pc.or_(pc.less(numbers, least), pc.greater(numbers, most)))


def _booleans(mask: Any) -> Any:
    return mask.fill_null(False).to_numpy(zero_copy_only=False) if pc.any(mask).as_py() else None


def _either(parts: list[Any]) -> Any:
    found = [each for each in parts if each is not None]
    return np.logical_or.reduce(found) if found else None
