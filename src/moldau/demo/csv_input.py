"""Events from a CSV file with a heading: one object for each row, with the headings as names of fields."""

import csv
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from moldau.demo.avro_fields import event_record, field_name
from moldau.demo.file_input import FileInput
from moldau.demo.inputs import BadLine, Event, InputError, key_of, time_of

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_DIGITS_EXACT = 15
"""Whole numbers of so many digits are exact as floats."""

Convert = Callable[[str], Any]


def _boolean(cell: str) -> bool:
    return cell == "true"


_CONVERSIONS: Mapping[str, Convert] = {"int": int, "wide": int, "float": float, "bool": _boolean, "string": str}


class CsvInput(FileInput):
    """The rows of `path`, whose cells are numbers, ``true`` or ``false`` where a whole column is; an empty cell is null."""

    def __init__(self, path: Path, key: str | None, time: str | None) -> None:
        super().__init__(path, key, time)
        self._kinds: dict[str, str] = {}

    def schemas(self) -> tuple[Mapping[str, Any], ...]:
        """Reads the whole file: a column is what all its cells are, text in the end."""
        headings = self._headings()
        kinds: list[str | None] = [None] * len(headings)
        for row in self._rows():
            self.last_line = row.line
            if len(row.cells) != len(headings):
                continue
            for index, cell in enumerate(row.cells):
                kind = kinds[index]
                if cell and kind != "string":
                    kinds[index] = _wider(kind, cell)
        self._kinds = {name: kind or "string" for name, kind in zip(headings, kinds, strict=True)}
        return (event_record(self._kinds, self.name),)

    def lines(self) -> Iterator[Event | BadLine]:
        """All rows below the heading, those with too few or too many cells as bad lines."""
        columns = [(name, field_name(name), _CONVERSIONS[kind]) for name, kind in self._kinds.items()]
        for row in self._rows():
            if row.fault or len(row.cells) != len(columns):
                yield row.bad(row.fault or f"{len(row.cells)} cells under {len(columns)} headings")
                continue
            try:
                read = {name: convert(cell) for (name, _, convert), cell in zip(columns, row.cells, strict=True) if cell}
                "".join(cell for cell in row.cells if cell).encode()
                time_ms = time_of(read[self._time]) if self._time is not None and self._time in read else None
            except ValueError as error:
                yield row.bad(str(error))
                continue
            fields = {new: read.get(name) for name, new, _ in columns}
            yield Event(row.line, key_of(read.get(self._key)) if self._key else None, time_ms, fields)

    def _headings(self) -> list[str]:
        for row in self._reader():
            headings = row.cells
            if row.fault or len(set(headings)) != len(headings) or not all(headings):
                raise InputError(f"{self.name}: line {row.line}: {row.fault or 'the headings are not all there and different'}")
            for option, name in (("key", self._key), ("time", self._time)):
                if name is not None and name not in headings:
                    raise InputError(f"{self.name}: there is no column {name!r} to take the {option} from; there are {', '.join(headings)}")
            return headings
        raise InputError(f"{self.name}: it is empty")

    def _rows(self) -> Iterator["_Row"]:
        rows = self._reader()
        next(rows, None)
        return rows

    def _reader(self) -> Iterator["_Row"]:
        """Each row that is not blank, damaged ones too."""
        with self._open() as file:
            taken: list[str] = []
            reader = csv.reader(_remembered(file, taken), strict=True)
            while True:
                taken.clear()
                try:
                    cells = next(reader)
                except StopIteration:
                    return
                except csv.Error as error:
                    yield _Row(reader.line_num, [], taken, f"not CSV: {error}")
                    continue
                if cells:
                    yield _Row(reader.line_num, cells, taken, "")

    @contextmanager
    def _open(self) -> Iterator[TextIO]:
        """The text of the file; bytes that are not UTF-8 stay recognizable, and make their line a bad one."""
        try:
            with self._path.open("rb") as file, io.TextIOWrapper(file, "utf-8-sig", errors="surrogateescape", newline="") as text:
                yield text
        except OSError as error:
            raise InputError(f"{self.name}: {os.strerror(error.errno or 0)}") from error


class _Row(NamedTuple):
    """Cells of a row, the number of its last line, the lines as they are, and what is wrong with them."""

    line: int
    cells: list[str]
    lines: list[str]
    fault: str

    def bad(self, reason: str) -> BadLine:
        return BadLine(self.line, "".join(self.lines).rstrip("\r\n").encode("utf-8", "surrogateescape"), reason)


def _remembered(lines: Iterable[str], taken: list[str]) -> Iterator[str]:
    for line in lines:
        taken.append(line)
        yield line


def _wider(kind: str | None, cell: str) -> str:
    """Kind of a column of `kind` that also holds `cell`. Long whole numbers beside fractions make text, which keeps all digits."""
    if _INTEGER.fullmatch(cell):
        own = "int" if len(cell) <= _DIGITS_EXACT else "wide"
    elif _NUMBER.fullmatch(cell) and len(cell) <= _DIGITS_EXACT:
        own = "float"
    elif cell in ("true", "false"):
        own = "bool"
    else:
        return "string"
    if kind is None or kind == own:
        return own
    return {frozenset({"int", "float"}): "float", frozenset({"int", "wide"}): "wide"}.get(frozenset({kind, own}), "string")
