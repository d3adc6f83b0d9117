"""Configuration and mode of subjects: what is set for one, for its context, and for all, the nearest first.

subject orders-value   ->  the default context (/config)  ->  :.__GLOBAL:  ->  BACKWARD, READWRITE
subject :.fleet:pings  ->  its context :.fleet:           ->  :.__GLOBAL:  ->  BACKWARD, READWRITE
"""

from typing import TYPE_CHECKING, Any

from moldau.registry.errors import compatibility_not_configured, left_out, mode_not_configured, not_permitted
from moldau.registry.records import ConfigKey, ModeKey
from moldau.registry.subjects import DEFAULT_CONTEXT, GLOBAL_SCOPE, context_of, scope_of

if TYPE_CHECKING:
    from moldau.registry.state import RegistryState

DEFAULT_LEVEL = "BACKWARD"
READWRITE, READONLY, IMPORT = "READWRITE", "READONLY", "IMPORT"
READONLY_OVERRIDE = "READONLY_OVERRIDE"
"""What Confluent's registries wrote before ``:.__GLOBAL:`` could be READONLY; here it is READONLY."""


def config_in_scope(state: "RegistryState", subject: str | None) -> dict[str, Any]:
    """What holds for a subject, or for the default context (None): each field from the nearest place that sets it."""
    found: dict[str, Any] = {"compatibilityLevel": DEFAULT_LEVEL}
    with state.lock:
        for scope in reversed(_scopes(subject)):
            found.update(state.configs.get(scope, {}))
    return found


def check_config_kept(state: "RegistryState", subject: str | None) -> None:
    """RestError 50001 if something that holds for a subject may be set in a record that was left out."""
    if any(state.lacks_setting(ConfigKey(scope)) for scope in _scopes(subject)):
        raise left_out(f"the configuration of {_shown(subject)}", state.memory_bytes_max)


def check_mode_kept(state: "RegistryState", subject: str | None) -> None:
    """RestError 50001 if the mode that holds for a subject may be in a record that was left out."""
    if any(state.lacks_setting(ModeKey(scope)) for scope in _scopes(subject)):
        raise left_out(f"the mode of {_shown(subject)}", state.memory_bytes_max)


def config_set_at(state: "RegistryState", scope: str | None) -> dict[str, Any]:
    """What is set right there. RestError 40408 if nothing is; for the default context that is the default. 50001 if it was left out."""
    if state.lacks_setting(ConfigKey(scope)):
        raise left_out(f"the configuration of {_shown(scope)}", state.memory_bytes_max)
    with state.lock:
        found = state.configs.get(scope)
    if found is None and scope is not None and scope != GLOBAL_SCOPE:
        raise compatibility_not_configured(scope)
    return {"compatibilityLevel": DEFAULT_LEVEL, **(found or {})}


def mode_in_scope(state: "RegistryState", subject: str | None) -> str:
    """The mode that holds for a subject, or for the default context (None)."""
    with state.lock:
        return next((state.modes[scope] for scope in _scopes(subject) if scope in state.modes), READWRITE)


def mode_set_at(state: "RegistryState", scope: str | None) -> str:
    """What is set right there. RestError 40409 if nothing is; for the default context that is the default. 50001 if it was left out."""
    if state.lacks_setting(ModeKey(scope)):
        raise left_out(f"the mode of {_shown(scope)}", state.memory_bytes_max)
    found = state.modes.get(scope)
    if found is None and scope is not None and scope != GLOBAL_SCOPE:
        raise mode_not_configured(scope)
    return found or READWRITE


def refuse_read_only(state: "RegistryState", subject: str | None) -> None:
    """RestError 42205 where nothing may be changed, 50001 where that is not known."""
    check_mode_kept(state, subject)
    if mode_in_scope(state, subject) in (READONLY, READONLY_OVERRIDE):
        raise not_permitted(f"Subject {subject} in context {_shown_context(subject)} is in read-only mode")


def check_register_mode(state: "RegistryState", subject: str, *, importing: bool) -> None:
    """RestError 42205 unless the mode allows it: with an id of its own a schema is imported, without one it is registered."""
    refuse_read_only(state, subject)
    wanted = IMPORT if importing else READWRITE
    if mode_in_scope(state, subject) != wanted:
        words = "import" if importing else "read-write"
        raise not_permitted(f"Subject {subject} in context {_shown_context(subject)} is not in {words} mode")


def _scopes(subject: str | None) -> list[str | None]:
    """The places that count, the nearest first."""
    if subject is None:
        return [None, GLOBAL_SCOPE]
    context = context_of(subject)
    whole = None if context == DEFAULT_CONTEXT else scope_of(context)
    return list(dict.fromkeys([subject, whole, GLOBAL_SCOPE]))


def _shown(scope: str | None) -> str:
    return "the default context" if scope is None else f"'{scope}'"


def _shown_context(subject: str | None) -> str:
    return scope_of(context_of(subject)) if subject else ""
