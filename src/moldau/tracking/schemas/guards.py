"""A fast answer to "is this event surely valid?": one generated function per schema, without a loop over the schema (mission F2).

It says True only of events that `checking` accepts as they are; where it says False, or raises, `checking` decides. So it may be strict
about what is rare (subclasses, defaults left out, unions of several types) and need not say why. fastavro itself writes some events that
its schema does not allow, such as a number too great for an int, and 1 for True.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from moldau.tracking.errors import EventError
from moldau.tracking.schemas.checking import Names, complete
from moldau.tracking.schemas.leaves import RANGES

Guard = Callable[[Any], bool]


def guard_of(schema: Mapping[str, Any], names: Names) -> Guard:
    """The guard of events of this record, as fastavro parsed it, without the header. It may raise what the slow check would find."""
    return _Generator(names).record(schema)


class _Generator:
    """Makes guards; what they need besides their source is in `scope`."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._scope: dict[str, Any] = {"datetime": datetime}

    def record(self, schema: Mapping[str, Any]) -> Guard:
        tests = [f"len(e) == {len(schema['fields'])}"]
        tests += [self._test(field["type"], f"e[{field['name']!r}]") for field in schema["fields"]]
        source = "def guard(e):\n    return e.__class__ is dict and (" + "\n        and ".join(tests) + ")\n"
        exec(source, self._scope)
        guard: Guard = self._scope.pop("guard")
        return guard

    def _test(self, schema: Any, value: str) -> str:
        """An expression that is true of a value which is surely valid; `v` is at hand for it."""
        nullable = isinstance(schema, list) and len(schema) == 2 and "null" in schema
        if nullable:
            other = schema[1 - schema.index("null")]
            return f"((v := {value}) is None or {self._test(other, 'v')})"
        kind = schema if isinstance(schema, str) else "" if isinstance(schema, list) else schema["type"]
        logical = schema.get("logicalType") if isinstance(schema, dict) else None
        match kind, logical:
            case "string", None:
                return f"{value}.__class__ is str"
            case "boolean", _:
                return f"{value}.__class__ is bool"
            case "double", _:
                return f"{value}.__class__ is float"
            case "bytes", None:
                return f"{value}.__class__ is bytes"
            case (("int" | "long"), None):
                least, most = RANGES[kind]
                return f"((v := {value}).__class__ is int and {least} <= v <= {most})"
            case "long", ("timestamp-millis" | "timestamp-micros"):
                return f"((v := {value}).__class__ is datetime and v.tzinfo is not None)"
            case "enum", _:
                return f"{value} in {self._keep(frozenset(schema['symbols']))}"
            case "array", _ if not isinstance(schema["items"], list):
                return f"((v := {value}).__class__ is list and all(map({self._element(schema['items'])}, v)))"
            case "record", _:
                return f"{self._keep(_Generator(self._names).record(schema))}({value})"
            case _:
                return f"{self._keep(self._slowly(schema))}({value})"

    def _element(self, schema: Any) -> str:
        made: dict[str, Any] = self._scope
        exec(f"def element(e):\n    return {self._test(schema, 'e')}\n", made)
        return self._keep(made.pop("element"))

    def _slowly(self, schema: Any) -> Guard:
        """For what is rare: the check itself. What it would change, by a default, is not surely valid."""
        names = self._names

        def guard(value: Any) -> bool:
            try:
                return bool(complete(schema, value, names, "") == value)
            except EventError:
                return False

        return guard

    def _keep(self, thing: Any) -> str:
        name = f"k{len(self._scope)}"
        self._scope[name] = thing
        return name
