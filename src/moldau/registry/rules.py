"""Rules that come with a schema or a configuration: they are checked as Confluent's registry checks them, stored, and given back.

Clients carry them out. What is let in here has to be readable for every other registry and for each client, so all has the type it should.
"""

from collections.abc import Mapping
from typing import Any

from moldau.registry.errors import invalid_rule_set, unprocessable
from moldau.registry.fingerprint import RULES
from moldau.registry.shape import is_texts, object_of

_NAME_MAX = 256
_KINDS = ("TRANSFORM", "CONDITION")
_MIGRATION, _DOMAIN = ("UPGRADE", "DOWNGRADE", "UPDOWN"), ("WRITE", "READ", "WRITEREAD")
_MODES = {"migrationRules": _MIGRATION, "domainRules": _DOMAIN, "encodingRules": _DOMAIN}
_TEXTS = ("doc", "kind", "mode", "type", "expr", "onSuccess", "onFailure")
_WITH_TWO_ACTIONS = ("WRITEREAD", "UPDOWN")


def read_rule_set(value: Any, name: str) -> dict[str, Any] | None:
    """Rules by kind. RestError 42210 for a rule that cannot be one, 422 for what has another shape."""
    if value is None:
        return None
    fields = object_of(value, name)
    found: dict[str, Any] = {}
    names: set[str] = set()
    for kind in RULES:
        rules = fields.get(kind) or []
        if not isinstance(rules, list):
            raise unprocessable(f"{name}: {kind} is not a list")
        for rule in rules:
            _check(object_of(rule, f"a rule of {kind}"), kind, names)
        if rules:
            found[kind] = [{key: each for key, each in rule.items() if each not in (None, [], {})} for rule in rules]
    enable_at = fields.get("enableAt")
    if enable_at is not None:
        if not isinstance(enable_at, str):
            raise unprocessable(f"{name}: enableAt is not a text")
        found["enableAt"] = enable_at
    return found


def _check(rule: Mapping[str, Any], kind: str, names: set[str]) -> None:
    name = _name(rule.get("name"))
    if name in names:
        raise invalid_rule_set(f"Found rule with duplicate name '{name}'")
    names.add(name)
    for field in _TEXTS:
        if rule.get(field) is not None and not isinstance(rule[field], str):
            raise invalid_rule_set(f"Rule '{name}': {field} is not a text")
    if rule.get("type") is None:
        raise invalid_rule_set(f"Rule '{name}': Missing rule type")
    if rule.get("kind") not in (None, *_KINDS):
        raise invalid_rule_set(f"Rule '{name}': kind is one of {', '.join(_KINDS)}")
    mode = rule.get("mode")
    if mode not in (None, *_MODES[kind]):
        raise invalid_rule_set(f"Rule '{name}': mode of {kind} is one of {', '.join(_MODES[kind])}")
    if mode is not None and mode not in _WITH_TWO_ACTIONS and any("," in (rule.get(each) or "") for each in ("onSuccess", "onFailure")):
        raise invalid_rule_set(f"Rule '{name}': Multiple actions only valid with WRITEREAD and UPDOWN")
    if not is_texts(rule.get("tags") or []):
        raise invalid_rule_set(f"Rule '{name}': tags is not a list of texts")
    params = rule.get("params") or {}
    if not isinstance(params, dict) or not all(isinstance(value, str) for value in params.values()):
        raise invalid_rule_set(f"Rule '{name}': params is not an object of texts")
    if not isinstance(rule.get("disabled") or False, bool):
        raise invalid_rule_set(f"Rule '{name}': disabled is not true or false")


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise invalid_rule_set("Missing rule name")
    if not name:
        raise invalid_rule_set("Empty rule name")
    if len(name) > _NAME_MAX:
        raise invalid_rule_set("Rule name too long")
    if not (name[0].isalpha() or name[0] == "_"):
        raise invalid_rule_set(f"Illegal initial character in rule name: {name}")
    if not all(letter.isalnum() or letter in "_-" for letter in name):
        raise invalid_rule_set(f"Illegal character in rule name: {name}")
    return name
