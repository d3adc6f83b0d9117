"""Avro's elements read from many rows at once: numpy in, numpy or Arrow out.

A `RowCursor` has a position in each of its rows. Reading a field moves all of them. What is wrong with a row (it ends too early, a
number is too long, a string is no UTF-8) makes it doubtful: its values are meaningless, and fastavro decodes it again from its beginning
later. So everything here may be strict, and nothing here decides that a row is bad.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

Int64s = np.ndarray[Any, np.dtype[np.int64]]

SLACK = 24
"""Readable bytes after the last row: a row that ends too early is noticed after its element was read."""
_INT_MIN, _INT_MAX = -(1 << 31), (1 << 31) - 1
_U = np.uint64
_STOPS, _SEVENS, _ONES = _U(0x8080808080808080), _U(0x7F7F7F7F7F7F7F7F), _U(0x0101010101010101)
_STEPS = (
    (_U(0x007F007F007F007F), _U(0x7F007F007F007F00), _U(1)),
    (_U(0x00003FFF00003FFF), _U(0x3FFF00003FFF0000), _U(2)),
    (_U(0x000000000FFFFFFF), _U(0x0FFFFFFF00000000), _U(4)),
)
"""Joins of 7 bits to 14, of those to 28, of those to 56: the low ones stay, the high ones move down."""


class Bytes:
    """A buffer that is read at any position, as bytes, 4-byte and 8-byte words."""

    def __init__(self, data: Any) -> None:
        self.size = len(data)
        self.octets = np.zeros(self.size + SLACK, np.uint8)
        self.octets[: self.size] = data
        count = self.size + SLACK
        self.words4: Any = np.ndarray((count - 3,), "<u4", self.octets, strides=(1,))
        self.words8: Any = np.ndarray((count - 7,), "<u8", self.octets, strides=(1,))
        self.buffer = pa.py_buffer(self.octets)


class RowCursor:
    """Positions in rows. Invariant: a position is never beyond the row's end."""

    def __init__(self, data: Bytes, position: Int64s, end: Int64s) -> None:
        self.data = data
        self.position = position
        self.end = end
        self.doubtful = np.zeros(len(position), np.bool_)

    def __len__(self) -> int:
        return len(self.position)

    def part(self, rows: Int64s) -> "RowCursor":
        """A cursor over some of the rows."""
        return RowCursor(self.data, self.position[rows], self.end[rows])

    def join(self, rows: Int64s, part: "RowCursor") -> None:
        """Continue at the positions of a cursor over some of the rows."""
        self.position[rows] = part.position
        self.doubtful[rows] |= part.doubtful

    def move(self, position: Int64s) -> None:
        """Stand there; a row that ends before is doubtful."""
        over = position > self.end
        if over.any():
            self.doubtful |= over
            position = np.minimum(position, self.end)
        self.position = position

    def doubt(self, rows: Any) -> None:
        """These rows (a mask) are doubtful."""
        self.doubtful |= rows

    def longs(self) -> Int64s:
        """A zigzag varint of up to 64 bits in each row."""
        data, position = self.data, self.position
        first = data.octets[position]
        if not (first & 0x80).any():
            self.move(position + 1)
            return _signed(first.astype(np.uint64))
        words = data.words8[position]
        stops = ~words & _STOPS
        lowest = stops & (~stops + _U(1))
        below = lowest - _U(1)  # all ones where no byte of the eight is the last
        length = ((below & _ONES) * _ONES) >> _U(56)
        number = words & below & _SEVENS
        for stay, fall, shift in _STEPS:
            number = (number & stay) | ((number & fall) >> shift)
        length = length.astype(np.int64)
        long = stops == 0
        if long.any():
            self._longest(np.flatnonzero(long), number, length)
        self.move(position + length)
        return _signed(number)

    def _longest(self, rows: Int64s, number: Any, length: Int64s) -> None:
        """The ninth and tenth byte of numbers that have them."""
        position = self.position[rows]
        ninth = self.data.octets[position + 8].astype(np.uint64)
        tenth = self.data.octets[position + 9].astype(np.uint64)
        more = ninth >= 0x80
        number[rows] |= (ninth & _U(0x7F)) << _U(56)
        number[rows] |= np.where(more, tenth << _U(63), _U(0))
        length[rows] = np.where(more, 10, 9)
        self.doubtful[rows] |= more & (tenth > 1)

    def ints(self) -> Int64s:
        """A varint of up to 32 bits."""
        number = self.longs()
        wrong = (number < _INT_MIN) | (number > _INT_MAX)
        if wrong.any():
            self.doubt(wrong)
            number = np.where(wrong, 0, number)
        return number

    def choices(self, count: int) -> Int64s:
        """A varint below `count`: the index of a symbol or of a branch."""
        number = self.longs()
        wrong = (number < 0) | (number >= count)
        if wrong.any():
            self.doubt(wrong)
            number = np.where(wrong, 0, number)
        return number

    def booleans(self) -> Any:
        """One byte; what is not zero is true, as for fastavro."""
        value = self.data.octets[self.position] != 0
        self.move(self.position + 1)
        return value

    def floats(self) -> Any:
        """Four bytes."""
        value = np.ascontiguousarray(self.data.words4[self.position]).view("<f4")
        self.move(self.position + 4)
        return value

    def doubles(self) -> Any:
        """Eight bytes."""
        value = np.ascontiguousarray(self.data.words8[self.position]).view("<f8")
        self.move(self.position + 8)
        return value

    def spans(self) -> tuple[Int64s, Int64s]:
        """Where bytes or a string begin and end."""
        length = self.longs()
        wrong = (length < 0) | (length > self.end - self.position)
        if wrong.any():
            self.doubt(wrong)
            length = np.where(wrong, 0, length)
        start = self.position
        self.position = start + length
        return start, self.position

    def fixed(self, size: int) -> tuple[Int64s, Int64s]:
        """Where so many bytes begin and end; nothing of a row that is too short."""
        start = self.position
        self.move(start + size)
        return start, np.where(self.doubtful, start, self.position)

    def gather(self, start: Int64s, end: Int64s) -> Any:
        """An Arrow binary array of spans, which ascend."""
        return gather(self.data.buffer, start, end)

    def strings(self, raw: Any) -> Any:
        """Bytes as text; rows whose bytes are no UTF-8 are doubtful."""
        try:
            return raw.cast(pa.string())
        except pa.ArrowInvalid:
            texts = []
            for row, value in enumerate(raw.to_pylist()):
                try:
                    texts.append(value.decode())
                except UnicodeDecodeError:
                    texts.append("")
                    self.doubtful[row] = True
            return pa.array(texts, pa.string())


def _signed(zigzag: Any) -> Int64s:
    number: Int64s = ((zigzag >> _U(1)) ^ (~(zigzag & _U(1)) + _U(1))).view(np.int64)
    return number


Step = Callable[[RowCursor], Any]
"""Reads an element of all rows of a cursor: an Arrow array; nothing of one that is passed over."""


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
