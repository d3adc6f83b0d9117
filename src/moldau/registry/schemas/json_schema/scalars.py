"""Differences between strings, numbers and listed values of two JSON Schemas."""

from decimal import Decimal, DecimalException
from typing import Any

from moldau.registry.schemas.json_schema.differences import JsonDifference
from moldau.registry.schemas.json_schema.documents import write_json
from moldau.registry.schemas.json_schema.nodes import Node


def compare_limit(name: str, change: str, before: Any, after: Any) -> list[JsonDifference]:
    """A number that was added, removed, increased or decreased; None is no limit."""
    if before == after:
        return []
    if before is None:
        word = "ADDED"
    elif after is None:
        word = "REMOVED"
    else:
        word = "INCREASED" if before < after else "DECREASED"
    return [JsonDifference(f"{change}_{word}", (name,))]


def compare_limits(original: Node, update: Node, names: dict[str, str]) -> list[JsonDifference]:
    """Several limits, by keyword."""
    found = []
    for name, change in names.items():
        found += compare_limit(name, change, original.keywords.get(name), update.keywords.get(name))
    return found


def compare_strings(original: Node, update: Node) -> list[JsonDifference]:
    """Lengths and patterns; whether one pattern is narrower than another is not checked."""
    found = compare_limits(original, update, {"maxLength": "MAX_LENGTH", "minLength": "MIN_LENGTH"})
    before, after = original.keywords.get("pattern"), update.keywords.get("pattern")
    if before != after:
        word = "ADDED" if before is None else "REMOVED" if after is None else "CHANGED"
        found.append(JsonDifference(f"PATTERN_{word}", ("pattern",)))
    return found


def compare_numbers(original: Node, update: Node) -> list[JsonDifference]:
    """Limits, multiples, and whether only integers fit."""
    found = compare_limits(original, update, {"maximum": "MAXIMUM", "minimum": "MINIMUM"})
    for name, change in (("exclusiveMaximum", "EXCLUSIVE_MAXIMUM"), ("exclusiveMinimum", "EXCLUSIVE_MINIMUM")):
        found += compare_limit(name, change, _exclusive(original, name), _exclusive(update, name))
    found += _multiples(original.keywords.get("multipleOf"), update.keywords.get("multipleOf"))
    integer_before, integer_after = (node.keywords.get("type") == "integer" for node in (original, update))
    if integer_before != integer_after:
        found.append(JsonDifference("TYPE_EXTENDED" if integer_before else "TYPE_NARROWED"))
    return found


def _exclusive(node: Node, name: str) -> Any:
    """The limit; in draft 4 the keyword is true, and the limit is that of another keyword."""
    value = node.keywords.get(name)
    if isinstance(value, bool):
        return node.keywords.get({"exclusiveMaximum": "maximum", "exclusiveMinimum": "minimum"}[name]) if value else None
    return value


def _multiples(before: Any, after: Any) -> list[JsonDifference]:
    """Multiples of 6 are multiples of 3: from 6 to 3 more numbers fit."""
    if before == after:
        return []
    if before is None:
        word = "ADDED"
    elif after is None:
        word = "REMOVED"
    elif _is_multiple(after, before):
        word = "EXPANDED"
    elif _is_multiple(before, after):
        word = "REDUCED"
    else:
        word = "CHANGED"
    return [JsonDifference(f"MULTIPLE_OF_{word}", ("multipleOf",))]


def _is_multiple(number: Any, of: Any) -> bool:
    """False as well where the two are so far apart that a decimal does not hold the quotient."""
    try:
        return Decimal(number) % Decimal(of) == 0
    except DecimalException:
        return False


def compare_enums(original: Node, update: Node) -> list[JsonDifference]:
    """More values fit, or fewer."""
    before, after = ({write_json(value, sort=True) for value in node.keywords["enum"]} for node in (original, update))
    if before == after:
        return []
    word = "EXTENDED" if before < after else "NARROWED" if before > after else "CHANGED"
    return [JsonDifference(f"ENUM_ARRAY_{word}", ("enum",))]


def compare_constants(original: Node, update: Node) -> list[JsonDifference]:
    """The one value that fits."""
    same = write_json(original.keywords["const"], sort=True) == write_json(update.keywords["const"], sort=True)
    return [] if same else [JsonDifference("ENUM_ARRAY_CHANGED", ("const",))]
