"""The schema languages by name, each loaded when the first schema of its kind comes.

A registry that holds only Avro never imports protoc or jsonschema, and one that only answers look-ups by id parses nothing.
"""

from functools import cache, lru_cache

from moldau.registry.schemas.language import AVRO, JSON, PROTOBUF, ParsedSchema, ResolvedReference, SchemaLanguage

LANGUAGES = (JSON, PROTOBUF, AVRO)
"""The names, in the order in which `GET /schemas/types` gives them."""

KEPT_SCHEMAS = 100
"""Parsed schemas that are kept in memory; the least recently used one is evicted."""


class UnknownLanguageError(ValueError):
    """No schema language has this name."""


@cache
def language(name: str) -> SchemaLanguage:
    """The language called `AVRO`, `JSON` or `PROTOBUF`; UnknownLanguageError for another name."""
    match name:
        case "AVRO":
            from moldau.registry.schemas.avro.language import AvroLanguage

            return AvroLanguage()
        case "JSON":
            from moldau.registry.schemas.json_schema.language import JsonLanguage

            return JsonLanguage()
        case "PROTOBUF":
            from moldau.registry.schemas.protobuf.language import ProtobufLanguage

            return ProtobufLanguage()
        case _:
            raise UnknownLanguageError(f"No schema language is called {name!r}; there are {', '.join(LANGUAGES)}")


@lru_cache(maxsize=KEPT_SCHEMAS)
def parsed(
    name: str, text: str, references: tuple[ResolvedReference, ...] = (), *, stored: bool = False, compared: bool = False
) -> ParsedSchema:
    """What `language(name).parse` gives, kept: a producer that registers the same schema at every start costs one look-up here."""
    _ = compared  # schemas of this process are always whole
    return language(name).parse(text, references, stored=stored)
