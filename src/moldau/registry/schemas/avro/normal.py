"""The form of an Avro schema that `normalize=true` stores: properties in the order of their names, aliases too, empty docs left out.

Confluent's registry does the same, so that two services whose tools write properties in different orders share one schema id.
"""

from typing import Any

from moldau.registry.schemas.avro.printer import named_within
from moldau.registry.schemas.avro.types import MISSING, ArrayType, AvroType, MapType, NamedType, Properties, RecordType, UnionType


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
