"""Texts to parsed schemas: references are looked up in the state, and theirs before them, until nothing is open."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from moldau.registry.errors import RestError, invalid_schema, left_out, schema_too_large
from moldau.registry.schemas.answers import has_text
from moldau.registry.schemas.language import (
    AVRO,
    REFERENCE_DEPTH_MAX,
    REFERENCES_MAX,
    InvalidSchemaError,
    ParsedSchema,
    ResolvedReference,
    SchemaTooLargeError,
)
from moldau.registry.schemas.languages import UnknownLanguageError
from moldau.registry.subjects import in_context_of

if TYPE_CHECKING:
    from moldau.registry.body import SchemaBody
    from moldau.registry.records import SchemaVersion
    from moldau.registry.state import RegistryState
    from moldau.registry.subjects import Reference

_LATEST = -1


def parse_new(state: "RegistryState", subject: str, body: "SchemaBody", *, normalize: bool, stored: bool = False) -> ParsedSchema:
    """A schema that comes in. RestError 42201 names what is wrong with it, or which reference leads nowhere; 42209 for one too large.

    `stored` is for schemas that are imported: they are taken as they are.
    """
    try:
        found = state.parsed(body.type, body.text, _resolved(state, subject, body.references), stored=stored)
        return found.normalized() if normalize else found
    except UnknownLanguageError:
        raise invalid_schema(f"Invalid schema type {body.type}") from None
    except SchemaTooLargeError as error:
        raise schema_too_large(str(error)) from error
    except InvalidSchemaError as error:
        raise invalid_schema(f"Invalid schema of type {body.type}, details: {error}") from error


def parse_stored(state: "RegistryState", schema: "SchemaVersion") -> ParsedSchema:
    """A schema that is registered. RestError 42201 if it cannot be read, or if one that it refers to was deleted."""
    try:
        return state.parsed(schema.type, schema.text, _resolved(state, schema.subject, schema.references), stored=True, compared=True)
    except UnknownLanguageError:
        raise invalid_schema(f"Invalid schema type {schema.type}") from None
    except InvalidSchemaError as error:
        where = f"subject {schema.subject} version {schema.version}"
        raise invalid_schema(f"Invalid schema of type {schema.type}, details: {where}: {error}") from error


def pin_references(state: "RegistryState", subject: str, body: "SchemaBody") -> "SchemaBody":
    """The same schema; references to the latest version (-1) name the version that is the latest now. RestError 42201 if there is none."""
    if all(each.version != _LATEST for each in body.references):
        return body
    pinned = []
    for reference in body.references:
        if reference.version == _LATEST:
            latest = _latest(state, in_context_of(subject, reference.subject))
            if latest is None:
                raise _nowhere(state, subject, reference)
            reference = reference._replace(version=latest.version)
        pinned.append(reference)
    return replace(body, references=tuple(pinned))


def is_same(state: "RegistryState", stored: "SchemaVersion", wanted: "SchemaVersion") -> bool:
    """Whether a registered version is this schema: in text, references and all that is beside them.

    An Avro schema may also come with the types in it that the registered one has from references: that is how programs hold it.
    """
    if stored.type != wanted.type:
        return False
    if stored.fingerprint == wanted.fingerprint:
        return True
    if stored.type != AVRO or not stored.references or wanted.references:
        return False
    if replace(stored, text="", references=()).fingerprint != replace(wanted, text="").fingerprint:
        return False
    try:
        return has_text(parse_stored(state, stored), "resolved", wanted.text)
    except RestError:
        return False


def _resolved(state: "RegistryState", subject: str, references: Iterable["Reference"]) -> tuple[ResolvedReference, ...]:
    """Every reference, each once, after those that it needs itself."""
    found: dict[str, ResolvedReference] = {}
    open_: set[tuple[str, int]] = set()

    def visit(parent: str, reference: "Reference", depth: int) -> None:
        target = in_context_of(parent, reference.subject)
        key = (target, reference.version)
        if reference.name in found or key in open_:
            return
        if depth > REFERENCE_DEPTH_MAX or len(open_) >= REFERENCES_MAX:
            raise invalid_schema(f"Invalid schema: more than {REFERENCES_MAX} references, or references {REFERENCE_DEPTH_MAX} deep")
        schema = _latest(state, target) if reference.version == _LATEST else state.version(target, reference.version)
        if schema is None:
            raise _nowhere(state, parent, reference)
        open_.add(key)
        for each in schema.references:
            visit(target, each, depth + 1)
        found[reference.name] = ResolvedReference(reference.name, reference.subject, reference.version, schema.text)

    for each in references:
        visit(subject, each, 1)
    return tuple(found.values())


def _latest(state: "RegistryState", subject: str) -> "SchemaVersion | None":
    if state.lacks_schemas(subject):
        raise left_out(f"subject '{subject}'", state.memory_bytes_max)
    return next((each for each in reversed(state.versions(subject)) if not each.deleted), None)


def _nowhere(state: "RegistryState", parent: str, reference: "Reference") -> Exception:
    target = in_context_of(parent, reference.subject)
    if state.lacks_schemas(target):
        return left_out(f"subject '{target}'", state.memory_bytes_max)
    version = "latest" if reference.version == _LATEST else reference.version
    return invalid_schema(
        f'No schema reference found for subject "{reference.subject}" and version {version} (reference "{reference.name}")'
    )
