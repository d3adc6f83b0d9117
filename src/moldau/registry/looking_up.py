"""Everything that is asked and changes nothing."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from moldau.registry import errors
from moldau.registry.fingerprint import parse_guid
from moldau.registry.records import SchemaKey, SchemaVersion
from moldau.registry.registering import judge
from moldau.registry.resolving import parse_new, parse_stored, pin_references
from moldau.registry.scopes import config_in_scope
from moldau.registry.subjects import DEFAULT_CONTEXT, context_of, parse_subject, scope_of
from moldau.registry.views import schema_view, version_view

if TYPE_CHECKING:
    from moldau.registry.body import SchemaBody
    from moldau.registry.state import State

LATEST = -1


def subjects(state: "State", prefix: str, *, deleted: bool, deleted_only: bool) -> list[str]:
    """Names of subjects that begin with the prefix; ``:*:`` before it stands for all contexts."""
    found = [name for name in state.subjects() if _begins(name, prefix)]
    if deleted and not deleted_only:
        return found
    return [name for name in found if all(each.deleted for each in state.versions(name)) == deleted_only]


def version_numbers(state: "State", subject: str, *, deleted: bool, deleted_only: bool, deleted_negative: bool) -> list[int]:
    """Numbers of a subject's versions. RestError 40401."""
    found = state.versions(subject)
    if not any(deleted or deleted_only or not each.deleted for each in found):
        raise errors.subject_not_found(subject)
    if deleted_negative:
        return [-each.version if each.deleted else each.version for each in found]
    if deleted_only:
        return [each.version for each in found if each.deleted]
    return [each.version for each in found if deleted or not each.deleted]


def version(state: "State", subject: str, number: int, *, deleted: bool) -> SchemaVersion:
    """One version of a subject, or the latest (-1). RestError 40401, 40402."""
    found = [each for each in state.versions(subject) if deleted or not each.deleted]
    if not found:
        raise errors.subject_not_found(subject)
    if number == LATEST:
        return found[-1]
    for each in found:
        if each.version == number:
            return each
    raise errors.version_not_found(number)


def latest_with_metadata(state: "State", subject: str, wanted: dict[str, str], *, deleted: bool) -> SchemaVersion:
    """The newest version whose metadata has these properties. RestError 40401, 40403."""
    found = [each for each in state.versions(subject) if deleted or not each.deleted]
    if not found:
        raise errors.subject_not_found(subject)
    for each in reversed(found):
        if wanted.items() <= ((each.metadata or {}).get("properties") or {}).items():
            return each
    raise errors.schema_not_found()


def find(state: "State", subject: str, body: "SchemaBody", *, normalize: bool, deleted: bool) -> SchemaVersion:
    """The version of a subject that is this schema. RestError 40401, 40403, 42201.

    Without metadata and rules in the question, the text and the references decide.
    """
    every = state.versions(subject)
    found = [each for each in every if deleted or not each.deleted]
    if not found:
        raise errors.subject_not_found(subject)
    if not body.text.strip():
        raise errors.schema_not_found()
    body = pin_references(state, subject, body)
    normalize = normalize or bool(config_in_scope(state, subject).get("normalize"))
    text = parse_new(state, subject, body, normalize=normalize, stored=True).canonical
    bare = body.metadata is None and body.rule_set is None
    best = None
    for each in reversed(found):
        if (each.text, each.type, each.references) == (text, body.type, body.references):
            if (each.metadata, each.rule_set) == (body.metadata, body.rule_set):
                return each
            best = best or each
    if best is None or not bare:
        raise errors.schema_not_found()
    return best


def by_id(state: "State", schema_id: int, subject: str | None) -> SchemaVersion:
    """A version with this id: that of the subject if it has one, else any of its context, else of another context's subject of this name.

    RestError 40403.
    """
    where = parse_subject(subject or "")
    holders = state.holders(where.context, schema_id)
    if not holders and where.name and where.context == DEFAULT_CONTEXT:
        for context in state.all_contexts():
            holders = state.holders(context, schema_id)
            if f"{scope_of(context)}{where.name}" in holders:
                subject = f"{scope_of(context)}{where.name}"
                break
        else:
            holders = {}
    for holder in [subject] if subject in holders else list(holders):
        found = state.version(holder, holders[holder]) if holder is not None else None
        if found is not None:
            return found
    raise errors.schema_not_found(schema_id)


def holders_of(state: "State", schema_id: int, subject: str | None, *, deleted: bool) -> list[SchemaVersion]:
    """The versions with this id in the subject's context. RestError 40403."""
    context = context_of(subject) if subject else DEFAULT_CONTEXT
    holders = state.holders(context, schema_id)
    if not holders:
        raise errors.schema_not_found()
    wanted = parse_subject(subject).name if subject else ""
    found = [state.version(holder, number) for holder, number in sorted(holders.items()) if not wanted or holder == subject]
    return [each for each in found if each is not None and (deleted or not each.deleted)]


def by_guid(state: "State", guid: str) -> SchemaVersion:
    """A version whose schema has this guid, in whatever context. RestError 40403."""
    for context, schema_id in ids_of_guid(state, guid):
        found = state.schema(context, schema_id)
        if found is not None:
            return found
    raise errors.schema_not_found(guid)


def ids_of_guid(state: "State", guid: str) -> list[tuple[str, int]]:
    """The ids of a schema, one per context that has it."""
    fingerprint = parse_guid(guid)
    if fingerprint is None:
        return []
    ids = ((context, state.id_of(context, fingerprint)) for context in state.all_contexts())
    return [(context, schema_id) for context, schema_id in ids if schema_id is not None]


def schemas(state: "State", prefix: str, *, deleted: bool, latest_only: bool) -> Iterable[dict[str, Any]]:
    """The versions of all subjects that begin with the prefix."""
    for name in state.subjects():
        if _begins(name, prefix):
            found = [each for each in state.versions(name) if deleted or not each.deleted]
            yield from map(version_view, found[-1:] if latest_only else found)


def referenced_by(state: "State", subject: str, number: int, *, deleted: bool) -> list[int]:
    """Ids of the schemas that refer to a version. RestError 40401, 40402."""
    target = version(state, subject, number, deleted=True)
    return list(dict.fromkeys(each.id for each in state.referrers(SchemaKey(subject, target.version), deleted=deleted)))


def compatibility(state: "State", subject: str, number: int | None, body: "SchemaBody", *, normalize: bool) -> list[str]:
    """Why this schema could not be registered next to one version (-1: the latest), or to all that the level asks for (None).

    RestError 42201 if it is no schema, 40402 for a version that is not there.
    """
    config = config_in_scope(state, subject)
    earlier = [each for each in state.versions(subject) if not each.deleted]
    if number is not None and number != LATEST:
        if not earlier:
            raise errors.version_not_found(number)
        earlier = [version(state, subject, number, deleted=False)]
    elif number == LATEST:
        earlier = earlier[-1:]
    if not body.text.strip():
        raise errors.invalid_schema("Empty schema")
    body = pin_references(state, subject, body)
    schema = parse_new(state, subject, body, normalize=normalize or bool(config.get("normalize")))
    return judge(state, config, schema, body, earlier)


def formatted(state: "State", schema: SchemaVersion, form: str) -> str | None:
    """The text in another form; None where the stored one will do. RestError 42201 if it cannot be had."""
    return parse_stored(state, schema).formatted(form) if form else None


def id_view(state: "State", schema: SchemaVersion, form: str, *, named: bool, highest: bool) -> dict[str, Any]:
    """The answer to a look-up by id."""
    id_max = state.id_max(context_of(schema.subject)) if highest else None
    return schema_view(schema, formatted(state, schema, form), named=named, id_max=id_max)


def _begins(subject: str, prefix: str) -> bool:
    wanted = parse_subject(prefix)
    if wanted.context == "*":
        return parse_subject(subject).name.startswith(wanted.name)
    found = parse_subject(subject)
    return found.context == wanted.context and found.name.startswith(wanted.name)
