"""JSON Schema among the schema languages of the registry, and the differences between two schemas, by the rules of Confluent's registry.

The heart of the rules is the content model of an object. It is open if properties that it does not list may hold anything (JSON
Schema's default), closed if they are refused, partially open if they are held to a schema. A property may be removed from an open
model and added to a closed one. A property added to an open model does harm, even an optional one: old data may have a property of
that name with another type.

Circles: a pair that is being compared further up counts as equal. What was concluded below from that is checked by comparing again,
with the pairs found to differ taken as given, until nothing new differs.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from moldau.registry.schemas.json_schema import content, scalars
from moldau.registry.schemas.json_schema.differences import HARMLESS, JsonDifference, at, bounded, harmless, incompatibility
from moldau.registry.schemas.json_schema.documents import check_against_draft, check_references, read_json, resolver_for, write_json
from moldau.registry.schemas.json_schema.nodes import ALL_OF, ANY_OF, ONE_OF, CombinedNode, Node, NodeKind, NodeReader
from moldau.registry.schemas.language import (
    COMPARED_PAIRS_MAX,
    JSON,
    Incompatibility,
    ParsedSchema,
    ResolvedReference,
    TooManyPairsError,
    check_nodes,
)


def most_pairs(partners: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """For each left side its possible right sides; gives a largest set of pairs, left to right.

    Worked example: {0: [0], 1: [0, 1]} gives {0: 0, 1: 1}, where taking 0 for 1 first would have left 0 alone.
    """
    left_of: dict[int, int] = {}

    def place(left: int, tried: set[int]) -> bool:
        for right in partners[left]:
            if right in tried:
                continue
            tried.add(right)
            if right not in left_of or place(left_of[right], tried):
                left_of[right] = left
                return True
        return False

    for left in partners:
        place(left, set())
    return {left: right for right, left in sorted(left_of.items(), key=lambda pair: pair[1])}


Pair = tuple[Node, Node]


def differences(original: Node, update: Node) -> list[JsonDifference]:
    """Every difference, harmless ones too, with paths from the root."""
    harmful: dict[Pair, list[JsonDifference]] = {}
    while True:
        comparison = Comparison(harmful)
        found = comparison.compare(original, update)
        now = {pair: below for pair, below in comparison.compared.items() if not harmless(below)}
        if not comparison.trusted_a_circle or now.keys() == harmful.keys():
            return found
        harmful = now


class Comparison:
    """One pass over two graphs; a pair of nodes is compared once."""

    def __init__(self, harmful: dict[Pair, list[JsonDifference]]) -> None:
        self.compared: dict[Pair, list[JsonDifference]] = {}
        self.trusted_a_circle = False
        self._harmful = harmful
        self._under_way: set[Pair] = set()

    def optional(self, original: Node | None, update: Node | None) -> list[JsonDifference]:
        """The differences where either schema may be missing."""
        if original is None:
            return [] if update is None else [JsonDifference("SCHEMA_ADDED")]
        return [JsonDifference("SCHEMA_REMOVED")] if update is None else self.compare(original, update)

    def compare(self, original: Node, update: Node) -> list[JsonDifference]:
        """The differences of two nodes, with paths from them."""
        pair = (original, update)
        if pair in self.compared:
            return self.compared[pair]
        if len(self.compared) >= COMPARED_PAIRS_MAX:
            raise TooManyPairsError
        if pair in self._under_way:
            if pair not in self._harmful:
                self.trusted_a_circle = True
            return self._harmful.get(pair, [])
        self._under_way.add(pair)
        found = bounded(self._compare(original, update))
        self._under_way.discard(pair)
        self.compared[pair] = found
        return found

    def _compare(self, original: Node, update: Node) -> list[JsonDifference]:
        mixed = self._one_combined(original, update)
        if mixed is not None:
            return mixed
        if original.kind is not update.kind:
            return [] if _always_fits(original, update) else [JsonDifference("TYPE_CHANGED")]
        found = _annotations(original, update)
        match original.kind:
            case NodeKind.STRING:
                found += scalars.compare_strings(original, update)
            case NodeKind.NUMBER:
                found += scalars.compare_numbers(original, update)
            case NodeKind.ENUM:
                found += scalars.compare_enums(original, update)
            case NodeKind.CONST:
                found += scalars.compare_constants(original, update)
            case NodeKind.OBJECT:
                found += content.compare_objects(self, original, update)
            case NodeKind.ARRAY:
                found += content.compare_arrays(self, original, update)
            case NodeKind.NOT:
                found += self._compare_refused(original, update)
            case NodeKind.COMBINED:
                assert isinstance(original, CombinedNode)
                assert isinstance(update, CombinedNode)
                found += self._compare_combined(original, update)
        return found

    def _one_combined(self, original: Node, update: Node) -> list[JsonDifference] | None:
        """A plain schema against a combined one: fine if it fits one part, as far as the criterion allows. None if undecided."""
        if isinstance(update, CombinedNode) and not isinstance(original, CombinedNode):
            combined, wanted, change = update, {ANY_OF, ONE_OF}, "SUM_TYPE_EXTENDED"
        elif isinstance(original, CombinedNode) and not isinstance(update, CombinedNode):
            combined, wanted, change = original, {ALL_OF}, "PRODUCT_TYPE_NARROWED"
        else:
            return None
        alone = len(combined.parts) == 1
        if not alone and combined.criterion not in wanted:
            return None
        for part in combined.parts:
            found = self.compare(original, part) if combined is update else self.compare(part, update)
            if harmless(found):
                return found if alone else [*found, JsonDifference(change)]
        return None

    def _compare_refused(self, original: Node, update: Node) -> list[JsonDifference]:
        """`not`: the less is refused, the more fits."""
        found = self.compare(update.child(update.keywords["not"]), original.child(original.keywords["not"]))
        return [JsonDifference("NOT_TYPE_NARROWED" if harmless(found) else "NOT_TYPE_EXTENDED", ("not",))]

    def _compare_combined(self, original: CombinedNode, update: CombinedNode) -> list[JsonDifference]:
        """Each part of the smaller side needs one of the other side for itself."""
        criterion = _criterion_change(original, update)
        if criterion == "COMBINED_TYPE_CHANGED":
            return [JsonDifference(criterion)]
        found = [JsonDifference(criterion)] if criterion else []
        before, after = len(original.parts), len(update.parts)
        if before < after:
            found.append(JsonDifference("PRODUCT_TYPE_EXTENDED" if update.criterion == ALL_OF else "SUM_TYPE_EXTENDED"))
        elif before > after:
            found.append(JsonDifference("PRODUCT_TYPE_NARROWED" if original.criterion == ALL_OF else "SUM_TYPE_NARROWED"))
        fitting: dict[int, dict[int, list[JsonDifference]]] = {}
        for left, old in enumerate(original.parts):
            compared = {right: self.compare(old, new) for right, new in enumerate(update.parts)}
            fitting[left] = {right: below for right, below in compared.items() if harmless(below)}
        pairs = most_pairs({left: list(rights) for left, rights in fitting.items()})
        for left, right in pairs.items():
            found += at(original.criterion, at(str(left), fitting[left][right]))
        if len(pairs) < min(before, after):
            found.append(JsonDifference("COMBINED_TYPE_SUBSCHEMAS_CHANGED"))
        return found


def _always_fits(original: Node, update: Node) -> bool:
    """Whatever fitted the one fits the other, though they are of different kinds.

    Decimals that Connect's converter wrote as bytes may be written as text later: `connect.type` marks them.
    """
    bytes_both = original.annotations.get("connect.type") == update.annotations.get("connect.type") == "bytes"
    return original.kind is NodeKind.FALSE or update.kind is NodeKind.EMPTY or bytes_both


def _annotations(original: Node, update: Node) -> list[JsonDifference]:
    names = {"$id": "ID_CHANGED", "title": "TITLE_CHANGED", "description": "DESCRIPTION_CHANGED", "default": "DEFAULT_CHANGED"}
    return [JsonDifference(change) for name, change in names.items() if original.annotations.get(name) != update.annotations.get(name)]


def _criterion_change(original: CombinedNode, update: CombinedNode) -> str | None:
    """What it means that `allOf` became `anyOf`, and so on; one schema alone is the same under each."""
    one_before, one_after = len(original.parts) == 1, len(update.parts) == 1
    if original.criterion == update.criterion:
        return None
    if (
        update.criterion == ANY_OF
        or (one_before and one_after)
        or (one_before and update.criterion == ONE_OF)
        or (one_after and original.criterion == ALL_OF)
    ):
        return "COMBINED_TYPE_EXTENDED"
    return "COMBINED_TYPE_CHANGED"


class ParsedJsonSchema:
    """A JSON Schema with what it refers to. One that is stored is checked when it is compared."""

    language = JSON

    def __init__(self, document: Any, references: tuple[ResolvedReference, ...]) -> None:
        self.document = document
        self._references = references

    @property
    def name(self) -> str | None:
        """The title."""
        title = self.document.get("title") if isinstance(self.document, dict) else None
        return title if isinstance(title, str) else None

    @cached_property
    def canonical(self) -> str:
        """The text that was sent, without the spaces."""
        return write_json(self.document)

    @cached_property
    def root(self) -> Node:
        """The graph of nodes, read as far as a comparison needs it; InvalidSchemaError if the schema is none."""
        check_against_draft(self.document)
        return NodeReader(self.document).node(self.document, resolver_for(self.document, self._references))

    def normalized(self) -> "ParsedJsonSchema":
        """Names in order, at every depth."""
        return ParsedJsonSchema(read_json(write_json(self.document, sort=True), "The schema"), self._references)

    def formatted(self, form: str) -> str:
        """There are no other forms."""
        return self.canonical

    def check(self, older: ParsedSchema) -> list[Incompatibility]:
        """By the rules of Confluent's registry, its strict policy."""
        assert isinstance(older, ParsedJsonSchema)
        found = differences(older.root, self.root)
        return [incompatibility(difference) for difference in dict.fromkeys(found) if difference.type not in HARMLESS]


class JsonLanguage:
    """Reads JSON Schemas."""

    name = JSON

    def parse(self, text: str, references: Sequence[ResolvedReference] = (), *, stored: bool = False) -> ParsedJsonSchema:
        """Read a schema; InvalidSchemaError names the place of the fault, or the reference that leads nowhere."""
        document = read_json(text, "The JSON schema")
        check_nodes(document)
        if not stored:
            check_against_draft(document)
            check_references(document, resolver_for(document, references))
        return ParsedJsonSchema(document, tuple(references))
