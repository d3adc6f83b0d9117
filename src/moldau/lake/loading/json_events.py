"""Events as JSON objects, one in each record's value, to typed columns; and the ones that are not.

Arrow reports that a line cannot be read, and of some values which; so the line is read once more, by the types of the columns. What
that does not explain has Arrow's own message. Whatever the line holds, there is a reason: it is cut to be read, and text that is no Unicode
is written in escapes.

Arrow's JSON reader parses a whole block of lines at once, several times as fast as a loop in Python. It was made for files, not for
records, so four measures guard it. A block goes to it only when it is certain that every value is one object on one line: a value
that held two, beside one that held none, would shift the rows between them, and a top-level ``null`` ends the process (pyarrow 26).
Where that is not certain each value is parsed by itself first. And when Arrow refuses a block, it is halved until the values at
fault are alone. Values that Arrow takes and a table does not are looked for in what it has read.
"""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json

from moldau.lake.tables.value_ranges import FLOAT_MAX, TIMES, beyond

_CUT = 80
"""Characters of a value that are shown."""
_MESSAGE_MAX = 300
_WHOLE = re.compile(r"-?[0-9]+")
_ISO = 'ISO 8601 text like "2013-07-01T12:00:00Z"'
_NUMBER = "a JSON number"


class Literal(str):
    """A number of JSON, as it is written there: of any size, and with all its digits."""

    __slots__ = ()


def json_kind(value: Any) -> str:
    """What JSON calls a value that `read_event` has read."""
    if value is None:
        return "null"
    return {bool: "boolean", Literal: "number", str: "string", list: "array", dict: "object"}[type(value)]


def read_event(text: str) -> Any:
    """A JSON text, with its numbers as `Literal`. ValueError has why it is none."""
    constants: list[Literal] = []

    def constant(name: str) -> Literal:
        constants.append(Literal(name))
        return constants[-1]

    try:
        event = json.loads(text, parse_int=Literal, parse_float=Literal, parse_constant=constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if constants:
        raise ValueError(f"not JSON: {_place(event, constants[0])}{constants[0]} is not a number in JSON")
    return event


def _place(event: Any, wanted: Literal) -> str:
    """Which field this very number is in, as the begin of a reason; nothing where that is none, or where its field occurs twice."""
    places = [("", event)]
    while places:
        path, value = places.pop()
        if value is wanted and path:
            return f"field {_cut(path)!r}: "
        if isinstance(value, dict):
            places += [(f"{path}/{name}" if path else name, each) for name, each in value.items()]
        elif isinstance(value, list):
            places += [(f"{path}/[]", each) for each in value]
    return ""


def reason(line: bytes, schema: Any, message: str = "") -> str:
    """Why the event on this line has no place in columns of this schema; Arrow's `message` where nothing else explains it."""
    message = message.replace(" in row 0", "").replace("JSON parse error: ", "")
    try:
        event = read_event(line.decode())
    except ValueError as error:
        return str(error) if str(error) == "nested too deeply" else _cut(message, _MESSAGE_MAX)
    if "unexpected field" in message:
        unknown = [name for name in event if name not in schema.names]
        if unknown:
            return f"field {_cut(unknown[0])!r} is not in the table"
    if "specified twice" not in message:
        for each in schema:
            if (found := _unfit(event.get(each.name), each.type, each.name)) is not None:
                path, wanted, value = found
                return f"field {_cut(path)!r}: the column wants {wanted}, the event has {value}"
    return _cut(message, _MESSAGE_MAX)


def _unfit(value: Any, kind: Any, path: str) -> tuple[str, str, str] | None:
    """Of a value the first part that a column of this type cannot take: where it is, what the column takes, and the value."""
    if value is None:
        return None
    if pa.types.is_struct(kind) and isinstance(value, dict):
        parts = ((value.get(each.name), each.type, f"{path}/{each.name}") for each in kind)
        return next((found for part in parts if (found := _unfit(*part)) is not None), None)
    if pa.types.is_list(kind) and isinstance(value, list):
        return next((found for each in value if (found := _unfit(each, kind.value_type, f"{path}/[]")) is not None), None)
    wanted, of_kind, fits = _leaf(value, kind)
    if not of_kind:
        return path, wanted, f"a JSON {json_kind(value)}"
    return None if fits else (path, wanted, _cut(value) if isinstance(value, Literal) else _cut(json.dumps(value)))


def _leaf(value: Any, kind: Any) -> tuple[str, bool, bool]:
    """What a column of this type takes; whether the value is of that kind of JSON, and whether it is one of those that it takes."""
    types, number, text = pa.types, isinstance(value, Literal), type(value) is str
    if types.is_integer(kind):
        signed = pa.types.is_signed_integer(kind)
        low, high = (-(1 << kind.bit_width - 1), (1 << kind.bit_width - 1) - 1) if signed else (0, (1 << min(63, kind.bit_width)) - 1)
        return f"{kind}: {_NUMBER}, whole, from {low} to {high}", number, number and _is_whole(value, low, high)
    if types.is_date(kind):
        wanted = f"a date: the number of {'days' if kind == pa.date32() else 'milliseconds'} since 1970, in the years 1 to 9999"
        return wanted, number, number and _is_whole(value, *TIMES[kind])
    if types.is_timestamp(kind):
        wanted = f"a timestamp: {_ISO}, in the years 1 to 9999, of at most six digits after the second"
        return wanted, text, text and _is_read(value, kind)
    if types.is_floating(kind):
        most = FLOAT_MAX if kind == pa.float32() else math.inf
        return f"{kind}: {_NUMBER} that {kind} can hold", number, number and abs(float(value)) < most
    if types.is_decimal(kind):
        wanted = f"a number with {kind.precision - kind.scale} digits before the point and {kind.scale} after it at the most"
        return f"{kind}: {wanted}", number or text, (number or text) and _is_read(value, kind)
    if types.is_boolean(kind):
        return f"{kind}: a JSON boolean", isinstance(value, bool), True
    if types.is_string(kind) or types.is_binary(kind):
        return f"{kind}: a JSON string", text, True
    return f"a JSON {'object' if types.is_struct(kind) else 'array'}", False, False


def _is_whole(number: Literal, low: int, high: int) -> bool:
    """Whether a number is a whole one in these bounds; one with more digits than Python parses is beyond all of them."""
    return len(number) <= 20 and _WHOLE.fullmatch(number) is not None and low <= int(number) <= high


def _is_read(value: str, kind: Any) -> bool:
    """Whether Arrow reads the value as this type, alone."""
    try:
        return len(beyond(_read(value if isinstance(value, Literal) else json.dumps(value), kind))) == 0
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return False


def is_readable(kind: Any) -> bool:
    """Whether Arrow can read JSON into a column of this type at all."""
    try:
        _read("null", kind)
    except pa.ArrowNotImplementedError:
        return False
    return True


def is_time(kind: Any) -> bool:
    """Whether a column of this type can hold the time of an event."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind) or kind == pa.int64())


def _read(text: str, kind: Any) -> Any:
    line = f'{{"v":{text}}}'.encode()
    options = pyarrow.json.ParseOptions(explicit_schema=pa.schema([("v", kind)]))
    whole = pyarrow.json.ReadOptions(use_threads=False, block_size=len(line) + 1)
    return pyarrow.json.read_json(pa.BufferReader(line), read_options=whole, parse_options=options)


def _cut(text: str, characters: int = _CUT) -> str:
    return text if len(text) <= characters else f"{text[:characters]}... ({len(text):,} characters)"


_SUSPECT = re.compile(rb"\}[ \t\r]*[^ \t\r\n,\]}]|NaN|Infinity")
"""Matches where a value may hold more than one object, and numbers that JSON does not have; inside strings too, which only costs time."""


@dataclass(frozen=True, slots=True)
class ParsedEvents:
    """The rows that were parsed, in order, which values they were, and why the others were not."""

    table: Any
    accepted: list[int]
    rejected: dict[int, str]


def parse_events(values: Sequence[bytes | None], schema: Any, *, refuse_unknown: bool = True) -> ParsedEvents:
    """Parse each value as a JSON object with the fields of `schema`; a field that is missing or null is null.

    A value is rejected if it is not an object, if a field has another type than its column or a value that the column cannot hold, or if
    it has a field that the schema does not have (unless `refuse_unknown` is off: then that field is dropped).
    """
    rejected: dict[int, str] = {}
    lines: list[bytes]
    if _surely_one_object_each(values):
        accepted, lines = list(range(len(values))), list(values)  # type: ignore[arg-type]  # none is None
    else:
        accepted, lines = [], []
        for number, value in enumerate(values):
            try:
                lines.append(_one_object(value))
                accepted.append(number)
            except ValueError as error:
                rejected[number] = str(error)
    tables: list[Any] = []
    options = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error" if refuse_unknown else "ignore")
    _parse(lines, accepted, options, tables, rejected)
    table = pa.concat_tables(tables) if tables else schema.empty_table()
    if rejected:
        accepted = [number for number in accepted if number not in rejected]
    assert table.num_rows == len(accepted), f"{table.num_rows} rows from {len(accepted)} values"
    return ParsedEvents(table, accepted, rejected)


def _surely_one_object_each(values: Sequence[bytes | None]) -> bool:
    """Whether it is certain that every value is one JSON object, or no JSON, on one line of UTF-8. False if that is not certain.

    If each value starts with ``{`` and ends with ``}``, and no object has anything after it on its line, then the only places where
    the parser can pass from one object to the next are the ends of values.
    """
    if not all(value and value[0] == 0x7B and value[-1] == 0x7D for value in values):
        return False
    block = b"\n".join(values)  # type: ignore[arg-type]  # none is None, as just checked
    if block.count(b"\n") != len(values) - 1 or _SUSPECT.search(block):
        return False
    try:
        block.decode()
    except UnicodeDecodeError:
        return False
    return True


def _one_object(value: bytes | None) -> bytes:
    """The value on one line, if it is one JSON object; ValueError has why not."""
    if value is None:
        raise ValueError("the value is null")
    try:
        event = read_event(value.decode())
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error.reason} at byte {error.start}") from None
    if not isinstance(event, dict):
        raise ValueError(f"a JSON {json_kind(event)}, not an object")
    return value.replace(b"\n", b" ").strip()  # a line feed in valid JSON stands between tokens, never inside one


def _parse(lines: Sequence[bytes], numbers: Sequence[int], options: Any, tables: list[Any], rejected: dict[int, str]) -> None:
    if not lines:
        return
    block = b"\n".join(lines)
    whole = pyarrow.json.ReadOptions(use_threads=False, block_size=len(block) + 1)
    try:
        table = pyarrow.json.read_json(pa.BufferReader(block), read_options=whole, parse_options=options)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError) as error:
        if len(lines) == 1:
            rejected[numbers[0]] = reason(lines[0], options.explicit_schema, str(error))
            return
        half = len(lines) // 2
        _parse(lines[:half], numbers[:half], options, tables, rejected)
        _parse(lines[half:], numbers[half:], options, tables, rejected)
        return
    assert table.num_rows == len(lines), f"{table.num_rows} rows from {len(lines)} values"
    unfit = beyond(table)
    if len(unfit):
        rejected.update((numbers[row], reason(lines[row], options.explicit_schema)) for row in unfit.tolist())
        table = table.take(pa.array(np.delete(np.arange(len(lines)), unfit)))
    tables.append(table)
