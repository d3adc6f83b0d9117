"""Steps of the types that hold no others: primitives, fixed and enums, with their promotions and logical types."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from moldau.lake.avro.schemas import EnumNode, FixedNode, LogicalType, Node, PrimitiveNode, RecordNode
from moldau.lake.avro.types import MILLISECONDS, arrow_type, date_range, decimal_type
from moldau.lake.avro.vectors import Int64s, RowCursor, Step


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


_PROMOTIONS = frozenset((("int", "long"), ("int", "float"), ("int", "double"), ("long", "float"), ("long", "double"), ("float", "double")))


class UnsupportedPairError(Exception):
    """The fast decoder does not follow this pair."""


def same_name(writer: RecordNode | FixedNode | EnumNode, reader: RecordNode | FixedNode | EnumNode) -> None:
    """UnlikeError if the names are others, without their namespaces, and no alias."""
    last = writer.name.rpartition(".")[2]
    if last != reader.name.rpartition(".")[2] and not reader.aliases & {writer.name, last}:
        raise UnsupportedPairError


def leaf_step(writer: Node, reader: Node) -> Step:
    """Reads an element. UnlikeError for types that are not the same, or hold others."""
    match writer, reader:
        case PrimitiveNode(), PrimitiveNode():
            return _primitive_step(writer, reader)
        case FixedNode(), FixedNode():
            same_name(writer, reader)
            if writer.size != reader.size:
                raise UnsupportedPairError
            size = writer.size
            return _bytes_step(lambda cursor: cursor.gather(*cursor.fixed(size)), reader.logical)
        case EnumNode(), EnumNode():
            same_name(writer, reader)
            return _enum_step(writer, reader)
        case _:
            raise UnsupportedPairError


def nulls(kind: Any) -> Step:
    """Reads nothing: nulls of an Arrow type."""
    return lambda cursor: pa.nulls(len(cursor), kind)


def _enum_step(writer: EnumNode, reader: EnumNode) -> Step:
    known = set(reader.symbols)
    symbols = [symbol if symbol in known else reader.default for symbol in writer.symbols]
    texts = pa.array([symbol or "" for symbol in symbols], pa.string())
    unknown = np.array([symbol is None for symbol in symbols], np.bool_)

    def read(cursor: RowCursor) -> Any:
        chosen = cursor.choices(len(symbols))
        if unknown.any():
            cursor.doubt(unknown[chosen])
        return texts.take(pa.array(chosen))

    return read


def _primitive_step(writer: PrimitiveNode, reader: PrimitiveNode) -> Step:
    given, wanted, logical = writer.name, reader.name, reader.logical
    if given in ("bytes", "string") and wanted in ("bytes", "string"):
        return _text_step(given, wanted, logical)
    if given != wanted and (given, wanted) not in _PROMOTIONS:
        raise UnsupportedPairError
    if wanted == "null":
        return nulls(pa.null())
    if wanted == "boolean":
        return lambda cursor: pa.array(cursor.booleans())
    if given in ("float", "double"):
        if given == "double":
            return lambda cursor: pa.array(cursor.doubles())
        return lambda cursor: pa.array(cursor.floats().astype(wanted if wanted == "double" else "f4", copy=False))
    numbers = _read_ints if given == "int" else _read_longs
    if wanted == "double":
        return lambda cursor: pa.array(numbers(cursor).astype(np.float64))
    if wanted == "float":
        return lambda cursor: pa.array(numbers(cursor).astype(np.float64).astype(np.float32))
    factor = 1000 if wanted == "long" and logical is not None and logical.name in MILLISECONDS else 1
    return _number_step(numbers, arrow_type(reader), date_range(reader), factor)


def _read_ints(cursor: RowCursor) -> Int64s:
    return cursor.ints()


def _read_longs(cursor: RowCursor) -> Int64s:
    return cursor.longs()


def _number_step(numbers: Callable[[RowCursor], Int64s], kind: Any, years: tuple[int, int] | None, factor: int) -> Step:
    plain = np.int32 if kind in (pa.int32(), pa.date32()) else np.int64

    def read(cursor: RowCursor) -> Any:
        number = numbers(cursor)
        if years is not None and len(number) and (number.min() < years[0] or number.max() > years[1]):
            wrong = (number < years[0]) | (number > years[1])
            cursor.doubt(wrong)
            number = np.where(wrong, 0, number)
        if factor != 1:
            number = number * factor
        return pa.array(number.astype(plain, copy=False)).view(kind)

    return read


def _text_step(given: str, wanted: str, logical: LogicalType | None) -> Step:
    if wanted == "string":
        return lambda cursor: cursor.strings(cursor.gather(*cursor.spans()))
    if given == "bytes":
        return _bytes_step(lambda cursor: cursor.gather(*cursor.spans()), logical)

    def checked(cursor: RowCursor) -> Any:
        raw = cursor.gather(*cursor.spans())
        cursor.strings(raw)
        return raw

    return _bytes_step(checked, logical)


def _bytes_step(raw: Step, logical: LogicalType | None) -> Step:
    kind = decimal_type(logical)
    if kind is None:
        return raw

    def read(cursor: RowCursor) -> Any:
        array, wrong = decimals(raw(cursor), kind)
        cursor.doubt(wrong)
        return array

    return read
