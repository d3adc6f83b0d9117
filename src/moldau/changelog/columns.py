"""Values of columns as JSON and back, exactly (docs/formats/changelog.md).

What JSON holds is written as it is. Every other value is an object with one member, whose name is the type: ``{"decimal": "12.50"}``.
"""

import json
import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any, Final

from moldau.changelog.values import Key, Row, Value

INTEGER_MAX: Final = 2**53
"""A reader that has only floats reads integers up to this one exactly; larger ones are written as text."""


def to_json(value: Value) -> Any:
    """What is written of a value. TypeError for one of another type."""
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if -INTEGER_MAX <= value <= INTEGER_MAX else {"integer": str(value)}
        case float():
            return value if math.isfinite(value) else {"real": str(value)}
        case bytes():
            return {"bytes": b64encode(value).decode()}
        case Decimal():
            return {"decimal": str(value)}
        case datetime():
            return {"timestamp": value.isoformat()} if value.utcoffset() is None else {"timestamptz": _in_utc(value).isoformat()}
        case date():
            return {"date": value.isoformat()}
        case time():
            return {"time": value.isoformat()}
        case _:
            raise TypeError(f"a value of type {type(value).__name__} cannot be written")


def _in_utc(value: datetime) -> datetime:
    """One moment has one text, so that keys are equal; but at the ends of the calendar UTC may have no date for it."""
    try:
        return value.astimezone(UTC)
    except OverflowError:
        return value


def from_json(found: Any) -> Value:
    """The value that was written. ValueError."""
    if type(found) is not dict:
        if isinstance(found, list):
            raise ValueError("an array is no value of a column")
        return found  # type: ignore[no-any-return]
    if len(found) == 1:
        ((kind, text),) = found.items()
        if kind in _PARSERS and isinstance(text, str):
            try:
                return _PARSERS[kind](text)
            except (ValueError, InvalidOperation) as error:
                raise ValueError(f"{text[:100]!r} is not of type {kind}") from error
    raise ValueError(
        f"an object is a value of a column only as {{TYPE: TEXT}} with a type of {', '.join(_PARSERS)}; not {str(found)[:100]}"
    )


def row_text(row: Row) -> str:
    """The JSON of a row. TypeError names the column."""
    return _filled(row_format(tuple(row)), row, row.values())


def key_text(columns: Sequence[str], key: Key, form: str | None = None) -> str:
    """The JSON of the columns of a primary key, in its order. TypeError names the column; ValueError for another number of values.

    `form`: the `row_format` of the columns, if it is known.
    """
    if len(columns) != len(key):
        raise ValueError(f"a key of {len(key)} values, and the primary key is {', '.join(columns)}")
    return _filled(row_format(tuple(columns)) if form is None else form, columns, key)


@lru_cache(maxsize=1024)
def row_format(columns: tuple[str, ...]) -> str:
    """The JSON of a row with these columns, with a ``%s`` in the place of each value."""
    return "{" + ",".join([f"{_text(name)}:".replace("%", "%%") + "%s" for name in columns]) + "}"


def _filled(form: str, columns: Iterable[str], values: Collection[Value]) -> str:
    try:
        return form % tuple([_TEXTS[type(value)](value) for value in values])
    except KeyError:
        return form % tuple([_named(value_text, name, value) for name, value in zip(columns, values, strict=True)])


def value_text(value: Value) -> str:
    """The JSON of a value. TypeError."""
    return _TEXTS.get(type(value), _object_text)(value)


def _object_text(value: Value) -> str:
    return _text(to_json(value))


def row_from_json(found: Mapping[str, Any]) -> Row:
    """ValueError names the column."""
    return {name: value if type(value) not in (dict, list) else _named(from_json, name, value) for name, value in found.items()}


def _named(convert: Callable[[Any], Any], name: str, value: Any) -> Any:
    try:
        return convert(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"column {name}: {error}") from error


def _bytes_in(text: str) -> bytes:
    return b64decode(text, validate=True)


def _plain_datetime_in(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.tzinfo is not None:
        raise ValueError("it has a zone")
    return found


def _zoned_datetime_in(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError("it has no zone")
    return found


_PARSERS: Final[Mapping[str, Callable[[str], Value]]] = {
    "integer": int,
    "real": float,
    "bytes": _bytes_in,
    "decimal": Decimal,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timestamp": _plain_datetime_in,
    "timestamptz": _zoned_datetime_in,
}


def _integer_text(value: int) -> str:
    return str(value) if -INTEGER_MAX <= value <= INTEGER_MAX else f'{{"integer":"{value}"}}'


def _float_text(value: float) -> str:
    return repr(value) if math.isfinite(value) else f'{{"real":"{value}"}}'


_text = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
_TEXTS: Final[Mapping[type, Callable[[Any], str]]] = {
    str: encode_basestring,
    int: _integer_text,
    float: _float_text,
    bool: lambda value: "true" if value else "false",
    type(None): lambda _: "null",
    bytes: _object_text,
    Decimal: lambda value: f'{{"decimal":"{value}"}}',
    date: _object_text,
    time: _object_text,
    datetime: _object_text,
}
"""The same texts as those of `to_json`, which also takes classes that are derived from these."""
