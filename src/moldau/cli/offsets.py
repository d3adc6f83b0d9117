"""Points in a topic as people name them: ``beginning`` or ``earliest``, ``end`` or ``latest``, an offset, the last N, a time."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from moldau.cli.options import TIME_FORMS, parse_time
from moldau.model.identity import Offset, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from moldau.client.cluster import Cluster


@dataclass(frozen=True, slots=True)
class LogStart:
    """The first offset of each partition."""


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The offset after the last record of each partition."""


@dataclass(frozen=True, slots=True)
class AtOffset:
    """The same offset in each partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class LastOffsets:
    """So many offsets before the end of each partition, or its beginning if it is shorter."""

    count: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record of each partition that is not older; its end if there is none. Milliseconds since 1970."""

    timestamp_ms: int


_OFFSET = re.compile(r"(-?)(\d{1,18})", re.ASCII)

StartPoint = LogStart | LogEnd | AtOffset | LastOffsets | AtTime


POINT_FORMS = f"beginning, end, an offset, -N for the last N of each partition, {TIME_FORMS}"
"""For help texts and messages."""


def parse_point(text: str, now_ms: int) -> StartPoint:
    """``beginning``, ``earliest``, ``end``, ``latest``, ``120``, ``-10``, or a time as `parse_time` reads it. ValueError.

    A number is always an offset: milliseconds have a sign before them, and times ago a unit after them.
    """
    word = text.strip()
    match word.lower():
        case "beginning" | "earliest" | "smallest":
            return LogStart()
        case "end" | "latest" | "largest":
            return LogEnd()
    if found := _OFFSET.fullmatch(word):
        return (LastOffsets if found[1] else AtOffset)(int(found[2]))
    try:
        return AtTime(parse_time(word, now_ms))
    except ValueError:
        raise ValueError(f"{text!r} is none of {POINT_FORMS}") from None


class Point(click.ParamType[StartPoint]):
    """A point in a topic."""

    name = "POINT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> StartPoint:
        """The point, or a usage error."""
        from moldau.tracking.clock import now_ms

        try:
            return parse_point(value, now_ms()) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


POINT = Point()


def find_offsets(
    cluster: "Cluster", point: StartPoint, partitions: "Sequence[TopicPartition]", *, isolation_level: int = 0
) -> dict[TopicPartition, Offset]:
    """Where the point is in each partition, asked of the leaders."""
    from moldau.client.partition_requests import EARLIEST, LATEST

    def look_up(timestamp: int) -> dict[TopicPartition, Offset]:
        found = cluster.list_offsets(dict.fromkeys(partitions, timestamp), isolation_level=isolation_level)
        return {where: listed.offset for where, listed in found.items()}

    match point:
        case LogStart():
            return look_up(EARLIEST)
        case LogEnd():
            return look_up(LATEST)
        case AtOffset(offset):
            return dict.fromkeys(partitions, Offset(offset))
        case LastOffsets(count):
            first = look_up(EARLIEST)
            return {where: Offset(max(first[where], end - count)) for where, end in look_up(LATEST).items()}
        case AtTime(timestamp_ms):
            end = look_up(LATEST)
            return {where: offset if offset >= 0 else end[where] for where, offset in look_up(timestamp_ms).items()}
