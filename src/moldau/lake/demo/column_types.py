"""The types of columns, learned from events: what every value of a field can be without a change.

The first value decides the kind; whole numbers give way to numbers with a fraction, nothing else gives way. A value that does not
fit is the fault of its line. A whole number beyond 2^53 does not survive as a float, so it and fractions do not share a column.
"""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

_EXACT_MAX = 1 << 53
_INT64_MAX = (1 << 63) - 1

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
    raise ShapeError(f"field {name} is {_said(new)} here, and {_said(known)} before")


def merge_fields(known: Mapping[str, Shape], new: Mapping[str, Shape], prefix: str = "") -> dict[str, Any]:
    """Shapes of an object's fields."""
    merged = dict(known)
    for name, shape in new.items():
        merged[name] = merge(merged.get(name, "null"), shape, prefix + name)
    return merged


def _said(shape: Shape) -> str:
    if isinstance(shape, dict):
        return "an object"
    if isinstance(shape, tuple):
        return "an array"
    return {
        "bool": "true or false",
        "int": "a whole number",
        "wide": "a whole number beyond 2^53",
        "float": "a fraction",
        "string": "text",
    }[shape]


def arrow_schema(fields: Mapping[str, Shape]) -> Any:
    """Columns for the fields. One that is never anything but null is kept as text."""
    return pa.schema([(name, _arrow(shape)) for name, shape in sorted(fields.items())])


def _arrow(shape: Shape) -> Any:
    if isinstance(shape, dict):
        return pa.struct([(name, _arrow(inner)) for name, inner in sorted(shape.items())])
    if isinstance(shape, tuple):
        return pa.list_(_arrow(shape[0]))
    scalars = {"null": pa.string(), "bool": pa.bool_(), "int": pa.int64(), "wide": pa.int64(), "float": pa.float64(), "string": pa.string()}
    return scalars[shape]
