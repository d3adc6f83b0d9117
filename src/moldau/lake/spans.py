"""Spans of a buffer as an Arrow array, copied by Arrow: no object for each."""

from typing import Any

import numpy as np
import pyarrow as pa

from moldau.protocol.records.vectors import Int64s


def gather(buffer: Any, start: Int64s, end: Int64s, null: Any = None) -> Any:
    """A binary array of the spans from `start` to `end` of an Arrow buffer; they ascend. `null`: which of them are null; None: none is.

    Seen through offsets start, end, start, end, ... the buffer is an array of spans and gaps in turn; Arrow takes every other one.
    """
    count = len(start)
    if count == 0:
        return pa.array([], pa.binary())
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2] = start
    offsets[1::2] = end
    spans = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), buffer])
    return spans.take(pa.array(np.arange(0, 2 * count, 2), mask=null if null is not None and null.any() else None))
