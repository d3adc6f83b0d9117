"""The fast decoder: whole columns from many rows at once, for pairs of schemas that numpy can follow.

`compile_pair` walks the writer's schema and the reader's together, once, and gives a plan: a list of steps in the writer's order, each of
which reads one field of all rows. It follows records, arrays, maps, primitives, strings and bytes, fixed, enums, logical types, and unions
of null and one of these, one in another; with promotions, defaults, aliases, and fields that only one side has. For any other pair it
gives None, and so it does wherever fastavro would resolve differently: what is decoded here is what fastavro decodes. The doubtful rows of
a batch are left to it.

What is not read is passed over: elements that the reader's schema does not have, and items on the way to the next. What fastavro finds
wrong in an element that it drops (see `evolution`) makes its row doubtful here too: that it ends too early, or that the name of an entry in
a map is no UTF-8. The rest of its bytes are not looked at.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from moldau.lake.avro.blocks import BlockLayout, array_step, map_step, walk
from moldau.lake.avro.conversions import convert_default
from moldau.lake.avro.leaves import UnsupportedPairError, leaf_step, nulls, same_name
from moldau.lake.avro.schemas import (
    MISSING,
    ArrayNode,
    EnumNode,
    FieldNode,
    FixedNode,
    MapNode,
    Node,
    PrimitiveNode,
    RecordNode,
    SchemaTree,
    UnionNode,
    least_size,
    not_null,
    width,
)
from moldau.lake.avro.types import arrow_schema, arrow_type
from moldau.lake.avro.vectors import Bytes, Int64s, RowCursor, Step


def skip(node: Node) -> Step:
    """Passes over an element."""
    match node:
        case PrimitiveNode(name, _):
            return _SKIPS[name]
        case FixedNode():
            size = node.size
            return lambda cursor: cursor.move(cursor.position + size)
        case EnumNode():
            return _skip_number  # fastavro does not look at the symbol either
        case RecordNode(_, fields):
            steps = [skip(each.type) for each in fields]

            def record(cursor: RowCursor) -> None:
                for step in steps:
                    step(cursor)

            return record
        case UnionNode():
            return _skip_union(node)
        case ArrayNode(items):
            layout = item_layout(items)
            return lambda cursor: walk(cursor, layout)
        case MapNode(values):
            return _skip_map(entry_layout(values))


def item_layout(items: Node) -> BlockLayout:
    """How the items of an array lie. Items that take no bytes are refused before."""
    return BlockLayout(skip(items), least_size(items), width(items))


def entry_layout(values: Node) -> BlockLayout:
    """How the entries of a map lie: a string and a value each."""
    value = skip(values)

    def entry(cursor: RowCursor) -> None:
        cursor.spans()
        value(cursor)

    return BlockLayout(entry, 1 + least_size(values), None)


def _skip_number(cursor: RowCursor) -> None:
    cursor.longs()


def _skip_span(cursor: RowCursor) -> None:
    cursor.spans()


def _skip_union(union: UnionNode) -> Step:
    members = not_null(union)
    if len(members) != 1 or len(union.branches) > 2:
        raise UnsupportedPairError
    inner, full, count = skip(members[0]), union.branches.index(members[0]), len(union.branches)

    def step(cursor: RowCursor) -> None:
        rows = np.flatnonzero(cursor.choices(count) == full)
        if len(rows) == len(cursor):
            inner(cursor)
            return
        part = cursor.part(rows)
        inner(part)
        cursor.join(rows, part)

    return step


def _skip_map(layout: BlockLayout) -> Step:
    def step(cursor: RowCursor) -> None:
        entries = walk(cursor, layout)
        entries.cursor.strings(entries.cursor.gather(*entries.cursor.spans()))
        entries.doubt()

    return step


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


class FastDecoder:
    """Decodes rows of one writer's schema into the columns of one reader's."""

    def __init__(self, record: "_RecordPlan", schema: Any) -> None:
        self._record = record
        self._schema = schema

    def decode(self, data: Bytes, starts: Int64s, ends: Int64s) -> tuple[Any, Any]:
        """A record batch of the rows that are beyond doubt, and a mask of the doubtful ones."""
        cursor = RowCursor(data, starts.copy(), ends)
        with np.errstate(all="ignore"):  # numpy warns of some NaNs
            arrays = self._record.arrays(cursor)
        doubtful = cursor.doubtful | (cursor.position != cursor.end)
        batch = pa.record_batch(arrays, schema=self._schema)
        if doubtful.any():
            batch = batch.take(pa.array(np.flatnonzero(~doubtful)))
        return batch, doubtful


def compile_pair(writer: SchemaTree, reader: SchemaTree) -> FastDecoder | None:
    """A decoder of values of `writer` into columns of `reader`; None if numpy cannot follow, or there is no column."""
    if not reader.record.fields:
        return None
    try:
        return FastDecoder(_record_plan(writer.record, reader.record), arrow_schema(reader.record))
    except UnsupportedPairError:
        return None


class _RecordPlan:
    """Steps in the writer's order; where the reader wants what each reads; columns of defaults."""

    def __init__(self, steps: list[tuple[Step, int | None]], defaults: dict[int, Any], names: list[pa.Field]) -> None:
        self._steps = steps
        self._defaults = defaults
        self._fields = names

    def arrays(self, cursor: RowCursor) -> list[Any]:
        arrays: list[Any] = [None] * len(self._fields)
        for step, place in self._steps:
            array = step(cursor)
            if place is not None:
                arrays[place] = array
        for place, value in self._defaults.items():
            arrays[place] = value.take(pa.array(np.zeros(len(cursor), np.int64)))
        return arrays

    def struct(self, cursor: RowCursor) -> Any:
        return pa.StructArray.from_arrays(self.arrays(cursor), fields=self._fields)


def _record_plan(writer: RecordNode, reader: RecordNode) -> _RecordPlan:
    same_name(writer, reader)
    if not reader.fields:
        raise UnsupportedPairError
    places = {each.name: place for place, each in enumerate(reader.fields)}
    by_alias = {alias: each.name for each in reader.fields for alias in each.aliases}
    steps: list[tuple[Step, int | None]] = []
    left = dict(places)
    for field in writer.fields:
        name = field.name if field.name in places else by_alias.get(field.name)
        if name is None:
            steps.append((skip(field.type), None))
            continue
        if left.pop(name, None) is None:
            raise UnsupportedPairError  # two fields of the writer are the same one of the reader's
        steps.append((_step(field.type, reader.fields[places[name]].type), places[name]))
    defaults = {place: _default(reader.fields[place]) for place in left.values()}
    return _RecordPlan(steps, defaults, [pa.field(each.name, arrow_type(each.type)) for each in reader.fields])


def _default(field: FieldNode) -> Any:
    """An array of the default alone."""
    if field.default is MISSING:
        raise UnsupportedPairError
    kind = arrow_type(field.type)
    try:
        return pa.array([convert_default(field.default, field.type)], kind)
    except (pa.ArrowException, OverflowError, ValueError, TypeError, KeyError, AttributeError):
        raise UnsupportedPairError from None


def _step(writer: Node, reader: Node) -> Step:
    """Reads an element that the writer's schema describes as what the reader's describes."""
    if isinstance(writer, UnionNode):
        return _union_step(writer, reader)
    if isinstance(reader, UnionNode):
        members = not_null(reader)
        if len(members) > 1:
            raise UnsupportedPairError
        if writer == PrimitiveNode("null"):
            return nulls(arrow_type(reader)) if len(members) < len(reader.branches) else _unlike()
        return _step(writer, members[0]) if members else _unlike()
    match writer, reader:
        case RecordNode(), RecordNode():
            return _record_plan(writer, reader).struct
        case ArrayNode(given), ArrayNode(wanted):
            return array_step(item_layout(given), _step(given, wanted), arrow_type(reader))
        case MapNode(given), MapNode(wanted):
            return map_step(entry_layout(given), _step(given, wanted), arrow_type(reader))
        case _:
            return leaf_step(writer, reader)


def _unlike() -> Step:
    raise UnsupportedPairError


def _union_step(writer: UnionNode, reader: Node) -> Step:
    members = not_null(writer)
    if len(members) > 1 or len(writer.branches) > 2 or not members:
        raise UnsupportedPairError
    inner = _step(members[0], reader)
    count = len(writer.branches)
    if len(writer.branches) == len(members):

        def one(cursor: RowCursor) -> Any:
            cursor.choices(1)
            return inner(cursor)

        return one
    full = writer.branches.index(members[0])
    may_be_null = isinstance(reader, UnionNode) and len(not_null(reader)) < len(reader.branches)

    def nullable(cursor: RowCursor) -> Any:
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
        return array.take(pa.array(np.cumsum(~null) - 1, mask=null))

    return nullable
