"""An Avro schema as a tree of nodes, every name resolved: what all that decodes walks through; and how its text is read and checked.

fastavro checks the text and makes all names full; the nodes are built from that.

`physical` is a schema as fastavro takes it: without logical types, so that it hands over plain numbers and bytes, which become Arrow values
without a Python datetime each; and without names, since fastavro resolves two schemas by name wrongly where one of them defines a type in
place and the other refers to it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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


def physical(node: Node) -> Any:
    """The schema without logical types and names, with defaults as values: what fastavro takes."""
    return _Physical().of(node)


class _Physical:
    """What fastavro takes, made from nodes: every name replaced by its type, since fastavro resolves two schemas by name wrongly
    where one of them defines a type in place and the other refers to it."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def of(self, node: Node) -> Any:
        match node:
            case PrimitiveNode(name, _):
                return name
            case ArrayNode(items):
                return {"type": "array", "items": self.of(items)}
            case MapNode(values):
                return {"type": "map", "values": self.of(values)}
            case UnionNode(branches):
                return [self.of(branch) for branch in branches]
            case _:
                if node.name not in self._made:
                    self._made[node.name] = self._definition(node)
                return self._made[node.name]

    def _definition(self, node: FixedNode | EnumNode | RecordNode) -> dict[str, Any]:
        common = {"name": node.name, "aliases": sorted(node.aliases)}
        match node:
            case FixedNode():
                return {"type": "fixed", **common, "size": node.size}
            case EnumNode():
                default = {} if node.default is None else {"default": node.default}
                return {"type": "enum", **common, "symbols": list(node.symbols), **default}
            case RecordNode():
                return {"type": "record", **common, "fields": [self._field(each) for each in node.fields]}

    def _field(self, field: FieldNode) -> dict[str, Any]:
        default = {} if field.default is MISSING else {"default": default_value(field.default, field.type)}
        return {"name": field.name, "type": self.of(field.type), "aliases": list(field.aliases), **default}


def default_value(default: Any, node: Node) -> Any:
    """The value of a default in JSON, as fastavro would read it: bytes are written as text."""
    match node:
        case PrimitiveNode("bytes", _) | FixedNode():
            return default.encode("latin-1")
        case PrimitiveNode("float" | "double", _):
            return float(default)
        case ArrayNode(items):
            return [default_value(each, items) for each in default]
        case MapNode(values):
            return {name: default_value(each, values) for name, each in default.items()}
        case UnionNode(branches):
            return default_value(default, next((branch for branch in branches if _may_be(default, branch)), branches[0]))
        case RecordNode(_, fields):
            return {each.name: default_value(default.get(each.name, each.default), each.type) for each in fields}
        case _:
            return default


def _may_be(default: Any, branch: Node) -> bool:
    """Whether a default is of this type of a union; since Avro 1.12 it need not be the first."""
    match branch:
        case PrimitiveNode("null", _):
            return default is None
        case PrimitiveNode("boolean", _):
            return isinstance(default, bool)
        case PrimitiveNode("int" | "long", _):
            return isinstance(default, int) and not isinstance(default, bool)
        case PrimitiveNode("float" | "double", _):
            return isinstance(default, int | float) and not isinstance(default, bool)
        case EnumNode(_, symbols):
            return default in symbols
        case ArrayNode():
            return isinstance(default, list)
        case MapNode():
            return isinstance(default, dict)
        case RecordNode(_, fields):
            return isinstance(default, dict) and all(each.name in default or each.default is not MISSING for each in fields)
        case _:
            return isinstance(default, str)


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
