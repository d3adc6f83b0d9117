"""The audit's counts of what tasks read, as they stand in the words of a load's version and in the files of a stream's tasks: by columns,
since there may be many windows.

Counted is what arrived: every record of the ranges that has a readable header, whether it went into a table or to the dead letters, for it
did reach the lake. Records without such a header are counted as untracked, by topic.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from moldau.audit.tally import UNTRACKED
from moldau.tracking.counts import Count, CountKey, window_start
from moldau.tracking.latencies import NO_LATENCIES, Latencies

COUNTS_KEY = "moldau.counts"
"""Key of the counts in the words of a version."""
Counts = dict[CountKey, Count]


def added(parts: Iterable[Mapping[CountKey, Count]]) -> Counts:
    """The sum of counts."""
    total: Counts = {}
    for part in parts:
        for key, count in part.items():
            known = total.get(key)
            total[key] = count if known is None else known + count
    return total


@dataclass(slots=True)
class DeadLetterCounts:
    """How many of what was counted went to the dead letters, and the first of those: partition, offset and reason."""

    events: dict[CountKey, int] = field(default_factory=dict)
    untracked: int = 0
    first: tuple[int, int, str] | None = None

    def add(self, other: "DeadLetterCounts") -> None:
        """These too."""
        for key, count in other.events.items():
            self.events[key] = self.events.get(key, 0) + count
        self.untracked += other.untracked
        self.first = min((each for each in (self.first, other.first) if each is not None), default=None)


def latencies_added(parts: Iterable[Mapping[int, Latencies]]) -> dict[int, Latencies]:
    """The sum of latencies by the start of their window."""
    total: dict[int, Latencies] = {}
    for part in parts:
        for start_ms, latencies in part.items():
            total[start_ms] = total.get(start_ms, NO_LATENCIES) + latencies
    return total


def latencies_from_json(value: Mapping[str, Any], committed_ms: int) -> dict[int, Latencies]:
    """By the start of the window, to when the version was committed; versions from before they were counted have none."""
    more_ms = max(0, committed_ms - value.get("seenMs", committed_ms))
    return {int(start_ms): Latencies.from_text(text).later_by(more_ms) for start_ms, text in value.get("latencies", {}).items()}


def counts_to_json(
    counts: Mapping[CountKey, Count],
    untracked: int,
    untracked_bytes: int,
    aside: DeadLetterCounts | None = None,
    *,
    latencies: Mapping[int, Latencies] | None = None,
    seen_ms: int = 0,
) -> dict[str, Any]:
    """Counts of one topic as columns; sources (datacenter, service, host, instance) stand once and are named by number. Of records without
    a tracked header their number and the bytes of their values. Of dead letters their numbers, and the first one. Latencies are to when the
    load was planned, at `seen_ms`, since it is not known yet when it will be committed."""
    aside = aside or DeadLetterCounts()
    sources: dict[tuple[str, str, str, str], int] = {}
    keys = sorted(counts, key=lambda key: (key.window_start_ms, key.datacenter, key.service, key.host, key.instance))
    numbers = [sources.setdefault((key.datacenter, key.service, key.host, key.instance), len(sources)) for key in keys]
    values = [counts[key] for key in keys]
    return {
        "untracked": untracked,
        "untrackedBytes": untracked_bytes,
        "untrackedDead": aside.untracked,
        "firstDead": aside.first,
        "sources": [list(source) for source in sources],
        "source": numbers,
        "window": [key.window_start_ms for key in keys],
        "count": [value.count for value in values],
        "bytes": [value.bytes for value in values],
        "checksum": [value.checksum for value in values],
        "min": [value.min_time_ms for value in values],
        "max": [value.max_time_ms for value in values],
        "dead": [aside.events.get(key, 0) for key in keys],
        **({"seenMs": seen_ms, "latencies": {str(start): each.to_text() for start, each in latencies.items()}} if latencies else {}),
    }


def counts_from_json(topic: str, value: Mapping[str, Any]) -> Counts:
    """The counts that `counts_to_json` wrote."""
    columns = (value[name] for name in ("source", "window", "count", "bytes", "checksum", "min", "max"))
    return {
        CountKey(topic, window, *value["sources"][source]): Count(count, octets, checksum, first, last)
        for source, window, count, octets, checksum, first, last in zip(*columns, strict=True)
    }


def aside_from_json(topic: str, value: Mapping[str, Any]) -> DeadLetterCounts:
    """What `counts_to_json` wrote of dead letters; versions from before it did have nothing of them."""
    dead = value.get("dead", ())
    first = value.get("firstDead")
    return DeadLetterCounts(
        {key: count for key, count in zip(counts_from_json(topic, value), dead, strict=bool(dead)) if count} if any(dead) else {},
        value.get("untrackedDead", 0),
        None if first is None else (first[0], first[1], first[2]),
    )


def dead_letters_of(value: Mapping[str, Any]) -> int:
    """How many dead letters `counts_to_json` wrote of: those too that a killed load had committed."""
    return int(sum(value.get("dead", ())) + value.get("untrackedDead", 0))


def untracked_from_json(topic: str, value: Mapping[str, Any], time_ms: int) -> Counts:
    """The untracked records, as an auditor counts them; in the window of `time_ms`, when the version was made."""
    records = value["untracked"]
    if not records:
        return {}
    count = Count(records, value.get("untrackedBytes", 0), 0, time_ms, time_ms)
    return {CountKey(topic, window_start(time_ms), *UNTRACKED): count}
