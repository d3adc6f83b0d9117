"""What operators order, each in a record of its own of `_mirror_state`, so that two who order at the same time lose nothing.

A record's key is the mirror and what is ordered about; the last record of a key counts, and without a value nothing is ordered.
"""

import json
from typing import Any, NamedTuple

from moldau.mirror.patterns import parse_pattern
from moldau.mirror.selection import Action, Change


class Scope(NamedTuple):
    """What is paused: a partition, a topic, or without either the mirror. A topic of that name of any source."""

    topic: str | None = None
    partition: int | None = None

    def covers(self, topic: str, partition: int) -> bool:
        """Whether this partition is paused by it."""
        return self.topic in (None, topic) and self.partition in (None, partition)

    def contains(self, other: "Scope") -> bool:
        """Whether all that is paused by the other one is paused by it."""
        return self.topic in (None, other.topic) and self.partition in (None, other.partition)

    def __str__(self) -> str:
        if self.topic is None:
            return "the mirror"
        return f"topic {self.topic}" if self.partition is None else f"partition {self.topic}-{self.partition}"


class Pause(NamedTuple):
    """Who has paused something, and when."""

    by: str
    at_ms: int


class Accepted(NamedTuple):
    """An operator takes what has become of a partition's source, and has the mirror continue from there."""

    source: str
    topic: str
    partition: int
    """`WHOLE_TOPIC`: the topic is deleted, and the mirror forgets it."""
    topic_id: bytes
    """With which it continues; of a topic that is deleted the one that it had."""
    offset: int
    """Where it continues."""
    by: str
    at_ms: int


class Withdrawn(NamedTuple):
    """A change that is in force no more."""

    change: Change


Order = Change | Withdrawn | tuple[Scope, Pause | None] | Accepted


def change_record(mirror: str, change: Change, by: str, at_ms: int) -> tuple[bytes, bytes]:
    """Topics come or go."""
    return _change_key(mirror, change), to_json({"by": by, "at_ms": at_ms})


def withdrawn_record(mirror: str, change: Change) -> tuple[bytes, None]:
    """A change is taken back."""
    return _change_key(mirror, change), None


def _change_key(mirror: str, change: Change) -> bytes:
    return to_json({"mirror": mirror, "topics": change.action.value, "pattern": change.pattern.pattern})


def pause_record(mirror: str, scope: Scope, pause: Pause | None) -> tuple[bytes, bytes | None]:
    """A pause, or None to end it."""
    key = {"mirror": mirror, "pause": [scope.topic, scope.partition]}
    return to_json(key), None if pause is None else to_json(pause._asdict())


def accepted_record(mirror: str, accepted: Accepted) -> tuple[bytes, bytes]:
    """A decision about a partition."""
    key = {"mirror": mirror, "accept": [accepted.source, accepted.topic, accepted.partition]}
    return to_json(key), to_json(
        {"topic_id": accepted.topic_id.hex(), "offset": accepted.offset, "by": accepted.by, "at_ms": accepted.at_ms}
    )


def order_in(key: dict[str, Any], value: bytes | None) -> Order | None:
    """The order of a record; None where it orders nothing. ValueError, KeyError, TypeError: it cannot be read."""
    if "pause" in key:
        scope = Scope(*key["pause"])
        return scope, None if value is None else Pause(**json.loads(value))
    if "topics" in key:
        change = Change(Action(key["topics"]), parse_pattern(key["pattern"]))
        return Withdrawn(change) if value is None else change
    if value is None:
        return None
    found = json.loads(value)
    source, topic, partition = key["accept"]
    return Accepted(source, topic, partition, bytes.fromhex(found["topic_id"]), int(found["offset"]), found["by"], int(found["at_ms"]))


def to_json(value: object) -> bytes:
    """Compact."""
    return json.dumps(value, separators=(",", ":")).encode()
