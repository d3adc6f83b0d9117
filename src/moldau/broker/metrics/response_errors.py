"""The error codes in a response: its own, or those of its elements."""

from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

CODES_MAX = 1000
"""Codes that are looked at in one response: a tenth of a millisecond."""


class _Places(NamedTuple):
    """Where a message class has error codes."""

    own: bool
    lists: tuple[str, ...]
    """Fields that hold elements with error codes, at any depth."""


_known: dict[type[Any], _Places] = {}


def error_codes(response: Any) -> Iterator[int]:
    """The codes in a response, 0 among them, from the outside to the inside; at most `CODES_MAX`."""
    return islice(_codes(response), CODES_MAX)


def _codes(message: Any) -> Iterator[int]:
    own, lists = _places(type(message))
    if own:
        yield message.error_code
    for name in lists:
        elements = getattr(message, name) or ()
        encoded = getattr(elements, "error_codes", None)  # of an `EncodedArray`
        if encoded is not None:
            yield from encoded
        else:
            for element in elements:
                yield from _codes(element)


def _places(cls: type[Any]) -> _Places:
    places = _known.get(cls)
    if places is None:
        places = _known[cls] = _find_places(cls)
    return places


def _find_places(cls: type[Any]) -> _Places:
    from moldau.protocol.codec.fields import ListOf, Nested, fields_of  # with dataclasses, which a start does not need

    own, lists = False, []
    for field in fields_of(cls):
        if field.name == "error_code":
            own = True
        elif isinstance(field.type, ListOf) and isinstance(field.type.element, Nested) and any(_places(field.type.element.cls)):
            lists.append(field.name)
    return _Places(own, tuple(lists))
