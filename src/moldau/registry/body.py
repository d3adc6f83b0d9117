"""The bodies of requests, read strictly: a field of another type than it should have is refused by name (422), a rule that cannot be one
with 42210.

Unknown names are ignored, as Confluent's registry does: clients of later versions send more. Rules are checked as Confluent's registry
checks them and stored; clients execute them, so each must be readable for every other registry and client.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moldau.registry.errors import invalid_compatibility, invalid_mode, invalid_rule_set, unprocessable
from moldau.registry.records import AVRO, CONFIG_FIELDS, NUMBER_MAX, RULES
from moldau.registry.schemas.compatibility import CompatibilityLevel
from moldau.registry.subjects import Reference


def object_of(value: Any, name: str) -> dict[str, Any]:
    """A JSON object. RestError 422 for anything else."""
    if not isinstance(value, dict):
        raise unprocessable(f"{name} is not a JSON object")
    return value


def is_texts(value: Any) -> bool:
    """Whether this is a list of texts."""
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


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


MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
_RULE_SETS = ("defaultRuleSet", "overrideRuleSet")
_METADATA = ("defaultMetadata", "overrideMetadata")


@dataclass(frozen=True, slots=True)
class SchemaBody:
    """A schema to be registered, looked up or checked. `id` and `version` are None unless it is to be imported with them."""

    text: str
    type: str = AVRO
    references: tuple[Reference, ...] = ()
    metadata: Mapping[str, Any] | None = None
    rule_set: Mapping[str, Any] | None = None
    id: int | None = None
    version: int | None = None


def read_schema(body: Any) -> SchemaBody:
    """The body of a registration, a look-up or a compatibility check. RestError 422."""
    fields = object_of(body, "the body")
    references = fields.get("references") or []
    if not isinstance(references, list):
        raise unprocessable("references is not a list")
    return SchemaBody(
        _text(fields, "schema") or "",
        _text(fields, "schemaType") or AVRO,
        tuple(_reference(each) for each in references),
        read_metadata(fields.get("metadata"), "metadata"),
        read_rule_set(fields.get("ruleSet"), "ruleSet"),
        _number(fields, "id", least=0),
        _number(fields, "version", least=1),
    )


def read_metadata(value: Any, name: str) -> dict[str, Any] | None:
    """Tags (lists of texts by name), properties (texts by name), and names that are sensitive; sorted, as they are stored."""
    if value is None:
        return None
    fields = object_of(value, name)
    tags, properties, sensitive = fields.get("tags") or {}, fields.get("properties") or {}, fields.get("sensitive") or []
    if not isinstance(tags, dict) or not all(is_texts(values) for values in tags.values()):
        raise unprocessable(f"{name}: tags is not an object of lists of texts")
    if not isinstance(properties, dict) or not all(isinstance(text, str) for text in properties.values()):
        raise unprocessable(f"{name}: properties is not an object of texts")
    if not is_texts(sensitive):
        raise unprocessable(f"{name}: sensitive is not a list of texts")
    found = {
        "tags": {tag: sorted(set(values)) for tag, values in sorted(tags.items())},
        "properties": dict(sorted(properties.items())),
        "sensitive": sorted(set(sensitive)),
    }
    return {key: value for key, value in found.items() if value}


def read_config(body: Any) -> dict[str, Any]:
    """The changes of a configuration; a value of None removes it. RestError."""
    fields = dict(object_of(body, "the body"))
    if "compatibility" in fields:
        fields["compatibilityLevel"] = fields.pop("compatibility")
    found = {name: fields[name] for name in CONFIG_FIELDS if name in fields}
    for name, value in found.items():
        if value is None:
            continue
        if CONFIG_FIELDS[name] is bool:
            if not isinstance(value, bool):
                raise unprocessable(f"{name} is not true or false")
        elif name in _METADATA:
            found[name] = read_metadata(value, name)
        elif name in _RULE_SETS:
            found[name] = read_rule_set(value, name)
        elif not isinstance(value, str):
            raise unprocessable(f"{name} is not a text")
        elif name == "compatibilityLevel":
            found[name] = _level(value)
    return found


def read_mode(body: Any) -> str | None:
    """The mode that is asked for; null removes it, and a missing one is no mode. RestError 42204."""
    mode = object_of(body, "the body").get("mode", "")
    if mode is None:
        return None
    if not isinstance(mode, str) or mode.upper() not in MODES:
        raise invalid_mode()
    return mode.upper()


def _level(text: str) -> str:
    try:
        return CompatibilityLevel(text.upper()).value
    except ValueError:
        raise invalid_compatibility() from None


def _reference(value: Any) -> Reference:
    fields = object_of(value, "a reference")
    name, subject, version = _text(fields, "name"), _text(fields, "subject"), _number(fields, "version", least=-1)
    if not name or not subject or version is None:
        raise unprocessable("a reference needs a name, a subject and a version")
    return Reference(name, subject, version)


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise unprocessable(f"{name} is not a text")
    return value


def _number(fields: Mapping[str, Any], name: str, *, least: int) -> int | None:
    value = fields.get(name)
    if value is None or (value in (-1, 0) and value < least):
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= NUMBER_MAX:
        raise unprocessable(f"{name} is not a number from {least} to {NUMBER_MAX}")
    return value
