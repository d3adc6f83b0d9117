"""Records out of a file for ``moldau produce``: lines, JSON lines or CSV. No broker here.

Every reader yields, in the order of the file, an :class:`InputRecord` for what can be sent and a :class:`BadLine` for what cannot; the
caller decides whether a bad line ends the work. Memory is bounded by the longest line, and a line by `LINE_BYTES_MAX`.

* lines: the value is the line's bytes as they are, without the line end; no encoding is assumed.
* json: every line is one JSON value and is sent byte for byte; it is parsed to check it and to find the key. Blank lines are passed over.
* csv: the first row names the columns, unless names are given; a row is sent as a JSON object of strings. Quoted fields may hold line
  ends; the line reported is the one where the row begins.
"""

import csv
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from moldau.cli.output import counted

LINE_BYTES_MAX = 64 * 1024 * 1024
"""A longer line is reported as bad and passed over, whatever the format: a file without line ends must not fill the memory."""

UTF8_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class InputRecord:
    """Something to send, and where it begins in the file (lines count from 1)."""

    line: int
    key: bytes | None
    value: bytes


@dataclass(frozen=True, slots=True)
class BadLine:
    """Something that cannot be sent, and why."""

    line: int
    reason: str


Input = InputRecord | BadLine


def raw_lines(source: BinaryIO, line_bytes_max: int = LINE_BYTES_MAX) -> Iterator[tuple[int, bytes | None]]:
    """Numbered lines with their ends; None in place of a line beyond `line_bytes_max`."""
    number = 0
    while line := source.readline(line_bytes_max + 1):
        number += 1
        if len(line) <= line_bytes_max:
            yield number, line
            continue
        while not line.endswith(b"\n") and (line := source.readline(line_bytes_max)):
            pass
        yield number, None


def read_lines(
    source: BinaryIO,
    *,
    key_separator: bytes | None = None,
    key_pattern: re.Pattern[bytes] | None = None,
    line_bytes_max: int = LINE_BYTES_MAX,
) -> Iterator[Input]:
    """One record per line; with a separator, the text before its first occurrence is the key, and the rest the value.

    With a pattern the key is what it finds first, or its first group does; the value is the whole line.
    """
    for number, line in raw_lines(source, line_bytes_max):
        if line is None:
            yield _too_long(number, line_bytes_max)
            continue
        text = _without_line_end(line)
        if key_pattern is not None:
            match = key_pattern.search(text)
            if match is None:
                yield BadLine(number, f"no key: nothing matches {key_pattern.pattern.decode(errors='backslashreplace')!r}")
            else:
                yield InputRecord(number, match[1] if key_pattern.groups else match[0], text)
            continue
        if key_separator is None:
            yield InputRecord(number, None, text)
            continue
        key, found, value = text.partition(key_separator)
        if found:
            yield InputRecord(number, key, value)
        else:
            yield BadLine(number, f"no key separator {key_separator.decode(errors='backslashreplace')!r}")


def read_json(source: BinaryIO, *, key_field: str | None = None, line_bytes_max: int = LINE_BYTES_MAX) -> Iterator[Input]:
    """One JSON value per line; `key_field` names the field whose value becomes the key (see `key_of`)."""
    for number, line in raw_lines(source, line_bytes_max):
        if line is None:
            yield _too_long(number, line_bytes_max)
            continue
        text = line.strip()
        if number == 1:
            text = text.removeprefix(UTF8_BOM)
        if not text:
            continue
        try:
            value = json.loads(text, parse_constant=_refuse_constant)
            yield InputRecord(number, key_of(value, key_field), text)
        except _NoKeyError as error:
            yield BadLine(number, str(error))
        except json.JSONDecodeError as error:
            indent = len(line) - len(line.lstrip())
            yield BadLine(number, f"not JSON: {error.msg} at column {indent + error.colno}")
        except UnicodeDecodeError as error:
            yield BadLine(number, f"not UTF-8: byte 0x{error.object[error.start]:02x} at column {error.start + 1}")
        except (ValueError, RecursionError) as error:
            yield BadLine(number, f"not JSON: {error}")


def read_csv(
    source: BinaryIO,
    *,
    key_field: str | None = None,
    columns: Sequence[str] | None = None,
    delimiter: str = ",",
    line_bytes_max: int = LINE_BYTES_MAX,
) -> Iterator[Input]:
    """One record per row, as a JSON object from column name to text; an empty file has none.

    ``id,name\\n1,"a, b"\\n`` gives ``{"id":"1","name":"a, b"}``. A row with too few or too many fields is bad, and so is one whose quotes
    do not match; reading continues with the next line.
    """
    lines = _TextLines(source, line_bytes_max)
    rows = csv.reader(lines, delimiter=delimiter, strict=True)
    names = list(columns) if columns is not None else None
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    while True:
        first = lines.number + 1
        try:
            row = next(rows)
        except StopIteration:
            return
        except UnicodeDecodeError as error:
            yield BadLine(lines.number, f"not UTF-8: byte 0x{error.object[error.start]:02x} at column {error.start + 1}")
            continue
        except (csv.Error, _LineTooLongError) as error:
            yield BadLine(first, f"not CSV: {error}")
            continue
        if not row:
            continue
        if names is None:
            names = row
            if (bad := _bad_columns(names, key_field)) is not None:
                yield BadLine(first, bad)
                return
            continue
        if len(row) != len(names):
            yield BadLine(first, f"{counted(len(row), 'field')} where {counted(len(names), 'column')} are named")
            continue
        value = dict(zip(names, row, strict=True))
        key = value[key_field].encode() if key_field is not None else None
        yield InputRecord(first, key, encode(value).encode())


def key_of(value: Any, field: str | None) -> bytes | None:
    """The bytes of a record's key: text as UTF-8, null as no key, anything else as compact JSON (``42``, ``true``, ``{"a":1}``).

    ``a.b`` is the field of that name, or else the field b of the object a.
    """
    if field is None:
        return None
    if not isinstance(value, dict):
        raise _NoKeyError(f"no field {field!r}: the line is not a JSON object")
    found = value[field] if field in value else _within(value, field)
    if found is None:
        return None
    if isinstance(found, str):
        return found.encode("utf-8", "surrogatepass")
    return json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _within(value: Any, path: str) -> Any:
    found, names = value, path.split(".")
    for depth, name in enumerate(names):
        if not isinstance(found, dict) or name not in found:
            at = "" if not depth else f": {'.'.join(names[:depth])} has no {name!r}"
            raise _NoKeyError(f"no field {path!r}{at}")
        found = found[name]
    return found


class _NoKeyError(ValueError):
    """The line is fine but has no such field."""


class _LineTooLongError(ValueError):
    """A line beyond the bound, met inside the CSV reader."""


class _TextLines:
    """The file's lines as text for the CSV reader, counting them."""

    def __init__(self, source: BinaryIO, line_bytes_max: int) -> None:
        self.number = 0
        self._limit = line_bytes_max
        self._lines = raw_lines(source, line_bytes_max)

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        self.number, line = next(self._lines)
        if line is None:
            raise _LineTooLongError(f"line longer than {self._limit} bytes")
        return line.decode("utf-8-sig" if self.number == 1 else "utf-8")


def _bad_columns(names: Sequence[str], key_field: str | None) -> str | None:
    """What is wrong with a header row, if anything."""
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        return f"columns named twice: {', '.join(twice)}"
    if key_field is not None and key_field not in names:
        return f"no column {key_field!r} among {', '.join(names)}"
    return None


def _without_line_end(line: bytes) -> bytes:
    line = line.removesuffix(b"\n")
    return line.removesuffix(b"\r")


def _too_long(number: int, limit: int) -> BadLine:
    return BadLine(number, f"line longer than {limit} bytes")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")
