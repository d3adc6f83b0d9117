"""An Avro schema as a tree of nodes, every name resolved: what all that decodes walks through."""

from dataclasses import dataclass
from typing import Any

MISSING: Any = type("Missing", (), {"__repr__": lambda _: "MISSING"})()
"""The default of a field that has none; None is a default."""
PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))


@dataclass(frozen=True, slots=True)
class LogicalType:
    """What the number or bytes of a type mean; precision and scale of a decimal."""

    name: str
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True, slots=True)
class PrimitiveNode:
    """One of PRIMITIVES."""

    name: str
    logical: LogicalType | None = None


@dataclass(frozen=True, slots=True)
class FixedNode:
    """A given number of bytes."""

    name: str
    size: int
    aliases: frozenset[str] = frozenset()
    logical: LogicalType | None = None


@dataclass(frozen=True, slots=True)
class EnumNode:
    """One of some symbols; `default` replaces a symbol of the writer that the reader does not have."""

    name: str
    symbols: tuple[str, ...]
    aliases: frozenset[str] = frozenset()
    default: str | None = None


@dataclass(frozen=True, slots=True)
class FieldNode:
    """A field of a record; the default as JSON has it."""

    name: str
    type: "Node"
    aliases: tuple[str, ...] = ()
    default: Any = MISSING


@dataclass(frozen=True, slots=True)
class RecordNode:
    """Fields one after the other."""

    name: str
    fields: tuple[FieldNode, ...]
    aliases: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ArrayNode:
    """Any number of items."""

    items: "Node"


@dataclass(frozen=True, slots=True)
class MapNode:
    """Any number of strings with a value each."""

    values: "Node"


@dataclass(frozen=True, slots=True)
class UnionNode:
    """One of several types."""

    branches: tuple["Node", ...]


Node = PrimitiveNode | FixedNode | EnumNode | RecordNode | ArrayNode | MapNode | UnionNode


def not_null(union: UnionNode) -> tuple[Node, ...]:
    """The branches of a union that hold something."""
    return tuple(branch for branch in union.branches if not (isinstance(branch, PrimitiveNode) and branch.name == "null"))
