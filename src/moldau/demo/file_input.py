"""Events from a file of lines, CSV with a heading or JSON, each line from one of three hosts."""

import csv
import io
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from moldau.demo.avro_fields import Shape, ShapeError, event_record, field_name, merge_fields, renamed, shape_of
from moldau.demo.inputs import BadInputLine, DemoHost, EventInput, InputError, InputEvent, key_of, service_name, time_of

HOSTS = 3


class FileInput(ABC):
    """The lines of `path`; `key` and `time` name fields of theirs."""

    trusted = False
    timed = False

    def __init__(self, path: Path, key: str | None, time: str | None) -> None:
        self.name = str(path)
        self.service = service_name(path)
        self.hosts = tuple(DemoHost("local", f"{self.service}-{number + 1}") for number in range(HOSTS))
        self.last_line = 0
        self._path = path
        self._key = key
        self._time = time

    @abstractmethod
    def schemas(self) -> tuple[Mapping[str, Any], ...]:
        """The schema that all events fit. Reads the whole file. InputError."""

    @abstractmethod
    def lines(self) -> Iterator[InputEvent | BadInputLine]:
        """Everything, in the order of the file."""

    def version(self, event: InputEvent) -> int:
        """There is one schema."""
        return 0

    def planted(self, event: InputEvent) -> bool:
        """In the second half of the file."""
        return event.line >= self.last_line // 2

    def late(self, event: InputEvent) -> bool:
        """There is no stream job over them."""
        return False

    def size_hint(self) -> int | None:
        """Blank lines, and rows of several lines, are not known yet."""
        return self.last_line or None

    def events(self, host: int | None = None) -> Iterator[InputEvent | BadInputLine]:
        """All lines, or every third one: which host has a line depends on its number alone."""
        for item in self.lines():
            if host is None or item.line % HOSTS == host:
                yield item


def open_input(file: Path | None, key: str | None, time: str | None) -> EventInput:
    """The events of a file, ``.csv`` or JSON lines; None: the flights."""
    if file is None:
        from moldau.demo.flights import FlightsInput

        return FlightsInput()
    return (CsvInput if file.suffix.lower() == ".csv" else JsonLinesInput)(file, key, time)


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

    def lines(self) -> Iterator[InputEvent | BadInputLine]:
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
            yield InputEvent(row.line, key_of(read.get(self._key)) if self._key else None, time_ms, fields)

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

    def bad(self, reason: str) -> BadInputLine:
        return BadInputLine(self.line, "".join(self.lines).rstrip("\r\n").encode("utf-8", "surrogateescape"), reason)


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


_EXACT_MAX = 1 << 53
"""Up to here a float that is a whole number is that number."""


class JsonLinesInput(FileInput):
    """The objects in `path`; `key` and `time` name fields of theirs, an event without such a field has no key or no time."""

    def __init__(self, path: Path, key: str | None, time: str | None) -> None:
        super().__init__(path, key, time)
        self._unfit: dict[int, str] = {}

    def schemas(self) -> tuple[Mapping[str, Any], ...]:
        """Reads the whole file: a field is what all its values are."""
        fields: dict[str, Shape] = {}
        found = False
        for line, raw in self._lines():
            self.last_line = line
            try:
                event = _parse(raw)
                fields = merge_fields(fields, {name: shape_of(value) for name, value in event.items()})
                found = True
            except ShapeError as error:
                self._unfit[line] = str(error)
            except ValueError:
                continue  # comes out as a bad line with the events
        if not found:
            raise InputError(f"{self.name}: there is no event in it")
        return (event_record(fields, self.name),)

    def lines(self) -> Iterator[InputEvent | BadInputLine]:
        """All lines that are not blank."""
        for line, raw in self._lines():
            if line in self._unfit:
                yield BadInputLine(line, raw, self._unfit[line])
                continue
            try:
                event = _parse(raw)
                time_ms = None if self._time is None or event.get(self._time) is None else time_of(event[self._time])
            except ValueError as error:
                yield BadInputLine(line, raw, str(error))
                continue
            yield InputEvent(line, key_of(event.get(self._key)) if self._key else None, time_ms, renamed(event))

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        try:
            with self._path.open("rb") as file:
                for number, raw in enumerate(file, 1):
                    if raw.strip():
                        yield number, raw.rstrip(b"\r\n")
        except OSError as error:
            raise InputError(f"{self.name}: {os.strerror(error.errno or 0)}") from error


def _parse(raw: bytes) -> dict[str, Any]:
    try:
        event = json.loads(raw.decode(), parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error.reason} at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(event, dict):
        raise ValueError("not a JSON object")
    event = plain(event)
    assert isinstance(event, dict)
    try:
        json.dumps(event, ensure_ascii=False, allow_nan=False).encode()
    except ValueError as error:  # a lone surrogate, or a number beyond every float
        raise ValueError(f"not JSON: {error}") from None
    return event


def plain(value: Any) -> Any:
    """A JSON value without the differences that a typed column does not keep: nulls and empty objects in objects, ``1.0`` for ``1``."""
    kind = type(value)
    if kind is float:
        return int(value) if value.is_integer() and abs(value) <= _EXACT_MAX else value
    if kind is list:
        return [plain(item) for item in value]
    if kind is dict:
        fields = {name: plain(item) for name, item in value.items() if item is not None}
        return {name: item for name, item in fields.items() if item != {}}
    return value


def _no_constant(name: str) -> None:
    raise ValueError(f"not JSON: {name} is not a number in JSON")
