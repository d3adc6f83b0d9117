"""Schemas with which fastavro refuses enums and unions of numbers below 0.

fastavro takes the number of a symbol or a branch for an index of a Python list, where −1 is the last one: it would read damaged bytes as
valid data. In a schema that went through `checked_numbers` these lists refuse indices below 0.
"""

import io
from collections.abc import Mapping
from typing import Any

from fastavro import schemaless_reader


class NegativeNumberError(IndexError):
    """The number of an enum's symbol or of a union's branch is below 0."""

    def __init__(self) -> None:
        super().__init__("an enum or a union has a number below 0")


class _Compiled(list[Any]):
    """For fastavro in C: it asks for the length of a list of this kind only to count an index from its end."""

    def __len__(self) -> int:
        raise NegativeNumberError

    def __bool__(self) -> bool:
        return True


class _Plain(_Compiled):
    """For fastavro in Python, which leaves that to the list."""

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, int) and index < 0:
            raise NegativeNumberError
        return super().__getitem__(index)


def _refuses(kind: type[_Compiled]) -> bool:
    schema = {"type": "enum", "name": "E", "symbols": kind(["A"]), "__fastavro_parsed": True, "__named_schemas": {}}
    try:
        schemaless_reader(io.BytesIO(b"\x01"), schema, None)  # the number -1
    except NegativeNumberError:
        return True
    return False


_CHECKED = _Compiled if _refuses(_Compiled) else _Plain


def checked_numbers(schema: Any, *, in_python: bool = False) -> Any:
    """A schema as `fastavro.parse_schema` gives it, with lists that refuse numbers below 0, to fastavro as it is or in Python. A part that
    occurs twice is made once."""
    return _Copy(_Plain if in_python else _CHECKED).of(schema)


class _Copy:
    def __init__(self, checked: type[_Compiled]) -> None:
        self._checked = checked
        self._made: dict[int, Any] = {}

    def of(self, schema: Any) -> Any:
        if not isinstance(schema, (list, Mapping)):
            return schema
        found = self._made.get(id(schema))
        if found is None:
            found = self._made[id(schema)] = self._list(schema) if isinstance(schema, list) else self._mapping(schema)
        return found

    def _list(self, union: list[Any]) -> Any:
        return self._checked([self.of(branch) for branch in union])

    def _mapping(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        copy = dict(schema)
        for name in ("type", "items", "values"):
            if name in copy:
                copy[name] = self.of(copy[name])
        if "symbols" in copy:
            copy["symbols"] = self._checked(copy["symbols"])
        if "fields" in copy:
            copy["fields"] = [self.of(each) for each in copy["fields"]]
        if "__named_schemas" in copy:
            copy["__named_schemas"] = {name: self.of(each) for name, each in copy["__named_schemas"].items()}
        return copy
