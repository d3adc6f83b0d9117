"""Where the demonstration's events come from: lines of a file, each with its number, key, time and canonical payload.

A line that cannot be read comes out as a `BadLine` instead; nothing is left out silently but blank lines of JSON files.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, Protocol


class Event(NamedTuple):
    """One event. `line` is the number of its (last) line in the file, counted from 1; `time_ms` is None where it has no time of its own."""

    line: int
    key: str | None
    time_ms: int | None
    payload: bytes


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is no event: its bytes, and why."""

    line: int
    raw: bytes
    reason: str


class InputError(ValueError):
    """The input cannot be used at all; the message names the file."""


class EventInput(Protocol):
    """A file of events, read as often as wanted, each time the same."""

    name: str
    """Of the file, for messages."""
    topic: str
    """Name of a topic for it."""
    trusted: bool
    """Whether it is certain that all its lines are events."""

    def schema(self) -> Any:
        """Arrow schema of the events' fields. May read the whole file. InputError."""

    def size_hint(self) -> int | None:
        """About how many events there are, for a progress bar."""

    def events(self) -> Iterator[Event | BadLine]:
        """Everything, in the order of the lines; `schema` has been called before."""


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_of(value: Any) -> int:
    """Milliseconds since 1970 of a field: a number of milliseconds, or ISO 8601 text, which is UTC unless it says otherwise. ValueError."""
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
    import json

    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def topic_name(path: Path) -> str:
    """The file's name without endings, as far as it can be a topic's name."""
    return re.sub("[^A-Za-z0-9_-]+", "-", path.name.split(".")[0] or "events")[:200]
