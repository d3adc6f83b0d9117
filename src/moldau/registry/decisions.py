"""Decisions about changes: the records to write and the answer once they are written. Deciding writes nothing.

Versions, subjects and contexts are deleted softly first, then for good, and never while others refer to them.

While schemas are left out (`omitted_keys.py`) none is deleted for good: one of those may refer to it.

What is deleted softly is not listed and not counted for compatibility, but its id still finds its schema: data written with it can be read.
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from moldau.registry import errors
from moldau.registry.records import (
    ClearSubjectKey,
    ConfigKey,
    ContextKey,
    DeleteSubjectKey,
    ModeKey,
    SchemaKey,
    Write,
    encode_clear_subject,
    encode_config,
    encode_delete_subject,
    encode_key,
    encode_mode,
    encode_schema,
)
from moldau.registry.request import config_update_view, config_view
from moldau.registry.scopes import IMPORT, config_set_at, mode_in_scope, mode_set_at, refuse_read_only
from moldau.registry.subjects import DEFAULT_CONTEXT, GLOBAL_CONTEXT, context_of, is_valid, parse_subject

if TYPE_CHECKING:
    from moldau.registry.records import SchemaVersion
    from moldau.registry.state import RegistryState


@dataclass(frozen=True, slots=True)
class ChangeDecision:
    """Records in the order in which they are to be written, perhaps none, and the answer as JSON has it.

    `registered` is the version that has to be there when all is read back.
    """

    answer: Any
    writes: list[Write] = field(default_factory=list)
    registered: "SchemaVersion | None" = None


LATEST = -1


def delete_version(state: "RegistryState", subject: str, number: int, *, permanent: bool) -> ChangeDecision:
    """Delete one version; the answer is its number. RestError 40401, 40402, 40406, 40407, 42205, 42206."""
    versions = state.versions(subject)
    if number == LATEST and state.lacks_schemas(subject):
        raise errors.left_out(f"subject '{subject}'", state.memory_bytes_max)
    if number == LATEST:  # the latest that is not deleted, for good or not
        number = next((each.version for each in reversed(versions) if not each.deleted), LATEST)
    schema = state.version(subject, number)
    if schema is None:
        raise errors.version_not_found(number) if versions else errors.subject_not_found(subject)
    if schema.deleted and not permanent:
        raise errors.version_soft_deleted(subject, number)
    refuse_read_only(state, subject)
    if permanent:
        check_referrers_kept(state)
    key = SchemaKey(subject, number)
    if state.referrers(key, deleted=permanent):
        raise errors.reference_exists(subject, number)
    if not permanent:
        return ChangeDecision(number, [(encode_key(key), encode_schema(replace(schema, deleted=True)))])
    if not schema.deleted:
        raise errors.version_not_soft_deleted(subject, number)
    writes: list[Write] = [(encode_key(key), None)]
    if len(versions) == 1:
        writes += _settings_of(state, subject)
    return ChangeDecision(number, writes)


def delete_subject(state: "RegistryState", subject: str, *, permanent: bool) -> ChangeDecision:
    """Delete all versions of a subject; the answer is their numbers. RestError 40401, 40404, 40405, 42205, 42206."""
    every = state.versions(subject)
    versions = every if permanent else [each for each in every if not each.deleted]
    if not every:
        raise errors.subject_not_found(subject)
    if not versions:
        raise errors.subject_soft_deleted(subject)
    refuse_read_only(state, subject)
    if permanent:
        check_referrers_kept(state)
    for each in versions:
        others = state.referrers(SchemaKey(subject, each.version), deleted=permanent)
        if any(other.subject != subject for other in others):
            raise errors.reference_exists(subject, each.version)
        if permanent and not each.deleted:
            raise errors.subject_not_soft_deleted(subject)
    numbers = [each.version for each in versions]
    if not permanent:
        return ChangeDecision(numbers, [(encode_key(DeleteSubjectKey(subject)), encode_delete_subject(subject, numbers[-1]))])
    # the newest first: versions may refer to earlier ones of the same subject
    writes: list[Write] = [(encode_key(SchemaKey(subject, number)), None) for number in reversed(numbers)]
    return ChangeDecision(numbers, writes + _settings_of(state, subject))


def delete_context(state: "RegistryState", context: str) -> ChangeDecision:
    """Forget a context that has no subjects, not even deleted ones. RestError 42211."""
    if any(context_of(subject) == context for subject in state.subjects()):
        raise errors.context_not_empty(f":{context}:")
    check_referrers_kept(state)
    known = context in state.contexts
    return ChangeDecision(None, [(encode_key(ContextKey(context)), None)] if known else [])


def check_referrers_kept(state: "RegistryState") -> None:
    """RestError 42209 if schemas were left out."""
    if state.lacks_schemas():
        raise errors.referrers_left_out(state.memory_bytes_max)


def _settings_of(state: "RegistryState", subject: str) -> list[Write]:
    """Remove the settings of a subject that is deleted for good."""
    writes: list[Write] = []
    if subject in state.modes:
        writes.append((encode_key(ModeKey(subject)), None))
    if subject in state.configs:
        writes.append((encode_key(ConfigKey(subject)), None))
    return writes


def set_config(state: "RegistryState", scope: str | None, changes: dict[str, Any]) -> ChangeDecision:
    """Change what is given, leave the rest. RestError 42205 where nothing may be changed, 42208 for a name that no subject can have."""
    _check_name(scope)
    refuse_read_only(state, scope)
    found = {**state.configs.get(scope, {}), **changes}
    found = {name: value for name, value in found.items() if value is not None}
    return ChangeDecision(config_update_view(found), [(encode_key(ConfigKey(scope)), encode_config(scope, found))])


def delete_config(state: "RegistryState", scope: str | None) -> ChangeDecision:
    """Remove what is set there; the answer is what it was. RestError 40401 if nothing is."""
    if scope is not None and scope not in state.configs:
        raise errors.subject_not_found(scope)
    refuse_read_only(state, scope)
    before = config_view(config_set_at(state, scope))
    return ChangeDecision(before, [(encode_key(ConfigKey(scope)), None)] if scope in state.configs else [])


def set_mode(state: "RegistryState", scope: str | None, mode: str | None, *, force: bool) -> ChangeDecision:
    """Set a mode, or remove it with None.

    A scope that is set to import has no schemas, or imported ids could be taken: RestError 42205, unless `force`. What was deleted softly
    is then removed for good.
    """
    _check_name(scope)
    writes: list[Write] = []
    if mode == IMPORT and mode_in_scope(state, scope) != IMPORT and not force:
        writes += _emptied(state, scope)
    if mode is not None or scope in state.modes:
        writes.append((encode_key(ModeKey(scope)), None if mode is None else encode_mode(scope, mode)))
    return ChangeDecision({"mode": mode}, writes)


def delete_mode(state: "RegistryState", scope: str | None, *, recursive: bool) -> ChangeDecision:
    """Remove the mode that is set there, with `recursive` those of a context's subjects too; the answer is what it was.

    RestError 40401 if none is set.
    """
    if scope is not None and scope not in state.modes and not recursive:
        raise errors.subject_not_found(scope)
    gone: list[str | None] = [scope] if scope in state.modes else []
    if recursive:
        gone += [each for each in state.modes if each is not None and each != scope and _within(scope, each)]
    before = mode_set_at(state, scope) if scope is None or scope in state.modes else None
    return ChangeDecision({"mode": before} if before else {}, [(encode_key(ModeKey(each)), None) for each in gone])


def _emptied(state: "RegistryState", scope: str | None) -> list[Write]:
    """Records that remove the deleted versions of a scope. RestError if there are living ones, or others refer to one of them."""
    check_referrers_kept(state)
    versions = [each for subject in state.subjects() if _within(scope, subject) for each in state.versions(subject)]
    if any(not each.deleted for each in versions):
        raise errors.not_permitted("Cannot import since found existing subjects")
    for each in versions:
        if state.referrers(SchemaKey(each.subject, each.version), deleted=True):
            raise errors.reference_exists(each.subject, each.version)
    writes: list[Write] = [(encode_key(SchemaKey(each.subject, each.version)), None) for each in versions]
    if scope is not None:
        writes.append((encode_key(ClearSubjectKey(scope)), encode_clear_subject(scope)))
    return writes


def _within(scope: str | None, subject: str) -> bool:
    """Whether a subject, or a context, lies in the scope: the same, or one of a context's; None is the default context."""
    where, other = parse_subject(scope or ""), parse_subject(subject)
    if where.context == GLOBAL_CONTEXT:
        return True
    if where.context == DEFAULT_CONTEXT and scope:
        return subject == scope
    return where.context == other.context and where.name in ("", other.name)


def _check_name(scope: str | None) -> None:
    if scope is not None and not is_valid(scope, for_settings=True):
        raise errors.invalid_subject(scope)
