"""Events as JSON objects, one in each record's value, to typed columns; and the ones that are not.

Arrow's JSON reader parses a whole block of lines at once, several times as fast as a loop in Python. It was made for files, not for
records, so three things stand around it. A block goes to it only when it is certain that every value is one object on one line: a value
that held two, beside one that held none, would shift the rows between them, and a top-level ``null`` ends the process (pyarrow 26).
Where that is not certain each value is parsed by itself first. And when Arrow refuses a block, it is halved until the values at
fault stand alone; each is rejected with Arrow's reason.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.json

_SUSPECT = re.compile(rb"\}[ \t\r]*[^ \t\r\n,\]}]|NaN|Infinity")
"""Matches where a value may hold more than one object, and numbers that JSON does not have; inside strings too, which only costs time."""
_OTHER_TYPE = re.compile(r"Column\(/(.+)\) changed from (\w+) to (\w+)")
_UNREADABLE = re.compile(r"Failed to convert JSON to .+?, couldn't parse:\s?(.*)", re.DOTALL)
_ISO = 'ISO 8601 text like "2013-07-01T12:00:00Z"'


@dataclass(frozen=True, slots=True)
class ParsedEvents:
    """The rows that were parsed, in order, which values they were, and why the others were not."""

    table: Any
    accepted: list[int]
    rejected: dict[int, str]


def parse_events(values: Sequence[bytes | None], schema: Any, *, refuse_unknown: bool = True) -> ParsedEvents:
    """Parse each value as a JSON object with the fields of `schema`; a field that is missing or null is null.

    A value is rejected if it is not an object, if a field has another type than its column, or if it has a field that the schema does
    not have (unless `refuse_unknown` is off: then that field is dropped).
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
    """Whether it is certain that every value is one JSON object, or no JSON, on one line of UTF-8. False if it is not that easy to tell.

    If each value starts with ``{`` and ends with ``}``, and no object has anything behind it on its line, then the only places where
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
    """The value on one line, if it is one JSON object; ValueError says why not."""
    if value is None:
        raise ValueError("the value is null")
    try:
        event = json.loads(value.decode(), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error.reason} at byte {error.start}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(event, dict):
        raise ValueError(f"a JSON {_kind(event)}, not an object")
    return value.replace(b"\n", b" ").strip()  # a line feed in valid JSON stands between tokens, never inside one


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number in JSON")


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    return {bool: "boolean", int: "number", float: "number", str: "string", list: "array"}[type(value)]


def _parse(lines: Sequence[bytes], numbers: Sequence[int], options: Any, tables: list[Any], rejected: dict[int, str]) -> None:
    if not lines:
        return
    block = b"\n".join(lines)
    whole = pyarrow.json.ReadOptions(use_threads=False, block_size=len(block) + 1)
    try:
        table = pyarrow.json.read_json(pa.BufferReader(block), read_options=whole, parse_options=options)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError) as error:
        if len(lines) == 1:
            rejected[numbers[0]] = _reason(str(error), lines[0], options.explicit_schema)
            return
        half = len(lines) // 2
        _parse(lines[:half], numbers[:half], options, tables, rejected)
        _parse(lines[half:], numbers[half:], options, tables, rejected)
        return
    assert table.num_rows == len(lines), f"{table.num_rows} rows from {len(lines)} values"
    tables.append(table)


def _reason(message: str, line: bytes, schema: Any) -> str:
    """Arrow's message, with the name of the field that it does not know, or what the column wants where the field is of another type."""
    if "unexpected field" in message:
        unknown = [name for name in json.loads(line) if name not in schema.names]
        if unknown:
            return f"field {unknown[0]!r} is not in the table"
    message = message.replace(" in row 0", "").replace("JSON parse error: ", "")
    if other := _OTHER_TYPE.search(message):
        return f"field {other[1]!r}: the column wants {_wanted(schema, other[1], other[2])}, the event has a JSON {other[3]}"
    if (unreadable := _UNREADABLE.search(message)) and "timestamp" in message:
        field = next((f"field {name!r}: " for name, value in json.loads(line).items() if value == unreadable[1]), "")
        return f"{field}{message}; a timestamp is {_ISO}"
    return message


def _wanted(schema: Any, path: str, kind: str) -> str:
    """What the column at Arrow's `path` (``a/b``, ``a/[]``) takes; `kind` of JSON value if no more can be said."""
    known: Any = schema
    for step in path.split("/"):
        if step == "[]" and pa.types.is_list(known):
            known = known.value_type
        elif (isinstance(known, pa.Schema) or pa.types.is_struct(known)) and step in (names := [each.name for each in known]):
            known = known.field(names.index(step)).type
        else:
            return f"a JSON {kind}"
    if pa.types.is_timestamp(known):
        return f"a timestamp: {_ISO}"
    if pa.types.is_date(known):
        return "a date: the number of days since 1970"
    return f"{known}: a JSON {kind}"
