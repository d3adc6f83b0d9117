"""What an Avro schema is made of, and whether a default value is one of its type.

A named type occurs once as an object, however often its name is used, so that a recursive schema is a circle of objects. That is
why these classes are compared by identity. Avro writes defaults as JSON: bytes and fixed as text with one character a byte.
"""

import json
from dataclasses import dataclass, field
from typing import Any, Final

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})

Properties = dict[str, Any]
"""What a schema carries beside its own attributes, in the order of the text: logical types, and whatever tools put there."""


class Missing:
    """The absence of a default value; `null` is a default value."""


MISSING: Final = Missing()


@dataclass(eq=False, slots=True, kw_only=True)
class AvroType:
    """Any type; `kind` is its name in the specification."""

    kind: str
    properties: Properties = field(default_factory=dict)


@dataclass(eq=False, slots=True, kw_only=True)
class ArrayType(AvroType):
    """A list of items of one type."""

    items: AvroType


@dataclass(eq=False, slots=True, kw_only=True)
class MapType(AvroType):
    """Values of one type under strings."""

    values: AvroType


@dataclass(eq=False, slots=True, kw_only=True)
class UnionType(AvroType):
    """One of several types."""

    branches: list[AvroType]


@dataclass(eq=False, slots=True, kw_only=True)
class NamedType(AvroType):
    """A type that can be used again by its name; `namespace` is empty where there is none, aliases are full names."""

    name: str
    namespace: str
    doc: str | None
    aliases: list[str]

    @property
    def full_name(self) -> str:
        """The name with its namespace."""
        return f"{self.namespace}.{self.name}" if self.namespace else self.name


@dataclass(eq=False, slots=True, kw_only=True)
class FixedType(NamedType):
    """So many bytes."""

    size: int


@dataclass(eq=False, slots=True, kw_only=True)
class EnumType(NamedType):
    """One of some words; a reader takes `default` for a word that it does not know."""

    symbols: list[str]
    default: str | None


@dataclass(eq=False, slots=True, kw_only=True)
class RecordField:
    """A field of a record; aliases are names of fields."""

    name: str
    type: AvroType
    default: Any
    doc: str | None
    order: str
    aliases: list[str]
    properties: Properties


@dataclass(eq=False, slots=True, kw_only=True)
class RecordType(NamedType):
    """Fields in order; `kind` is `record` or `error`."""

    fields: list[RecordField]


_INT = range(-(2**31), 2**31)
_LONG = range(-(2**63), 2**63)
_SHOWN_CHARACTERS_MAX = 1_000
_FLOAT_WORDS = frozenset({"NaN", "Infinity", "-Infinity"})


def default_fault(avro_type: AvroType, value: Any) -> str | None:
    """What is wrong with `value` as a default of the type; None if nothing is.

    The default of a union may be of any of its branches, as in Avro since 1.12 (before, of the first only).
    """
    if _DefaultCheck().fits(avro_type, value):
        return None
    return f"{json.dumps(value)[:_SHOWN_CHARACTERS_MAX]} is no {_described(avro_type)}"


class _DefaultCheck:
    """One default value. Each pair of a type and a part of the value is checked once: the branches of unions inside each other would
    otherwise be tried in every combination."""

    def __init__(self) -> None:
        self._judged: dict[tuple[int, int], bool] = {}

    def fits(self, avro_type: AvroType, value: Any) -> bool:
        if not isinstance(value, dict | list):
            return self._fits(avro_type, value)
        key = (id(avro_type), id(value))
        if key not in self._judged:
            self._judged[key] = self._fits(avro_type, value)
        return self._judged[key]

    def _fits(self, avro_type: AvroType, value: Any) -> bool:
        match avro_type:
            case UnionType(branches=branches):
                return any(self.fits(branch, value) for branch in branches)
            case ArrayType(items=items):
                return isinstance(value, list) and all(self.fits(items, item) for item in value)
            case MapType(values=values):
                return isinstance(value, dict) and all(self.fits(values, item) for item in value.values())
            case EnumType(symbols=symbols):
                return value in symbols
            case FixedType(size=size):
                return _is_bytes(value) and len(value) == size
            case RecordType():
                return self._fits_record(avro_type, value)
        return _fits_primitive(avro_type.kind, value)

    def _fits_record(self, record: RecordType, value: Any) -> bool:
        """Each field has a value, from the default of the record or from its own."""
        if not isinstance(value, dict):
            return False
        for each in record.fields:
            if each.name in value:
                if not self.fits(each.type, value[each.name]):
                    return False
            elif each.default is MISSING:
                return False
        return True


def _fits_primitive(kind: str, value: Any) -> bool:
    match kind:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int" | "long":
            return type(value) is int and value in (_INT if kind == "int" else _LONG)
        case "float" | "double":
            return type(value) in (int, float) or (isinstance(value, str) and value in _FLOAT_WORDS)
        case "string":
            return isinstance(value, str)
        case _:
            return _is_bytes(value)


def _is_bytes(value: Any) -> bool:
    return isinstance(value, str) and all(character <= "\xff" for character in value)


def _described(avro_type: AvroType) -> str:
    match avro_type:
        case UnionType(branches=branches):
            return "value of a branch of [" + ", ".join(_described(branch) for branch in branches) + "]"
        case EnumType(symbols=symbols):
            return f"symbol of {avro_type.full_name} ({', '.join(symbols)})"
        case FixedType(size=size):
            return f"text of {size} characters up to U+00FF, for fixed {avro_type.full_name}"
        case RecordType():
            return f"record {avro_type.full_name} with a value for each field that has no default"
    return avro_type.kind
