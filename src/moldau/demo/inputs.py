"""Where the demonstration's events come from: lines of a file, each with its number, host, key, time and fields.

A line that cannot be read comes out as a `BadInputLine` instead; nothing is left out silently but blank lines of JSON files.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, Protocol

LINE_FIELD = "line"
"""The field of every event that has the number of its line."""


class InputEvent(NamedTuple):
    """One event. `line` is the number of its (last) line in the file, counted from 1; `time_ms` is None where it has no time of its own.

    `fields` are named as in the schema; the line is not among them.
    """

    line: int
    key: str | None
    time_ms: int | None
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class BadInputLine:
    """A line that is no event: its bytes, and why."""

    line: int
    raw: bytes
    reason: str


class DemoHost(NamedTuple):
    """One of the hosts that publish."""

    datacenter: str
    name: str


class InputError(ValueError):
    """The input cannot be used at all; the message names the file."""


class EventInput(Protocol):
    """A file of events, read as often as wanted, each time the same. Pickles."""

    name: str
    """Of the file, for messages."""
    service: str
    """What the hosts run; the topic is named after it."""
    hosts: tuple[DemoHost, ...]
    trusted: bool
    """Whether it is certain that all its lines are events."""
    timed: bool
    """Whether every event has a time of its own."""

    def schemas(self) -> tuple[Mapping[str, Any], ...]:
        """The Avro schemas of the events, each an evolution of the one before. May read the whole file. InputError."""

    def version(self, event: InputEvent) -> int:
        """With which of the schemas an event is written."""

    def planted(self, event: InputEvent) -> bool:
        """Whether an event of the last host is late enough to be the one that is lost with --plant-loss; the first such one is."""

    def late(self, event: InputEvent) -> bool:
        """Whether an event is held back until the stream job takes it for late."""

    def size_hint(self) -> int | None:
        """About how many events there are, for a progress bar."""

    def events(self, host: int | None = None) -> Iterator[InputEvent | BadInputLine]:
        """Everything, or the lines of one host (its number), in the order in which it publishes them; `schemas` has been called before."""


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_of(value: Any) -> int:
    """Milliseconds since 1970 of a field: a number of milliseconds, or ISO 8601 text, UTC unless it has a zone. ValueError."""
    if isinstance(value, int) and not isinstance(value, bool):
        if not 0 <= value < 1 << 47:
            raise ValueError(f"{value} is not a time in milliseconds since 1970")
        return value
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a time")
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    if moment < _EPOCH:
        raise ValueError(f"{value} is before 1970")
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def key_of(value: Any) -> str | None:
    """A field as a key: text as it is, numbers and the like as JSON; None stays None."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def service_name(path: Path) -> str:
    """The file's name without endings, as far as it can be a topic's name."""
    return re.sub("[^A-Za-z0-9_-]+", "-", path.name.split(".")[0] or "events")[:200]
