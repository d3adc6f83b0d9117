"""Deleting versions, subjects and contexts: softly first, then for good, and never what others refer to.

While schemas are left out (`left_out.py`) none is deleted for good: one of those may refer to it.

What is deleted softly is not listed and not counted for compatibility, but its id still finds its schema: data written with it can be read.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from moldau.registry import errors
from moldau.registry.decision import Decision, Write
from moldau.registry.records import (
    ConfigKey,
    ContextKey,
    DeleteSubjectKey,
    ModeKey,
    SchemaKey,
    encode_delete_subject,
    encode_key,
    encode_schema,
)
from moldau.registry.scopes import refuse_read_only
from moldau.registry.subjects import context_of

if TYPE_CHECKING:
    from moldau.registry.state import State

LATEST = -1


def delete_version(state: "State", subject: str, number: int, *, permanent: bool) -> Decision:
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
        return Decision(number, [(encode_key(key), encode_schema(replace(schema, deleted=True)))])
    if not schema.deleted:
        raise errors.version_not_soft_deleted(subject, number)
    writes: list[Write] = [(encode_key(key), None)]
    if len(versions) == 1:
        writes += _settings_of(state, subject)
    return Decision(number, writes)


def delete_subject(state: "State", subject: str, *, permanent: bool) -> Decision:
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
        return Decision(numbers, [(encode_key(DeleteSubjectKey(subject)), encode_delete_subject(subject, numbers[-1]))])
    # the newest first: versions may refer to earlier ones of the same subject
    writes: list[Write] = [(encode_key(SchemaKey(subject, number)), None) for number in reversed(numbers)]
    return Decision(numbers, writes + _settings_of(state, subject))


def delete_context(state: "State", context: str) -> Decision:
    """Forget a context that has no subjects, not even deleted ones. RestError 42211."""
    if any(context_of(subject) == context for subject in state.subjects()):
        raise errors.context_not_empty(f":{context}:")
    check_referrers_kept(state)
    known = context in state.contexts
    return Decision(None, [(encode_key(ContextKey(context)), None)] if known else [])


def check_referrers_kept(state: "State") -> None:
    """RestError 42209 if schemas were left out."""
    if state.lacks_schemas():
        raise errors.referrers_left_out(state.memory_bytes_max)


def _settings_of(state: "State", subject: str) -> list[Write]:
    """Take back what is set for a subject that is no more."""
    writes: list[Write] = []
    if subject in state.modes:
        writes.append((encode_key(ModeKey(subject)), None))
    if subject in state.configs:
        writes.append((encode_key(ConfigKey(subject)), None))
    return writes
