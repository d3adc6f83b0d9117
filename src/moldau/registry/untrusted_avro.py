"""Untrusted Avro schemas and values, read through fastavro: at worst bytes are refused.

fastavro takes the number of a symbol or a branch for an index of a Python list, where −1 is the last one: it would read damaged bytes as
valid data. In a schema that went through `checked_numbers` these lists refuse indices below 0.

Two kinds of schemas let a few bytes do so. In an array of what takes no bytes ten of them may claim 2**62 items. And of a type
that holds itself each byte may be one more level: fastavro in C has no bound for that, and ends the process; in Python it has.
"""

import io
from collections.abc import Callable, Mapping
from typing import Any

import fastavro
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


Read = Callable[..., Any]
"""As `fastavro.schemaless_reader`: it raises what it likes for bytes that are no value, RecursionError for one of too many levels."""


def checked_schema(schema: Any, names: Mapping[str, Any]) -> tuple[Any, Read]:
    """A schema and its named types as `fastavro.parse_schema` gives them, made safe, and what reads by it. ValueError if it cannot be."""
    types = _Types(names)
    types.least_size(schema)
    if not types.any_holds_itself:
        return checked_numbers(schema), fastavro.schemaless_reader
    from fastavro._read_py import schemaless_reader

    return checked_numbers(schema, in_python=True), schemaless_reader


class _Types:
    """The named types of a schema, each looked at once."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names
        self._sizes: dict[str, int | None] = {}
        """Of records; None while their fields are looked at."""
        self.any_holds_itself = False

    def least_size(self, schema: Any) -> int:
        """No value takes fewer bytes. ValueError for an array of what may take none."""
        if isinstance(schema, str):
            return self.least_size(self._names[schema]) if schema in self._names else int(schema != "null")
        if isinstance(schema, list):
            for branch in schema:
                self.least_size(branch)
            return 1
        match schema["type"]:
            case "record" | "error":
                return self._of_record(schema)
            case "array":
                if self.least_size(schema["items"]) == 0:
                    raise ValueError("an array of what takes no bytes cannot be read safely")
                return 1
            case "map":
                self.least_size(schema["values"])
                return 1
            case "fixed":
                return int(schema["size"])
            case "enum":
                return 1
            case inner:
                return self.least_size(inner)

    def _of_record(self, schema: Mapping[str, Any]) -> int:
        name = schema["name"]
        if name in self._sizes:
            size = self._sizes[name]
            self.any_holds_itself = self.any_holds_itself or size is None
            return 1 if size is None else size
        self._sizes[name] = None
        found = self._sizes[name] = sum(self.least_size(field["type"]) for field in schema["fields"])
        return found
