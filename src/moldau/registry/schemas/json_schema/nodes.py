"""What a JSON Schema describes, sorted by type: the form in which two schemas are compared, and how it is read, for all drafts.

A JSON Schema may constrain everything at once. Here each node constrains one thing: strings, objects, a list of allowed values. An object
of several such parts (`{"type": "string", "enum": [...]}`) is a node of kind COMBINED with the criterion `allOf`, a list of types one with
`anyOf`. The parts are each of `allOf`, `anyOf`, `oneOf`, a reference with something beside it (from 2019-09 on; before, a reference
replaces all), `enum`, `const`, `not`, `if`, and the type. Keywords of a type that the object does not name make a part only if no type is
named at all.

A node reads its children when they are asked for, and the same JSON object gives the same node each time, so that a recursive schema is a
circle of nodes, compared by identity.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Any

from moldau.registry.schemas.json_schema.documents import MODERN, Resolver, follow, specification, subresource, write_json
from moldau.registry.schemas.language import InvalidSchemaError

ALL_OF, ANY_OF, ONE_OF = "allOf", "anyOf", "oneOf"


class NodeKind(Enum):
    """What a node constrains."""

    EMPTY = auto()
    """Everything is valid: `{}` and `true`."""
    FALSE = auto()
    STRING = auto()
    NUMBER = auto()
    BOOLEAN = auto()
    NULL = auto()
    OBJECT = auto()
    ARRAY = auto()
    ENUM = auto()
    CONST = auto()
    COMBINED = auto()
    NOT = auto()
    CONDITIONAL = auto()


def _no_child(value: Any) -> "Node":
    raise AssertionError(f"a node without keywords has no child {value}")


@dataclass(eq=False, slots=True)
class Node:
    """A schema of one kind; `keywords` is the JSON object it comes from, empty for `true` and `false`.

    `annotations` are `title`, `description`, `default` and the like; only the node of the whole object has them, not its parts.
    """

    kind: NodeKind
    keywords: dict[str, Any] = field(default_factory=dict)
    annotations: dict[str, Any] = field(default_factory=dict)
    child: Callable[[Any], "Node"] = _no_child
    """The node of a schema found among the keywords."""
    modern: bool = False
    """Of draft 2019-09 or later, where some keywords mean something that did not before."""

    def children(self, keyword: str) -> dict[str, "Node"]:
        """The nodes under a keyword that holds schemas by name."""
        return {name: self.child(value) for name, value in self.keywords.get(keyword, {}).items()}

    def optional(self, keyword: str) -> "Node | None":
        """The node under a keyword that holds a schema; None if the keyword is missing."""
        return self.child(self.keywords[keyword]) if keyword in self.keywords else None


@dataclass(eq=False, slots=True)
class CombinedNode(Node):
    """Several schemas of which all, any or exactly one must hold; equal ones occur once."""

    criterion: str = ALL_OF
    read_parts: Callable[[], list[Node]] = list
    _parts: list[Node] | None = None

    @property
    def parts(self) -> list[Node]:
        """The schemas that are combined, those that are combined themselves first."""
        if self._parts is None:
            self._parts = sorted(self.read_parts(), key=lambda part: part.kind is not NodeKind.COMBINED)
        return self._parts


_ANNOTATIONS = ("$id", "id", "title", "description", "default", "connect.type")
_CONDITIONS = ("if", "then", "else")
# fmt: off
_KEYWORDS = {
    NodeKind.ARRAY: frozenset({
        "items", "prefixItems", "additionalItems", "unevaluatedItems", "minItems", "maxItems", "uniqueItems", "contains",
        "minContains", "maxContains",
    }),
    NodeKind.OBJECT: frozenset({
        "properties", "required", "minProperties", "maxProperties", "additionalProperties", "patternProperties", "propertyNames",
        "unevaluatedProperties", "dependencies", "dependentRequired", "dependentSchemas",
    }),
    NodeKind.NUMBER: frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
    NodeKind.STRING: frozenset({"minLength", "maxLength", "pattern", "format"}),
}
# fmt: on
_TYPES = {
    "string": NodeKind.STRING,
    "number": NodeKind.NUMBER,
    "integer": NodeKind.NUMBER,
    "boolean": NodeKind.BOOLEAN,
    "null": NodeKind.NULL,
    "object": NodeKind.OBJECT,
    "array": NodeKind.ARRAY,
}

_Part = Callable[[], Node]


class NodeReader:
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
            return Node(NodeKind.EMPTY if value else NodeKind.FALSE)
        if id(value) not in self._nodes:
            self._nodes[id(value)] = self._read(value, subresource(resolver, value, self._draft))
        return self._nodes[id(value)]

    def _is_reference(self, value: dict[str, Any]) -> bool:
        """A reference and, as far as comparing goes, nothing else."""
        if not isinstance(value.get("$ref"), str):
            return False
        return not self._modern or not self._parts(value, lambda _: Node(NodeKind.EMPTY))

    def _read(self, value: dict[str, Any], resolver: Resolver) -> Node:
        annotations = {name: value[name] for name in _ANNOTATIONS if name in value}
        parts = self._parts(value, lambda child: self.node(child, resolver))
        if self._modern and "$ref" in value:
            reference = {"$ref": value["$ref"]}
            parts.append(lambda: self.node(reference, resolver))
        if not parts:
            return Node(NodeKind.EMPTY, value, annotations)
        if len(parts) == 1:
            node = parts[0]()
            node.annotations = annotations
            return node
        return CombinedNode(NodeKind.COMBINED, value, annotations, criterion=ALL_OF, read_parts=lambda: [part() for part in parts])

    def _parts(self, value: dict[str, Any], child: Callable[[Any], Node]) -> list[_Part]:
        """What the object constrains, beside a reference: a way to make the node of each part."""
        criteria = [criterion for criterion in (ALL_OF, ANY_OF, ONE_OF) if criterion in value]
        parts: list[_Part] = [partial(_combined, criterion, value, child) for criterion in criteria]
        for keyword, kind in (("enum", NodeKind.ENUM), ("const", NodeKind.CONST), ("not", NodeKind.NOT)):
            if keyword in value:
                parts.append(partial(Node, kind, value, child=child))
        if any(keyword in value for keyword in _CONDITIONS):
            parts.append(partial(Node, NodeKind.CONDITIONAL, value, child=child))
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
        return CombinedNode(NodeKind.COMBINED, value, child=child, criterion=ANY_OF, read_parts=lambda: nodes)


def _combined(criterion: str, value: dict[str, Any], child: Callable[[Any], Node]) -> Node:
    """The node of `allOf`, `anyOf` or `oneOf`; a schema that occurs twice counts once."""
    different = {write_json(part, sort=True): part for part in reversed(value[criterion])}
    parts = list(reversed(different.values()))
    return CombinedNode(NodeKind.COMBINED, value, criterion=criterion, read_parts=lambda: [child(part) for part in parts])
