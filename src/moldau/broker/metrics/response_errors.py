"""The error codes in a response: its own, or those of its elements."""

from itertools import islice
from typing import Any, NamedTuple

CODES_MAX = 1000
"""Codes that are looked at in one response: a tenth of a millisecond."""


class _Places(NamedTuple):
    """Where a message class has error codes."""

    own: bool
    lists: tuple[tuple[str, bool], ...]
    """Fields that hold elements with error codes, at any depth, and whether each element has its own and no others."""


_known: dict[type[Any], _Places] = {}


def error_codes(response: Any) -> list[int]:
    """The codes in a response, 0 among them, from the outside to the inside; at most `CODES_MAX`."""
    codes: list[int] = []
    _collect(response, codes)
    return codes


def _collect(message: Any, codes: list[int]) -> None:
    own, lists = _known.get(type(message)) or _places(type(message))
    if own:
        codes.append(message.error_code)
    for name, are_leaves in lists:
        elements = getattr(message, name)
        if not elements:
            continue
        if type(elements) is not list and hasattr(elements, "error_codes"):  # an `EncodedArray`
            codes += islice(elements.error_codes, CODES_MAX - len(codes))
            continue
        if are_leaves:
            codes += [element.error_code for element in islice(elements, CODES_MAX - len(codes))]
            continue
        for element in elements:
            if len(codes) >= CODES_MAX:
                return
            _collect(element, codes)


def _places(cls: type[Any]) -> _Places:
    places = _known.get(cls)
    if places is None:
        places = _known[cls] = _find_places(cls)
    return places


def _find_places(cls: type[Any]) -> _Places:
    from moldau.protocol.codec.fields import ListOf, Nested, fields_of  # with dataclasses, which a start does not need

    own = False
    lists: list[tuple[str, bool]] = []
    for field in fields_of(cls):
        if field.name == "error_code":
            own = True
        elif isinstance(field.type, ListOf) and isinstance(field.type.element, Nested) and any(_places(field.type.element.cls)):
            lists.append((field.name, not _places(field.type.element.cls).lists))
    return _Places(own, tuple(lists))
