"""What a JSON Schema says of properties or items that it does not list, and how two such sayings differ."""

from dataclasses import dataclass
from typing import Protocol

from moldau.registry.schemas.json_schema.differences import JsonDifference
from moldau.registry.schemas.json_schema.nodes import Kind, Node


class NodeComparison(Protocol):
    """Compares the nodes below two nodes."""

    def compare(self, original: Node, update: Node) -> list[JsonDifference]:
        """The differences of two nodes, with paths from them."""

    def optional(self, original: Node | None, update: Node | None) -> list[JsonDifference]:
        """The differences where either schema may be missing."""


@dataclass(frozen=True, slots=True)
class ContentModel:
    """`allowed` and `schema` are the word of `additional...`; `unevaluated` is that of `unevaluated...`, which counts if the other
    says nothing."""

    allowed: bool
    schema: Node | None
    unevaluated: Node | None

    @property
    def is_open(self) -> bool:
        """What is not listed may hold anything."""
        return self.allowed and self.schema is None and (self.unevaluated is None or self.unevaluated.kind is Kind.EMPTY)

    @property
    def of_others(self) -> Node | None:
        """The schema that holds for what is not listed; None if there is none (the model is open or closed)."""
        if self.schema is not None:
            return self.schema
        if self.allowed and self.unevaluated is not None and self.unevaluated.kind not in (Kind.FALSE, Kind.EMPTY):
            return self.unevaluated
        return None


def content_model(additional: Node | bool, unevaluated: Node | None) -> ContentModel:
    """The model of what `additional...` says: true, false or a schema."""
    if isinstance(additional, bool):
        return ContentModel(additional, None, unevaluated)
    return ContentModel(True, additional, unevaluated)


def said(node: Node, keyword: str) -> Node | bool:
    """What a keyword says of the rest; nothing said is true."""
    value = node.keywords.get(keyword, True)
    return value if isinstance(value, bool) else node.child(value)


def unevaluated(node: Node, keyword: str) -> Node | None:
    """What `unevaluated...` says, which drafts before 2019-09 do not know."""
    return node.optional(keyword) if node.modern else None


def compare_additional(comparison: NodeComparison, change: str, before: ContentModel, after: ContentModel) -> list[JsonDifference]:
    """The words of `additional...`: from refused to allowed is an addition."""
    if before.allowed != after.allowed:
        return [JsonDifference(f"{change}_{'ADDED' if after.allowed else 'REMOVED'}")]
    if before.schema is None and after.schema is not None:
        return [JsonDifference(f"{change}_NARROWED")]
    if before.schema is not None and after.schema is None:
        return [JsonDifference(f"{change}_EXTENDED")]
    return comparison.optional(before.schema, after.schema)


def compare_unevaluated(comparison: NodeComparison, change: str, before: Node | None, after: Node | None) -> list[JsonDifference]:
    """The words of `unevaluated...`; nothing said is like true."""
    if before is None and after is None:
        return []
    old, new = (Kind.EMPTY if node is None else node.kind for node in (before, after))
    if (old is Kind.FALSE) != (new is Kind.FALSE):
        return [JsonDifference(f"{change}_{'ADDED' if old is Kind.FALSE else 'REMOVED'}")]
    if before is None or (old is Kind.EMPTY and new is not Kind.EMPTY):
        return [JsonDifference(f"{change}_NARROWED")]
    if after is None or (old is not Kind.EMPTY and new is Kind.EMPTY):
        return [JsonDifference(f"{change}_EXTENDED")]
    return comparison.compare(before, after)
