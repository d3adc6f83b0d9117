"""Avro fields for the columns of a file without a schema, and its values in their form.

The first value of a field decides its kind; whole numbers give way to numbers with a fraction, nothing else gives way. A value that does
not fit is the fault of its line. A whole number beyond 2^53 does not survive as a float, so it and fractions do not share a column. Names
that Avro or the table cannot have are changed: ``Trip ID`` is ``Trip_ID``, and ``line`` is ``line_``.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from moldau.demo.inputs import LINE_FIELD, InputError

_EXACT_MAX = 1 << 53
_INT64_MAX = (1 << 63) - 1
_RESERVED = frozenset({LINE_FIELD, "header", "event_day", "event_hour", "_partition", "_offset", "_timestamp"})
_AVRO = {"null": "string", "bool": "boolean", "int": "long", "wide": "long", "float": "double", "string": "string"}
"""A field that is never anything but null is text."""

Shape = str | dict[str, Any] | tuple[Any]
"""`null`, `bool`, `int`, `wide` (beyond 2^53), `float`, `string`; a dict for an object; a tuple of one shape for an array."""


class ShapeError(ValueError):
    """A value that has no column, or not the one its field has."""


def shape_of(value: Any) -> Shape:
    """Shape of a JSON value. ShapeError for a number that no column holds."""
    match value:
        case None:
            return "null"
        case bool():
            return "bool"
        case int():
            if not -_INT64_MAX - 1 <= value <= _INT64_MAX:
                raise ShapeError(f"{value} has more than 64 bits")
            return "int" if abs(value) <= _EXACT_MAX else "wide"
        case float():
            return "float"
        case str():
            return "string"
        case list():
            inner: Shape = "null"
            for item in value:
                inner = merge(inner, shape_of(item), "an array")
            return (inner,)
        case dict() if not value:
            raise ShapeError("an object without fields in an array has no column")
        case _:
            return {name: shape_of(item) for name, item in value.items()}


def merge(known: Shape, new: Shape, name: str) -> Shape:
    """A shape that holds both. ShapeError names the field."""
    if known == new or new == "null":
        return known
    if known == "null":
        return new
    if isinstance(known, dict) and isinstance(new, dict):
        return merge_fields(known, new, f"{name}.")
    if isinstance(known, tuple) and isinstance(new, tuple):
        return (merge(known[0], new[0], name),)
    if isinstance(known, str) and isinstance(new, str) and {known, new} in ({"int", "float"}, {"int", "wide"}):
        return known if new == "int" else new
    raise ShapeError(f"field {name} is {_in_words(new)} here, and {_in_words(known)} before")


def merge_fields(known: Mapping[str, Shape], new: Mapping[str, Shape], prefix: str = "") -> dict[str, Any]:
    """Shapes of an object's fields."""
    merged = dict(known)
    for name, shape in new.items():
        merged[name] = merge(merged.get(name, "null"), shape, prefix + name)
    return merged


def _in_words(shape: Shape) -> str:
    if isinstance(shape, dict):
        return "an object"
    if isinstance(shape, tuple):
        return "an array"
    return {
        "null": "nothing",
        "bool": "true or false",
        "int": "a whole number",
        "wide": "a whole number beyond 2^53",
        "float": "a fraction",
        "string": "text",
    }[shape]


def event_record(fields: Mapping[str, Shape], file: str) -> dict[str, Any]:
    """The schema of events with these fields, in the order of their names, after the line. InputError: two names become one."""
    line = {"name": LINE_FIELD, "type": "long", "doc": "number of the line in the file"}
    return {"type": "record", "name": "Event", "namespace": "moldau.demo", "fields": [line, *_fields(fields, "Event", file)]}


def _fields(shapes: Mapping[str, Shape], path: str, file: str) -> list[dict[str, Any]]:
    made = []
    for name, shape in sorted(shapes.items()):
        new = field_name(name)
        field = {"name": new, "type": ["null", _type(shape, f"{path}_{new}", file)], "default": None}
        made.append(field if new == name else {**field, "doc": f"{name} in the file"})
    _check_different(shapes, file)
    return made


def _type(shape: Shape, path: str, file: str) -> Any:
    if isinstance(shape, dict):
        return {"type": "record", "name": path, "fields": _fields(shape, path, file)}
    if isinstance(shape, tuple):
        return {"type": "array", "items": ["null", _type(shape[0], f"{path}_item", file)]}
    return _AVRO[shape]


def _check_different(names: Iterable[str], file: str) -> None:
    """Spark does not distinguish capitals from small letters."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(field_name(name).lower(), name)
        if other != name:
            raise InputError(f"{file}: fields {other!r} and {name!r} would have one name in a table")


def field_name(name: str) -> str:
    """A name as Avro and the table can have it."""
    plain = re.sub("[^A-Za-z0-9_]", "_", name) or "_"
    if plain[0].isdigit():
        plain = f"_{plain}"
    return f"{plain}_" if plain.lower() in _RESERVED else plain


def renamed(value: Any) -> Any:
    """A value with the names that its fields have in the schema."""
    if isinstance(value, dict):
        return {field_name(name): renamed(item) for name, item in value.items()}
    if isinstance(value, list):
        return [renamed(item) for item in value]
    return value
