"""Partitions of a mirror's sources, what a member of its group owns of them, and both in JSON.

In JSON shares are grouped by source and topic, and their numbers are ranges, first and last in turn: partitions 0 to 9 and 12 of the topic
`clicks` of the source `paris` are ``{"paris": {"clicks": [0, 9, 12, 12]}}``.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

SHARES_MAX = 1 << 20
"""That are read of one text: ranges take few bytes for many partitions."""


class Share(NamedTuple):
    """A partition of a source: the source's alias, the topic's name there, the number."""

    source: str
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.source}/{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Ownership:
    """What a member owns: it works on it, or has not finished to revoke it."""

    shares: tuple[Share, ...] = ()
    """Invariant: in order, each once."""
    generation_id: int = -1
    """Of the newest assignment that the member has followed."""


NOTHING = Ownership()


def shares_to_json(shares: Iterable[Share]) -> dict[str, dict[str, list[int]]]:
    """See the module."""
    sources: dict[str, dict[str, list[int]]] = {}
    for source, topic, partition in sorted(shares):
        ranges = sources.setdefault(source, {}).setdefault(topic, [])
        if ranges and ranges[-1] == partition - 1:
            ranges[-1] = partition
        else:
            ranges += (partition, partition)
    return sources


def shares_from_json(value: object) -> tuple[Share, ...]:
    """The shares in order. ValueError if they cannot be read, or are more than `SHARES_MAX`."""
    found: set[Share] = set()
    for source, topics in _object(value).items():
        for topic, ranges in _object(topics).items():
            if not isinstance(ranges, list) or len(ranges) % 2 or not all(type(number) is int for number in ranges):
                raise ValueError(f"not ranges of partitions: source {source}, topic {topic}")
            for first, last in zip(ranges[::2], ranges[1::2], strict=True):
                if not 0 <= first <= last or len(found) + last - first >= SHARES_MAX:
                    raise ValueError(f"not a range of partitions: source {source}, topic {topic}, from {first} to {last}")
                found.update(Share(source, topic, number) for number in range(first, last + 1))
    return tuple(sorted(found))


def _object(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value
