"""Instances of dataclasses and pydantic models as dicts, as Avro writes them, and back again."""

import dataclasses
from collections.abc import Mapping
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
    return {name: plain(getattr(event, name)) for name in names}


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


def field_names(type_: type) -> list[str] | None:
    """The fields of a dataclass or pydantic model, in their order; None for other types."""
    if dataclasses.is_dataclass(type_):
        return [field.name for field in dataclasses.fields(type_)]
    fields = getattr(type_, "model_fields", None)
    return list(fields) if isinstance(fields, dict) else None
