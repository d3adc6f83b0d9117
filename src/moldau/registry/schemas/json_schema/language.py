"""JSON Schema among the schema languages of the registry."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from moldau.registry.schemas.json_schema.comparison import differences
from moldau.registry.schemas.json_schema.differences import HARMLESS, incompatibility
from moldau.registry.schemas.json_schema.documents import check_against_draft, check_references, read_json, resolver_for, write_json
from moldau.registry.schemas.json_schema.nodes import Node, Reader
from moldau.registry.schemas.language import JSON, Incompatibility, ParsedSchema, ResolvedReference, check_nodes


class JsonSchema:
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
        return Reader(self.document).node(self.document, resolver_for(self.document, self._references))

    def normalized(self) -> "JsonSchema":
        """Names in order, at every depth."""
        return JsonSchema(read_json(write_json(self.document, sort=True), "The schema"), self._references)

    def formatted(self, form: str) -> str:
        """There are no other forms."""
        return self.canonical

    def check(self, older: ParsedSchema) -> list[Incompatibility]:
        """By the rules of Confluent's registry, its strict policy."""
        assert isinstance(older, JsonSchema)
        found = differences(older.root, self.root)
        return [incompatibility(difference) for difference in dict.fromkeys(found) if difference.type not in HARMLESS]


class JsonLanguage:
    """Reads JSON Schemas."""

    name = JSON

    def parse(self, text: str, references: Sequence[ResolvedReference] = (), *, stored: bool = False) -> JsonSchema:
        """Read a schema; InvalidSchemaError names the place of the fault, or the reference that leads nowhere."""
        document = read_json(text, "The JSON schema")
        check_nodes(document)
        if not stored:
            check_against_draft(document)
            check_references(document, resolver_for(document, references))
        return JsonSchema(document, tuple(references))
