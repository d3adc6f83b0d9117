"""Instances of dataclasses and pydantic models as dicts, as Avro writes them, and back again."""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from moldau.tracking.errors import EventError


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
    """What pydantic says of the fields of a model, or of a dataclass of its own; nothing of other types."""
    fields = getattr(type_, "__pydantic_fields__", None) or getattr(type_, "model_fields", None)
    return fields if isinstance(fields, dict) else {}


def pydantic_config(type_: type) -> Mapping[str, Any]:
    """How pydantic is told to treat a model, or a dataclass of its own; nothing of other types."""
    config = getattr(type_, "model_config", None) or getattr(type_, "__pydantic_config__", None)
    return config if isinstance(config, dict) else {}


def field_names(type_: type) -> list[str] | None:
    """The fields of a dataclass or pydantic model, in their order; None for other types."""
    if dataclasses.is_dataclass(type_):
        return [field.name for field in dataclasses.fields(type_)]
    fields = getattr(type_, "model_fields", None)
    return list(fields) if isinstance(fields, dict) else None
