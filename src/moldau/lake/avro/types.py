"""Which Arrow type an Avro type becomes: what Spark's ``from_avro`` makes of it, so that both ways to read a topic give one table.

All columns and fields may be null: a reader's schema grows, and a table keeps rows from before.
"""

from typing import Any

import pyarrow as pa

from moldau.lake.avro.schemas import (
    ArrayNode,
    AvroText,
    EnumNode,
    FixedNode,
    LogicalType,
    MapNode,
    Node,
    PrimitiveNode,
    RecordNode,
    UnionNode,
    not_null,
    parse,
)

DECIMAL_PRECISION_MAX = 38
_PLAIN = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("us", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
"""Times of day stay numbers and the other logical types what they are made of."""
MILLISECONDS = frozenset(("timestamp-millis", "local-timestamp-millis"))
"""Logical types whose numbers are multiplied by 1000."""
_DAYS = (-719_162, 2_932_896)
_MILLISECONDS = (-62_135_596_800_000, 253_402_300_799_999)
_RANGES = {
    "date": _DAYS,
    **dict.fromkeys(MILLISECONDS, _MILLISECONDS),
    **dict.fromkeys(("timestamp-micros", "local-timestamp-micros"), (_MILLISECONDS[0] * 1000, _MILLISECONDS[1] * 1000 + 999)),
}
"""Of Spark's dates and timestamps, which lie in the years 1 to 9999: the least and the greatest number."""


def arrow_schema(schema: str | AvroText | RecordNode) -> Any:
    """Columns of the fields of a record; of a schema that is no record, one column named ``value``. AvroSchemaError."""
    record = schema if isinstance(schema, RecordNode) else parse(schema).record
    return pa.schema([pa.field(each.name, arrow_type(each.type)) for each in record.fields])


def arrow_type(node: Node) -> Any:
    """The Arrow type of an Avro type."""
    match node:
        case PrimitiveNode(name, logical):
            return decimal_type(logical) or _LOGICAL.get((name, logical.name if logical else ""), _PLAIN[name])
        case FixedNode():
            return decimal_type(node.logical) or pa.binary()
        case EnumNode():
            return pa.string()
        case RecordNode(_, fields):
            return pa.struct([pa.field(each.name, arrow_type(each.type)) for each in fields])
        case ArrayNode(items):
            return pa.list_(pa.field("element", arrow_type(items)))
        case MapNode(values):
            return pa.map_(pa.string(), arrow_type(values))
        case UnionNode():
            merged = merged_numbers(node)
            if merged is not None:
                return _PLAIN[merged]
            members = not_null(node)
            if len(members) == 1:
                return arrow_type(members[0])
            if not members:
                return pa.null()
            return pa.struct([pa.field(f"member{number}", arrow_type(member)) for number, member in enumerate(members)])


def date_range(node: PrimitiveNode) -> tuple[int, int] | None:
    """The least and the greatest number of a date or timestamp that Spark has; None for other types."""
    logical = node.logical
    if logical is None or (node.name, logical.name) not in _LOGICAL:
        return None
    return _RANGES[logical.name]


def decimal_type(logical: LogicalType | None) -> Any:
    """The Arrow type of a decimal; None if it is none, or has more digits than Spark's decimals can have."""
    if logical is None or logical.name != "decimal" or logical.precision > DECIMAL_PRECISION_MAX:
        return None
    return pa.decimal128(logical.precision, logical.scale)


def merged_numbers(union: UnionNode) -> str | None:
    """Unions of int and long become long, of float and double double, as in Spark."""
    names = {branch.name if isinstance(branch, PrimitiveNode) and branch.logical is None else "" for branch in not_null(union)}
    return {frozenset(("int", "long")): "long", frozenset(("float", "double")): "double"}.get(frozenset(names))
