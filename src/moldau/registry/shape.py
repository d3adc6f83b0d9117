"""What the parts of a body have to look like."""

from typing import Any

from moldau.registry.errors import unprocessable


def object_of(value: Any, name: str) -> dict[str, Any]:
    """A JSON object. RestError 422 for anything else."""
    if not isinstance(value, dict):
        raise unprocessable(f"{name} is not a JSON object")
    return value


def is_texts(value: Any) -> bool:
    """Whether this is a list of texts."""
    return isinstance(value, list) and all(isinstance(each, str) for each in value)
