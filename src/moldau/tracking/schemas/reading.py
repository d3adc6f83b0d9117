"""A reader's schema for fastavro, with the defaults that events get: fastavro hands out a default as JSON has it.

So a reader would find the text ``"\\x0f"`` where the decimal 1.5 is meant, and a number for a time. Here each default is written and read
once, as an event's own value would be.
"""

import io
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from fastavro import schemaless_reader, schemaless_writer

from moldau.tracking.schemas.checking import Names, defaults_of


def reading_schema(parsed: Mapping[str, Any], names: Names) -> dict[str, Any]:
    """A copy of a record, as fastavro parsed it, whose defaults are values; `names` are its named types."""
    made: dict[str, Any] = deepcopy(dict(parsed))
    for record in _records(made):
        values = defaults_of(record, names, record["name"])
        for field in record["fields"]:
            if "default" in field:
                field["default"] = _read_back(parsed, field, values[field["name"]])
    return made


def shares_defaults(reading: Mapping[str, Any]) -> bool:
    """Whether events read by this schema may have a list or a dict in common: fastavro hands out the default itself."""
    return any(isinstance(field.get("default"), list | dict) for record in _records(dict(reading)) for field in record["fields"])


def unshared(value: Any) -> Any:
    """A decoded value with lists and dicts of its own."""
    if isinstance(value, dict):
        return {key: unshared(each) for key, each in value.items()}
    return [unshared(each) for each in value] if isinstance(value, list) else value


def _read_back(parsed: Mapping[str, Any], field: Mapping[str, Any], value: Any) -> Any:
    """The value after a trip through Avro, in a record of this field alone, which knows the named types of the whole."""
    alone = {**parsed, "fields": [{"name": field["name"], "type": field["type"]}]}
    written = io.BytesIO()
    schemaless_writer(written, alone, {field["name"]: value})
    written.seek(0)
    found: Any = schemaless_reader(written, alone, None)
    return found[field["name"]]


def _records(schema: Any) -> Iterator[dict[str, Any]]:
    """The records that are defined in a schema, itself among them; fastavro's table of their names has the same ones."""
    if isinstance(schema, list):
        for each in schema:
            yield from _records(each)
    elif isinstance(schema, dict):
        if isinstance(schema.get("fields"), list):
            yield schema
        for part in ("type", "items", "values", "fields"):
            yield from _records(schema.get(part))
