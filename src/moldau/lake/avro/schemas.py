"""The text of an Avro schema, read: a tree of nodes, checked.

fastavro checks the text and makes all names full; the nodes are built from that.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from moldau.lake.avro.nodes import (
    MISSING,
    PRIMITIVES,
    ArrayNode,
    EnumNode,
    FieldNode,
    FixedNode,
    LogicalType,
    MapNode,
    Node,
    PrimitiveNode,
    RecordNode,
    UnionNode,
)
from moldau.lake.avro.physical import physical

VALUE = "value"
"""Name of the one column of a schema that is no record."""


class AvroSchemaError(ValueError):
    """A schema that cannot be used: it is not Avro, or there are no columns for it."""


@dataclass(frozen=True, slots=True)
class AvroText:
    """A schema as text, with the texts of the schemas that it refers to, those that others need first."""

    text: str
    references: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SchemaTree:
    """A schema whose columns are the fields of `record`; a schema that is no record is the record of one field, VALUE: the same bytes."""

    record: RecordNode

    def only(self, names: Sequence[str]) -> "SchemaTree":
        """The same record with these fields alone, in this order. KeyError for a field that it does not have."""
        fields = {each.name: each for each in self.record.fields}
        return SchemaTree(replace(self.record, fields=tuple(fields[name] for name in names)))


def parse(schema: str | AvroText) -> SchemaTree:
    """Read a schema. AvroSchemaError names what is wrong with it."""
    import fastavro
    from fastavro.schema import SchemaParseException, UnknownType

    given = AvroText(schema) if isinstance(schema, str) else schema
    named: dict[str, Any] = {}
    try:
        for text in given.references:
            fastavro.parse_schema(json.loads(text), named)
        root = _Builder(named).node(fastavro.parse_schema(json.loads(given.text), named))
        record = root if isinstance(root, RecordNode) else RecordNode("moldau.lake.Value", (FieldNode(VALUE, root),))
        physical(record)  # defaults that are no values of their types are found now
    except AvroSchemaError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, SchemaParseException, UnknownType, RecursionError) as error:
        raise AvroSchemaError(f"not an Avro schema: {type(error).__name__}: {error}") from error
    return SchemaTree(record)


class _Builder:
    """Nodes from what fastavro made of the text."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._open: list[str] = []
        self._made: dict[str, Node] = {}

    def node(self, schema: Any) -> Node:
        if isinstance(schema, list):
            return UnionNode(tuple(self.node(branch) for branch in schema))
        if isinstance(schema, str):
            return PrimitiveNode(schema) if schema in PRIMITIVES else self._definition(self._named[schema])
        kind = schema["type"]
        if isinstance(kind, (dict, list)):
            return self.node(kind)
        if kind == "array":
            return ArrayNode(self.node(schema["items"]))
        if kind == "map":
            return MapNode(self.node(schema["values"]))
        if kind in ("record", "error", "enum", "fixed"):
            return self._definition(schema)
        return PrimitiveNode(kind, _logical(schema)) if kind in PRIMITIVES else self._definition(self._named[kind])

    def _definition(self, schema: Mapping[str, Any]) -> Node:
        name = schema["name"]
        if name in self._open:
            raise AvroSchemaError(f"record {name} contains itself: there are no columns for that")
        if name not in self._made:
            self._open.append(name)
            self._made[name] = self._new(schema)
            self._open.pop()
        return self._made[name]

    def _new(self, schema: Mapping[str, Any]) -> Node:
        name, aliases = schema["name"], frozenset(schema.get("aliases", ()))
        if schema["type"] == "fixed":
            return FixedNode(name, schema["size"], aliases, _logical(schema))
        if schema["type"] == "enum":
            return EnumNode(name, tuple(schema["symbols"]), aliases, schema.get("default"))
        fields = tuple(
            FieldNode(each["name"], self.node(each["type"]), tuple(each.get("aliases", ())), each.get("default", MISSING))
            for each in schema["fields"]
        )
        return RecordNode(name, fields, aliases)


def _logical(schema: Mapping[str, Any]) -> LogicalType | None:
    name = schema.get("logicalType")
    if not isinstance(name, str):
        return None
    precision, scale = schema.get("precision", 0), schema.get("scale", 0)
    if name == "decimal" and not (type(precision) is int and type(scale) is int and 0 <= scale <= precision and precision > 0):
        return None  # the specification has readers ignore logical types that make no sense
    return LogicalType(name, precision, scale) if name == "decimal" else LogicalType(name)


def texts(schemas: Sequence[Any]) -> tuple[str, ...]:
    """The texts of registered schemas."""
    return tuple(schema.text for schema in schemas)


_WIDTHS = {"null": 0, "boolean": 1, "float": 4, "double": 8}


FIXED_BYTES_MAX = 2**31 - 1


def check_sizes(node: Node) -> None:
    """AvroSchemaError for what no event can have: arrays of what takes no bytes (ten bytes could claim 2**62 of them), vast fixed."""
    match node:
        case FixedNode(name, size) if size > FIXED_BYTES_MAX:
            raise AvroSchemaError(f"fixed {name} has {size} bytes, and no event has more than {FIXED_BYTES_MAX}")
        case ArrayNode(items):
            if least_size(items) == 0:
                raise AvroSchemaError("an array of what takes no bytes cannot be read safely")
            check_sizes(items)
        case MapNode(values):
            check_sizes(values)
        case RecordNode(_, fields):
            for each in fields:
                check_sizes(each.type)
        case UnionNode(branches):
            for branch in branches:
                check_sizes(branch)
        case _:
            return


def least_size(node: Node) -> int:
    """No value of the type takes fewer bytes."""
    match node:
        case PrimitiveNode(name, _):
            return _WIDTHS.get(name, 1)
        case FixedNode():
            return node.size
        case RecordNode(_, fields):
            return sum(least_size(each.type) for each in fields)
        case _:
            return 1


def width(node: Node) -> int | None:
    """How many bytes each value of the type takes; None if that is not always the same."""
    match node:
        case PrimitiveNode(name, _):
            return _WIDTHS.get(name)
        case FixedNode():
            return node.size
        case RecordNode(_, fields):
            widths = [width(each.type) for each in fields]
            return None if None in widths else sum(each for each in widths if each is not None)
        case _:
            return None
