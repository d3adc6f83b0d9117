"""Decoded events as instances of the dataclass or pydantic model that the reader gave, the way back of `plain`."""

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any
from uuid import UUID

from moldau.tracking.schemas.plain import field_names

Build = Callable[[Any], Any]


_builders: dict[type, Build] = {}


def builder_of(python_type: type) -> Build:
    """A function that makes an instance out of a decoded dict. What the type has no field for is left out."""
    found = _builders.get(python_type)
    if found is None:
        found = _builders[python_type] = _builder(python_type)
    return found


def _builder(python_type: type) -> Build:
    if not dataclasses.is_dataclass(python_type):
        return python_type.model_validate  # type: ignore[attr-defined,no-any-return]
    hints = typing.get_type_hints(python_type)
    fields = {name: _build(hints[name]) for name in field_names(python_type) or ()}

    def build(value: Mapping[str, Any]) -> Any:
        return python_type(**{name: each(value[name]) for name, each in fields.items() if name in value})

    return build


def _build(hint: Any) -> Build:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _one_of([each for each in arguments if each is not type(None)])
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping) and len(arguments) == 2:
        inside = _build(arguments[1])
        return lambda value: {key: inside(each) for key, each in value.items()}
    if origin in (list, tuple, set, frozenset) and arguments:
        inside = _build(arguments[0])
        return lambda value: origin(map(inside, value))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return lambda value: hint[value]
    if hint is UUID:
        return lambda value: value if isinstance(value, UUID) else UUID(value)
    if isinstance(hint, type) and field_names(hint) is not None:
        return lambda value: builder_of(hint)(value)
    return lambda value: value


def _one_of(hints: list[Any]) -> Build:
    """A union: what is there stays; a dict becomes the record whose fields it has."""
    if len(hints) == 1:
        only = _build(hints[0])
        return lambda value: None if value is None else only(value)
    records = {frozenset(field_names(each) or ()): _build(each) for each in hints if isinstance(each, type) and field_names(each)}

    def build(value: Any) -> Any:
        made = records.get(frozenset(value)) if isinstance(value, dict) else None
        return value if made is None else made(value)

    return build
