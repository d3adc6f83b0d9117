"""Points in a topic as people name them: ``beginning`` or ``earliest``, ``end`` or ``latest``, an offset, the last N, a time."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from moldau.model.identity import Offset, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from moldau.client.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first offset of each partition."""


@dataclass(frozen=True, slots=True)
class End:
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


StartPoint = Beginning | End | AtOffset | LastOffsets | AtTime


def parse_start(text: str) -> StartPoint:
    """``beginning``, ``earliest``, ``end``, ``latest``, ``120``, ``-10``, ``2013-01-01T05:00:00Z``, ``@1357016400000``. ValueError.

    A number is always an offset; milliseconds have the sign before them. A time without a zone is UTC. A time before
    1970 is 1970: to a broker negative timestamps are something else (-1 the end, -2 the beginning).
    """
    word = text.strip()
    match word.lower():
        case "beginning" | "earliest" | "smallest":
            return Beginning()
        case "end" | "latest" | "largest":
            return End()
    sign, digits = (word[0], word[1:]) if word[:1] in ("-", "@") else ("", word)
    if digits.isascii() and digits.isdigit() and len(digits) <= 18:
        kinds: dict[str, Callable[[int], StartPoint]] = {"": AtOffset, "-": LastOffsets, "@": AtTime}
        return kinds[sign](int(digits))
    try:
        moment = datetime.fromisoformat(word)
    except ValueError:
        expected = "beginning, end, an offset, -N for the last N, an ISO time, or @ and milliseconds since 1970"
        raise ValueError(f"{text!r} is none of {expected}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return AtTime(max(0, round(moment.timestamp() * 1000)))


_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_AGO = re.compile(rf"(\d{{1,15}})({'|'.join(_UNIT_MS)})", re.ASCII)


def parse_time(text: str, now_ms: int) -> int:
    """Milliseconds since 1970 of an ISO time, ``@1357016400000``, or so long before now: ``90s``, ``1h``, ``2d``. ValueError."""
    found = _AGO.fullmatch(text.strip())
    if found is not None:
        return max(0, now_ms - int(found[1]) * _UNIT_MS[found[2]])
    try:
        point = parse_start(text)
    except ValueError:
        point = None
    if not isinstance(point, AtTime):
        raise ValueError(f"{text!r} is none of a time ago (90s, 30m, 1h, 2d, 1w), an ISO time, or @ and milliseconds since 1970")
    return point.timestamp_ms


def find_offsets(
    cluster: "Cluster", point: StartPoint, partitions: "Sequence[TopicPartition]", *, isolation_level: int = 0
) -> dict[TopicPartition, Offset]:
    """Where the point is in each partition, asked of the leaders."""
    from moldau.client.partition_requests import EARLIEST, LATEST

    def look_up(timestamp: int) -> dict[TopicPartition, Offset]:
        found = cluster.list_offsets(dict.fromkeys(partitions, timestamp), isolation_level=isolation_level)
        return {where: listed.offset for where, listed in found.items()}

    match point:
        case Beginning():
            return look_up(EARLIEST)
        case End():
            return look_up(LATEST)
        case AtOffset(offset):
            return dict.fromkeys(partitions, Offset(offset))
        case LastOffsets(count):
            first = look_up(EARLIEST)
            return {where: Offset(max(first[where], end - count)) for where, end in look_up(LATEST).items()}
        case AtTime(timestamp_ms):
            end = look_up(LATEST)
            return {where: offset if offset >= 0 else end[where] for where, offset in look_up(timestamp_ms).items()}
