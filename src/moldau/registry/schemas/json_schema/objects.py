"""Differences between what two JSON Schemas say of objects.

Patterns are JavaScript's. RE2 reads most of them, and none that would need backtracking: lookaround, backreferences, repetitions above
1,000. For any other it is unknown which properties it covers, so two schemas whose compatibility depends on it are not compatible;
the message names the pattern. Every pattern is still compared as text.
"""

import re
from functools import lru_cache

import re2

from moldau.registry.schemas.json_schema.content import (
    ContentModel,
    NodeComparison,
    compare_additional,
    compare_unevaluated,
    content_model,
    said,
    unevaluated,
)
from moldau.registry.schemas.json_schema.differences import JsonDifference, at, harmless
from moldau.registry.schemas.json_schema.nodes import Kind, Node
from moldau.registry.schemas.json_schema.scalars import compare_limits
from moldau.registry.schemas.language import InvalidSchemaError

_MEMORY_BYTES_MAX = 1 << 20
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)


def pattern_fits(pattern: str, name: str) -> bool:
    """Whether the pattern is found in the name. InvalidSchemaError for one that cannot be searched in linear time."""
    try:
        return _compiled(pattern).search(name) is not None
    except (re2.error, UnicodeEncodeError) as error:
        raise InvalidSchemaError(
            f"the property pattern {pattern!r} cannot be judged (no lookaround, no backreference, no repetition above 1000): {error}"
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


def compare(comparison: NodeComparison, original: Node, update: Node) -> list[JsonDifference]:
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
    """What a node says of objects."""

    def __init__(self, node: Node) -> None:
        self.properties = node.children("properties")
        listed = node.keywords.get("properties", {})
        self.defaults = {name for name, value in listed.items() if isinstance(value, dict) and "default" in value}
        required = node.keywords.get("required", ())
        self.required = frozenset(required if isinstance(required, list) else ())
        self.patterns = node.children("patternProperties")
        self.others: ContentModel = content_model(said(node, "additionalProperties"), unevaluated(node, "unevaluatedProperties"))
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
    if removed.kind is Kind.FALSE:
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
        if added.kind is Kind.EMPTY:
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
