"""The fast decoder: whole columns from many rows at once, for pairs of schemas that numpy can follow.

`compile_pair` walks the writer's schema and the reader's together, once, and gives a plan: a list of steps in the writer's order, each of
which reads one field of all rows. It follows records (nested too), primitives, strings and bytes, fixed, enums, logical types, and unions
of null and one of these; with promotions, defaults, aliases, and fields that only one side has. For any other pair it gives None, and so
it does wherever fastavro would resolve differently: what is decoded here is what fastavro decodes. The doubtful rows of a batch are left
to it.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from moldau.lake.avro.rows import convert_default
from moldau.lake.avro.schemas import MISSING, AvroSchema, Enum, Field, Fixed, Logical, Node, Primitive, Record, Union
from moldau.lake.avro.types import MILLISECONDS, arrow_schema, arrow_type, decimal_type, not_null
from moldau.lake.avro.vectors import Bytes, Cursor, Int64s, decimals

Step = Callable[[Cursor], Any]
"""Reads an element of all rows of a cursor: an Arrow array, or None if nobody wants it."""
_PROMOTIONS = frozenset((("int", "long"), ("int", "float"), ("int", "double"), ("long", "float"), ("long", "double"), ("float", "double")))
_MILLISECONDS_MAX = (1 << 63) // 1000 - 1


class _UnlikeError(Exception):
    """The fast decoder does not follow this pair."""


class FastDecoder:
    """Decodes rows of one writer's schema into the columns of one reader's."""

    def __init__(self, record: "_RecordPlan", schema: Any) -> None:
        self._record = record
        self._schema = schema

    def decode(self, data: Bytes, starts: Int64s, ends: Int64s) -> tuple[Any, Any]:
        """A record batch of the rows that are beyond doubt, and a mask of the doubtful ones."""
        cursor = Cursor(data, starts, ends)
        with np.errstate(all="ignore"):  # numpy warns of some NaNs
            arrays = self._record.arrays(cursor)
        doubtful = cursor.doubtful | (cursor.position != cursor.end)
        batch = pa.record_batch(arrays, schema=self._schema)
        if doubtful.any():
            batch = batch.take(pa.array(np.flatnonzero(~doubtful)))
        return batch, doubtful


def compile_pair(writer: AvroSchema, reader: AvroSchema) -> FastDecoder | None:
    """A decoder of values of `writer` into columns of `reader`; None if numpy cannot follow, or there is no column."""
    if not reader.record.fields:
        return None
    try:
        return FastDecoder(_record_plan(writer.record, reader.record), arrow_schema(reader.record))
    except _UnlikeError:
        return None


class _RecordPlan:
    """Steps in the writer's order; where the reader wants what each reads; columns of defaults."""

    def __init__(self, steps: list[tuple[Step, int | None]], defaults: dict[int, Any], names: list[pa.Field]) -> None:
        self._steps = steps
        self._defaults = defaults
        self._fields = names

    def arrays(self, cursor: Cursor) -> list[Any]:
        arrays: list[Any] = [None] * len(self._fields)
        for step, place in self._steps:
            array = step(cursor)
            if place is not None:
                arrays[place] = array
        for place, value in self._defaults.items():
            arrays[place] = value.take(pa.array(np.zeros(len(cursor), np.int64)))
        return arrays

    def struct(self, cursor: Cursor) -> Any:
        return pa.StructArray.from_arrays(self.arrays(cursor), fields=self._fields)


def _record_plan(writer: Record, reader: Record) -> _RecordPlan:
    _same_name(writer, reader)
    if not reader.fields:
        raise _UnlikeError
    places = {each.name: place for place, each in enumerate(reader.fields)}
    by_alias = {alias: each.name for each in reader.fields for alias in each.aliases}
    steps: list[tuple[Step, int | None]] = []
    left = dict(places)
    for field in writer.fields:
        name = field.name if field.name in places else by_alias.get(field.name)
        if name is None:
            steps.append((_skip(field.type), None))
            continue
        if left.pop(name, None) is None:
            raise _UnlikeError  # two fields of the writer are the same one of the reader's
        steps.append((_step(field.type, reader.fields[places[name]].type), places[name]))
    defaults = {place: _default(reader.fields[place]) for place in left.values()}
    return _RecordPlan(steps, defaults, [pa.field(each.name, arrow_type(each.type)) for each in reader.fields])


def _default(field: Field) -> Any:
    """An array of the default alone."""
    if field.default is MISSING:
        raise _UnlikeError
    kind = arrow_type(field.type)
    try:
        return pa.array([convert_default(field.default, field.type)], kind)
    except (pa.ArrowException, OverflowError, ValueError, TypeError, KeyError, AttributeError):
        raise _UnlikeError from None


def _same_name(writer: Record | Fixed | Enum, reader: Record | Fixed | Enum) -> None:
    last = writer.name.rpartition(".")[2]
    if last != reader.name.rpartition(".")[2] and not reader.aliases & {writer.name, last}:
        raise _UnlikeError


def _step(writer: Node, reader: Node) -> Step:
    """Reads an element that the writer's schema describes as what the reader's describes."""
    if isinstance(writer, Union):
        return _union_step(writer, reader)
    if isinstance(reader, Union):
        members = not_null(reader)
        if len(members) > 1:
            raise _UnlikeError
        if writer == Primitive("null"):
            return _nulls(arrow_type(reader)) if len(members) < len(reader.branches) else _unlike()
        return _step(writer, members[0]) if members else _unlike()
    match writer, reader:
        case Primitive(), Primitive():
            return _primitive_step(writer, reader)
        case Fixed(), Fixed():
            _same_name(writer, reader)
            if writer.size != reader.size:
                raise _UnlikeError
            size = writer.size
            return _bytes_step(lambda cursor: cursor.gather(*cursor.fixed(size)), reader.logical)
        case Enum(), Enum():
            _same_name(writer, reader)
            return _enum_step(writer, reader)
        case Record(), Record():
            return _record_plan(writer, reader).struct
        case _:
            raise _UnlikeError


def _unlike() -> Step:
    raise _UnlikeError


def _union_step(writer: Union, reader: Node) -> Step:
    members = not_null(writer)
    if len(members) > 1 or len(writer.branches) > 2 or not members:
        raise _UnlikeError
    inner = _step(members[0], reader)
    count = len(writer.branches)
    if len(writer.branches) == len(members):

        def one(cursor: Cursor) -> Any:
            cursor.choices(1)
            return inner(cursor)

        return one
    full = writer.branches.index(members[0])
    may_be_null = isinstance(reader, Union) and len(not_null(reader)) < len(reader.branches)

    def nullable(cursor: Cursor) -> Any:
        chosen = cursor.choices(count)
        null = chosen != full
        if not null.any():
            return inner(cursor)
        if not may_be_null:
            cursor.doubt(null)
        rows = np.flatnonzero(~null)
        part = cursor.part(rows)
        array = inner(part)
        cursor.join(rows, part)
        if array is None:
            return None
        return array.take(pa.array(np.cumsum(~null) - 1, mask=null))

    return nullable


def _skip(node: Node) -> Step:
    """Passes over an element."""
    match node:
        case Primitive(name, _):
            return _SKIPS[name]
        case Fixed():
            size = node.size
            return lambda cursor: cursor.move(cursor.position + size)
        case Enum():
            return _skip_number  # fastavro does not look at the symbol either
        case Record(_, fields):
            steps = [_skip(each.type) for each in fields]

            def record(cursor: Cursor) -> None:
                for step in steps:
                    step(cursor)

            return record
        case Union():
            return _skip_union(node)
        case _:
            raise _UnlikeError


def _skip_number(cursor: Cursor) -> None:
    cursor.longs()


def _skip_span(cursor: Cursor) -> None:
    cursor.spans()


def _skip_union(union: Union) -> Step:
    members = not_null(union)
    if len(members) != 1 or len(union.branches) > 2:
        raise _UnlikeError
    inner, full, count = _skip(members[0]), union.branches.index(members[0]), len(union.branches)

    def skip(cursor: Cursor) -> None:
        rows = np.flatnonzero(cursor.choices(count) == full)
        if len(rows) == len(cursor):
            inner(cursor)
            return
        part = cursor.part(rows)
        inner(part)
        cursor.join(rows, part)

    return skip


_SKIPS: dict[str, Step] = {
    "null": lambda cursor: None,
    "boolean": lambda cursor: cursor.move(cursor.position + 1),
    "int": _skip_number,
    "long": _skip_number,
    "float": lambda cursor: cursor.move(cursor.position + 4),
    "double": lambda cursor: cursor.move(cursor.position + 8),
    "bytes": _skip_span,
    "string": _skip_span,
}


def _nulls(kind: Any) -> Step:
    return lambda cursor: pa.nulls(len(cursor), kind)


def _enum_step(writer: Enum, reader: Enum) -> Step:
    known = set(reader.symbols)
    symbols = [symbol if symbol in known else reader.default for symbol in writer.symbols]
    texts = pa.array([symbol or "" for symbol in symbols], pa.string())
    unknown = np.array([symbol is None for symbol in symbols], np.bool_)

    def read(cursor: Cursor) -> Any:
        chosen = cursor.choices(len(symbols))
        if unknown.any():
            cursor.doubt(unknown[chosen])
        return texts.take(pa.array(chosen))

    return read


def _primitive_step(writer: Primitive, reader: Primitive) -> Step:
    given, wanted, logical = writer.name, reader.name, reader.logical
    if given in ("bytes", "string") and wanted in ("bytes", "string"):
        return _text_step(given, wanted, logical)
    if given != wanted and (given, wanted) not in _PROMOTIONS:
        raise _UnlikeError
    if wanted == "null":
        return _nulls(pa.null())
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
    return _number_step(numbers, arrow_type(reader), milliseconds=wanted == "long" and logical is not None and logical.name in MILLISECONDS)


def _read_ints(cursor: Cursor) -> Int64s:
    return cursor.ints()


def _read_longs(cursor: Cursor) -> Int64s:
    return cursor.longs()


def _number_step(numbers: Callable[[Cursor], Int64s], kind: Any, *, milliseconds: bool) -> Step:
    plain = np.int32 if kind in (pa.int32(), pa.date32()) else np.int64

    def read(cursor: Cursor) -> Any:
        number = numbers(cursor)
        if milliseconds:
            wrong = (number > _MILLISECONDS_MAX) | (number < -_MILLISECONDS_MAX)
            if wrong.any():
                cursor.doubt(wrong)
                number = np.where(wrong, 0, number)
            number = number * 1000
        return pa.array(number.astype(plain, copy=False)).view(kind)

    return read


def _text_step(given: str, wanted: str, logical: Logical | None) -> Step:
    if wanted == "string":
        return lambda cursor: cursor.strings(cursor.gather(*cursor.spans()))
    if given == "bytes":
        return _bytes_step(lambda cursor: cursor.gather(*cursor.spans()), logical)

    def checked(cursor: Cursor) -> Any:
        raw = cursor.gather(*cursor.spans())
        cursor.strings(raw)
        return raw

    return _bytes_step(checked, logical)


def _bytes_step(raw: Step, logical: Logical | None) -> Step:
    kind = decimal_type(logical)
    if kind is None:
        return raw

    def read(cursor: Cursor) -> Any:
        array, wrong = decimals(raw(cursor), kind)
        cursor.doubt(wrong)
        return array

    return read
