"""Everything that is asked and changes nothing."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from moldau.registry import errors
from moldau.registry.records import SchemaKey, SchemaVersion, parse_guid
from moldau.registry.references import is_same, parse_new, parse_stored, pin_references
from moldau.registry.registration import compatibility_problems, populated
from moldau.registry.request import schema_view, version_view
from moldau.registry.scopes import check_config_kept, config_in_scope
from moldau.registry.subjects import DEFAULT_CONTEXT, context_of, parse_subject

if TYPE_CHECKING:
    from moldau.registry.body import SchemaBody
    from moldau.registry.state import RegistryState

LATEST = -1
_AT_ONCE = 500
"""Subjects of a list that are looked at under one lock."""


def subjects(state: "RegistryState", prefix: str, *, deleted: bool, deleted_only: bool) -> Iterable[str]:
    """Names of subjects that begin with the prefix; ``:*:`` before it means all contexts."""
    found = filter(_beginning(prefix), state.subjects())
    if deleted and not deleted_only:
        return found
    return _by_deletion(state, found, deleted=deleted_only)


def _by_deletion(state: "RegistryState", subjects: Iterator[str], *, deleted: bool) -> Iterator[str]:
    while some := list(islice(subjects, _AT_ONCE)):
        gone = state.deleted_among(some)
        yield from (name for name in some if (name in gone) == deleted)


def version_numbers(state: "RegistryState", subject: str, *, deleted: bool, deleted_only: bool, deleted_negative: bool) -> list[int]:
    """Numbers of a subject's versions. RestError 40401, 50001 if some were left out."""
    _check_kept(state, subject)
    found = state.versions(subject)
    if not any(deleted or deleted_only or not each.deleted for each in found):
        raise errors.subject_not_found(subject)
    if deleted_negative:
        return [-each.version if each.deleted else each.version for each in found]
    if deleted_only:
        return [each.version for each in found if each.deleted]
    return [each.version for each in found if deleted or not each.deleted]


def _check_kept(state: "RegistryState", subject: str) -> None:
    """RestError 50001 if versions of a subject were left out: the newest that is known may be an older one."""
    if state.lacks_schemas(subject):
        raise errors.left_out(f"subject '{subject}'", state.memory_bytes_max)


def version(state: "RegistryState", subject: str, number: int, *, deleted: bool) -> SchemaVersion:
    """One version of a subject, or the latest (-1), which is never a deleted one. RestError 40401, 40402, 50001 if it may be left out.

    What a subject of the default context does not have is looked for under its name in the other contexts.
    """
    for name in _of_this_name(state, subject):
        if number == LATEST:
            _check_kept(state, name)
        for each in reversed(state.versions(name)):
            if not each.deleted if number == LATEST else each.version == number and (deleted or not each.deleted):
                return each
        _check_kept(state, name)
    if any(deleted or not each.deleted for each in state.versions(subject)):
        raise errors.version_not_found(number)
    raise errors.subject_not_found(subject)


def latest_with_metadata(state: "RegistryState", subject: str, wanted: dict[str, str], *, deleted: bool) -> SchemaVersion:
    """The newest version whose metadata has these properties. RestError 40401, 40403, 50001 if versions were left out."""
    _check_kept(state, subject)
    found = [each for each in state.versions(subject) if deleted or not each.deleted]
    if not found:
        raise errors.subject_not_found(subject)
    for each in reversed(found):
        if wanted.items() <= ((each.metadata or {}).get("properties") or {}).items():
            return each
    raise errors.schema_not_found()


def find(state: "RegistryState", subject: str, body: "SchemaBody", *, normalize: bool, deleted: bool) -> SchemaVersion:
    """The version of a subject that is this schema. RestError 40401, 40403, 42201.

    As received, else with the metadata and rules of the latest version; else, for a request without metadata and rules, by text and
    references. What a subject of the default context does not have is looked for under its name in the other contexts.
    """
    for name in _of_this_name(state, subject):
        try:
            found = _find(state, name, body, normalize=normalize, deleted=deleted)
        except errors.RestError:  # another context may not have what this schema refers to
            if name == subject:
                raise
            continue
        if found is not None:
            return found
        _check_kept(state, name)
    if any(deleted or not each.deleted for each in state.versions(subject)):
        raise errors.schema_not_found()
    raise errors.subject_not_found(subject)


def _find(state: "RegistryState", subject: str, body: "SchemaBody", *, normalize: bool, deleted: bool) -> SchemaVersion | None:
    every = state.versions(subject)
    found = [each for each in reversed(every) if deleted or not each.deleted]
    if not found or not body.text.strip():
        return None
    body = pin_references(state, subject, body)
    config = config_in_scope(state, subject)
    text = parse_new(state, subject, body, normalize=normalize or bool(config.get("normalize")), stored=True).canonical
    latest = next((each for each in reversed(every) if not each.deleted), None)
    for wanted in (body, populated(body, latest, config)):
        asked = SchemaVersion(subject, 0, 0, text, body.type, body.references, wanted.metadata, wanted.rule_set)
        for each in found:
            if is_same(state, each, asked):
                return each
    if body.metadata is None and body.rule_set is None:
        for each in found:
            if (each.text, each.type, each.references) == (text, body.type, body.references):
                return each
    return None


def by_id(state: "RegistryState", schema_id: int, subject: str | None) -> SchemaVersion:
    """A version with this id: that of the subject if it has one, else of another context's subject of this name, else any of its context.

    RestError 40403, 50001 if what comes first of these may have been left out.
    """
    unsure = ""
    for name in _of_this_name(state, subject or ""):
        number = state.holders(context_of(name), schema_id).get(name)
        found = None if number is None else state.version(name, number)
        if found is not None:
            if unsure:
                _check_kept(state, unsure)
            return found
        if state.lacks_schemas(name):
            unsure = name
    if unsure and context_of(unsure) != context_of(subject or ""):
        _check_kept(state, unsure)
    found = state.schema(context_of(subject or ""), schema_id)
    if found is None:
        raise errors.schema_not_found(schema_id)
    return found


def _of_this_name(state: "RegistryState", subject: str) -> Iterator[str]:
    """The subject; after one of the default context those of its name in all the others."""
    yield subject
    where = parse_subject(subject)
    if where.context == DEFAULT_CONTEXT and where.name:
        yield from state.namesakes(where.name)


def holders_of(state: "RegistryState", schema_id: int, subject: str | None, *, deleted: bool) -> list[SchemaVersion]:
    """The versions with this id in the subject's context. RestError 40403."""
    context = context_of(subject) if subject else DEFAULT_CONTEXT
    holders = state.holders(context, schema_id)
    if not holders:
        raise errors.schema_not_found()
    wanted = parse_subject(subject).name if subject else ""
    found = [state.version(holder, number) for holder, number in sorted(holders.items()) if not wanted or holder == subject]
    return [each for each in found if each is not None and (deleted or not each.deleted)]


def by_guid(state: "RegistryState", guid: str) -> SchemaVersion:
    """A version whose schema has this guid, in whatever context. RestError 40403."""
    for context, schema_id in ids_of_guid(state, guid):
        found = state.schema(context, schema_id)
        if found is not None:
            return found
    raise errors.schema_not_found(guid)


def ids_of_guid(state: "RegistryState", guid: str) -> list[tuple[str, int]]:
    """The ids of a schema, one per context that has it."""
    fingerprint = parse_guid(guid)
    if fingerprint is None:
        return []
    ids = ((context, state.id_of(context, fingerprint)) for context in state.all_contexts())
    return [(context, schema_id) for context, schema_id in ids if schema_id is not None]


def schemas(state: "RegistryState", prefix: str, *, deleted: bool, latest_only: bool) -> Iterable[dict[str, Any]]:
    """The versions of all subjects that begin with the prefix. RestError 50001 for the latest of one that lacks versions."""
    for name in filter(_beginning(prefix), state.subjects()):
        if latest_only:
            _check_kept(state, name)
        found = [each for each in state.versions(name) if deleted or not each.deleted]
        yield from map(version_view, found[-1:] if latest_only else found)


def referenced_by(state: "RegistryState", subject: str, number: int, *, deleted: bool) -> list[int]:
    """Ids of the schemas that refer to a version. RestError 40401, 40402."""
    target = version(state, subject, number, deleted=True)
    return list(dict.fromkeys(each.id for each in state.referrers(SchemaKey(target.subject, target.version), deleted=deleted)))


def compatibility(state: "RegistryState", subject: str, number: int | None, body: "SchemaBody", *, normalize: bool) -> list[str]:
    """Why this schema could not be registered next to one version (-1: the latest), or to all that the level asks for (None).

    RestError 42201 if it is no schema, 40402 for a version that does not exist, 50001 if what decides it may have been left out.
    """
    check_config_kept(state, subject)
    if number is None or number == LATEST:
        _check_kept(state, subject)
    config = config_in_scope(state, subject)
    earlier = [each for each in state.versions(subject) if not each.deleted]
    if number is not None and number != LATEST:
        earlier = [each for each in earlier if each.version == number]
        if not earlier:
            raise errors.version_not_found(number)
    elif number == LATEST:
        earlier = earlier[-1:]
    if not body.text.strip():
        raise errors.invalid_schema("Empty schema")
    body = pin_references(state, subject, body)
    schema = parse_new(state, subject, body, normalize=normalize or bool(config.get("normalize")))
    return compatibility_problems(state, config, schema, body, earlier)


def formatted(state: "RegistryState", schema: SchemaVersion, form: str) -> str | None:
    """The text in another form; None where the stored one will do. RestError 42201 if it cannot be had."""
    return parse_stored(state, schema).formatted(form.lower()) if form.strip() else None


def id_view(state: "RegistryState", schema: SchemaVersion, form: str, *, named: bool, highest: bool) -> dict[str, Any]:
    """The answer to a look-up by id."""
    id_max = state.id_max(context_of(schema.subject)) if highest else None
    return schema_view(schema, formatted(state, schema, form), named=named, id_max=id_max)


def _beginning(prefix: str) -> Callable[[str], bool]:
    """Whether a subject begins with the prefix."""
    wanted = parse_subject(prefix)

    def begins(subject: str) -> bool:
        found = parse_subject(subject)
        return wanted.context in ("*", found.context) and found.name.startswith(wanted.name)

    return begins
