"""Differences between what two JSON Schemas say of arrays: the content model of an array is that of an object, with places for names."""

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
from moldau.registry.schemas.json_schema.scalars import compare_limit, compare_limits


def compare(comparison: NodeComparison, original: Node, update: Node) -> list[JsonDifference]:
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
    """What a node says of arrays: of every item, or of some by their place and of the rest."""

    def __init__(self, node: Node) -> None:
        keywords = node.keywords
        items = keywords.get("items", True)
        places = items if isinstance(items, list) else keywords.get("prefixItems", [])
        self.items = [node.child(item) for item in places]
        self.every: Node | None = None
        rest: Node | bool = True
        if isinstance(items, list):
            rest = said(node, "additionalItems")
        elif self.items or (node.modern and items is False):
            rest = said(node, "items")
        elif not (node.modern and items is True) and "items" in keywords:
            self.every = node.child(items)
        elif not node.modern:
            rest = said(node, "additionalItems")
        self.others: ContentModel = content_model(rest, unevaluated(node, "unevaluatedItems"))
        self.unique = keywords.get("uniqueItems", False)
        self.contains_max = keywords.get("maxContains")
        self.contains_min = keywords.get("minContains", 1 if node.modern and "contains" in keywords else None)


def _items(comparison: NodeComparison, before: _Array, after: _Array) -> list[JsonDifference]:
    found = []
    for index in range(max(len(before.items), len(after.items))):
        if index >= len(after.items):
            here = _removed(comparison, before.items[index], after)
        elif index >= len(before.items):
            here = _added(comparison, before, after.items[index])
        else:
            here = comparison.compare(before.items[index], after.items[index])
        found += at(str(index), here)
    return found


def _removed(comparison: NodeComparison, removed: Node, after: _Array) -> list[JsonDifference]:
    if after.others.is_open:
        return [JsonDifference("ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL")]
    schema = after.others.of_others
    if schema is not None:
        found = comparison.compare(removed, schema)
        covered = "IS_COVERED" if harmless(found) else "NOT_COVERED"
        return [*found, JsonDifference(f"ITEM_REMOVED_{covered}_BY_PARTIALLY_OPEN_CONTENT_MODEL")]
    if removed.kind is Kind.FALSE:
        return [JsonDifference("ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL")]
    return [JsonDifference("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL")]


def _added(comparison: NodeComparison, before: _Array, added: Node) -> list[JsonDifference]:
    if before.others.is_open:
        word = "ITEM_WITH_EMPTY_SCHEMA" if added.kind is Kind.EMPTY else "ITEM"
        return [JsonDifference(f"{word}_ADDED_TO_OPEN_CONTENT_MODEL")]
    schema = before.others.of_others
    if schema is None:
        return [JsonDifference("ITEM_ADDED_TO_CLOSED_CONTENT_MODEL")]
    found = comparison.compare(schema, added)
    covered = "IS_COVERED" if harmless(found) else "NOT_COVERED"
    return [*found, JsonDifference(f"ITEM_ADDED_{covered}_BY_PARTIALLY_OPEN_CONTENT_MODEL")]
