"""An Avro schema as a tree of nodes, every name resolved: what all that decodes walks through."""

from dataclasses import dataclass
from typing import Any

MISSING: Any = type("Missing", (), {"__repr__": lambda _: "MISSING"})()
"""The default of a field that has none; None is a default."""
PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))


@dataclass(frozen=True, slots=True)
class Logical:
    """What the number or bytes of a type stand for; precision and scale of a decimal."""

    name: str
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True, slots=True)
class Primitive:
    """One of PRIMITIVES."""

    name: str
    logical: Logical | None = None


@dataclass(frozen=True, slots=True)
class Fixed:
    """A given number of bytes."""

    name: str
    size: int
    aliases: frozenset[str] = frozenset()
    logical: Logical | None = None


@dataclass(frozen=True, slots=True)
class Enum:
    """One of some symbols; `default` stands for a symbol of the writer that the reader does not have."""

    name: str
    symbols: tuple[str, ...]
    aliases: frozenset[str] = frozenset()
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record; the default as JSON has it."""

    name: str
    type: "Node"
    aliases: tuple[str, ...] = ()
    default: Any = MISSING


@dataclass(frozen=True, slots=True)
class Record:
    """Fields one behind the other."""

    name: str
    fields: tuple[Field, ...]
    aliases: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Array:
    """Any number of items."""

    items: "Node"


@dataclass(frozen=True, slots=True)
class Map:
    """Any number of strings with a value each."""

    values: "Node"


@dataclass(frozen=True, slots=True)
class Union:
    """One of several types."""

    branches: tuple["Node", ...]


Node = Primitive | Fixed | Enum | Record | Array | Map | Union


def not_null(union: Union) -> tuple[Node, ...]:
    """The branches of a union that hold something."""
    return tuple(branch for branch in union.branches if not (isinstance(branch, Primitive) and branch.name == "null"))
