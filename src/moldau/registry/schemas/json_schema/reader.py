"""From JSON to nodes, for all drafts.

A JSON object becomes the node of what it speaks of. If it speaks of several things, its node combines one part for each: each of
`allOf`, `anyOf`, `oneOf`, a reference with something beside it (from 2019-09 on; before, a reference replaces all), `enum`, `const`,
`not`, `if`, and the type. Keywords of a type that the object does not name make a part only if no type is named at all.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from moldau.registry.schemas.json_schema.documents import MODERN, Resolver, follow, specification, subresource, write_json
from moldau.registry.schemas.json_schema.nodes import ALL_OF, ANY_OF, ONE_OF, CombinedNode, Kind, Node
from moldau.registry.schemas.language import InvalidSchemaError

_ANNOTATIONS = ("$id", "id", "title", "description", "default", "connect.type")
_CONDITIONS = ("if", "then", "else")
# fmt: off
_KEYWORDS = {
    Kind.ARRAY: frozenset({
        "items", "prefixItems", "additionalItems", "unevaluatedItems", "minItems", "maxItems", "uniqueItems", "contains",
        "minContains", "maxContains",
    }),
    Kind.OBJECT: frozenset({
        "properties", "required", "minProperties", "maxProperties", "additionalProperties", "patternProperties", "propertyNames",
        "unevaluatedProperties", "dependencies", "dependentRequired", "dependentSchemas",
    }),
    Kind.NUMBER: frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
    Kind.STRING: frozenset({"minLength", "maxLength", "pattern", "format"}),
}
# fmt: on
_TYPES = {
    "string": Kind.STRING,
    "number": Kind.NUMBER,
    "integer": Kind.NUMBER,
    "boolean": Kind.BOOLEAN,
    "null": Kind.NULL,
    "object": Kind.OBJECT,
    "array": Kind.ARRAY,
}

_Part = Callable[[], Node]


class Reader:
    """One document and what it refers to. Each JSON object gives one node, so that references to it meet in that node."""

    def __init__(self, document: Any) -> None:
        self._draft = specification(document)
        self._modern = self._draft in MODERN
        self._nodes: dict[int, Node] = {}

    def node(self, value: Any, resolver: Resolver) -> Node:
        """The node of a schema; references are followed, InvalidSchemaError if one leads nowhere or in a circle."""
        seen = set()
        while isinstance(value, dict) and self._is_reference(value):
            if id(value) in seen:
                raise InvalidSchemaError(f"The reference {value['$ref']!r} of the JSON schema leads to itself")
            seen.add(id(value))
            value, resolver = follow(subresource(resolver, value, self._draft), value["$ref"])
        if isinstance(value, bool):
            return Node(Kind.EMPTY if value else Kind.FALSE)
        if id(value) not in self._nodes:
            self._nodes[id(value)] = self._read(value, subresource(resolver, value, self._draft))
        return self._nodes[id(value)]

    def _is_reference(self, value: dict[str, Any]) -> bool:
        """A reference and, as far as comparing goes, nothing else."""
        if not isinstance(value.get("$ref"), str):
            return False
        return not self._modern or not self._parts(value, lambda _: Node(Kind.EMPTY))

    def _read(self, value: dict[str, Any], resolver: Resolver) -> Node:
        annotations = {name: value[name] for name in _ANNOTATIONS if name in value}
        parts = self._parts(value, lambda child: self.node(child, resolver))
        if self._modern and "$ref" in value:
            reference = {"$ref": value["$ref"]}
            parts.append(lambda: self.node(reference, resolver))
        if not parts:
            return Node(Kind.EMPTY, value, annotations)
        if len(parts) == 1:
            node = parts[0]()
            node.annotations = annotations
            return node
        return CombinedNode(Kind.COMBINED, value, annotations, criterion=ALL_OF, read_parts=lambda: [part() for part in parts])

    def _parts(self, value: dict[str, Any], child: Callable[[Any], Node]) -> list[_Part]:
        """What the object speaks of, beside a reference: a way to make the node of each."""
        criteria = [criterion for criterion in (ALL_OF, ANY_OF, ONE_OF) if criterion in value]
        parts: list[_Part] = [partial(_combined, criterion, value, child) for criterion in criteria]
        for keyword, kind in (("enum", Kind.ENUM), ("const", Kind.CONST), ("not", Kind.NOT)):
            if keyword in value:
                parts.append(partial(Node, kind, value, child=child))
        if any(keyword in value for keyword in _CONDITIONS):
            parts.append(partial(Node, Kind.CONDITIONAL, value, child=child))
        if isinstance(value.get("type"), list):
            types = list(dict.fromkeys(value["type"]))
            parts.append(partial(self._one_of_types, types, value, child))
        elif "type" in value:
            parts.append(partial(self._typed, value["type"], value, child))
        else:
            spoken_of = [kind for kind, keywords in _KEYWORDS.items() if not keywords.isdisjoint(value)]
            parts += [partial(Node, kind, value, child=child, modern=self._modern) for kind in spoken_of]
        return parts

    def _typed(self, type_name: str, value: dict[str, Any], child: Callable[[Any], Node]) -> Node:
        said_once = {**value, "type": type_name}
        return Node(_TYPES[type_name], said_once, child=child, modern=self._modern)

    def _one_of_types(self, types: list[str], value: dict[str, Any], child: Callable[[Any], Node]) -> Node:
        nodes = [self._typed(name, value, child) for name in types]
        return CombinedNode(Kind.COMBINED, value, child=child, criterion=ANY_OF, read_parts=lambda: nodes)


def _combined(criterion: str, value: dict[str, Any], child: Callable[[Any], Node]) -> Node:
    """The node of `allOf`, `anyOf` or `oneOf`; a schema that is there twice counts once."""
    different = {write_json(part, sort=True): part for part in reversed(value[criterion])}
    parts = list(reversed(different.values()))
    return CombinedNode(Kind.COMBINED, value, criterion=criterion, read_parts=lambda: [child(part) for part in parts])
