"""One reader's schema for all versions of a subject, so that nothing that any version could say is lost on the way into the table.

The latest version alone would drop a field that it has removed from events that were sent before. So the versions are put together from the
oldest on: fields of the latest as it has them; fields that only earlier ones have, optional and null by default; of two widths of a
number the wider; of an enum all symbols. Avro's rules of resolution then read every version into that.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from moldau.lake.avro.schemas import AvroSchemaError, AvroText

_WIDTHS = (("int", "long"), ("float", "double"), ("int", "double"))
_NAMED = ("record", "error", "enum", "fixed")


def expanded(schema: AvroText) -> Any:
    """The schema as JSON with every named type written out where it is used, by its full name. AvroSchemaError."""
    import fastavro
    from fastavro.schema import SchemaParseException, UnknownType

    named: dict[str, Any] = {}
    try:
        for text in schema.references:
            fastavro.parse_schema(json.loads(text), named)
        found = fastavro.parse_schema(json.loads(schema.text), named, expand=True)
    except (ValueError, KeyError, TypeError, SchemaParseException, UnknownType, RecursionError) as error:
        raise AvroSchemaError(f"not an Avro schema: {type(error).__name__}: {error}") from error
    return _clean(found)


def merged(older: Any, newer: Any) -> Any:
    """One schema for what both describe (expanded, as is the result)."""
    if isinstance(newer, list) or isinstance(older, list):
        return _merged_union(older, newer)
    if _kind(older) != _kind(newer):
        return older if (_kind(newer), _kind(older)) in _WIDTHS and isinstance(older, str) else newer
    match _kind(newer):
        case "record":
            return {**newer, "fields": _merged_fields(older["fields"], newer["fields"])}
        case "enum":
            return {**newer, "symbols": [*newer["symbols"], *(each for each in older["symbols"] if each not in newer["symbols"])]}
        case "array":
            return {**newer, "items": merged(older["items"], newer["items"])}
        case "map":
            return {**newer, "values": merged(older["values"], newer["values"])}
    return newer


def reader_text(schema: Any) -> AvroText:
    """The schema as text, each named type written out once."""
    return AvroText(json.dumps(_named_once(schema, set())))


def _clean(schema: Any) -> Any:
    """Without fastavro's own notes."""
    if isinstance(schema, list):
        return [_clean(each) for each in schema]
    if isinstance(schema, dict):
        return {name: _clean(value) for name, value in schema.items() if not name.startswith("__")}
    return schema


def _kind(schema: Any) -> str:
    return schema if isinstance(schema, str) else str(schema["type"])


def _merged_fields(older: Sequence[Mapping[str, Any]], newer: Sequence[Mapping[str, Any]]) -> list[Any]:
    there = {each["name"]: each for each in older}
    fields = [{**each, "type": merged(there[each["name"]]["type"], each["type"])} if each["name"] in there else each for each in newer]
    taken = {each["name"] for each in newer} | {alias for each in newer for alias in each.get("aliases", ())}
    return fields + [
        {"name": each["name"], "type": _optional(each["type"]), "default": None} for each in older if each["name"] not in taken
    ]


def _optional(schema: Any) -> list[Any]:
    branches = schema if isinstance(schema, list) else [schema]
    return ["null", *(each for each in branches if each != "null")]


def _merged_union(older: Any, newer: Any) -> Any:
    """What may be null in one of them may be null; the rest is merged if each has one kind of value."""
    olds, news = ([each for each in (side if isinstance(side, list) else [side]) if each != "null"] for side in (older, newer))
    if len(olds) != 1 or len(news) != 1:
        return newer
    both = merged(olds[0], news[0])
    if not isinstance(newer, list):
        return [both, "null"]  # the default, if it has one, is of the first type
    return [each if each == "null" else both for each in newer]


def _named_once(schema: Any, seen: set[str]) -> Any:
    if isinstance(schema, list):
        return [_named_once(each, seen) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") in _NAMED:
        if schema["name"] in seen:
            return schema["name"]
        seen.add(schema["name"])
    result = dict(schema)
    for name in ("items", "values", "type"):
        if name in result:
            result[name] = _named_once(result[name], seen)
    if "fields" in result:
        result["fields"] = [{**each, "type": _named_once(each["type"], seen)} for each in result["fields"]]
    return result
