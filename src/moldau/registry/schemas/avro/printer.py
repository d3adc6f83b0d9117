"""The text of an Avro schema as Confluent's registry stores it: Avro's own, attributes in a set order, nothing between them.

Worked example: `{"name": "a.R", "fields": [{"type": {"type": "long"}, "name": "x"}], "type": "record", "team": 7}` becomes
`{"type":"record","name":"R","namespace":"a","fields":[{"name":"x","type":"long"}],"team":7}`. Two texts that print alike are one
schema with one id. A named type is printed in full where it occurs first and by its name after that; the types of references are
names from the start.

Confluent's registry does the same, so that two services whose tools write properties in different orders share one schema id.
"""

import math
from collections.abc import Iterable
from typing import Any

from moldau.registry.schemas.avro.types import (
    MISSING,
    ArrayType,
    AvroType,
    EnumType,
    FixedType,
    MapType,
    NamedType,
    Properties,
    RecordField,
    RecordType,
    UnionType,
)
from moldau.registry.schemas.language import quoted


def printed(avro_type: AvroType, known: Iterable[NamedType] = ()) -> str:
    """The stored text; of the types in `known` it holds the names only."""
    return _text(_tree(avro_type, "", {named.full_name for named in known}))


def named_within(avro_type: AvroType) -> list[NamedType]:
    """The named types that a type is made of, itself included, each once."""
    found: dict[str, NamedType] = {}
    waiting = [avro_type]
    while waiting:
        match waiting.pop():
            case ArrayType(items=part) | MapType(values=part):
                waiting.append(part)
            case UnionType(branches=branches):
                waiting += branches
            case NamedType() as named if named.full_name not in found:
                found[named.full_name] = named
                if isinstance(named, RecordType):
                    waiting += [field.type for field in named.fields]
    return list(found.values())


def _tree(avro_type: AvroType, space: str, known: set[str]) -> Any:
    """What JSON the type is, inside the namespace `space`."""
    match avro_type:
        case UnionType(branches=branches):
            return [_tree(branch, space, known) for branch in branches]
        case ArrayType(items=items):
            return {"type": "array", "items": _tree(items, space, known), **avro_type.properties}
        case MapType(values=values):
            return {"type": "map", "values": _tree(values, space, known), **avro_type.properties}
        case NamedType():
            return _named(avro_type, space, known)
    return {"type": avro_type.kind, **avro_type.properties} if avro_type.properties else avro_type.kind


def _named(named: NamedType, space: str, known: set[str]) -> Any:
    if named.full_name in known:
        return named.name if named.namespace in ("", space) else named.full_name
    known.add(named.full_name)
    tree: dict[str, Any] = {"type": named.kind, "name": named.name}
    if named.namespace != space:
        tree["namespace"] = named.namespace
    if named.doc is not None:
        tree["doc"] = named.doc
    match named:
        case RecordType(fields=fields):
            tree["fields"] = [_field(field, named.namespace, known) for field in fields]
        case EnumType(symbols=symbols, default=default):
            tree["symbols"] = symbols
            if default is not None:
                tree["default"] = default
        case FixedType(size=size):
            tree["size"] = size
    tree |= named.properties
    if named.aliases:
        tree["aliases"] = [_short(alias, named.namespace) for alias in named.aliases]
    return tree


def _field(field: RecordField, space: str, known: set[str]) -> dict[str, Any]:
    tree: dict[str, Any] = {"name": field.name, "type": _tree(field.type, space, known)}
    if field.doc is not None:
        tree["doc"] = field.doc
    if field.default is not MISSING:
        tree["default"] = field.default
    if field.order != "ascending":
        tree["order"] = field.order
    if field.aliases:
        tree["aliases"] = field.aliases
    return tree | field.properties


def _short(full_name: str, space: str) -> str:
    prefix, _, name = full_name.rpartition(".")
    return name if prefix == space else full_name


def _text(value: Any) -> str:
    """JSON as Java's library writes it, which shows in its floating-point numbers: `1.0E10`."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{quoted(name)}:{_text(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    if isinstance(value, float):
        return _double(value)
    return quoted(value)


def _double(value: float) -> str:
    if value == 0 or 1e-3 <= abs(value) < 1e7 or not math.isfinite(value):
        return repr(value)
    mantissa, _, exponent = f"{value:e}".partition("e")
    digits = repr(value).partition("e")[0].replace(".", "").replace("-", "").strip("0") or "0"
    sign = "-" if mantissa.startswith("-") else ""
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{int(exponent)}"


def normalize(avro_type: AvroType) -> None:
    """Put a type in its normal form, in place: every type that it is made of as well."""
    _sort(avro_type)
    for named in named_within(avro_type):
        _sort(named)
        if isinstance(named, RecordType):
            _normalize_fields(named)


def _normalize_fields(record: RecordType) -> None:
    for field in record.fields:
        field.aliases = sorted(field.aliases)
        field.properties = _sorted(field.properties)
        if field.default is not MISSING:
            field.default = _sorted(field.default)
        _sort(field.type)


def _sort(avro_type: AvroType) -> None:
    if avro_type.properties:
        avro_type.properties = _logical_first(avro_type.properties)
    match avro_type:
        case ArrayType(items=part) | MapType(values=part):
            _sort(part)
        case UnionType(branches=branches):
            for branch in branches:
                if not isinstance(branch, NamedType):
                    _sort(branch)
        case NamedType():
            avro_type.aliases = sorted(avro_type.aliases)
            avro_type.doc = avro_type.doc or None


def _logical_first(properties: Properties) -> Properties:
    """The logical type comes first, a decimal's precision and its scale, if it is not 0, next; the others follow by name."""
    first: list[str] = [name for name in ("logicalType", "precision") if name in properties and "logicalType" in properties]
    if first and properties.get("scale"):
        first.append("scale")
    rest = sorted(properties.keys() - set(first))
    return {name: _sorted(properties[name]) for name in (*first, *rest)}


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return [_sorted(item) for item in value]
    return value
