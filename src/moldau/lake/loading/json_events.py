"""Events as JSON objects, one in each record's value, to typed columns; and the ones that are not.

Arrow's JSON reader parses a whole block of lines at once, several times as fast as a loop in Python. It was made for files, not for
records, so four measures guard it. A block goes to it only when it is certain that every value is one object on one line: a value
that held two, beside one that held none, would shift the rows between them, and a top-level ``null`` ends the process (pyarrow 26).
Where that is not certain each value is parsed by itself first. And when Arrow refuses a block, it is halved until the values at
fault are alone. Values that Arrow takes and a table does not are looked for in what it has read.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json

from moldau.lake.loading.json_reasons import json_kind, read_event, reason
from moldau.lake.tables.value_ranges import beyond

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
