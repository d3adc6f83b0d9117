"""Schemas as JSON, as Spark and Delta write them, and back.

Types that Spark has no word for are stored as the next one that it has: `storable` says which. Every column may be null.
"""

import re
from typing import Any

import pyarrow as pa

from moldau.model.near_names import did_you_mean

_WORDS: list[tuple[str, Any]] = [
    ("byte", pa.int8()),
    ("short", pa.int16()),
    ("integer", pa.int32()),
    ("long", pa.int64()),
    ("float", pa.float32()),
    ("double", pa.float64()),
    ("string", pa.string()),
    ("binary", pa.binary()),
    ("boolean", pa.bool_()),
    ("date", pa.date32()),
    ("timestamp", pa.timestamp("us", tz="UTC")),
]
_BY_WORD = dict(_WORDS)
_OTHER_WORDS = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long", "real": "float", "bool": "boolean"}
"""SQL's words, which Spark takes too."""
TYPES = (*_BY_WORD, "decimal(PRECISION,SCALE)", "array", "map", "struct")
_BY_TYPE = {kind: word for word, kind in _WORDS}
_WIDER = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.float16(): pa.float32(), pa.null(): pa.string()}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")


def storable(kind: Any) -> Any:
    """The type under which values of an Arrow type lie in a table. Local times are stored as if they were UTC."""
    if kind in _BY_TYPE or pa.types.is_decimal128(kind):
        return kind
    if kind in _WIDER:
        return _WIDER[kind]
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, storable(each.type)) for each in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(pa.field("element", storable(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(storable(kind.key_type), storable(kind.item_type))
    if pa.types.is_dictionary(kind):
        return storable(kind.value_type)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC")
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_time(kind) or pa.types.is_duration(kind) or kind == pa.uint64():
        return pa.int64()
    if pa.types.is_date(kind):
        return pa.date32()
    raise ValueError(f"a table cannot hold values of type {kind}")


def storable_schema(schema: Any) -> Any:
    """`storable` of every column. ValueError names one that cannot be stored."""
    fields = []
    for each in schema:
        try:
            fields.append(pa.field(each.name, storable(each.type)))
        except ValueError as error:
            raise ValueError(f"column {each.name}: {error}") from None
    return pa.schema(fields)


def to_json(schema: Any) -> dict[str, Any]:
    """The JSON of a schema of storable types."""
    return _struct(list(schema))


def from_json(value: dict[str, Any]) -> Any:
    """The Arrow schema of the JSON. ValueError for a type that is not known here."""
    return pa.schema([pa.field(each["name"], _type_of(each["type"])) for each in value["fields"]])


def _struct(fields: list[Any]) -> dict[str, Any]:
    named = [{"name": each.name, "type": _json(each.type), "nullable": True, "metadata": {}} for each in fields]
    return {"type": "struct", "fields": named}


def _json(kind: Any) -> Any:
    if pa.types.is_struct(kind):
        return _struct(list(kind))
    if pa.types.is_list(kind):
        return {"type": "array", "elementType": _json(kind.value_type), "containsNull": True}
    if pa.types.is_map(kind):
        return {"type": "map", "keyType": _json(kind.key_type), "valueType": _json(kind.item_type), "valueContainsNull": True}
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _BY_TYPE[kind]


def _type_of(value: Any) -> Any:
    if isinstance(value, str):
        decimal = _DECIMAL.fullmatch(value)
        if decimal:
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        word = _OTHER_WORDS.get(value, value)
        if word not in _BY_WORD:
            raise _unknown(value)
        return _BY_WORD[word]
    match value["type"]:
        case "struct":
            return pa.struct(list(from_json(value)))
        case "array":
            return pa.list_(pa.field("element", _type_of(value["elementType"])))
        case "map":
            return pa.map_(_type_of(value["keyType"]), _type_of(value["valueType"]))
        case other:
            raise _unknown(other)


def _unknown(kind: str) -> ValueError:
    near = did_you_mean(kind, (*_BY_WORD, *_OTHER_WORDS))
    others = ", ".join(f"{word} for {meant}" for word, meant in _OTHER_WORDS.items())
    return ValueError(f"a column of type {kind} is not known here{near}; there are {', '.join(TYPES)}; and {others}")
