"""Whether a value fits an Avro schema, and if not, which field is at fault. This is what "valid" means.

`encoders` are its fast form. Nothing is guessed: a number is not text, ``True`` is not 1, a time needs its zone, a name that the schema
does not know is a mistake. What has a default may be left out. Schemas are as fastavro parses them: names in full.
"""

import json
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from moldau.tracking.errors import EventError, SchemaError
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
"""Numbers that are dates and times: those that a reader can make one of, in the years 1 to 9999."""
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
        raise EventError(path, f"{value} has more than {precision} digits, or more than {scale} after the point")
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


Names = Mapping[str, Any]
"""Named types of a schema by their full names."""


def complete(schema: Any, value: Any, names: Names, path: str) -> Any:
    """The value, ready to be written: with the defaults of what was left out. EventError names the field at fault."""
    if isinstance(schema, str) and schema in names:
        schema = names[schema]
    if isinstance(schema, list):
        return _union(schema, value, names, path)
    kind = schema if isinstance(schema, str) else schema["type"]
    logical = None if isinstance(schema, str) else schema.get("logicalType")
    match kind:
        case "record" | "error":
            return _record(schema, value, names, path)
        case "array":
            if not isinstance(value, list | tuple):
                raise wrong(path, "a list", value)
            return [complete(schema["items"], each, names, f"{path}[{index}]") for index, each in enumerate(value)]
        case "map":
            return _map(schema, value, names, path)
        case "enum":
            if not isinstance(value, str) or value not in schema["symbols"]:
                raise wrong(path, f"one of {', '.join(schema['symbols'])}", value)
        case "fixed" if logical == "decimal":
            check_decimal(schema, value, path)
        case "fixed":
            if not isinstance(value, bytes) or len(value) != schema["size"]:
                raise wrong(path, f"{schema['size']} bytes", value)
        case "bytes" if logical == "decimal":
            check_decimal(schema, value, path)
        case "int" | "long":
            check_whole(kind, logical, value, path)
        case _:
            check_primitive(kind, logical, value, path)
    return value


def _record(schema: Mapping[str, Any], value: Any, names: Names, path: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise wrong(path, f"a dict of {schema['name']}'s fields", value)
    made = {}
    for field in schema["fields"]:
        name = field["name"]
        where = f"{path}.{name}"
        if name in value:
            made[name] = complete(field["type"], value[name], names, where)
        elif "default" in field:
            made[name] = complete(field["type"], _default(field["type"], field["default"], names), names, where)
        else:
            raise EventError(where, "is missing, and has no default")
    for name in value:
        if name not in made:
            raise EventError(f"{path}.{name}", f"{schema['name']} has no such field")
    return made


def defaults_of(record: Mapping[str, Any], names: Names, path: str) -> dict[str, Any]:
    """The defaults of a record's fields, ready to be written. SchemaError for one that its own type does not allow."""
    try:
        return {
            field["name"]: complete(field["type"], _default(field["type"], field["default"], names), names, f"{path}.{field['name']}")
            for field in record["fields"]
            if "default" in field
        }
    except EventError as error:
        raise SchemaError(f"{error.path}: the default {error.reason}") from None


def _default(schema: Any, default: Any, names: Names) -> Any:
    """A default as a schema's JSON has it, as a value: bytes are text there, and a union's is of its first branch."""
    if isinstance(schema, str) and schema in names:
        schema = names[schema]
    if isinstance(schema, list):
        for branch in schema:
            found = _default(branch, default, names)
            if _fits(branch, found, names):
                return found
        return default
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind in ("bytes", "fixed") and isinstance(default, str):
        raw = default.encode("latin-1")
        if not isinstance(schema, str) and schema.get("logicalType") == "decimal":
            return Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-schema.get("scale", 0))
        return raw
    if kind == "array" and isinstance(default, list):
        return [_default(schema["items"], each, names) for each in default]
    if kind == "map" and isinstance(default, dict):
        return {key: _default(schema["values"], each, names) for key, each in default.items()}
    if kind in ("record", "error") and isinstance(default, dict):
        types = {field["name"]: field["type"] for field in schema["fields"]}
        return {key: _default(types[key], each, names) if key in types else each for key, each in default.items()}
    return default


def _map(schema: Mapping[str, Any], value: Any, names: Names, path: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise wrong(path, "a dict", value)
    made = {}
    for key, each in value.items():
        if not isinstance(key, str):
            raise wrong(f"{path}[{key!r}]", "text as a key", key)
        check_primitive("string", None, key, f"{path}[{key!r}]")
        made[key] = complete(schema["values"], each, names, f"{path}[{json.dumps(key)}]")
    return made


def _union(branches: list[Any], value: Any, names: Names, path: str) -> Any:
    """The first branch that fits; where there is only one beside null, its own error is raised."""
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str):
        for branch in branches:
            if name_of(branch, names) == value[0]:
                return value[0], complete(branch, value[1], names, path)
    if value is None and "null" in map(_kind, branches):
        return None
    others = [branch for branch in branches if _kind(branch) != "null"]
    if len(others) == 1:
        return complete(others[0], value, names, path)
    for branch in others:
        if _fits(branch, value, names):
            made = complete(branch, value, names, path)
            return (name_of(branch, names), made) if isinstance(made, dict) and _kind(branch) != "map" else made
    raise wrong(path, "one of " + ", ".join(name_of(branch, names) for branch in branches), value)


def _fits(schema: Any, value: Any, names: Names) -> bool:
    try:
        complete(schema, value, names, "")
    except EventError:
        return False
    return True


def _kind(schema: Any) -> str:
    return schema if isinstance(schema, str) else schema.get("type", "")


def name_of(schema: Any, names: Names) -> str:
    """What a branch of a union is called: its full name, or its type."""
    if isinstance(schema, str):
        return schema
    return str(schema["name"] if schema["type"] in ("record", "error", "enum", "fixed") else schema["type"])
