"""Reading untrusted Avro values, by untrusted schemas, through fastavro: at worst bytes are refused.

Two kinds of schemas let a few bytes do so. In an array of what takes no bytes ten of them may say that there are 2**62 items. And of a type
that holds itself each byte may be one more level: fastavro in C has no bound for that, and ends the process; in Python it has.
"""

from collections.abc import Callable, Mapping
from typing import Any

import fastavro

from moldau.registry.avro_numbers import checked_numbers

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
