"""Schemas of tables: as JSON, as Spark and Delta write them, and back; and how they grow with the events' schema. Pure.

Types that Spark has no word for are stored as the next one that it has (`storable`). Every column may be null.

New columns and new fields of structs are added, at the end; int becomes long and float double where events have that; columns that events
do not have any more stay and are null. Any other change is refused: a table has one type for each column.
"""

import re
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from moldau.lake.tables.format import TableMismatchError
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
_STORED_AS = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.float16(): pa.float32(), pa.null(): pa.string()}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")


def storable(kind: Any) -> Any:
    """The type under which values of an Arrow type lie in a table. Local times are stored as if they were UTC."""
    if kind in _BY_TYPE or pa.types.is_decimal128(kind):
        return kind
    if kind in _STORED_AS:
        return _STORED_AS[kind]
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
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
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


_WIDENINGS = frozenset(
    [
        (pa.int8(), pa.int16()),
        (pa.int8(), pa.int32()),
        (pa.int8(), pa.int64()),
        (pa.int16(), pa.int32()),
        (pa.int16(), pa.int64()),
        (pa.int32(), pa.int64()),
        (pa.float32(), pa.float64()),
        (pa.int8(), pa.float64()),
        (pa.int16(), pa.float64()),
        (pa.int32(), pa.float64()),
    ]
)
"""Each pair without loss: long to double would lose digits, and is refused."""


@dataclass(frozen=True, slots=True)
class SchemaEvolution:
    """What becomes of a table's columns."""

    schema: Any
    """All columns then."""
    added: tuple[str, ...]
    widened: tuple[str, ...]
    """Columns whose type changes: files that have the old one are rewritten."""

    @property
    def changes(self) -> bool:
        """Whether the table's schema changes at all."""
        return bool(self.added or self.widened)


def evolve(path: str, table: Any, events: Any) -> SchemaEvolution:
    """The columns of the table at `path` when `events` come into it. TableMismatchError names the first that cannot be."""
    added: list[str] = []
    widened: list[str] = []
    fields = _merge(path, "", list(table), list(events), added, widened)
    return SchemaEvolution(pa.schema(fields), tuple(added), tuple(widened))


def _merge(path: str, above: str, old: list[Any], new: list[Any], added: list[str], widened: list[str]) -> list[Any]:
    coming = {each.name: each for each in new}
    merged = []
    for each in old:
        if each.name in coming:
            each = pa.field(each.name, _type(path, above + each.name, each.type, coming[each.name].type, added, widened))
        merged.append(each)
    there = {each.name for each in old}
    folded = {name.lower(): name for name in there}
    for each in new:
        if each.name not in there:
            twin = folded.get(each.name.lower())
            if twin is not None:
                raise TableMismatchError(f"{path}: column {above}{each.name} differs from column {above}{twin} in capital letters only")
            folded[each.name.lower()] = each.name
            added.append(above + each.name)
            merged.append(each)
    return merged


def _type(path: str, name: str, old: Any, new: Any, added: list[str], widened: list[str]) -> Any:
    if old == new or (new, old) in _WIDENINGS:
        return old
    if (old, new) in _WIDENINGS:
        widened.append(name)
        return new
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        return pa.struct(_merge(path, f"{name}.", list(old), list(new), added, widened))
    if pa.types.is_list(old) and pa.types.is_list(new):
        return pa.list_(pa.field("element", _type(path, f"{name}.element", old.value_type, new.value_type, added, widened)))
    if pa.types.is_map(old) and pa.types.is_map(new) and old.key_type == new.key_type:
        return pa.map_(old.key_type, _type(path, f"{name}.value", old.item_type, new.item_type, added, widened))
    raise TableMismatchError(f"{path}: column {name} is {old} in the table and {new} in the events: the one cannot become the other")
