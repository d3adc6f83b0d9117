"""JSON as it stands in the records of ``_schemas``: written without spaces, and read with a word on what is wrong with it."""

import json
from collections.abc import Mapping
from typing import Any

NUMBER_MAX = 2**31 - 1
"""The highest id and version: messages carry ids as int32."""


class RecordError(ValueError):
    """A record that cannot be understood; the message says what is wrong with it."""


def to_json(fields: Mapping[str, Any]) -> bytes:
    """An object as it is stored."""
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def object_in(data: bytes | None, what: str) -> dict[str, Any]:
    """The object that a key or a value, `what`, is. RecordError."""
    if data is None:
        raise RecordError(f"it has no {what}")
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"its {what} is not JSON: {data[:40]!r}") from error
    if not isinstance(fields, dict):
        raise RecordError(f"its {what} is not a JSON object")
    return fields


def optional_object(fields: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """A field that is an object or not there. RecordError."""
    found = fields.get(name)
    if found is not None and not isinstance(found, dict):
        raise RecordError(f"its {name} is not an object")
    return found


def text_in(fields: Mapping[str, Any], name: str) -> str:
    """A field that is text. RecordError."""
    found = fields.get(name)
    if not isinstance(found, str):
        raise RecordError(f"its {name} is {found!r}, a text is needed")
    return found


def number_in(fields: Mapping[str, Any], name: str, *, least: int) -> int:
    """A field that is a whole number of 32 bits, not smaller than `least`. RecordError."""
    found = fields.get(name)
    if not isinstance(found, int) or isinstance(found, bool) or not least <= found <= NUMBER_MAX:
        raise RecordError(f"its {name} is {found!r}, a number from {least} to {NUMBER_MAX} is needed")
    return found
