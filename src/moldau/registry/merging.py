"""Metadata and rules that a schema is registered with: its own, or those of the version before it, between the defaults and the overrides
that its configuration names.

    default  <  the schema's own, else the latest version's  <  override

Tags and properties are merged by name, rules by name within their kind; the later side wins.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from moldau.registry.fingerprint import RULES

if TYPE_CHECKING:
    from moldau.registry.body import SchemaBody
    from moldau.registry.records import SchemaVersion

Parts = Mapping[str, Any]

_BESIDE = ("defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet")


def has_beside(config: Parts) -> bool:
    """Whether a configuration gives metadata or rules to schemas."""
    return any(config.get(name) is not None for name in _BESIDE)


def populated(body: "SchemaBody", latest: "SchemaVersion | None", config: Parts) -> "SchemaBody":
    """The schema with all that it is registered with. A text that is not given is that of the latest version."""
    if latest is not None and not body.text.strip():
        body = replace(body, text=latest.text, type=latest.type, references=latest.references)
    metadata, rule_set = body.metadata, body.rule_set
    if latest is not None:
        metadata = latest.metadata if metadata is None else metadata
        rule_set = latest.rule_set if rule_set is None else rule_set
    return replace(
        body,
        metadata=_metadata(_metadata(config.get("defaultMetadata"), metadata), config.get("overrideMetadata")),
        rule_set=_rule_set(_rule_set(config.get("defaultRuleSet"), rule_set), config.get("overrideRuleSet")),
    )


def _metadata(first: Parts | None, then: Parts | None) -> Parts | None:
    if first is None or then is None:
        return first if then is None else then
    found: dict[str, Any] = {}
    for name in ("tags", "properties"):
        found[name] = dict(sorted({**(first.get(name) or {}), **(then.get(name) or {})}.items()))
    found["sensitive"] = sorted({*(first.get("sensitive") or ()), *(then.get("sensitive") or ())})
    return {name: value for name, value in found.items() if value}


def _rule_set(first: Parts | None, then: Parts | None) -> Parts | None:
    if first is None or then is None:
        return first if then is None else then
    found: dict[str, Any] = {kind: _rules(first.get(kind) or (), then.get(kind) or ()) for kind in RULES}
    found["enableAt"] = then.get("enableAt") or first.get("enableAt")
    return {name: value for name, value in found.items() if value}


def _rules(first: Sequence[Parts], then: Sequence[Parts]) -> list[Parts]:
    replaced = {rule.get("name") for rule in then}
    return [*(rule for rule in first if rule.get("name") not in replaced), *then]
