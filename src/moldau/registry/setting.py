"""Changing configurations and modes."""

from typing import TYPE_CHECKING, Any

from moldau.registry import errors
from moldau.registry.decision import Decision, Write
from moldau.registry.deleting import check_referrers_kept
from moldau.registry.records import (
    ClearSubjectKey,
    ConfigKey,
    ModeKey,
    SchemaKey,
    encode_clear_subject,
    encode_config,
    encode_key,
    encode_mode,
)
from moldau.registry.scopes import IMPORT, config_set_at, mode_in_scope, mode_set_at, refuse_read_only
from moldau.registry.subjects import DEFAULT_CONTEXT, GLOBAL_CONTEXT, is_valid, parse_subject
from moldau.registry.views import config_update_view, config_view

if TYPE_CHECKING:
    from moldau.registry.state import State


def set_config(state: "State", scope: str | None, changes: dict[str, Any]) -> Decision:
    """Change what is given, leave the rest. RestError 42205 where nothing may be changed, 42208 for a name that no subject can have."""
    _check_name(scope)
    refuse_read_only(state, scope)
    found = {**state.configs.get(scope, {}), **changes}
    found = {name: value for name, value in found.items() if value is not None}
    return Decision(config_update_view(found), [(encode_key(ConfigKey(scope)), encode_config(scope, found))])


def delete_config(state: "State", scope: str | None) -> Decision:
    """Take back what is set there; the answer is what it was. RestError 40401 if nothing is."""
    if scope is not None and scope not in state.configs:
        raise errors.subject_not_found(scope)
    refuse_read_only(state, scope)
    before = config_view(config_set_at(state, scope))
    return Decision(before, [(encode_key(ConfigKey(scope)), None)] if scope in state.configs else [])


def set_mode(state: "State", scope: str | None, mode: str | None, *, force: bool) -> Decision:
    """Set a mode, or take it back with None.

    To import, no schema may be there, or the ids that come could be taken: RestError 42205, unless `force` says that it is known. What
    was deleted softly goes for good then.
    """
    _check_name(scope)
    writes: list[Write] = []
    if mode == IMPORT and mode_in_scope(state, scope) != IMPORT and not force:
        writes += _emptied(state, scope)
    if mode is not None or scope in state.modes:
        writes.append((encode_key(ModeKey(scope)), None if mode is None else encode_mode(scope, mode)))
    return Decision({"mode": mode}, writes)


def delete_mode(state: "State", scope: str | None, *, recursive: bool) -> Decision:
    """Take back the mode that is set there, with `recursive` those of a context's subjects too; the answer is what it was.

    RestError 40401 if none is set.
    """
    if scope is not None and scope not in state.modes and not recursive:
        raise errors.subject_not_found(scope)
    gone: list[str | None] = [scope] if scope in state.modes else []
    if recursive:
        gone += [each for each in state.modes if each is not None and each != scope and _within(scope, each)]
    before = mode_set_at(state, scope) if scope is None or scope in state.modes else None
    return Decision({"mode": before} if before else {}, [(encode_key(ModeKey(each)), None) for each in gone])


def _emptied(state: "State", scope: str | None) -> list[Write]:
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
