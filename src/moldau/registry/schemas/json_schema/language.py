"""JSON Schema among the schema languages of the registry."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from jsonschema import Draft7Validator
from jsonschema.exceptions import SchemaError
from jsonschema.validators import validator_for

from moldau.registry.schemas.json_schema.comparison import differences
from moldau.registry.schemas.json_schema.differences import HARMLESS, incompatibility
from moldau.registry.schemas.json_schema.documents import Resolver, check_references, resolver_for
from moldau.registry.schemas.json_schema.nodes import Node
from moldau.registry.schemas.json_schema.reader import Reader
from moldau.registry.schemas.json_schema.text import read_json, write_json
from moldau.registry.schemas.language import JSON, Incompatibility, InvalidSchemaError, ParsedSchema, ResolvedReference


class JsonSchema:
    """A valid JSON Schema, with what finds its references."""

    language = JSON

    def __init__(self, document: Any, resolver: Resolver) -> None:
        self.document = document
        self._resolver = resolver

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
        """The graph of nodes, read as far as a comparison needs it."""
        return Reader(self.document).node(self.document, self._resolver)

    def normalized(self) -> "JsonSchema":
        """Names in order, at every depth."""
        return JsonSchema(read_json(write_json(self.document, sort=True), "The schema"), self._resolver)

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
        if not isinstance(document, dict | bool):
            raise InvalidSchemaError(f"A JSON schema is an object or a boolean, not {write_json(document)}")
        resolver = resolver_for(document, references)
        if not stored:
            _check_against_draft(document)
            check_references(document, resolver)
        return JsonSchema(document, resolver)


def _check_against_draft(document: Any) -> None:
    """Formats are not checked: patterns are JavaScript's, and Python cannot read all that are right."""
    validator = validator_for(document, default=Draft7Validator)
    try:
        validator.check_schema(document, format_checker=None)
    except SchemaError as error:
        raise InvalidSchemaError(f"Invalid JSON schema at {_place(error)}: {error.message}") from error
    except RecursionError as error:
        raise InvalidSchemaError("The JSON schema is nested too deeply") from error


def _place(error: SchemaError) -> str:
    return "#/" + "/".join(str(part) for part in error.absolute_path)
