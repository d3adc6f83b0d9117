"""The audit's counts of what a load took, as they stand in the words of its version: by columns, since there may be many windows.

Counted is what arrived: every record of the load's ranges that has a readable header, whether it went into the table or to the dead
letters, for it did reach the lake. Records without such a header are counted as untracked, by topic.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from moldau.audit.tally import UNTRACKED
from moldau.tracking.counts import Count, CountKey, window_start

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


def counts_to_json(counts: Mapping[CountKey, Count], untracked: int, untracked_bytes: int) -> dict[str, Any]:
    """Counts of one topic as columns; sources (datacenter, service, host, instance) stand once and are named by number. Of records without
    a tracked header their number and the bytes of their values."""
    sources: dict[tuple[str, str, str, str], int] = {}
    keys = sorted(counts, key=lambda key: (key.window_start_ms, key.datacenter, key.service, key.host, key.instance))
    numbers = [sources.setdefault((key.datacenter, key.service, key.host, key.instance), len(sources)) for key in keys]
    values = [counts[key] for key in keys]
    return {
        "untracked": untracked,
        "untrackedBytes": untracked_bytes,
        "sources": [list(source) for source in sources],
        "source": numbers,
        "window": [key.window_start_ms for key in keys],
        "count": [value.count for value in values],
        "bytes": [value.bytes for value in values],
        "checksum": [value.checksum for value in values],
        "min": [value.min_time_ms for value in values],
        "max": [value.max_time_ms for value in values],
    }


def counts_from_json(topic: str, value: Mapping[str, Any]) -> Counts:
    """The counts that `counts_to_json` wrote."""
    columns = (value[name] for name in ("source", "window", "count", "bytes", "checksum", "min", "max"))
    return {
        CountKey(topic, window, *value["sources"][source]): Count(count, octets, checksum, first, last)
        for source, window, count, octets, checksum, first, last in zip(*columns, strict=True)
    }


def untracked_from_json(topic: str, value: Mapping[str, Any], time_ms: int) -> Counts:
    """The untracked records, as an auditor counts them; in the window of `time_ms`, when the version was made."""
    records = value["untracked"]
    if not records:
        return {}
    count = Count(records, value.get("untrackedBytes", 0), 0, time_ms, time_ms)
    return {CountKey(topic, window_start(time_ms), *UNTRACKED): count}
