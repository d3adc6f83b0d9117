"""The error codes in a response: its own, or those of its elements."""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

CODES_MAX = 1000
"""Codes that are looked at in one response: a tenth of a millisecond."""

Collect = Callable[[Any, list[int]], object]
"""Adds the codes of a message to those so far."""


def error_codes(response: Any) -> Sequence[int]:
    """The codes in a response, 0 among them, from the outside to the inside; at most `CODES_MAX`."""
    collect = _known.get(type(response), _unknown)
    if collect is _own:
        return (response.error_code,)
    codes: list[int] = []
    if collect is not None:
        collect(response, codes)
    return codes


def _unknown(message: Any, codes: list[int]) -> None:
    collect = _of(type(message))
    if collect is not None:
        collect(message, codes)


_known: dict[type[Any], Collect | None] = {}
"""None for a class without error codes."""


def _of(cls: type[Any]) -> Collect | None:
    if cls not in _known:
        _known[cls] = _made(cls)
    return _known[cls]


def _made(cls: type[Any]) -> Collect | None:
    from moldau.protocol.codec.fields import ListOf, Nested, fields_of  # with dataclasses, which a start does not need

    parts: list[Collect] = []
    for field in fields_of(cls):
        if field.name == "error_code":
            parts.insert(0, _own)
        elif isinstance(field.type, ListOf) and isinstance(field.type.element, Nested):
            collect = _of(field.type.element.cls)
            if collect is not None:
                parts.append(_list_of(field.name, collect))
    if len(parts) <= 1:
        return parts[0] if parts else None

    def collect_all(message: Any, codes: list[int]) -> None:
        for part in parts:
            part(message, codes)

    return collect_all


def _own(message: Any, codes: list[int]) -> None:
    codes.append(message.error_code)


def _list_of(name: str, collect: Collect) -> Collect:
    """For a field that holds elements with codes, at any depth."""

    def collect_elements(message: Any, codes: list[int]) -> None:
        elements = getattr(message, name)
        if type(elements) is list:
            if collect is _own:
                codes += [element.error_code for element in elements[: CODES_MAX - len(codes)]]
                return
            for element in elements:
                if len(codes) >= CODES_MAX:
                    return
                collect(element, codes)
        elif elements is not None:  # an `EncodedArray`
            codes += islice(elements.error_codes, CODES_MAX - len(codes))

    return collect_elements
