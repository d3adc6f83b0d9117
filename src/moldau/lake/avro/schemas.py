"""An Avro schema as a tree of nodes, every name resolved, and as what fastavro takes.

fastavro checks the text and makes all names full; the nodes are built from that. Logical types stand in the nodes only: fastavro is given
the schema without them, so that it hands over plain numbers and bytes, which become Arrow values without a Python datetime each.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    physical: dict[str, Any] = field(repr=False, compare=False)
    """For fastavro: without logical types, with defaults as values."""


def parse(schema: str | AvroText) -> AvroSchema:
    """Read a schema. AvroSchemaError says what is wrong with it."""
    import fastavro
    from fastavro.schema import SchemaParseException, UnknownType

    given = AvroText(schema) if isinstance(schema, str) else schema
    try:
        texts = [json.loads(text) for text in (*given.references, given.text)]
        logical: dict[str, Any] = {}
        physical: dict[str, Any] = {}
        for each in texts[:-1]:
            fastavro.parse_schema(each, logical)
            fastavro.parse_schema(_without_logical(each), physical)
        root: Any = fastavro.parse_schema(texts[-1], logical)
        if not (isinstance(root, dict) and root["type"] == "record"):
            wrapper = {"type": "record", "name": "moldau.lake.Value", "fields": [{"name": VALUE, "type": texts[-1]}]}
            root = fastavro.parse_schema(wrapper, dict(logical))
            logical, texts[-1] = root["__named_schemas"], wrapper
        plain: Any = fastavro.parse_schema(_without_logical(texts[-1]), physical)
    except (ValueError, KeyError, TypeError, AttributeError, SchemaParseException, UnknownType, RecursionError) as error:
        raise AvroSchemaError(f"not an Avro schema: {type(error).__name__}: {error}") from error
    record = _Builder(logical).node(root)
    assert isinstance(record, Record)
    _values_for_defaults(plain, physical, set())
    return AvroSchema(record, plain)


class _Builder:
    """Nodes from what fastavro made of the text."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._open: list[str] = []

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
        name, aliases = schema["name"], frozenset(schema.get("aliases", ()))
        if schema["type"] == "fixed":
            return Fixed(name, schema["size"], aliases, _logical(schema))
        if schema["type"] == "enum":
            return Enum(name, tuple(schema["symbols"]), aliases, schema.get("default"))
        if name in self._open:
            raise AvroSchemaError(f"record {name} contains itself: there are no columns for that")
        self._open.append(name)
        fields = tuple(
            Field(each["name"], self.node(each["type"]), tuple(each.get("aliases", ())), each.get("default", MISSING))
            for each in schema["fields"]
        )
        self._open.pop()
        return Record(name, fields, aliases)


def _logical(schema: Mapping[str, Any]) -> Logical | None:
    name = schema.get("logicalType")
    if not isinstance(name, str):
        return None
    precision, scale = schema.get("precision", 0), schema.get("scale", 0)
    if name == "decimal" and not (type(precision) is int and type(scale) is int and 0 <= scale <= precision and precision > 0):
        return None  # the specification has readers ignore logical types that make no sense
    return Logical(name, precision, scale) if name == "decimal" else Logical(name)


def _without_logical(schema: Any) -> Any:
    """The same schema, its logical types left out."""
    if isinstance(schema, list):
        return [_without_logical(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {name: value for name, value in schema.items() if name != "logicalType"}
    for name in ("type", "items", "values"):
        if name in plain:
            plain[name] = _without_logical(plain[name])
    if isinstance(plain.get("fields"), list):
        plain["fields"] = [_without_logical(each) for each in plain["fields"]]
    return plain


def _values_for_defaults(schema: Any, named: Mapping[str, Any], seen: set[str]) -> None:
    """Put values where the JSON of the schema has text for bytes: fastavro hands defaults over as they stand."""
    for branch in schema if isinstance(schema, list) else [schema]:
        if isinstance(branch, str):
            continue
        if branch["type"] in ("record", "error") and branch["name"] not in seen:
            seen.add(branch["name"])
            for each in branch["fields"]:
                if "default" in each:
                    each["default"] = _value(each["default"], each["type"], named)
                _values_for_defaults(each["type"], named, seen)
        for name in ("items", "values"):
            if name in branch:
                _values_for_defaults(branch[name], named, seen)
    for definition in list(named.values()):
        if isinstance(definition, dict) and definition.get("type") == "record" and definition["name"] not in seen:
            _values_for_defaults(definition, named, seen)


def _value(default: Any, schema: Any, named: Mapping[str, Any]) -> Any:
    if isinstance(schema, list):
        return _value(default, schema[0], named)  # the default of a union is of its first type
    kind = schema if isinstance(schema, str) else schema["type"]
    if isinstance(kind, (dict, list)):
        return _value(default, kind, named)
    if isinstance(schema, str) and kind in named:
        schema = named[kind]
        kind = schema["type"]
    if kind in ("bytes", "fixed") and isinstance(default, str):
        return default.encode("latin-1")
    if kind in ("float", "double"):
        return float(default)
    if kind == "array":
        return [_value(each, schema["items"], named) for each in default]
    if kind == "map":
        return {name: _value(each, schema["values"], named) for name, each in default.items()}
    if kind in ("record", "error"):
        return _record_value(default, schema, named)
    return default


def _record_value(default: Mapping[str, Any], schema: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    values = {}
    for each in schema["fields"]:
        if each["name"] in default:
            values[each["name"]] = _value(default[each["name"]], each["type"], named)
        elif "default" in each:
            values[each["name"]] = _value(each["default"], each["type"], named)
    return values


def texts(schemas: Sequence[Any]) -> tuple[str, ...]:
    """The texts of registered schemas."""
    return tuple(schema.text for schema in schemas)
