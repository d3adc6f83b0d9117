"""Avro schemas out of dataclasses and pydantic models.

==================================  =====================================================================
``bool``, ``int``, ``float``        boolean, long (64 bits), double
``str``, ``bytes``, ``UUID``        string, bytes, string (uuid)
``datetime``, ``date``, ``time``    long (timestamp-micros, with a zone), int (date), long (time-micros)
``Decimal``                         bytes (decimal of 38 digits, 9 after the point), or sized by ``Annotated[Decimal, DecimalSize(10, 2)]``
an ``Enum``                         an enum of its members' names
``X | None``, ``X | Y``             a union; the one that the default is of comes first
``list``, ``tuple[X, ...]``, sets   array
``dict[str, X]``                    map
a dataclass, a model                a record by its name
==================================  =====================================================================

A field with a default has it in the schema too. By Avro's rules that is one of a union's first branch, so ``None | int = 5`` is a union of
long and null; so it is with the first element of a list or dict that is a default. SchemaError names the field of any other type.
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

from moldau.tracking.errors import EventError, SchemaError
from moldau.tracking.schemas.python_values import described_fields, field_names, input_names, plain, pydantic_config
from moldau.tracking.schemas.validation import complete

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
    """What a factory makes, if that is a default for every event: an empty list or dict. A new id or the time of day is none."""
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
            raise SchemaError(f"{path}: a default of type {type(value).__name__} cannot be written in a schema")


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
        raise SchemaError(f"{path}: the default {value} has more than {scale} digits after the point")
    return digits.to_bytes(max(digits, ~digits).bit_length() // 8 + 1, "big", signed=True).decode("latin-1")


class DecimalSize(NamedTuple):
    """How many digits a Decimal has, and how many of them after the point: ``Annotated[Decimal, DecimalSize(10, 2)]``."""

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
_UNIONS: Final = (typing.Union, types.UnionType)


def record_of(python_type: type) -> dict[str, Any]:
    """The Avro record of a dataclass or a pydantic model, without the header. SchemaError names type or field."""
    if field_names(python_type) is None:
        raise SchemaError(f"{python_type.__name__} is neither a dataclass nor a pydantic model")
    made: dict[str, Any] = _AvroTypes().record(python_type, python_type.__name__)
    return made


class _AvroTypes:
    """The types of one schema; each named one is defined once and called by its name afterwards."""

    def __init__(self) -> None:
        self._defined: dict[str, type] = {}
        self._named: dict[str, Any] = {}

    def record(self, python_type: type, path: str) -> Any:
        name = python_type.__name__
        if self._defined.setdefault(name, python_type) is not python_type:
            raise SchemaError(f"{path}: two types have the name {name}")
        try:
            hints = typing.get_type_hints(python_type, include_extras=True)
        except NameError as error:
            raise SchemaError(f"{path}: {error}") from None
        hints |= _pydantic_hints(python_type, hints)
        input_names(python_type, path)
        _check_enums(python_type, hints, path)
        names = field_names(python_type) or ()
        fields = [self._field(each, hints[each], default_of(python_type, each), f"{path}.{each}") for each in names]
        made: dict[str, Any] = {"type": "record", "name": name, "fields": fields}
        own_text = (python_type.__doc__ or "").strip()
        if own_text and not own_text.startswith(f"{name}("):
            made["doc"] = own_text.splitlines()[0]
        self._named[name] = made
        return made

    def _field(self, name: str, hint: Any, default: Any, path: str) -> dict[str, Any]:
        if default is NOTHING:
            return {"name": name, "type": self._type(hint, path)}
        value = plain(default)
        type_ = self._type(hint, path, [value])
        return {"name": name, "type": type_, "default": json_default(value, type_, self._named, path)}

    def _type(self, hint: Any, path: str, defaults: Sequence[Any] = ()) -> Any:
        """The type of a hint; `defaults` are plain values of it, which stand in the schema."""
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin is typing.Annotated:
            return self._annotated(arguments[0], arguments[1:], path, defaults)
        if origin in _UNIONS:
            return self._union(arguments, path, defaults)
        if origin is typing.Literal and all(isinstance(each, str) for each in arguments):
            return "string"
        if origin in _LISTS and arguments and (origin is not tuple or arguments[1:] == (Ellipsis,)):
            within = [each for value in defaults if isinstance(value, list) for each in value]
            return {"type": "array", "items": self._type(arguments[0], f"{path}[]", within)}
        if origin in _MAPS and len(arguments) == 2 and arguments[0] is str:
            within = [each for value in defaults if isinstance(value, dict) for each in value.values()]
            return {"type": "map", "values": self._type(arguments[1], f"{path}[]", within)}
        if hint in _SIMPLE:
            return _SIMPLE[hint]
        if hint is Decimal:
            return _decimal(DECIMAL_DEFAULT)
        if isinstance(hint, type) and issubclass(hint, Enum):
            return self._enum(hint, path)
        if isinstance(hint, type) and field_names(hint) is not None:
            return hint.__name__ if self._defined.get(hint.__name__) is hint else self.record(hint, path)
        raise SchemaError(f"{path}: no Avro type for {hint!r}; dicts have text as keys, and lists name the type of their items")

    def _annotated(self, hint: Any, notes: tuple[Any, ...], path: str, defaults: Sequence[Any]) -> Any:
        size = next((found for note in notes if (found := _size_of(note)) is not None), None)
        if size is not None and hint is Decimal:
            return _decimal(size)
        if size is not None and typing.get_origin(hint) in _UNIONS:
            branches = [typing.Annotated[each, size] if each is Decimal else each for each in typing.get_args(hint)]
            return self._union(tuple(branches), path, defaults)
        return self._type(hint, path, defaults)

    def _union(self, hints: tuple[Any, ...], path: str, defaults: Sequence[Any]) -> list[Any]:
        first = next((each for each in hints if defaults and self._takes(each, defaults[0], path)), hints[0])
        branches = [self._type(each, path, defaults) for each in (first, *(each for each in hints if each is not first))]
        kinds = [each if isinstance(each, str) else each.get("name", each["type"]) for each in branches]
        if len(set(kinds)) != len(kinds):
            raise SchemaError(f"{path}: a union has each Avro type once: {', '.join(kinds)}")
        return branches

    def _takes(self, hint: Any, value: Any, path: str) -> bool:
        """Whether a value is of the type of this hint, of which nothing is defined by that."""
        if value is None:  # without a try: types within types within types would each be tried
            return hint is type(None)
        tried = _AvroTypes()
        tried._defined, tried._named = dict(self._defined), dict(self._named)
        return takes(tried._type(hint, path), value, tried._named)

    def _enum(self, python_type: type[Enum], path: str) -> Any:
        name = python_type.__name__
        if name in self._defined:
            if self._defined[name] is not python_type:
                raise SchemaError(f"{path}: two types have the name {name}")
            return name
        self._defined[name] = python_type
        self._named[name] = {"type": "enum", "name": name, "symbols": [member.name for member in python_type]}
        return self._named[name]


def _pydantic_hints(python_type: type, hints: Mapping[str, Any]) -> dict[str, Any]:
    """The hints of a pydantic model with the metadata of its fields, which may size decimals."""
    described = described_fields(python_type).items()
    return {name: typing.Annotated[hints[name], *each.metadata] for name, each in described if each.metadata}


def _size_of(note: Any) -> DecimalSize | None:
    """The size of decimals in an annotation: ours, or pydantic's ``Field(max_digits=..., decimal_places=...)``; None without one."""
    if isinstance(note, DecimalSize):
        return note
    if getattr(note, "max_digits", None) is not None:
        return DecimalSize(note.max_digits, getattr(note, "decimal_places", None) or 0)
    inside = getattr(note, "metadata", None)  # of a Field that stands in a type
    return next((found for each in inside if (found := _size_of(each)) is not None), None) if isinstance(inside, list) else None


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
