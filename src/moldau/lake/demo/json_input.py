"""Events from a file of JSON lines: one object on each line."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from moldau.lake.checksum import canonical, plain
from moldau.lake.demo.column_types import Shape, ShapeError, arrow_schema, merge_fields, shape_of
from moldau.lake.demo.inputs import BadLine, Event, InputError, key_of, time_of, topic_name


class JsonLinesInput:
    """The objects in `path`; `key` and `time` name fields of theirs, an event without such a field has no key or no time."""

    trusted = False

    def __init__(self, path: Path, key: str | None, time: str | None) -> None:
        self.name = str(path)
        self.topic = topic_name(path)
        self._path = path
        self._key = key
        self._time = time
        self._unfit: dict[int, str] = {}

    def schema(self) -> Any:
        """Reads the whole file: a column is what all its values are."""
        fields: dict[str, Shape] = {}
        found = False
        for line, raw in self._lines():
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
        return arrow_schema(fields)

    def size_hint(self) -> int | None:
        """Not known without reading it."""
        return None

    def events(self) -> Iterator[Event | BadLine]:
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
            yield Event(line, key_of(event.get(self._key)) if self._key else None, time_ms, canonical(event))

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
        canonical(event)
    except ValueError as error:  # a lone surrogate, or a number beyond every float
        raise ValueError(f"not JSON: {error}") from None
    return event


def _no_constant(name: str) -> None:
    raise ValueError(f"not JSON: {name} is not a number in JSON")
