"""An Avro schema as a tree of nodes, every name resolved, and as what fastavro takes.

fastavro checks the text and makes all names full; the nodes are built from that. To decode, fastavro is given the schema without logical
types, so that it hands over plain numbers and bytes, which become Arrow values without a Python datetime each.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

MISSING: Any = type("Missing", (), {"__repr__": lambda _: "MISSING"})()
"""The default of a field that has none; None is a default."""
PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
VALUE = "value"
"""Name of the one column of a schema that is no record."""


class AvroSchemaError(ValueError):
    """A schema that cannot be used: it is not Avro, or there are no columns for it."""


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


@dataclass(frozen=True, slots=True)
class AvroText:
    """A schema as text, with the texts of the schemas that it refers to, those that others need first."""

    text: str
    references: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A schema whose columns are the fields of `record`; a schema that is no record is the record of one field, VALUE: the same bytes."""

    record: Record

    def only(self, names: Sequence[str]) -> "AvroSchema":
        """The same record with these fields alone, in this order. KeyError for a field that it does not have."""
        fields = {each.name: each for each in self.record.fields}
        return AvroSchema(replace(self.record, fields=tuple(fields[name] for name in names)))


def parse(schema: str | AvroText) -> AvroSchema:
    """Read a schema. AvroSchemaError says what is wrong with it."""
    import fastavro
    from fastavro.schema import SchemaParseException, UnknownType

    given = AvroText(schema) if isinstance(schema, str) else schema
    named: dict[str, Any] = {}
    try:
        for text in given.references:
            fastavro.parse_schema(json.loads(text), named)
        root = _Builder(named).node(fastavro.parse_schema(json.loads(given.text), named))
        record = root if isinstance(root, Record) else Record("moldau.lake.Value", (Field(VALUE, root),))
        physical(record)  # defaults that are no values of their types are found now
    except AvroSchemaError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, SchemaParseException, UnknownType, RecursionError) as error:
        raise AvroSchemaError(f"not an Avro schema: {type(error).__name__}: {error}") from error
    return AvroSchema(record)


class _Builder:
    """Nodes from what fastavro made of the text."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._open: list[str] = []
        self._made: dict[str, Node] = {}

    def node(self, schema: Any) -> Node:
        if isinstance(schema, list):
            return Union(tuple(self.node(branch) for branch in schema))
        if isinstance(schema, str):
            return Primitive(schema) if schema in PRIMITIVES else self._definition(self._named[schema])
        kind = schema["type"]
        if isinstance(kind, (dict, list)):
            return self.node(kind)
        if kind == "array":
            return Array(self.node(schema["items"]))
        if kind == "map":
            return Map(self.node(schema["values"]))
        if kind in ("record", "error", "enum", "fixed"):
            return self._definition(schema)
        return Primitive(kind, _logical(schema)) if kind in PRIMITIVES else self._definition(self._named[kind])

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
            return Fixed(name, schema["size"], aliases, _logical(schema))
        if schema["type"] == "enum":
            return Enum(name, tuple(schema["symbols"]), aliases, schema.get("default"))
        fields = tuple(
            Field(each["name"], self.node(each["type"]), tuple(each.get("aliases", ())), each.get("default", MISSING))
            for each in schema["fields"]
        )
        return Record(name, fields, aliases)


def _logical(schema: Mapping[str, Any]) -> Logical | None:
    name = schema.get("logicalType")
    if not isinstance(name, str):
        return None
    precision, scale = schema.get("precision", 0), schema.get("scale", 0)
    if name == "decimal" and not (type(precision) is int and type(scale) is int and 0 <= scale <= precision and precision > 0):
        return None  # the specification has readers ignore logical types that make no sense
    return Logical(name, precision, scale) if name == "decimal" else Logical(name)


def physical(node: Node) -> Any:
    """The schema without logical types and names, with defaults as values: what fastavro takes."""
    return _Physical().of(node)


class _Physical:
    """What fastavro takes, made from nodes: every name replaced by what it stands for, since fastavro resolves two schemas by name wrongly
    where one of them defines a type in place and the other refers to it."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def of(self, node: Node) -> Any:
        match node:
            case Primitive(name, _):
                return name
            case Array(items):
                return {"type": "array", "items": self.of(items)}
            case Map(values):
                return {"type": "map", "values": self.of(values)}
            case Union(branches):
                return [self.of(branch) for branch in branches]
            case _:
                if node.name not in self._made:
                    self._made[node.name] = self._definition(node)
                return self._made[node.name]

    def _definition(self, node: Fixed | Enum | Record) -> dict[str, Any]:
        common = {"name": node.name, "aliases": sorted(node.aliases)}
        match node:
            case Fixed():
                return {"type": "fixed", **common, "size": node.size}
            case Enum():
                default = {} if node.default is None else {"default": node.default}
                return {"type": "enum", **common, "symbols": list(node.symbols), **default}
            case Record():
                return {"type": "record", **common, "fields": [self._field(each) for each in node.fields]}

    def _field(self, field: Field) -> dict[str, Any]:
        default = {} if field.default is MISSING else {"default": default_value(field.default, field.type)}
        return {"name": field.name, "type": self.of(field.type), "aliases": list(field.aliases), **default}


def default_value(default: Any, node: Node) -> Any:
    """The value that a default in JSON stands for, as fastavro would read it: bytes are written as text."""
    match node:
        case Primitive("bytes", _) | Fixed():
            return default.encode("latin-1")
        case Primitive("float" | "double", _):
            return float(default)
        case Array(items):
            return [default_value(each, items) for each in default]
        case Map(values):
            return {name: default_value(each, values) for name, each in default.items()}
        case Union(branches):
            return default_value(default, branches[0])  # the default of a union is of its first type
        case Record(_, fields):
            return {each.name: default_value(default.get(each.name, each.default), each.type) for each in fields}
        case _:
            return default


def texts(schemas: Sequence[Any]) -> tuple[str, ...]:
    """The texts of registered schemas."""
    return tuple(schema.text for schema in schemas)
