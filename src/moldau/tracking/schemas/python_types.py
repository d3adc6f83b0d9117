"""Avro schemas out of dataclasses and pydantic models.

==================================  =====================================================================
``bool``, ``int``, ``float``        boolean, long (64 bits), double
``str``, ``bytes``, ``UUID``        string, bytes, string (uuid)
``datetime``, ``date``, ``time``    long (timestamp-micros, with a zone), int (date), long (time-micros)
``Decimal``                         bytes (decimal of 38 digits, 9 behind the point), or as ``Annotated[Decimal, DecimalSize(10, 2)]`` says
an ``Enum``                         an enum of its members' names
``X | None``, ``X | Y``             a union; null comes first where the default is None
``list``, ``tuple[X, ...]``, sets   array
``dict[str, X]``                    map
a dataclass, a model                a record by its name
==================================  =====================================================================

A field with a default has it in the schema too. SchemaError names the field of any other type.
"""

import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final, NamedTuple
from uuid import UUID

from moldau.tracking.errors import SchemaError
from moldau.tracking.schemas.plain import described_fields, field_names, plain, pydantic_config
from moldau.tracking.schemas.python_values import input_names


class DecimalSize(NamedTuple):
    """How many digits a Decimal has, and how many of them behind the point: ``Annotated[Decimal, DecimalSize(10, 2)]``."""

    precision: int
    scale: int


DECIMAL_DEFAULT: Final = DecimalSize(38, 9)

_SIMPLE: Final[Mapping[type, Any]] = {
    bool: "boolean",
    int: "long",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null",
    UUID: {"type": "string", "logicalType": "uuid"},
    datetime: {"type": "long", "logicalType": "timestamp-micros"},
    date: {"type": "int", "logicalType": "date"},
    time: {"type": "long", "logicalType": "time-micros"},
}
_LISTS: Final = (list, tuple, set, frozenset, Sequence, AbstractSet)
_MAPS: Final = (dict, Mapping)
_NOTHING: Final = object()
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def record_of(python_type: type) -> dict[str, Any]:
    """The Avro record of a dataclass or a pydantic model, without the header. SchemaError names type or field."""
    if field_names(python_type) is None:
        raise SchemaError(f"{python_type.__name__} is neither a dataclass nor a pydantic model")
    made: dict[str, Any] = _Types().record(python_type, python_type.__name__)
    return made


class _Types:
    """The types of one schema; each named one is defined once and called by its name afterwards."""

    def __init__(self) -> None:
        self._defined: dict[str, type] = {}
        self._records: dict[str, Any] = {}

    def record(self, python_type: type, path: str) -> Any:
        name = python_type.__name__
        if self._defined.setdefault(name, python_type) is not python_type:
            raise SchemaError(f"{path}: two types have the name {name}")
        try:
            hints = typing.get_type_hints(python_type, include_extras=True) | _pydantic_hints(python_type)
        except NameError as error:
            raise SchemaError(f"{path}: {error}") from None
        input_names(python_type, path)
        _check_enums(python_type, hints, path)
        fields = [self._field(each, hints[each], _default(python_type, each), f"{path}.{each}") for each in field_names(python_type) or ()]
        made: dict[str, Any] = {"type": "record", "name": name, "fields": fields}
        own_text = (python_type.__doc__ or "").strip()
        if own_text and not own_text.startswith(f"{name}("):
            made["doc"] = own_text.splitlines()[0]
        self._records[name] = made
        return made

    def _field(self, name: str, hint: Any, default: Any, path: str) -> dict[str, Any]:
        type_ = self._type(hint, path)
        if isinstance(type_, list) and default is None:
            type_ = ["null", *(each for each in type_ if each != "null")]
        made: dict[str, Any] = {"name": name, "type": type_}
        if default is not _NOTHING:
            made["default"] = _json_default(default, type_, self._records, path)
        return made

    def _type(self, hint: Any, path: str) -> Any:
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin is typing.Annotated:
            return self._annotated(arguments[0], arguments[1:], path)
        if origin in (typing.Union, types.UnionType):
            return self._union(arguments, path)
        if origin is typing.Literal and all(isinstance(each, str) for each in arguments):
            return "string"
        if origin in _LISTS and arguments and (origin is not tuple or arguments[1:] == (Ellipsis,)):
            return {"type": "array", "items": self._type(arguments[0], f"{path}[]")}
        if origin in _MAPS and len(arguments) == 2 and arguments[0] is str:
            return {"type": "map", "values": self._type(arguments[1], f"{path}[]")}
        if hint in _SIMPLE:
            return _SIMPLE[hint]
        if hint is Decimal:
            return _decimal(DECIMAL_DEFAULT)
        if isinstance(hint, type) and issubclass(hint, Enum):
            return self._enum(hint, path)
        if isinstance(hint, type) and field_names(hint) is not None:
            return hint.__name__ if self._defined.get(hint.__name__) is hint else self.record(hint, path)
        raise SchemaError(f"{path}: no Avro type for {hint!r}; dicts have text as keys, and lists say of what")

    def _annotated(self, hint: Any, notes: tuple[Any, ...], path: str) -> Any:
        if hint is Decimal:
            for note in notes:
                if isinstance(note, DecimalSize):
                    return _decimal(note)
                if getattr(note, "max_digits", None) is not None:  # pydantic's Field(max_digits=..., decimal_places=...)
                    return _decimal(DecimalSize(note.max_digits, note.decimal_places or 0))
        return self._type(hint, path)

    def _union(self, hints: tuple[Any, ...], path: str) -> list[Any]:
        branches = [self._type(each, path) for each in hints]
        kinds = [each if isinstance(each, str) else each.get("name", each["type"]) for each in branches]
        if len(set(kinds)) != len(kinds):
            raise SchemaError(f"{path}: a union has each Avro type once: {', '.join(kinds)}")
        return branches

    def _enum(self, python_type: type[Enum], path: str) -> Any:
        name = python_type.__name__
        if name in self._defined:
            if self._defined[name] is not python_type:
                raise SchemaError(f"{path}: two types have the name {name}")
            return name
        self._defined[name] = python_type
        return {"type": "enum", "name": name, "symbols": [member.name for member in python_type]}


def _pydantic_hints(python_type: type) -> dict[str, Any]:
    """What a pydantic model says of decimals in its fields' metadata rather than in their types."""
    described = described_fields(python_type).items()
    return {name: typing.Annotated[Decimal, *each.metadata] for name, each in described if each.annotation is Decimal and each.metadata}


def _check_enums(python_type: type, hints: Mapping[str, Any], path: str) -> None:
    """SchemaError where a model keeps values of enums instead of members, and these are not the names, which are what is written."""
    if pydantic_config(python_type).get("use_enum_values"):
        for name in field_names(python_type) or ():
            for found in _enums_in(hints[name]):
                if any(member.value != member.name for member in found):
                    raise SchemaError(f"{path}.{name}: use_enum_values leaves values of {found.__name__} that are not its members' names")


def _enums_in(hint: Any) -> Iterator[type[Enum]]:
    if isinstance(hint, type) and issubclass(hint, Enum):
        yield hint
    for each in typing.get_args(hint):
        yield from _enums_in(each)


def _decimal(size: DecimalSize) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": size.precision, "scale": size.scale}


def _default(python_type: type, name: str) -> Any:
    """The default of a field; `_NOTHING` if it has none."""
    described = described_fields(python_type).get(name)
    if described is None:
        field = next(each for each in dataclasses.fields(python_type) if each.name == name)
        if field.default is not dataclasses.MISSING:
            return field.default
        return _NOTHING if field.default_factory is dataclasses.MISSING else _made(field.default_factory)
    if described.is_required():
        return _NOTHING
    return described.default if described.default_factory is None else _made(described.default_factory)


def _made(factory: Any) -> Any:
    """What a factory makes, if that is a default for everybody: an empty list or dict. A new id or the time of day is none."""
    return factory() if factory in (list, dict, set, tuple, frozenset) else _NOTHING


def _json_default(value: Any, type_: Any, records: Mapping[str, Any], path: str) -> Any:
    """A default as a schema's JSON has it; `type_` is its Avro type, which may call `records` by their names."""
    value = plain(value)
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
        case Decimal() if (size := _branch(type_, "bytes", records)) is not None and "scale" in size:
            return _decimal_text(value, int(size["scale"]), path)
        case list():
            inside = (_branch(type_, "array", records) or {}).get("items")
            return [_json_default(each, inside, records, path) for each in value]
        case dict():
            fields = {each["name"]: each["type"] for each in (_branch(type_, "record", records) or {}).get("fields", ())}
            other = (_branch(type_, "map", records) or {}).get("values")
            return {key: _json_default(each, fields.get(key, other), records, path) for key, each in value.items()}
        case _:
            raise SchemaError(f"{path}: a default of type {type(value).__name__} cannot stand in a schema")


def _branch(type_: Any, kind: str, records: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The type itself, or the branch of a union, that is an object of this kind."""
    branches = [records.get(each, each) if isinstance(each, str) else each for each in (type_ if isinstance(type_, list) else [type_])]
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
