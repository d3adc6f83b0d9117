"""From the text of an Avro schema to its types, with every fault named by its place in the text.

The rules are those of Avro 1.12, whose Java library is inside Confluent's registry. Two of them are little known: a name may be used
before the place where it is defined, and the same definition may stand twice. A place is written as in compatibility messages:
`/fields/3/type/items`.

Default values are checked last, when every name is known. Here Moldau is stricter than Java: a default that is no symbol of its enum,
or has another size than its fixed, or holds a character above U+00FF for bytes, cannot be written and is refused.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NoReturn

from moldau.registry.schemas.avro.printer import printed
from moldau.registry.schemas.avro.types import (
    MISSING,
    PRIMITIVES,
    ArrayType,
    AvroType,
    EnumType,
    FixedType,
    MapType,
    NamedType,
    Properties,
    RecordField,
    RecordType,
    UnionType,
    default_fault,
)
from moldau.registry.schemas.language import InvalidSchemaError, ResolvedReference, check_nodes

PLACE_PARTS_MAX = 250
"""So many steps may lead to a type; a record within a record is three steps. No walk over a schema runs out of stack."""


def shown(parts: Iterable[object]) -> str:
    """The steps as a path."""
    return "/" + "/".join(map(str, parts))


class TextPlace:
    """The steps from the root. Each step that is entered is left, unless the schema is refused."""

    def __init__(self) -> None:
        self.parts: list[str | int] = []

    def enter(self, part: str | int) -> None:
        """Go one step down."""
        self.parts.append(part)
        if len(self.parts) > PLACE_PARTS_MAX:
            raise InvalidSchemaError(f"The Avro schema is nested too deeply: more than {PLACE_PARTS_MAX} steps")

    def leave(self) -> None:
        """Go back up."""
        self.parts.pop()

    def refuse(self, fault: str) -> NoReturn:
        """InvalidSchemaError with the fault and the place."""
        raise InvalidSchemaError(f"Invalid Avro schema at {self}: {fault}")

    def __str__(self) -> str:
        return shown(self.parts)


TYPE_ATTRIBUTES: Final = frozenset({"doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases"})
ENUM_ATTRIBUTES: Final = TYPE_ATTRIBUTES | {"default"}
FIELD_ATTRIBUTES: Final = frozenset({"default", "doc", "name", "order", "type", "aliases"})

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def names_of(node: dict[str, Any], enclosing: str, place: TextPlace, *, strict: bool) -> tuple[str, str, list[str]]:
    """Name, namespace and full aliases; the namespace is before a dot in the name, else of the node, else of the enclosing type."""
    full = node.get("name")
    if not isinstance(full, str):
        place.refuse(f"a named type ({node['type']}) needs a 'name' that is a string")
    given = node.get("namespace")
    space, dot, name = full.rpartition(".")
    if not dot:
        space = given if isinstance(given, str) else enclosing
    if not space and name in PRIMITIVES:
        place.refuse(f"a type may not be called {name!r}")
    if strict:
        check_name(name, place)
        for part in space.split(".") if space else ():
            check_name(part, place)
    return name, space, [alias if "." in alias or not space else f"{space}.{alias}" for alias in aliases_of(node, place)]


def aliases_of(node: dict[str, Any], place: TextPlace) -> list[str]:
    """The aliases as they stand, each once."""
    if "aliases" not in node:
        return []
    aliases = node["aliases"]
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        place.refuse("'aliases' is a list of names")
    return list(dict.fromkeys(aliases))


def check_name(name: str, place: TextPlace) -> None:
    """Refuse what is no name."""
    if not _NAME.fullmatch(name):
        place.refuse(f"{name!r} is no name: it must begin with a letter or _, followed by letters, digits and _")


def doc_of(node: dict[str, Any]) -> str | None:
    """The doc; one that is no text does not count."""
    doc = node.get("doc")
    return doc if isinstance(doc, str) else None


def properties_of(node: dict[str, Any], attributes: frozenset[str]) -> Properties:
    """The attributes of the node beside those of its kind."""
    if node.keys() <= attributes:
        return {}
    return {name: value for name, value in node.items() if name not in attributes}


def refuse_constant(name: str) -> NoReturn:
    """`NaN` and the infinities, which Python's reader of JSON would take."""
    raise ValueError(f"{name} is no JSON number")


class _ForwardReference(AvroType):
    """A name whose definition has not been met yet; it is replaced before the schema is returned."""


class Definitions:
    """Of one text. `names` holds the types known so far, those of the references too."""

    def __init__(self, names: dict[str, NamedType]) -> None:
        self._names = names
        self._awaited: list[tuple[str, str, Callable[[AvroType], None], str]] = []

    def find(self, name: str, namespace: str) -> NamedType | None:
        """The type of a name in a namespace, as far as it is known."""
        return self._names.get(_qualified(name, namespace)) or self._names.get(name)

    def await_one(self, name: str, namespace: str, put: Callable[[AvroType], None], place: str) -> AvroType:
        """Something for a name that is not known at `place`; `find_awaited` puts the type instead of it."""
        self._awaited.append((name, namespace, put, place))
        return _ForwardReference(kind=name)

    def find_awaited(self) -> None:
        """The text is at its end. InvalidSchemaError for a name that is not defined."""
        for name, namespace, put, place in self._awaited:
            known = self.find(name, namespace)
            if known is None:
                raise InvalidSchemaError(f"Unknown type {_qualified(name, namespace)!r} at {place}")
            put(known)

    def define(self, named: NamedType) -> NamedType | None:
        """Make the name known, and give back what it stood for before."""
        before = self._names.get(named.full_name)
        self._names[named.full_name] = named
        return before

    def same(self, before: NamedType | None, again: NamedType, place: TextPlace) -> NamedType:
        """The type of a name after a definition; a second definition must equal the first."""
        if before is None:
            return again
        if printed(before) != printed(again):
            place.refuse(f"the name {again.full_name!r} is defined twice, each time differently")
        self._names[again.full_name] = before
        return before


def _qualified(name: str, namespace: str) -> str:
    return f"{namespace}.{name}" if namespace and "." not in name else name


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


class _Parser:
    """One text. `names` holds the types known so far, those of the references too."""

    def __init__(self, names: dict[str, NamedType], stored: bool) -> None:
        self.definitions = Definitions(names)
        self.stored = stored
        self.place = TextPlace()
        self.defaults: list[tuple[RecordField, tuple[object, ...]]] = []

    def parse(self, text: str) -> AvroType:
        try:
            node = json.loads(text, parse_constant=refuse_constant)
        except ValueError as error:
            raise InvalidSchemaError(f"The Avro schema is no JSON: {error}") from error
        except RecursionError as error:
            raise InvalidSchemaError("The Avro schema is nested too deeply") from error
        check_nodes(node)
        parsed = self._type(node, "", self._root_must_be_known)
        self.definitions.find_awaited()
        if not self.stored:
            self._check_defaults()
        return parsed

    def _check_defaults(self) -> None:
        for field, place in self.defaults:
            fault = default_fault(field.type, field.default)
            if fault:
                raise InvalidSchemaError(f"Invalid default for field {field.name!r} at {shown(place)}: {fault}")

    def _root_must_be_known(self, _: AvroType) -> None:
        raise AssertionError("a schema that is a name alone is never looked up later")

    # One kind of node each.

    def _type(self, node: Any, namespace: str, put: Callable[[AvroType], None]) -> AvroType:
        """The type of a node; `put` sets it later if the node is a name that comes to be defined further on."""
        if isinstance(node, str):
            return self._by_name(node, namespace, put)
        if isinstance(node, dict):
            return self._by_object(node, namespace, put)
        if not isinstance(node, list):
            self.place.refuse(f"a schema is a name, an object or a list, not {json.dumps(node)}")
        return self._union(node, namespace)

    def _by_name(self, name: str, namespace: str, put: Callable[[AvroType], None]) -> AvroType:
        if name in _PLAIN:
            return _PLAIN[name]
        known = self.definitions.find(name, namespace)
        if known is not None:
            return known
        if not self.place.parts:
            self.place.refuse(f"unknown type {name!r}")
        return self.definitions.await_one(name, namespace, put, str(self.place))

    def _by_object(self, node: dict[str, Any], namespace: str, put: Callable[[AvroType], None]) -> AvroType:
        kind = node.get("type")
        if not isinstance(kind, str):
            self.place.refuse("a schema object needs a 'type' that is a string")
        if kind in PRIMITIVES:
            return AvroType(kind=kind, properties=properties_of(node, TYPE_ATTRIBUTES))
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
        name, space, aliases = names_of(node, namespace, self.place, strict=not self.stored)
        nodes = node.get("fields")
        if not isinstance(nodes, list):
            self.place.refuse("a record needs 'fields', a list")
        properties = properties_of(node, TYPE_ATTRIBUTES)
        record = RecordType(
            kind=node["type"], properties=properties, name=name, namespace=space, doc=doc_of(node), aliases=aliases, fields=[]
        )
        same = self.definitions.define(record)
        seen = set()
        self.place.enter("fields")
        for index, field_node in enumerate(nodes):
            self.place.enter(index)
            field = self._field(field_node, space)
            if field.name in seen:
                self.place.refuse(f"duplicate field {field.name!r}")
            seen.add(field.name)
            record.fields.append(field)
            self.place.leave()
        self.place.leave()
        return self.definitions.same(same, record, self.place)

    def _field(self, node: Any, namespace: str) -> RecordField:
        if not isinstance(node, dict):
            self.place.refuse("a field is an object")
        name = node.get("name")
        if not isinstance(name, str):
            self.place.refuse("a field needs a 'name' that is a string")
        self._check(name)
        if "type" not in node:
            self.place.refuse(f"field {name!r} needs a 'type'")
        order = node.get("order", "ascending")
        if not isinstance(order, str) or order.lower() not in _ORDERS:
            self.place.refuse(f"the order of field {name!r} is one of {', '.join(sorted(_ORDERS))}")
        field = RecordField(
            name=name,
            type=_UNKNOWN,
            default=node.get("default", MISSING),
            doc=doc_of(node),
            order=order.lower(),
            aliases=aliases_of(node, self.place),
            properties=properties_of(node, FIELD_ATTRIBUTES),
        )
        self.place.enter("type")
        field.type = self._type(node["type"], namespace, lambda known: setattr(field, "type", known))
        self.place.leave()
        if field.default is not MISSING:
            self.defaults.append((field, tuple(self.place.parts)))
        return field

    def _enum(self, node: dict[str, Any], namespace: str) -> AvroType:
        name, space, aliases = names_of(node, namespace, self.place, strict=not self.stored)
        symbols = node.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
            self.place.refuse("an enum needs 'symbols', a list of strings")
        for symbol in symbols:
            self._check(symbol)
        if len(set(symbols)) < len(symbols):
            self.place.refuse("an enum's symbols must differ")
        default = node.get("default")
        if default is not None and default not in symbols:
            self.place.refuse(f"the default {default!r} is no symbol of the enum")
        properties = properties_of(node, ENUM_ATTRIBUTES)
        enum = EnumType(
            kind="enum",
            properties=properties,
            name=name,
            namespace=space,
            doc=doc_of(node),
            aliases=aliases,
            symbols=symbols,
            default=default,
        )
        return self.definitions.same(self.definitions.define(enum), enum, self.place)

    def _fixed(self, node: dict[str, Any], namespace: str) -> AvroType:
        name, space, aliases = names_of(node, namespace, self.place, strict=not self.stored)
        size = node.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            self.place.refuse("a fixed needs a 'size', a number of bytes")
        properties = properties_of(node, TYPE_ATTRIBUTES)
        fixed = FixedType(kind="fixed", properties=properties, name=name, namespace=space, doc=doc_of(node), aliases=aliases, size=size)
        return self.definitions.same(self.definitions.define(fixed), fixed, self.place)

    def _array(self, node: dict[str, Any], namespace: str) -> AvroType:
        if "items" not in node:
            self.place.refuse("an array needs 'items'")
        array = ArrayType(kind="array", properties=properties_of(node, TYPE_ATTRIBUTES), items=_UNKNOWN)
        self.place.enter("items")
        array.items = self._type(node["items"], namespace, lambda known: setattr(array, "items", known))
        self.place.leave()
        return array

    def _map(self, node: dict[str, Any], namespace: str) -> AvroType:
        if "values" not in node:
            self.place.refuse("a map needs 'values'")
        result = MapType(kind="map", properties=properties_of(node, TYPE_ATTRIBUTES), values=_UNKNOWN)
        self.place.enter("values")
        result.values = self._type(node["values"], namespace, lambda known: setattr(result, "values", known))
        self.place.leave()
        return result

    def _union(self, nodes: list[Any], namespace: str) -> AvroType:
        branches: list[AvroType] = []
        seen = set()
        for index, node in enumerate(nodes):
            self.place.enter(index)
            branch = self._type(node, namespace, lambda known, index=index: branches.__setitem__(index, known))  # type: ignore[misc]
            if branch.kind == "union":
                self.place.refuse("a union may not hold a union directly")
            key = branch.full_name if isinstance(branch, NamedType) else branch.kind
            if key in seen:
                self.place.refuse(f"a union may not hold {key!r} twice")
            seen.add(key)
            branches.append(branch)
            self.place.leave()
        return UnionType(kind="union", branches=branches)

    def _check(self, name: str) -> None:
        if not self.stored:
            check_name(name, self.place)


_UNKNOWN = AvroType(kind="")
_PLAIN = {kind: AvroType(kind=kind) for kind in PRIMITIVES}
"""Primitives without properties, which no schema changes."""
