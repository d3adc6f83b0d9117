"""Events from a file of JSON lines: one object on each line."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from moldau.demo.avro_fields import Shape, ShapeError, event_record, merge_fields, renamed, shape_of
from moldau.demo.file_input import FileInput
from moldau.demo.inputs import BadLine, Event, InputError, key_of, time_of

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

    def lines(self) -> Iterator[Event | BadLine]:
        """All lines that are not blank."""
        for line, raw in self._lines():
            if line in self._unfit:
                yield BadLine(line, raw, self._unfit[line])
                continue
            try:
                event = _parse(raw)
                time_ms = None if self._time is None or event.get(self._time) is None else time_of(event[self._time])
            except ValueError as error:
                yield BadLine(line, raw, str(error))
                continue
            yield Event(line, key_of(event.get(self._key)) if self._key else None, time_ms, renamed(event))

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
