"""Events to Avro bytes by one generated function per record: without a loop over the schema, and without a look at what kind a value is.

`encoder_of` makes one for dicts, and one for a dataclass or a pydantic model, whose fields it reads where they are. An encoder writes only
what `validation` accepts, and the same bytes as fastavro does after it. Of anything else (a subclass, a default left out, a number where
text belongs) it raises one of `UNSURE`, and the slow path decides: it writes the event, or names the field at fault. So an encoder may be
strict about what is rare, without a reason in its error. Parts of a schema that are rare (unions of several types, fixed decimals) are
written by the slow path in place. Numbers are written from tables.
"""

import io
import keyword
import typing
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from functools import cache
from struct import Struct
from typing import Any, Final
from uuid import UUID

from fastavro import schemaless_writer

from moldau.tracking.errors import EventError
from moldau.tracking.schemas.python_values import field_names, plain
from moldau.tracking.schemas.validation import LOGICAL_RANGES, Names, complete

Encode = Callable[[Any], bytes]
_EXACT_DOUBLES: Final = 1 << 53


class UnsureError(Exception):
    """The event may be valid or not: the slow way decides."""


@cache
def varint_tables() -> tuple[list[bytes], list[bytes]]:
    """By number below 16,384: its varint; and its two groups of seven bits where more follow."""
    pair = [bytes((number & 0x7F | 0x80, number >> 7 | 0x80)) for number in range(1 << 14)]
    low = [bytes((number,)) if number < 0x80 else bytes((number & 0x7F | 0x80, number >> 7)) for number in range(1 << 14)]
    return low, pair


@cache
def varint_encoder() -> Callable[[int], bytes]:
    """Writes an unsigned number of 64 bits, seven to a byte, the lowest first. It raises UnsureError for a greater one."""
    low, pair = varint_tables()

    def varint(number: int) -> bytes:
        if number < 1 << 28:
            return low[number] if number < 1 << 14 else pair[number & 0x3FFF] + low[number >> 14]
        if number < 1 << 42:
            return pair[number & 0x3FFF] + pair[number >> 14 & 0x3FFF] + low[number >> 28]
        first = pair[number & 0x3FFF] + pair[number >> 14 & 0x3FFF] + pair[number >> 28 & 0x3FFF]
        if number < 1 << 56:
            return first + low[number >> 42]
        if number >> 64:
            raise UnsureError
        return first + pair[number >> 42 & 0x3FFF] + low[number >> 56]

    return varint


def exact_double(value: Any) -> float:
    """A whole number where a double belongs, if it is one exactly."""
    if value.__class__ is int and -_EXACT_DOUBLES <= value <= _EXACT_DOUBLES:
        return float(value)
    raise UnsureError


@cache
def decimal_encoder(precision: int, scale: int) -> Encode:
    """The encoder of decimals in bytes: their digits without the point, as many as the schema's scale."""
    low, _ = varint_tables()
    limit = 10**precision
    powers = [10**number for number in range(scale + 1)]

    def encode(value: Any) -> bytes:
        if value.__class__ is not Decimal:
            raise UnsureError
        whole, _, fraction = str(value).partition(".")  # one with an exponent, or that is no number, is no int then
        missing = scale - len(fraction)
        if missing < 0:
            raise UnsureError
        digits = int(whole + fraction) * powers[missing]
        if not -limit < digits < limit:
            raise UnsureError
        size = (digits.bit_length() + 8) >> 3
        return bytes(low[size << 1] + digits.to_bytes(size, "big", signed=True))

    return encode


UNSURE: Final = (UnsureError, EventError, AttributeError, LookupError, TypeError, ValueError, OverflowError)
"""What an encoder raises of an event that it does not write."""

_DELTA = "({0}.days * 86_400 + {0}.seconds)"
_CALENDAR: Final[Mapping[tuple[str, str], tuple[str, str, str]]] = {  # class, a condition, the number
    ("long", "timestamp-micros"): ("datetime", "{v}.tzinfo is not None", f"{_DELTA.format('d')} * 1_000_000 + d.microseconds"),
    ("long", "timestamp-millis"): ("datetime", "{v}.tzinfo is not None", f"{_DELTA.format('d')} * 1_000 + d.microseconds // 1_000"),
    ("int", "date"): ("date", "True", "{v}.toordinal() - 719_163"),
    ("long", "time-micros"): ("time", "True", "(({v}.hour * 60 + {v}.minute) * 60 + {v}.second) * 1_000_000 + {v}.microsecond"),
}
_NO_BYTES = 'b""'
_DIGITS_MAX = 100
"""Decimals of more digits are rare."""
_DEPTH_MAX = 10
"""Lists and maps within each other that one function has loops for; Python takes 20."""


def encoder_of(schema: Mapping[str, Any], names: Names, python_type: type | None = None) -> Encode:
    """The encoder of events of this record, as fastavro parsed it: of dicts, or of instances of `python_type`, which it was made from."""
    generator = _Generator(names)
    name = generator.record(schema, python_type)
    encode: Encode = generator.scope[name]
    return encode


class _Generator:
    """Makes encoders, a function for each record; what they need besides their source is in `scope`."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._records: dict[tuple[int, type | None], str] = {}
        self._lines: list[str] = []
        self._count = 0
        self.scope: dict[str, Any] = {
            "LOW": varint_tables()[0], "varint": varint_encoder(), "double": Struct("<d").pack, "number": exact_double, "join": b"".join,
            "date": date, "datetime": datetime, "time": time, "UUID": UUID, "EPOCH": datetime(1970, 1, 1, tzinfo=UTC),
            "SEQUENCES": frozenset((list, tuple, set, frozenset)), "UnsureError": UnsureError,
        }  # fmt: skip

    def record(self, schema: Mapping[str, Any], python_type: type | None) -> str:
        """The name of the function that encodes this record: of `python_type`, None: of dicts."""
        key = (id(schema["fields"]), python_type)  # the event itself lacks the header that others of its name have
        if key in self._records:
            return self._records[key]
        name = self._records[key] = self._new("record")
        outer, self._lines = self._lines, []
        fields: list[str] = []
        if python_type is None:
            self._add(1, f"if e.__class__ is not dict or len(e) != {len(schema['fields'])}: raise UnsureError")
            for field in schema["fields"]:
                fields += self._value(1, field["type"], None, f"e[{field['name']!r}]")
        else:
            hints = typing.get_type_hints(python_type)
            self._add(1, f"if e.__class__ is not {self._keep(python_type)}: raise UnsureError")
            for field in schema["fields"]:
                fields += self._value(1, field["type"], hints[field["name"]], _attribute(field["name"]))
        source = [f"def {name}(e):", *self._lines, f"    return join(({' '.join(f'{each},' for each in fields)}))"]
        self._lines = outer
        exec("\n".join(source), self.scope)
        return name

    def _value(self, depth: int, schema: Any, hint: Any, given: str) -> list[str]:
        """Statements that check a value, and the expressions of its bytes. `hint` is its Python type, None within dicts."""
        v = self._new("v")
        self._add(depth, f"{v} = {given}")
        if isinstance(schema, str) and schema in self._names:
            schema = self._names[schema]
        if isinstance(schema, list):
            return self._optional(depth, schema, hint, v) if len(schema) == 2 and "null" in schema else [self._slowly(schema, hint, v)]
        kind = schema if isinstance(schema, str) else schema["type"]
        logical = None if isinstance(schema, str) else schema.get("logicalType")
        match kind, logical:
            case "string", None:
                self._must(depth, f"{v}.__class__ is str")
                self._add(depth, f"{v} = {v}.encode()")
                return [self._length(v), v]
            case "bytes", None:
                self._must(depth, f"{v}.__class__ is bytes")
                return [self._length(v), v]
            case (("int" | "long"), None):
                self._must(depth, f"{v}.__class__ is int")
                return self._whole(depth, kind, v, v)
            case (("int" | "long"), _) if (kind, logical) in _CALENDAR:
                return self._calendar(depth, kind, str(logical), v)
            case "double", None:
                self._add(depth, f"if {v}.__class__ is not float: {v} = number({v})")
                return [f"double({v})"]
            case "boolean", None:
                self._must(depth, f"{v}.__class__ is bool")
                return [rf'(b"\1" if {v} else b"\0")']
            case "null", None:
                self._must(depth, f"{v} is None")
                return []
            case "string", "uuid":
                self._must(depth, f"{v}.__class__ is UUID")
                return ['b"H"', f"str({v}).encode()"]
            case "bytes", "decimal" if schema["precision"] <= _DIGITS_MAX:
                return [f"{self._keep(decimal_encoder(schema['precision'], schema.get('scale', 0)))}({v})"]
            case "fixed", None:
                self._must(depth, f"{v}.__class__ is bytes and len({v}) == {schema['size']}")
                return [v]
            case "enum", _:
                return [self._enum(schema, hint, v)]
            case (("array" | "map"), _) if depth > _DEPTH_MAX:
                return [self._slowly(schema, hint, v)]
            case "array", _:
                return self._array(depth, schema["items"], hint, v)
            case "map", _:
                return self._map(depth, schema["values"], hint, v)
            case (("record" | "error"), _) if hint is None or (isinstance(hint, type) and field_names(hint) is not None):
                return [f"{self.record(schema, hint)}({v})"]
            case _:
                return [self._slowly(schema, hint, v)]

    def _optional(self, depth: int, branches: list[Any], hint: Any, v: str) -> list[str]:
        """A union of null and another type."""
        null = branches.index("null")
        others = [each for each in typing.get_args(hint) if each is not type(None)]
        inner = hint if hint is None or len(others) != 1 else others[0]
        made = self._new("a")
        self._add(depth, f"if {v} is None: {made} = {bytes((2 * null,))!r}")
        self._add(depth, "else:")
        parts = self._value(depth + 1, branches[1 - null], inner, v)
        self._add(depth + 1, f"{made} = {' + '.join([repr(bytes((2 * (1 - null),))), *parts])}")
        return [made]

    def _whole(self, depth: int, kind: str, v: str, number: str) -> list[str]:
        self._add(depth, f"{v} = {number} << 1 if {number} >= 0 else ~({number} << 1)")
        if kind == "int":
            self._must(depth, f"{v} < {1 << 32}")
        return [_varint(v)]

    def _calendar(self, depth: int, kind: str, logical: str, v: str) -> list[str]:
        """A date or a time: as such, or as its number."""
        class_, condition, number = (each.format(v=v) for each in _CALENDAR[kind, logical])
        least, most = LOGICAL_RANGES[logical]
        self._add(depth, f"if {v}.__class__ is {class_} and {condition}:")
        if class_ == "datetime":
            self._add(depth + 1, f"d = {v} - EPOCH")
        self._add(depth + 1, f"{v} = {number}")
        self._add(depth, f"elif {v}.__class__ is not int or not {least} <= {v} <= {most}: raise UnsureError")
        return self._whole(depth, kind, v, v)

    def _enum(self, schema: Mapping[str, Any], hint: Any, v: str) -> str:
        low, _ = varint_tables()
        symbols = {symbol: low[number << 1] for number, symbol in enumerate(schema["symbols"])}
        if hint is None:
            return f"{self._keep(symbols)}[{v}]"
        if not (isinstance(hint, type) and issubclass(hint, Enum)):
            return self._slowly(schema, hint, v)
        members = {id(member): symbols[member.name] for member in hint}
        self._keep(hint)  # an id names a member as long as its class exists
        return f"({self._keep(symbols)}[{v}] if {v}.__class__ is str else {self._keep(members)}[id({v})])"

    def _array(self, depth: int, items: Any, hint: Any, v: str) -> list[str]:
        arguments = typing.get_args(hint)
        self._must(depth, f"{v}.__class__ is list" if hint is None else f"{v}.__class__ in SEQUENCES")
        made, each = self._new("a"), self._new("w")
        self._add(depth, f"{made} = [{self._length(v)}] if {v} else []")
        self._add(depth, f"for {each} in {v}:")
        parts = self._value(depth + 1, items, arguments[0] if arguments else None, each)
        self._add(depth + 1, f"{made}.append({' + '.join(parts) or _NO_BYTES})")
        return [f"*{made}", r'b"\0"'] if depth == 1 else [rf'join({made}) + b"\0"']

    def _map(self, depth: int, values: Any, hint: Any, v: str) -> list[str]:
        arguments = typing.get_args(hint)
        self._must(depth, f"{v}.__class__ is dict")
        made, key, each = self._new("a"), self._new("k"), self._new("w")
        self._add(depth, f"{made} = [{self._length(v)}] if {v} else []")
        self._add(depth, f"for {key}, {each} in {v}.items():")
        parts = self._value(depth + 1, "string", None, key) + self._value(
            depth + 1, values, arguments[1] if len(arguments) == 2 else None, each
        )
        self._add(depth + 1, f"{made}.append({' + '.join(parts) or _NO_BYTES})")
        return [f"*{made}", r'b"\0"'] if depth == 1 else [rf'join({made}) + b"\0"']

    def _slowly(self, schema: Any, hint: Any, v: str) -> str:
        """For what is rare: the slow way, for this value alone. It raises EventError."""
        names = self._names
        alone = {"type": "record", "name": "Alone", "fields": [{"name": "value", "type": schema}], "__fastavro_parsed__": True}
        alone["__named_schemas"] = names

        def encode(value: Any) -> bytes:
            out = io.BytesIO()
            given = value if hint is None else plain(value)
            schemaless_writer(out, alone, {"value": complete(schema, given, names, "")})
            return out.getvalue()

        return f"{self._keep(encode)}({v})"

    def _must(self, depth: int, condition: str) -> None:
        self._add(depth, f"if not ({condition}): raise UnsureError")

    def _add(self, depth: int, line: str) -> None:
        self._lines.append("    " * depth + line)

    def _length(self, v: str) -> str:
        return f"(LOW[len({v}) << 1] if len({v}) < 8_192 else varint(len({v}) << 1))"

    def _new(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def _keep(self, thing: Any) -> str:
        name = self._new("K")
        self.scope[name] = thing
        return name


def _varint(v: str) -> str:
    return f"(LOW[{v}] if {v} < 16_384 else varint({v}))"


def _attribute(name: str) -> str:
    plain_name = name.isascii() and name.isidentifier() and not keyword.iskeyword(name)
    return f"e.{name}" if plain_name else f"getattr(e, {name!r})"
