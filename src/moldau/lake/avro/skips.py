"""Passing over what is not read: elements that the reader's schema does not have, and items on the way to the next.

What fastavro finds wrong in an element that it drops (see `evolution`) makes its row doubtful here too: that it ends too early, or that
the name of an entry in a map is no UTF-8. The rest of its bytes are not looked at.
"""

import numpy as np

from moldau.lake.avro.blocks import BlockLayout, walk
from moldau.lake.avro.leaves import UnlikeError
from moldau.lake.avro.nodes import ArrayNode, EnumNode, FixedNode, MapNode, Node, PrimitiveNode, RecordNode, UnionNode, not_null
from moldau.lake.avro.schemas import least_size, width
from moldau.lake.avro.vectors import RowCursor, Step


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
        raise UnlikeError
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
