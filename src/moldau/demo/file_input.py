"""What a file of events of one's own has in common, whether it is CSV or JSON lines: three hosts share its lines, in turn."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from moldau.demo.inputs import BadLine, Event, EventInput, Host, service_name

HOSTS = 3


class FileInput(ABC):
    """The lines of `path`; `key` and `time` name fields of theirs."""

    trusted = False
    timed = False

    def __init__(self, path: Path, key: str | None, time: str | None) -> None:
        self.name = str(path)
        self.service = service_name(path)
        self.hosts = tuple(Host("local", f"{self.service}-{number + 1}") for number in range(HOSTS))
        self.last_line = 0
        self._path = path
        self._key = key
        self._time = time

    @abstractmethod
    def schemas(self) -> tuple[Mapping[str, Any], ...]:
        """The schema that all events fit. Reads the whole file. InputError."""

    @abstractmethod
    def lines(self) -> Iterator[Event | BadLine]:
        """Everything, in the order of the file."""

    def version(self, event: Event) -> int:
        """There is one schema."""
        return 0

    def planted(self, event: Event) -> bool:
        """In the second half of the file."""
        return event.line >= self.last_line // 2

    def size_hint(self) -> int | None:
        """Blank lines, and rows of several lines, are not known yet."""
        return self.last_line or None

    def events(self, host: int | None = None) -> Iterator[Event | BadLine]:
        """All lines, or every third one: which host has a line depends on its number alone."""
        for item in self.lines():
            if host is None or item.line % HOSTS == host:
                yield item


def open_input(file: Path | None, key: str | None, time: str | None) -> EventInput:
    """The events of a file, ``.csv`` or JSON lines; None: the flights."""
    if file is None:
        from moldau.demo.flights import FlightsInput

        return FlightsInput()
    from moldau.demo.csv_input import CsvInput
    from moldau.demo.json_input import JsonLinesInput

    return (CsvInput if file.suffix.lower() == ".csv" else JsonLinesInput)(file, key, time)
