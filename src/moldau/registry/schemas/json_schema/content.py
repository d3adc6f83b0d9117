"""Differences between objects and between arrays of two JSON Schemas: by what a schema allows beside the properties or items that it lists.

The *content model* is open if what is not listed may hold anything (the default), closed if it is refused, partially open if it is held to
a schema. That of an array is that of an object, with places for names.

Patterns are JavaScript's. RE2 reads most of them, and none that would need backtracking: lookaround, backreferences, repetitions above
1,000. For any other it is unknown which properties it covers, so two schemas whose compatibility depends on it are not compatible;
the message names the pattern. Every pattern is still compared as text.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import re2

from moldau.registry.schemas.json_schema.differences import JsonDifference, at, harmless
from moldau.registry.schemas.json_schema.nodes import Node, NodeKind
from moldau.registry.schemas.json_schema.scalars import compare_limit, compare_limits
from moldau.registry.schemas.language import InvalidSchemaError


class NodeComparison(Protocol):
    """Compares the nodes below two nodes."""

    def compare(self, original: Node, update: Node) -> list[JsonDifference]:
        """The differences of two nodes, with paths from them."""

    def optional(self, original: Node | None, update: Node | None) -> list[JsonDifference]:
        """The differences where either schema may be missing."""


@dataclass(frozen=True, slots=True)
class ContentModel:
    """`allowed` and `schema` are from `additional...`; `unevaluated` is from `unevaluated...`, which counts if the other is missing."""

    allowed: bool
    schema: Node | None
    unevaluated: Node | None

    @property
    def is_open(self) -> bool:
        """What is not listed may hold anything."""
        return self.allowed and self.schema is None and (self.unevaluated is None or self.unevaluated.kind is NodeKind.EMPTY)

    @property
    def of_others(self) -> Node | None:
        """The schema that holds for what is not listed; None if there is none (the model is open or closed)."""
        if self.schema is not None:
            return self.schema
        if self.allowed and self.unevaluated is not None and self.unevaluated.kind not in (NodeKind.FALSE, NodeKind.EMPTY):
            return self.unevaluated
        return None


def content_model(additional: Node | bool, unevaluated: Node | None) -> ContentModel:
    """The model of `additional...`: true, false or a schema."""
    if isinstance(additional, bool):
        return ContentModel(additional, None, unevaluated)
    return ContentModel(True, additional, unevaluated)


def keyword_value(node: Node, keyword: str) -> Node | bool:
    """The value of a keyword for what is not listed; true if it is missing."""
    value = node.keywords.get(keyword, True)
    return value if isinstance(value, bool) else node.child(value)


def unevaluated(node: Node, keyword: str) -> Node | None:
    """The schema of `unevaluated...`, which drafts before 2019-09 do not have."""
    return node.optional(keyword) if node.modern else None


def compare_additional(comparison: NodeComparison, change: str, before: ContentModel, after: ContentModel) -> list[JsonDifference]:
    """The differences of `additional...`: from refused to allowed is an addition."""
    if before.allowed != after.allowed:
        return [JsonDifference(f"{change}_{'ADDED' if after.allowed else 'REMOVED'}")]
    if before.schema is None and after.schema is not None:
        return [JsonDifference(f"{change}_NARROWED")]
    if before.schema is not None and after.schema is None:
        return [JsonDifference(f"{change}_EXTENDED")]
    return comparison.optional(before.schema, after.schema)


def compare_unevaluated(comparison: NodeComparison, change: str, before: Node | None, after: Node | None) -> list[JsonDifference]:
    """The differences of `unevaluated...`; a missing one is like true."""
    if before is None and after is None:
        return []
    old, new = (NodeKind.EMPTY if node is None else node.kind for node in (before, after))
    if (old is NodeKind.FALSE) != (new is NodeKind.FALSE):
        return [JsonDifference(f"{change}_{'ADDED' if old is NodeKind.FALSE else 'REMOVED'}")]
    if before is None or (old is NodeKind.EMPTY and new is not NodeKind.EMPTY):
        return [JsonDifference(f"{change}_NARROWED")]
    if after is None or (old is not NodeKind.EMPTY and new is NodeKind.EMPTY):
        return [JsonDifference(f"{change}_EXTENDED")]
    return comparison.compare(before, after)


_MEMORY_BYTES_MAX = 1 << 20
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)


def pattern_fits(pattern: str, name: str) -> bool:
    """Whether the pattern is found in the name. InvalidSchemaError for one that cannot be searched in linear time."""
    try:
        return _compiled(pattern).search(name) is not None
    except (re2.error, UnicodeEncodeError) as error:
        raise InvalidSchemaError(
            f"the property pattern {pattern!r} cannot be checked (no lookaround, no backreference, no repetition above 1000): {error}"
        ) from error


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> "re2._Regexp":
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_BYTES_MAX
    return re2.compile(_ESCAPED.sub(_for_re2, pattern), options)


def _for_re2(found: "re.Match[str]") -> str:
    """JavaScript's \\u0041 is \\x{0041} there."""
    return f"\\x{{{found[1]}}}" if found[1] else found[0]


def compare_objects(comparison: NodeComparison, original: Node, update: Node) -> list[JsonDifference]:
    """Required properties, properties, dependencies, the rest, and how many there may be."""
    before, after = _Object(original), _Object(update)
    return [
        *at("required", _required(before, after)),
        *at("properties", _properties(comparison, before, after)),
        *at("dependencies", _dependencies(comparison, before, after)),
        *at("additionalProperties", compare_additional(comparison, "ADDITIONAL_PROPERTIES", before.others, after.others)),
        *at(
            "unevaluatedProperties",
            compare_unevaluated(comparison, "UNEVALUATED_PROPERTIES", before.others.unevaluated, after.others.unevaluated),
        ),
        *compare_limits(original, update, {"maxProperties": "MAX_PROPERTIES", "minProperties": "MIN_PROPERTIES"}),
    ]


class _Object:
    """The keywords of a node for objects."""

    def __init__(self, node: Node) -> None:
        self.properties = node.children("properties")
        listed = node.keywords.get("properties", {})
        self.defaults = {name for name, value in listed.items() if isinstance(value, dict) and "default" in value}
        required = node.keywords.get("required", ())
        self.required = frozenset(required if isinstance(required, list) else ())
        self.patterns = node.children("patternProperties")
        self.others: ContentModel = content_model(keyword_value(node, "additionalProperties"), unevaluated(node, "unevaluatedProperties"))
        dependencies = node.keywords.get("dependencies", {})
        lists = {name: value for name, value in dependencies.items() if isinstance(value, list)}
        schemas = {name: value for name, value in dependencies.items() if not isinstance(value, list)}
        self.needs = {name: set(value) for name, value in {**lists, **node.keywords.get("dependentRequired", {})}.items()}
        self.implies = {name: node.child(value) for name, value in {**schemas, **node.keywords.get("dependentSchemas", {})}.items()}

    @property
    def is_open(self) -> bool:
        return self.others.is_open and not self.patterns

    def schema_of_other(self, name: str) -> Node | None:
        """What a property that is not listed must be, by the first pattern that fits it or the rule for the rest."""
        for pattern, schema in self.patterns.items():
            if pattern_fits(pattern, name):
                return schema
        return self.others.of_others


def _required(before: _Object, after: _Object) -> list[JsonDifference]:
    found = []
    for name in before.properties:
        if name in after.properties and (name in before.required) != (name in after.required):
            if name in before.required:
                change = "REQUIRED_ATTRIBUTE_REMOVED"
            else:
                change = "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED" if name in after.defaults else "REQUIRED_ATTRIBUTE_ADDED"
            found.append(JsonDifference(change, (name,)))
    return found


def _properties(comparison: NodeComparison, before: _Object, after: _Object) -> list[JsonDifference]:
    found = []
    for name in dict.fromkeys((*before.properties, *after.properties)):
        if name not in after.properties:
            here = _removed(comparison, before.properties[name], after, name)
        elif name not in before.properties:
            here = _added(comparison, before, after, name)
        else:
            here = comparison.compare(before.properties[name], after.properties[name])
        found += at(name, here)
    return found


def _removed(comparison: NodeComparison, removed: Node, after: _Object, name: str) -> list[JsonDifference]:
    """What matters is whether the newer schema still takes the property."""
    if after.is_open:
        return [JsonDifference("PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL")]
    schema = after.schema_of_other(name)
    if schema is not None:
        found = comparison.compare(removed, schema)
        covered = "IS_COVERED" if harmless(found) else "NOT_COVERED"
        return [*found, JsonDifference(f"PROPERTY_REMOVED_{covered}_BY_PARTIALLY_OPEN_CONTENT_MODEL")]
    if removed.kind is NodeKind.FALSE:
        return [JsonDifference("PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL")]
    return [JsonDifference("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL")]


def _added(comparison: NodeComparison, before: _Object, after: _Object, name: str) -> list[JsonDifference]:
    """What matters is what the older schema let a property of that name be."""
    if name not in after.required:
        word = "OPTIONAL_PROPERTY"
    else:
        word = "REQUIRED_PROPERTY_WITH_DEFAULT" if name in after.defaults else "REQUIRED_PROPERTY"
    added = after.properties[name]
    if before.is_open:
        if added.kind is NodeKind.EMPTY:
            word = "PROPERTY_WITH_EMPTY_SCHEMA"
        return [JsonDifference(f"{word}_ADDED_TO_OPEN_CONTENT_MODEL")]
    found = []
    schema = before.schema_of_other(name)
    if schema is not None:
        found = list(comparison.compare(schema, added))
        covered = "IS_COVERED" if harmless(found) else "NOT_COVERED"
        found.append(JsonDifference(f"PROPERTY_ADDED_{covered}_BY_PARTIALLY_OPEN_CONTENT_MODEL"))
    return [*found, JsonDifference(f"{word}_ADDED_TO_UNOPEN_CONTENT_MODEL")]


def _dependencies(comparison: NodeComparison, before: _Object, after: _Object) -> list[JsonDifference]:
    found = []
    for name in dict.fromkeys((*before.needs, *after.needs)):
        old, new = before.needs.get(name), after.needs.get(name)
        if old != new:
            found.append(JsonDifference(f"DEPENDENCY_ARRAY_{_set_change(old, new)}", (name,)))
    for name in dict.fromkeys((*before.implies, *after.implies)):
        if name not in after.implies:
            found.append(JsonDifference("DEPENDENCY_SCHEMA_REMOVED", (name,)))
        elif name not in before.implies:
            found.append(JsonDifference("DEPENDENCY_SCHEMA_ADDED", (name,)))
        else:
            found += at(name, comparison.compare(before.implies[name], after.implies[name]))
    return found


def _set_change(old: set[str] | None, new: set[str] | None) -> str:
    if old is None:
        return "ADDED"
    if new is None:
        return "REMOVED"
    return "EXTENDED" if old < new else "NARROWED" if old > new else "CHANGED"


def compare_arrays(comparison: NodeComparison, original: Node, update: Node) -> list[JsonDifference]:
    """Items, the rest, and how many there may be."""
    before, after = _Array(original), _Array(update)
    found = [
        *at("items", comparison.optional(before.every, after.every)),
        *at("items", _items(comparison, before, after)),
        *at("additionalItems", compare_additional(comparison, "ADDITIONAL_ITEMS", before.others, after.others)),
        *at(
            "unevaluatedItems",
            compare_unevaluated(comparison, "UNEVALUATED_ITEMS", before.others.unevaluated, after.others.unevaluated),
        ),
        *compare_limits(original, update, {"maxItems": "MAX_ITEMS", "minItems": "MIN_ITEMS"}),
    ]
    if before.unique != after.unique:
        found.append(JsonDifference("UNIQUE_ITEMS_REMOVED" if before.unique else "UNIQUE_ITEMS_ADDED", ("uniqueItems",)))
    found += compare_limit("maxContains", "MAX_CONTAINS", before.contains_max, after.contains_max)
    found += compare_limit("minContains", "MIN_CONTAINS", before.contains_min, after.contains_min)
    return found


class _Array:
    """The keywords of a node for arrays: for every item, or for some by their place and for the rest."""

    def __init__(self, node: Node) -> None:
        keywords = node.keywords
        items = keywords.get("items", True)
        places = items if isinstance(items, list) else keywords.get("prefixItems", [])
        self.items = [node.child(item) for item in places]
        self.every: Node | None = None
        rest: Node | bool = True
        if isinstance(items, list):
            rest = keyword_value(node, "additionalItems")
        elif self.items or (node.modern and items is False):
            rest = keyword_value(node, "items")
        elif not (node.modern and items is True) and "items" in keywords:
            self.every = node.child(items)
        elif not node.modern:
            rest = keyword_value(node, "additionalItems")
        self.others: ContentModel = content_model(rest, unevaluated(node, "unevaluatedItems"))
        self.unique = keywords.get("uniqueItems", False)
        self.contains_max = keywords.get("maxContains")
        self.contains_min = keywords.get("minContains", 1 if node.modern and "contains" in keywords else None)


def _items(comparison: NodeComparison, before: _Array, after: _Array) -> list[JsonDifference]:
    found = []
    for index in range(max(len(before.items), len(after.items))):
        if index >= len(after.items):
            here = _item_removed(comparison, before.items[index], after)
        elif index >= len(before.items):
            here = _item_added(comparison, before, after.items[index])
        else:
            here = comparison.compare(before.items[index], after.items[index])
        found += at(str(index), here)
    return found


def _item_removed(comparison: NodeComparison, removed: Node, after: _Array) -> list[JsonDifference]:
    if after.others.is_open:
        return [JsonDifference("ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL")]
    schema = after.others.of_others
    if schema is not None:
        found = comparison.compare(removed, schema)
        covered = "IS_COVERED" if harmless(found) else "NOT_COVERED"
        return [*found, JsonDifference(f"ITEM_REMOVED_{covered}_BY_PARTIALLY_OPEN_CONTENT_MODEL")]
    if removed.kind is NodeKind.FALSE:
        return [JsonDifference("ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL")]
    return [JsonDifference("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL")]


def _item_added(comparison: NodeComparison, before: _Array, added: Node) -> list[JsonDifference]:
    if before.others.is_open:
        word = "ITEM_WITH_EMPTY_SCHEMA" if added.kind is NodeKind.EMPTY else "ITEM"
        return [JsonDifference(f"{word}_ADDED_TO_OPEN_CONTENT_MODEL")]
    schema = before.others.of_others
    if schema is None:
        return [JsonDifference("ITEM_ADDED_TO_CLOSED_CONTENT_MODEL")]
    found = comparison.compare(schema, added)
    covered = "IS_COVERED" if harmless(found) else "NOT_COVERED"
    return [*found, JsonDifference(f"ITEM_ADDED_{covered}_BY_PARTIALLY_OPEN_CONTENT_MODEL")]
