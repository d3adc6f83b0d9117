"""What an Avro schema is made of.

A named type occurs once as an object, however often its name is used, so that a recursive schema is a circle of objects. That is
why these classes are compared by identity.
"""

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
class Field:
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

    fields: list[Field]
