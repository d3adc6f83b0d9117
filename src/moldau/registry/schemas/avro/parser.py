"""From the text of an Avro schema to its types, with every fault named by its place in the text.

The rules are those of Avro 1.12, whose Java library is inside Confluent's registry. Two of them are little known: a name may be used
before the place where it is defined, and the same definition may stand twice. A place is written as in compatibility messages:
`/fields/3/type/items`.

Default values are judged last, when every name is known. Here Moldau is stricter than Java: a default that is no symbol of its enum,
or has another size than its fixed, or holds a character above U+00FF for bytes, can be written by nobody and is refused.
"""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from moldau.registry.schemas.avro import types
from moldau.registry.schemas.avro.defaults import default_fault
from moldau.registry.schemas.avro.printer import printed
from moldau.registry.schemas.avro.types import (
    MISSING,
    PRIMITIVES,
    ArrayType,
    AvroType,
    EnumType,
    Field,
    FixedType,
    MapType,
    NamedType,
    RecordType,
    UnionType,
)
from moldau.registry.schemas.language import InvalidSchemaError, ResolvedReference

PATH_PARTS_MAX = 250
"""So many steps may lead to a type; a record within a record is three steps. No walk over a schema runs out of stack."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TYPE_ATTRIBUTES = frozenset({"doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases"})
_ENUM_ATTRIBUTES = _TYPE_ATTRIBUTES | {"default"}
_FIELD_ATTRIBUTES = frozenset({"default", "doc", "name", "order", "type", "aliases"})
_ORDERS = frozenset({"ascending", "descending", "ignore"})


def parse(text: str, references: Sequence[ResolvedReference] = (), *, stored: bool = False) -> tuple[AvroType, list[AvroType]]:
    """The type that `text` describes and those of the references; InvalidSchemaError names the place of the first fault."""
    names: dict[str, NamedType] = {}
    referred = []
    for reference in references:
        try:
            referred.append(_Parser(names, stored=True).parse(reference.text))
        except InvalidSchemaError as error:
            raise InvalidSchemaError(f"In reference {reference.name} ({reference.subject} {reference.version}): {error}") from error
    return _Parser(names, stored).parse(text), referred


class _Forward(AvroType):
    """A name whose definition has not been met yet; it is replaced before anybody sees it."""


class _Parser:
    """One text. `names` holds the types known so far, those of the references too."""

    def __init__(self, names: dict[str, NamedType], stored: bool) -> None:
        self.names = names
        self.stored = stored
        self.path: list[str] = []
        self.defaults: list[tuple[Field, str]] = []
        self.forward: list[tuple[tuple[str, str], Callable[[AvroType], None], str]] = []

    def parse(self, text: str) -> AvroType:
        try:
            node = json.loads(text, parse_constant=_no_constant)
        except ValueError as error:
            raise InvalidSchemaError(f"The Avro schema is no JSON: {error}") from error
        except RecursionError as error:
            raise InvalidSchemaError("The Avro schema is nested too deeply") from error
        parsed = self._type(node, "", self._root_must_be_known)
        for (qualified, plain), put, place in self.forward:
            known = self.names.get(qualified) or self.names.get(plain)
            if known is None:
                raise InvalidSchemaError(f"Unknown type {qualified!r} at {place}")
            put(known)
        if not self.stored:
            self._check_defaults()
        return parsed

    def _check_defaults(self) -> None:
        for field, place in self.defaults:
            fault = default_fault(field.type, field.default)
            if fault:
                raise InvalidSchemaError(f"Invalid default for field {field.name!r} at {place}: {fault}")

    def _root_must_be_known(self, _: AvroType) -> None:
        raise AssertionError("a schema that is a name alone is never looked up later")

    # One kind of node each.

    def _type(self, node: Any, namespace: str, put: Callable[[AvroType], None]) -> AvroType:
        """The type of a node; `put` sets it later if the node is a name that comes to be defined further on."""
        if isinstance(node, str):
            return self._by_name(node, namespace, put)
        if len(self.path) > PATH_PARTS_MAX:
            raise InvalidSchemaError(f"The Avro schema is nested too deeply: more than {PATH_PARTS_MAX} steps")
        if isinstance(node, dict):
            return self._by_object(node, namespace, put)
        if not isinstance(node, list):
            self._refuse(f"a schema is a name, an object or a list, not {json.dumps(node)}")
        return self._union(node, namespace)

    def _by_name(self, name: str, namespace: str, put: Callable[[AvroType], None]) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(kind=name)
        qualified = f"{namespace}.{name}" if namespace and "." not in name else name
        known = self.names.get(qualified) or self.names.get(name)
        if known is not None:
            return known
        if not self.path:
            self._refuse(f"unknown type {name!r}")
        self.forward.append(((qualified, name), put, self._place()))
        return _Forward(kind=name)

    def _by_object(self, node: dict[str, Any], namespace: str, put: Callable[[AvroType], None]) -> AvroType:
        kind = node.get("type")
        if not isinstance(kind, str):
            self._refuse("a schema object needs a 'type' that is a string")
        if kind in PRIMITIVES:
            return AvroType(kind=kind, properties=_properties(node, _TYPE_ATTRIBUTES))
        match kind:
            case "record" | "error":
                return self._record(node, namespace)
            case "enum":
                return self._enum(node, namespace)
            case "fixed":
                return self._fixed(node, namespace)
            case "array":
                return self._array(node, namespace)
            case "map":
                return self._map(node, namespace)
        return self._by_name(kind, namespace, put)

    def _record(self, node: dict[str, Any], namespace: str) -> AvroType:
        name, space, aliases = self._names_of(node, namespace)
        nodes = node.get("fields")
        if not isinstance(nodes, list):
            self._refuse("a record needs 'fields', a list")
        properties = _properties(node, _TYPE_ATTRIBUTES)
        record = RecordType(
            kind=node["type"], properties=properties, name=name, namespace=space, doc=_doc(node), aliases=aliases, fields=[]
        )
        same = self._define(record)
        seen = set()
        self.path.append("fields")
        for index, field_node in enumerate(nodes):
            self.path.append(str(index))
            field = self._field(field_node, space)
            if field.name in seen:
                self._refuse(f"duplicate field {field.name!r}")
            seen.add(field.name)
            record.fields.append(field)
            self.path.pop()
        self.path.pop()
        return self._same(same, record)

    def _field(self, node: Any, namespace: str) -> Field:
        if not isinstance(node, dict):
            self._refuse("a field is an object")
        name = node.get("name")
        if not isinstance(name, str):
            self._refuse("a field needs a 'name' that is a string")
        self._check_name(name)
        if "type" not in node:
            self._refuse(f"field {name!r} needs a 'type'")
        order = node.get("order", "ascending")
        if not isinstance(order, str) or order.lower() not in _ORDERS:
            self._refuse(f"the order of field {name!r} is one of {', '.join(sorted(_ORDERS))}")
        field = Field(
            name=name,
            type=_UNKNOWN,
            default=node.get("default", MISSING),
            doc=_doc(node),
            order=order.lower(),
            aliases=self._aliases(node),
            properties=_properties(node, _FIELD_ATTRIBUTES),
        )
        self.path.append("type")
        field.type = self._type(node["type"], namespace, lambda known: setattr(field, "type", known))
        self.path.pop()
        if field.default is not MISSING:
            self.defaults.append((field, self._place()))
        return field

    def _enum(self, node: dict[str, Any], namespace: str) -> AvroType:
        name, space, aliases = self._names_of(node, namespace)
        symbols = node.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
            self._refuse("an enum needs 'symbols', a list of strings")
        for symbol in symbols:
            self._check_name(symbol)
        if len(set(symbols)) < len(symbols):
            self._refuse("an enum's symbols must differ")
        default = node.get("default")
        if default is not None and default not in symbols:
            self._refuse(f"the default {default!r} is no symbol of the enum")
        properties = _properties(node, _ENUM_ATTRIBUTES)
        enum = EnumType(
            kind="enum",
            properties=properties,
            name=name,
            namespace=space,
            doc=_doc(node),
            aliases=aliases,
            symbols=symbols,
            default=default,
        )
        return self._same(self._define(enum), enum)

    def _fixed(self, node: dict[str, Any], namespace: str) -> AvroType:
        name, space, aliases = self._names_of(node, namespace)
        size = node.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            self._refuse("a fixed needs a 'size', a number of bytes")
        properties = _properties(node, _TYPE_ATTRIBUTES)
        fixed = FixedType(kind="fixed", properties=properties, name=name, namespace=space, doc=_doc(node), aliases=aliases, size=size)
        return self._same(self._define(fixed), fixed)

    def _array(self, node: dict[str, Any], namespace: str) -> AvroType:
        if "items" not in node:
            self._refuse("an array needs 'items'")
        array = ArrayType(kind="array", properties=_properties(node, _TYPE_ATTRIBUTES), items=_UNKNOWN)
        self.path.append("items")
        array.items = self._type(node["items"], namespace, lambda known: setattr(array, "items", known))
        self.path.pop()
        return array

    def _map(self, node: dict[str, Any], namespace: str) -> AvroType:
        if "values" not in node:
            self._refuse("a map needs 'values'")
        result = MapType(kind="map", properties=_properties(node, _TYPE_ATTRIBUTES), values=_UNKNOWN)
        self.path.append("values")
        result.values = self._type(node["values"], namespace, lambda known: setattr(result, "values", known))
        self.path.pop()
        return result

    def _union(self, nodes: list[Any], namespace: str) -> AvroType:
        branches: list[AvroType] = []
        seen = set()
        for index, node in enumerate(nodes):
            self.path.append(str(index))
            branch = self._type(node, namespace, lambda known, index=index: branches.__setitem__(index, known))  # type: ignore[misc]
            if branch.kind == "union":
                self._refuse("a union may not hold a union directly")
            key = branch.full_name if isinstance(branch, NamedType) else branch.kind
            if key in seen:
                self._refuse(f"a union may not hold {key!r} twice")
            seen.add(key)
            branches.append(branch)
            self.path.pop()
        return UnionType(kind="union", branches=branches)

    # Names.

    def _names_of(self, node: dict[str, Any], enclosing: str) -> tuple[str, str, list[str]]:
        """Name, namespace and full aliases; a dot in the name says the namespace, else the node does, else the enclosing type."""
        full = node.get("name")
        if not isinstance(full, str):
            self._refuse(f"a named type ({node['type']}) needs a 'name' that is a string")
        given = node.get("namespace")
        space, dot, name = full.rpartition(".")
        if not dot:
            space = given if isinstance(given, str) else enclosing
        if not space and name in PRIMITIVES:
            self._refuse(f"a type may not be called {name!r}")
        self._check_name(name)
        for part in space.split(".") if space else ():
            self._check_name(part)
        aliases = [alias if "." in alias or not space else f"{space}.{alias}" for alias in self._aliases(node)]
        return name, space, aliases

    def _aliases(self, node: dict[str, Any]) -> list[str]:
        aliases = node.get("aliases", [])
        if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
            self._refuse("'aliases' is a list of names")
        return list(dict.fromkeys(aliases))

    def _check_name(self, name: str) -> None:
        if not self.stored and not _NAME.fullmatch(name):
            self._refuse(f"{name!r} is no name: it must begin with a letter or _ and go on with letters, digits and _")

    def _define(self, named: NamedType) -> NamedType | None:
        """Make the name known, and give back what it stood for before."""
        before = self.names.get(named.full_name)
        self.names[named.full_name] = named
        return before

    def _same(self, before: NamedType | None, again: NamedType) -> NamedType:
        """What a name stands for after a definition; a second definition must say the same as the first."""
        if before is None:
            return again
        if printed(before) != printed(again):
            self._refuse(f"the name {again.full_name!r} is defined twice, each time differently")
        self.names[again.full_name] = before
        return before

    def _place(self) -> str:
        return "/" + "/".join(self.path)

    def _refuse(self, fault: str) -> NoReturn:
        raise InvalidSchemaError(f"Invalid Avro schema at {self._place()}: {fault}")


_UNKNOWN = AvroType(kind="")


def _properties(node: dict[str, Any], attributes: frozenset[str]) -> types.Properties:
    return {name: value for name, value in node.items() if name not in attributes}


def _doc(node: dict[str, Any]) -> str | None:
    doc = node.get("doc")
    return doc if isinstance(doc, str) else None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
