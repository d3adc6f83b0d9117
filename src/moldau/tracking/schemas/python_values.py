"""Instances of dataclasses and pydantic models as dicts, as Avro writes them, and decoded events as instances."""

import dataclasses
import json
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Any, Final
from uuid import UUID

from moldau.tracking.errors import EventError, SchemaError


def plain_fields(event: Any, path: str) -> dict[str, Any]:
    """An event as a dict. EventError for what is neither a mapping nor an instance of a dataclass or model."""
    if isinstance(event, Mapping):
        return dict(event)
    names = field_names(type(event))
    if names is None:
        raise EventError(path, f"an event is a dict, or an instance of a dataclass or pydantic model, not {type(event).__name__}")
    try:
        return {name: plain(getattr(event, name)) for name in names}
    except AttributeError as error:
        raise EventError(_unset(event, path) or path, f"is missing: {error}") from error


def plain(value: Any) -> Any:
    """A value with its enums by their names, and its instances as dicts; the rest as it is."""
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    names = field_names(type(value))
    return value if names is None else {name: plain(getattr(value, name)) for name in names}


def _unset(value: Any, path: str) -> str | None:
    """The path of the first field that an instance does not have, made past its own checks, as by `model_construct`."""
    parts: Iterable[tuple[str, Any]] = ()
    if isinstance(value, list | tuple | set | frozenset):
        parts = ((f"{path}[{index}]", each) for index, each in enumerate(value))
    elif isinstance(value, dict):
        parts = ((f"{path}[{json.dumps(key, default=str)}]", each) for key, each in value.items())
    else:
        names = field_names(type(value)) or ()
        for name in names:
            if not hasattr(value, name):
                return f"{path}.{name}"
        parts = ((f"{path}.{name}", getattr(value, name)) for name in names)
    return next((found for where, each in parts if (found := _unset(each, where)) is not None), None)


def described_fields(type_: type) -> Mapping[str, Any]:
    """pydantic's description of the fields of a model, or of a dataclass of its own; empty for other types."""
    fields = getattr(type_, "__pydantic_fields__", None) or getattr(type_, "model_fields", None)
    return fields if isinstance(fields, dict) else {}


def pydantic_config(type_: type) -> Mapping[str, Any]:
    """pydantic's configuration of a model, or of a dataclass of its own; empty for other types."""
    config = getattr(type_, "model_config", None) or getattr(type_, "__pydantic_config__", None)
    return config if isinstance(config, dict) else {}


def field_names(type_: type) -> list[str] | None:
    """The fields of a dataclass or pydantic model, in their order; None for other types."""
    if dataclasses.is_dataclass(type_):
        return [field.name for field in dataclasses.fields(type_)]
    fields = getattr(type_, "model_fields", None)
    return list(fields) if isinstance(fields, dict) else None


Build = Callable[[Any], Any]
_LISTS: Final[Mapping[Any, Build]] = {list: list, tuple: tuple, set: set, frozenset: frozenset, Sequence: list, AbstractSet: frozenset}

_builders: dict[type, Build] = {}


def builder_of(python_type: type) -> Build:
    """A function that makes an instance out of a decoded dict. What the type has no field for is left out."""
    found = _builders.get(python_type)
    if found is None:
        found = _builders[python_type] = _builder(python_type)
    return found


def _builder(python_type: type) -> Build:
    hints = typing.get_type_hints(python_type)
    called = input_names(python_type, python_type.__name__)
    fields = [(name, called[name], _build(hints[name])) for name in field_names(python_type) or ()]
    is_model = not dataclasses.is_dataclass(python_type)

    def build(value: Mapping[str, Any]) -> Any:
        given = {wanted: each(value[name]) for name, wanted, each in fields if name in value}
        return python_type.model_validate(given) if is_model else python_type(**given)  # type: ignore[attr-defined]

    return build


def input_names(python_type: type, path: str) -> dict[str, str]:
    """Under which name each field's value is handed to the type: its own, or the alias that pydantic looks for.

    SchemaError for a field that pydantic takes only out of the inside of another value.
    """
    found = {name: name for name in field_names(python_type) or ()}
    config = pydantic_config(python_type)
    if config.get("validate_by_alias") is False:
        return found
    for name, field in described_fields(python_type).items():
        alias = field.validation_alias or field.alias
        choices = [alias] if isinstance(alias, str) else getattr(alias, "choices", [])
        names = [each for each in choices if isinstance(each, str)]
        if names:
            found[name] = names[0]
        elif alias is not None and not (config.get("populate_by_name") or config.get("validate_by_name")):
            raise SchemaError(f"{path}.{name}: {alias!r} is no name under which a value that was read can be given")
    return found


def _build(hint: Any) -> Build:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _one_of([each for each in arguments if each is not type(None)])
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping) and len(arguments) == 2:
        inside = _build(arguments[1])
        return lambda value: {key: inside(each) for key, each in value.items()}
    if origin in _LISTS and arguments:
        inside, made = _build(arguments[0]), _LISTS[origin]
        return lambda value: made(map(inside, value))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return lambda value: hint[value]
    if hint is UUID:
        return lambda value: value if isinstance(value, UUID) else UUID(value)
    if isinstance(hint, type) and field_names(hint) is not None:
        return lambda value: builder_of(hint)(value)
    return lambda value: value


def _one_of(hints: list[Any]) -> Build:
    """A union: a dict becomes the record whose fields it has, and takes; a name the member of an enum; the rest stays as it is.

    It has one kind of lists and one of dicts at the most, as the schema does.
    """
    if len(hints) == 1:
        only = _build(hints[0])
        return lambda value: None if value is None else only(value)
    types_ = [each for each in hints if isinstance(each, type)]
    records = [(set(names), _build(each)) for each in types_ if (names := field_names(each))]
    origins = [(typing.get_origin(each), each) for each in hints]
    of_list = next((_build(each) for origin, each in origins if origin in _LISTS), None)
    of_map = next((_build(each) for origin, each in origins if isinstance(origin, type) and issubclass(origin, Mapping)), None)
    members: dict[str, Enum] = {}
    for each in types_[: types_.index(str) if str in types_ else None]:  # after str it was written as text
        members = {**(each.__members__ if issubclass(each, Enum) else {}), **members}

    def build(value: Any) -> Any:
        if isinstance(value, dict):
            fitting = [made for names, made in records if names == value.keys()]
            return _record(value, fitting or ([of_map] if of_map else []))
        if isinstance(value, list) and of_list is not None:
            return of_list(value)
        return members.get(value, value) if isinstance(value, str) else value

    return build


def _record(value: dict[str, Any], builds: list[Build]) -> Any:
    """An instance of the first type that takes the value; ValueError of the last one if none does."""
    for number, build in enumerate(builds, 1):
        try:
            return build(value)
        except ValueError:  # such as pydantic's, of another kind by a field's value
            if number == len(builds):
                raise
    return value
