"""What an audit found, as JSON."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from moldau.audit.summary import overall, summaries

if TYPE_CHECKING:
    from moldau.audit.verdicts import Report, SourceLine, WindowPair
    from moldau.tracking.counts import Count


def as_document(report: "Report") -> dict[str, Any]:
    """The whole report. Times are in ms since 1970, UTC; checksums are 16 hex digits."""
    return {
        "verdict": overall(report),
        "complete": report.complete,
        "tiers": list(report.tiers),
        "topics": topics(report),
        "windows": [window(pair) for pair in report.pairs],
        "untracked": [
            {"tier": tier, "topic": topic, **_count(count), "dead_letters": report.dead_letters.get((tier, topic), 0)}
            for (tier, topic), count in report.untracked.items()
        ],
        "skewed": [asdict(each) for each in report.skewed],
        "gaps": [{"tier": each.tier, "topic": each.topic, "time_ms": each.time_ms, **asdict(each.gap)} for each in report.gaps],
        "not_counted": {tier: list(topics) for tier, topics in report.uncovered.items()},
        "unknown_topics": list(report.unheard),
        "unreadable": [asdict(each) for each in report.unreadable],
    }


def topics(report: "Report") -> list[dict[str, Any]]:
    """Each topic and pair of tiers, over all windows."""
    return [
        {
            "topic": each.topic,
            "upper_tier": each.upper_tier,
            "lower_tier": each.lower_tier,
            "verdict": each.verdict.value,
            "due_ms": each.due_ms,
            "dead_letters": each.dead_letters,
            "windows": {verdict.value: number for verdict, number in each.windows.items()},
            "upper": _count(each.upper),
            "lower": _count(each.lower),
            "completion_watermark_ms": report.watermarks.get((each.topic, each.lower_tier)),
        }
        for each in summaries(report)
    ]


def window(pair: "WindowPair") -> dict[str, Any]:
    """One window, with the sources that are not simply complete."""
    return {
        "topic": pair.topic,
        "window_start_ms": pair.window_start_ms,
        "window_end_ms": pair.window_end_ms,
        "upper_tier": pair.upper_tier,
        "lower_tier": pair.lower_tier,
        "verdict": pair.verdict.value,
        "due_ms": pair.due_ms,
        "dead_letters": pair.dead_letters,
        "settled": pair.settled,
        "upper": _count(pair.upper),
        "lower": _count(pair.lower),
        "sources": [_source(line) for line in pair.noteworthy],
    }


def _source(line: "SourceLine") -> dict[str, Any]:
    return {
        "datacenter": line.datacenter,
        "service": line.service,
        "host": line.host,
        "instance": line.instance,
        "verdict": line.verdict.value,
        "due_ms": line.due_ms,
        "upper": _count(line.upper),
        "lower": _count(line.lower),
        "note": line.note,
        "dead_letters": line.dead_letters,
        "clock_skewed": line.skewed,
    }


def _count(count: "Count") -> dict[str, Any]:
    return {
        "count": count.count,
        "bytes": count.bytes,
        "checksum": f"{count.checksum:016x}",
        "min_time_ms": count.min_time_ms,
        "max_time_ms": count.max_time_ms,
    }


def remarks(report: "Report") -> Iterator[tuple[object, dict[str, Any]]]:
    """What else there is to say, each as an object of its own, by what it is about."""
    document = as_document(replace(report, pairs=()))
    for kind in ("untracked", "skewed", "gaps", "unreadable"):
        for each in document[kind]:
            yield (kind, *(each.get(name) for name in _NAMES)), {"kind": kind, **each}
    for tier, missing in document["not_counted"].items():
        yield ("not_counted", tier), {"kind": "not_counted", "tier": tier, "topics": missing}
    for topic in document["unknown_topics"]:
        yield ("unknown_topics", topic), {"kind": "unknown_topic", "topic": topic}


_NAMES = ("tier", "topic", "datacenter", "service", "host", "partition", "offset", "start_offset")
"""What tells remarks of one kind apart."""
