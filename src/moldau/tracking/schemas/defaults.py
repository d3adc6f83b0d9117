"""Defaults of the fields of dataclasses and pydantic models, as a schema's JSON has them.

By Avro's rules a default of a union is one of its first branch, so a schema's unions are ordered by the defaults: see `python_types`.
"""

import dataclasses
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from moldau.tracking.errors import EventError, SchemaError
from moldau.tracking.schemas.checking import complete
from moldau.tracking.schemas.plain import described_fields

NOTHING: Final = object()
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def default_of(python_type: type, name: str) -> Any:
    """The default of a field; `NOTHING` if it has none."""
    described = described_fields(python_type).get(name)
    if described is None:
        field = next(each for each in dataclasses.fields(python_type) if each.name == name)
        if field.default is not dataclasses.MISSING:
            return field.default
        return NOTHING if field.default_factory is dataclasses.MISSING else _made(field.default_factory)
    if described.is_required():
        return NOTHING
    return described.default if described.default_factory is None else _made(described.default_factory)


def _made(factory: Any) -> Any:
    """What a factory makes, if that is a default for everybody: an empty list or dict. A new id or the time of day is none."""
    return factory() if factory in (list, dict, set, tuple, frozenset) else NOTHING


def takes(type_: Any, value: Any, named: Mapping[str, Any]) -> bool:
    """Whether a plain value is of this Avro type, which may call the `named` ones by their names."""
    try:
        complete(type_, value, named, "")
    except EventError:
        return False
    return True


def json_default(value: Any, type_: Any, named: Mapping[str, Any], path: str) -> Any:
    """A plain default as a schema's JSON has it; `type_` is its Avro type, which may call the `named` ones by their names."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return value.decode("latin-1")
        case UUID():
            return str(value)
        case datetime() if value.tzinfo is not None:
            return (value - _EPOCH) // timedelta(microseconds=1)
        case date() if not isinstance(value, datetime):
            return (value - _EPOCH.date()).days
        case time() if value.tzinfo is None:
            return (datetime.combine(_EPOCH, value, UTC) - _EPOCH) // timedelta(microseconds=1)
        case Decimal() if (size := _branch(type_, "bytes", named)) is not None and "scale" in size:
            return _decimal_text(value, int(size["scale"]), path)
        case list():
            inside = (_branch(type_, "array", named) or {}).get("items")
            return [json_default(each, inside, named, path) for each in value]
        case dict():
            fields = {each["name"]: each["type"] for each in (_branch(type_, "record", named) or {}).get("fields", ())}
            other = (_branch(type_, "map", named) or {}).get("values")
            return {key: json_default(each, fields.get(key, other), named, path) for key, each in value.items()}
        case _:
            raise SchemaError(f"{path}: a default of type {type(value).__name__} cannot stand in a schema")


def _branch(type_: Any, kind: str, named: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The type itself, or the branch of a union, that is an object of this kind."""
    branches = [named.get(each, each) if isinstance(each, str) else each for each in (type_ if isinstance(type_, list) else [type_])]
    return next((each for each in branches if isinstance(each, Mapping) and each["type"] == kind), None)


def _decimal_text(value: Decimal, scale: int, path: str) -> str:
    """A decimal's default: the bytes of its digits without the point, each byte a character."""
    if not value.is_finite():
        raise SchemaError(f"{path}: the default {value} is no number")
    numerator, denominator = value.as_integer_ratio()
    digits, left = divmod(numerator * int(10**scale), denominator)
    if left:
        raise SchemaError(f"{path}: the default {value} has more than {scale} digits behind the point")
    return digits.to_bytes(max(digits, ~digits).bit_length() // 8 + 1, "big", signed=True).decode("latin-1")
