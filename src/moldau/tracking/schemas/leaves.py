"""Whether a value without parts is what its Avro type says: numbers, text, bytes, dates and times."""

from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from moldau.tracking.errors import EventError
from moldau.tracking.header import TIME_MAX_MS, TIME_MIN_MS

RANGES: Final = {"int": (-(1 << 31), (1 << 31) - 1), "long": (-(1 << 63), (1 << 63) - 1)}
LOGICAL_RANGES: Final = {
    "date": (-719_162, 2_932_896),
    "time-millis": (0, 86_399_999),
    "time-micros": (0, 86_399_999_999),
    "timestamp-millis": (TIME_MIN_MS, TIME_MAX_MS),
    "timestamp-micros": (TIME_MIN_MS * 1000, TIME_MAX_MS * 1000 + 999),
    "local-timestamp-millis": (TIME_MIN_MS, TIME_MAX_MS),
    "local-timestamp-micros": (TIME_MIN_MS * 1000, TIME_MAX_MS * 1000 + 999),
}
"""Numbers that may stand for dates and times: those that a reader can make one of, in the years 1 to 9999."""
FLOAT_MAX: Final = 3.4028234663852886e38
_AWARE: Final = ("timestamp-millis", "timestamp-micros", "timestamp-nanos")
_NAIVE: Final = ("local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos")
_TIMES: Final = ("time-millis", "time-micros")


def check_whole(kind: str, logical: str | None, value: Any, path: str) -> None:
    """An int or a long, and the dates and times that are written as such. EventError."""
    if isinstance(value, int) and not isinstance(value, bool):
        least, most = RANGES[kind]
        if not least <= value <= most:
            raise EventError(path, f"{value} does not fit into {8 * (4 if kind == 'int' else 8)} bits")
        least, most = LOGICAL_RANGES.get(logical or "", (value, value))
        if not least <= value <= most:
            raise EventError(path, f"{value} is no {logical} that can be read")
    elif logical == "date":
        if not isinstance(value, date) or isinstance(value, datetime):
            raise wrong(path, "a date", value)
    elif logical in _TIMES:
        if not isinstance(value, time):
            raise wrong(path, "a time of day", value)
    elif logical in _AWARE:
        if not isinstance(value, datetime) or value.tzinfo is None:
            raise wrong(path, "a datetime with a time zone", value)
    elif logical in _NAIVE:
        if not isinstance(value, datetime) or value.tzinfo is not None:
            raise wrong(path, "a datetime without a time zone", value)
    else:
        raise wrong(path, "a whole number", value)


def check_decimal(schema: Mapping[str, Any], value: Any, path: str) -> None:
    """A decimal, in bytes or fixed: exactly, without rounding. EventError."""
    if not isinstance(value, Decimal) or not value.is_finite():
        raise wrong(path, "a Decimal", value)
    scale, precision = schema.get("scale", 0), schema["precision"]
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    if -exponent > scale or (len(digits) + exponent + scale > precision and any(digits)):
        raise EventError(path, f"{value} has more than {precision} digits, or more than {scale} behind the point")
    if schema["type"] == "fixed" and len(digits) + exponent + scale > 2.4 * schema["size"]:
        raise EventError(path, f"{value} does not fit into {schema['size']} bytes")


def check_primitive(kind: str, logical: str | None, value: Any, path: str) -> None:
    """Any other type that has no parts. EventError."""
    match kind:
        case "null":
            if value is not None:
                raise wrong(path, "nothing (None)", value)
        case "boolean":
            if not isinstance(value, bool):
                raise wrong(path, "True or False", value)
        case "float" | "double":
            if not isinstance(value, int | float) or isinstance(value, bool):
                raise wrong(path, "a number", value)
            if (isinstance(value, int) and abs(value) > 1 << 1000) or (kind == "float" and FLOAT_MAX < abs(value) < float("inf")):
                raise EventError(path, f"{value} does not fit into a {kind}")
        case "bytes":
            if not isinstance(value, bytes | bytearray):
                raise wrong(path, "bytes", value)
        case "string" if logical == "uuid" and isinstance(value, UUID):
            pass
        case "string":
            if not isinstance(value, str):
                raise wrong(path, "text", value)
            _check_text(logical, value, path)
        case _:
            raise EventError(path, f"the schema has a type {kind!r} that is not known")


def _check_text(logical: str | None, value: str, path: str) -> None:
    try:
        value.encode()
        if logical == "uuid":
            UUID(value)
    except UnicodeEncodeError:
        raise EventError(path, "text with half a surrogate pair cannot be written as UTF-8") from None
    except ValueError:
        raise wrong(path, "a UUID", value) from None


def wrong(path: str, wanted: str, value: Any) -> EventError:
    """The error for a value of another kind."""
    shown = repr(value)
    return EventError(path, f"needs {wanted}, not {shown if len(shown) <= 60 else shown[:57] + '...'} ({type(value).__name__})")
