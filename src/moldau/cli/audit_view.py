"""What an audit found: a table with lines after it, JSON, and for a watch a terminal that refreshes or what has changed."""

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from moldau.audit.verdicts import Verdict, joined, overall, summaries, verdict_text
from moldau.cli.output import counted, print_table, say, table_lines
from moldau.tracking.clock import moment, now_ms
from moldau.tracking.latencies import QUANTILES, added

if TYPE_CHECKING:
    from moldau.audit.edges import TierEdge
    from moldau.audit.tiers import ReportedGap
    from moldau.audit.verdicts import Report, SourceLine, WindowPair
    from moldau.tracking.counts import Count
    from moldau.tracking.latencies import Latencies


def as_document(report: "Report") -> dict[str, Any]:
    """The whole report. Times are in ms since 1970, UTC; checksums are 16 hex digits."""
    return {
        "verdict": overall(report),
        "complete": report.complete,
        "tiers": list(report.tiers),
        "topics": topics(report),
        "windows": [window(pair) for pair in report.pairs],
        "latencies": latencies(report),
        "untracked": [
            {"tier": tier, "topic": topic, **_count(count), "dead_letters": report.dead_letters.get((tier, topic), 0)}
            for (tier, topic), count in report.untracked.items()
        ],
        "skewed": [asdict(each) for each in report.skewed],
        "gaps": [{"tier": each.tier, "topic": each.topic, "time_ms": each.time_ms, **asdict(each.gap)} for each in report.gaps],
        "not_counted": {tier: list(topics) for tier, topics in report.uncovered.items()},
        "unknown_topics": list(report.unheard),
        "shared_tiers": {tier: list(clusters) for tier, clusters in report.shared.items()},
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
        "undecided_tiers": list(pair.undecided),
        "upper": _count(pair.upper),
        "lower": _count(pair.lower),
        "sources": [_source(line) for line in pair.noteworthy],
    }


def edge(each: "TierEdge") -> dict[str, Any]:
    """An edge of the tree, over all topics and windows."""
    return {
        "upper_tier": each.upper,
        "lower_tier": each.lower,
        "verdict": None if each.verdict is None else each.verdict.value,
        "upper_count": each.above,
        "lower_count": each.below,
        "lag": each.lag,
        "more": each.more,
        "latency": {"count": each.latencies.total} | _quantiles(each.latencies) if each.latencies else None,
    }


def latencies(report: "Report") -> list[dict[str, Any]]:
    """How long the events of each window were on their way to each tier; `window_start_ms` is null for all windows of a topic together."""
    totals: dict[tuple[str, str], list[Latencies]] = {}
    for (topic, tier, _), each in report.latencies.items():
        totals.setdefault((topic, tier), []).append(each)
    return [
        *(_latency(topic, tier, None, added(parts)) for (topic, tier), parts in sorted(totals.items())),
        *(_latency(topic, tier, start_ms, each) for (topic, tier, start_ms), each in report.latencies.items()),
    ]


def _latency(topic: str, tier: str, start_ms: int | None, found: "Latencies") -> dict[str, Any]:
    return {"topic": topic, "tier": tier, "window_start_ms": start_ms, "count": found.total} | _quantiles(found)


def _quantiles(found: "Latencies") -> dict[str, int]:
    return {f"p{round(100 * share)}_ms": found.quantile(share) for share in QUANTILES}


def _source(line: "SourceLine") -> dict[str, Any]:
    return {
        "datacenter": line.datacenter,
        "service": line.service,
        "host": line.host,
        "instance": line.instance,
        "upper_tiers": list(line.upper_tiers),
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
    """The remarks, each as an object of its own, by what it is about."""
    document = as_document(replace(report, pairs=()))
    for kind in ("untracked", "skewed", "gaps", "unreadable"):
        for each in document[kind]:
            yield (kind, *(each.get(name) for name in _NAMES)), {"kind": kind, **each}
    for tier, missing in document["not_counted"].items():
        yield ("not_counted", tier), {"kind": "not_counted", "tier": tier, "topics": missing}
    for tier, clusters in document["shared_tiers"].items():
        yield ("shared_tiers", tier), {"kind": "shared_tier", "tier": tier, "clusters": clusters}
    for topic in document["unknown_topics"]:
        yield ("unknown_topics", topic), {"kind": "unknown_topic", "topic": topic}


_NAMES = ("tier", "topic", "datacenter", "service", "host", "partition", "offset", "start_offset", "source")
"""What distinguishes remarks of one kind."""


FAULTS_MAX = 50
"""So many windows are listed; --json has all."""
_NAMES_MAX = 10

SUMMARY = ("topic", "tiers", "windows", "above", "below", "checksum", "verdict", "complete up to")
NUMERIC = ("windows", "above", "below")
DEAD_LETTERS = "dead letters"
SUMMARY_DROPPED = ("checksum", "windows", "complete up to")
"""The first columns to go where a terminal is narrow."""

FAULTS = ("topic", "window", "tiers", "verdict", "datacenter", "service", "host", "instance", "above", "below", "note")
FAULTS_DROPPED = ("instance", "service", "datacenter", "tiers")
FAULTS_UNDER = "note"


def summary_rows(report: "Report") -> Iterator[tuple[str, ...]]:
    """Each topic and pair of tiers."""
    for each in summaries(report):
        mark = report.watermarks.get((each.topic, each.lower_tier))
        numbers = (f"{sum(each.windows.values()):,}", f"{each.upper.count:,}", f"{each.lower.count:,}")
        checksum = f"{each.lower.checksum:016x}"
        tiers = f"{each.upper_tier} > {each.lower_tier}"
        yield each.topic, tiers, *numbers, checksum, each.verdict_text, "-" if mark is None else moment(mark)


def with_dead_letters(report: "Report") -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The summary's columns and rows, with one of dead letters where there are some."""
    rows, dead = list(summary_rows(report)), [each.dead_letters for each in summaries(report)]
    if not any(dead):
        return SUMMARY, rows
    at = SUMMARY.index("checksum")
    return (*SUMMARY[:at], DEAD_LETTERS, *SUMMARY[at:]), [(*row[:at], f"{n:,}", *row[at:]) for row, n in zip(rows, dead, strict=True)]


def print_report(report: "Report", *, every_window: bool = False) -> None:
    """The summary, then every window at fault with the sources that are."""
    columns, rows = with_dead_letters(report)
    if rows:
        print_table(columns, rows, numeric=(*NUMERIC, DEAD_LETTERS), drop=SUMMARY_DROPPED)
    shown = [pair for pair in report.pairs if every_window or pair.noteworthy or (pair.undecided and pair.verdict is Verdict.NOT_COUNTED)]
    if shown:
        click.echo()
        rows = [row for pair in shown[:FAULTS_MAX] for row in window_rows(pair, every_window)]
        print_table(FAULTS, rows, numeric=NUMERIC, drop=FAULTS_DROPPED, under=FAULTS_UNDER)
    if len(shown) > FAULTS_MAX:
        click.echo(f"... and {len(shown) - FAULTS_MAX:,} more windows; --json has them all")
    for line in remark_lines(report).values():
        click.echo(line)


LATENCY = ("topic", "window", "tier", "events", "p50", "p95", "p99")
LATENCY_NUMERIC = ("events", "p50", "p95", "p99")
EDGES = ("edge", "above", "below", "lag", "verdict", "p50", "p95", "p99")
EDGES_NUMERIC = ("above", "below", "lag", "p50", "p95", "p99")


def print_latencies(report: "Report") -> None:
    """A table of them, of the tiers from the producers down."""
    found = latencies(report)
    if not found:
        say("no tier has published how long events were on their way to it")
        return
    found.sort(key=lambda each: (each["topic"], each["window_start_ms"] or -1, report.tiers.index(each["tier"])))
    rows = [
        (
            *(each["topic"], "all" if each["window_start_ms"] is None else moment(each["window_start_ms"]), each["tier"]),
            *(f"{each['count']:,}", *(seconds(each[f"p{round(100 * share)}_ms"]) for share in QUANTILES)),
        )
        for each in found
    ]
    click.echo()
    print_table(LATENCY, rows, numeric=LATENCY_NUMERIC)


def print_edges(edges: "Iterable[TierEdge]") -> None:
    """A table of the edges of a tree, from the producers down."""
    rows = [
        (
            *(f"{each.upper} > {each.lower}", f"{each.above:,}", f"{each.below:,}", f"{each.lag:,}"),
            "not compared" if each.verdict is None else each.verdict.value,
            *(seconds(each.latencies.quantile(share)) if each.latencies else "-" for share in QUANTILES),
        )
        for each in edges
    ]
    print_table(EDGES, rows, numeric=EDGES_NUMERIC)


def seconds(time_ms: int) -> str:
    """As latencies are shown."""
    return f"{time_ms / 1000:,.3f} s"


def window_rows(pair: "WindowPair", every_window: bool) -> Iterator[tuple[str, ...]]:
    """The sources at fault, or all of them."""
    topic, start = pair.topic, moment(pair.window_start_ms)
    for line in pair.sources if every_window else pair.noteworthy:
        tiers = f"{joined(line.upper_tiers)} > {pair.lower_tier}"
        where = (line.datacenter, line.service, line.host, line.instance)
        counts = (f"{line.upper.count:,}", f"{line.lower.count:,}")
        yield topic, start, tiers, verdict_text(line.verdict, line.due_ms), *where, *counts, line.note
    for tier in pair.undecided if pair.verdict is Verdict.NOT_COUNTED else ():
        verdict = Verdict.NOT_COUNTED.value
        yield topic, start, f"{tier} > {pair.lower_tier}", verdict, "", "", "", "", "", "", f"tier {tier} may still count events of it"


def remark_lines(report: "Report") -> dict[object, str]:
    """The remarks, by what they are about."""
    return dict(_all_remarks(report))


def _all_remarks(report: "Report") -> Iterator[tuple[object, str]]:
    for topic in report.unheard:
        yield ("nothing", topic), f"nothing about topic {topic}: no tier has counts of it"
    if not report.pairs and not report.unheard:
        yield "nothing", "nothing to compare: no window of a topic that two of the tiers are meant to count"
    for tier, topics in report.uncovered.items():
        yet = " yet" if tier in report.awaited else ""
        yield ("uncovered", tier), f"not counted{yet} by tier {tier}: {_names(topics)}"
    for tier, clusters in report.shared.items():
        text = f"tier {tier} is the name of several clusters, {_names(clusters)}: give each auditor its own --tier, and --tree the tiers"
        yield ("shared", tier), text
    for host in report.skewed:
        hours = abs(host.ahead_ms) / 3_600_000
        off = f"{hours:,.1f} h {'ahead' if host.ahead_ms > 0 else 'behind'}"
        yield host, f"clock skewed: host {host.host} ({host.datacenter}, {host.service}) is up to {off} in topic {host.topic}"
    for gap in report.gaps:
        yield gap, _gap(gap)
    yield from _untracked(report)
    for each in report.unreadable:
        where = f" of {each.source}" if each.source else ""
        yield each, f"unreadable: partition _audit-{each.partition}{where} at offset {each.offset}: {each.reason}"


def _gap(reported: "ReportedGap") -> str:
    gap = reported.gap
    offsets = f"partition {reported.topic}-{gap.partition}, offsets {gap.start_offset} to {gap.end_offset - 1}"
    if gap.cause == "gone":
        return f"gap: {offsets} were deleted from the log before tier {reported.tier} had counted them"
    return f"gap: {offsets} were counted by tier {reported.tier}, and then the log lost its end"


def _untracked(report: "Report") -> Iterator[tuple[object, str]]:
    """A line for each topic that is compared, and one for all others: queues, logs, and what else is no tracked event."""
    topics: dict[str, list[str]] = {}
    for (tier, topic), count in report.untracked.items():
        dead = report.dead_letters.get((tier, topic), 0)
        aside = f" ({dead:,} in dead letters)" if dead else ""
        topics.setdefault(topic, []).append(f"{counted(count.count, 'record')} of {counted(count.bytes, 'byte')} by tier {tier}{aside}")
    compared = {pair.topic for pair in report.pairs} | set(report.unheard)
    for topic in sorted(topics.keys() & compared):
        yield ("untracked", topic), f"untracked in topic {topic}: {', '.join(topics[topic])}"
    others = sorted(topics.keys() - compared)
    if others:
        yield "untracked", f"untracked in topics that are not compared: {_names(others)}; --json has the numbers"


def _names(topics: Sequence[str]) -> str:
    return ", ".join(topics[:_NAMES_MAX]) + (f" and {counted(len(topics) - _NAMES_MAX, 'topic')} more" if len(topics) > _NAMES_MAX else "")


@contextmanager
def watching_view(*, as_json: bool = False) -> "Iterator[Callable[[Report], None]]":
    """What shows one report after the other."""
    if as_json:
        yield _ChangeObjects().show
    elif sys.stdout.isatty():
        with _terminal_view() as show:
            yield show
    else:
        yield _ChangeLines().show


@contextmanager
def _terminal_view() -> "Iterator[Callable[[Report], None]]":
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    with Live(refresh_per_second=4, transient=False) as live:

        def show(report: "Report") -> None:
            faults = [row for pair in report.pairs if pair.verdict.alarming for row in window_rows(pair, False)]
            width = live.console.width
            lines = [*table_lines(SUMMARY, summary_rows(report), numeric=NUMERIC, drop=SUMMARY_DROPPED, width=width), ""]
            if faults:
                shown = faults[:FAULTS_MAX]
                lines += [*table_lines(FAULTS, shown, numeric=NUMERIC, drop=FAULTS_DROPPED, under=FAULTS_UNDER, width=width), ""]
            live.update(Group(*map(Text.from_ansi, lines), *(Text(line) for line in remark_lines(report).values())))

        yield show


class _Changes(ABC):
    """Prints what has changed since the report before."""

    def __init__(self) -> None:
        self._shown: dict[object, str] = {}

    def show(self, report: "Report") -> None:
        """Print the changes; what the report no longer contains is forgotten."""
        shown = dict(self._lines(report))
        for key, text in shown.items():
            if self._shown.get(key) != text:
                self._print(text)
        sys.stdout.flush()
        self._shown = shown

    @abstractmethod
    def _lines(self, report: "Report") -> Iterator[tuple[object, str]]:
        """The present lines, by what they are about."""

    def _print(self, text: str) -> None:
        click.echo(text)

    def _faults(self, report: "Report") -> "Iterator[tuple[object, WindowPair]]":
        """Windows at fault, and those that were until now."""
        for pair in report.pairs:
            key = (pair.lower_tier, pair.topic, pair.window_start_ms)
            if pair.verdict.alarming or key in self._shown:
                yield key, pair


class _ChangeLines(_Changes):
    """A line for each change."""

    def _lines(self, report: "Report") -> Iterator[tuple[object, str]]:
        for row in summary_rows(report):
            topic, tiers, windows, above, below, _, verdict, mark = row
            noun = "window" if windows == "1" else "windows"
            yield (topic, tiers), f"{topic}: {tiers}: {verdict}; {above} > {below} events in {windows} {noun}, complete up to {mark}"
        for key, pair in self._faults(report):
            yield key, _fault(pair)
        yield from remark_lines(report).items()


class _ChangeObjects(_Changes):
    """A JSON object in a line for each change: `kind` is of what, `seen_ms` when it was seen."""

    def _lines(self, report: "Report") -> Iterator[tuple[object, str]]:
        for each in topics(report):
            yield (each["topic"], each["lower_tier"]), json.dumps({"kind": "topic", **each}, ensure_ascii=False)
        for key, pair in self._faults(report):
            yield key, json.dumps({"kind": "window", **window(pair)}, ensure_ascii=False)
        for about, remark in remarks(report):
            yield about, json.dumps(remark, ensure_ascii=False)

    def _print(self, text: str) -> None:
        click.echo(f'{{"seen_ms": {now_ms()}, {text[1:]}')


def _fault(pair: "WindowPair") -> str:
    hosts = "; ".join(f"{_source_name(pair, line)}: {_judged(line)}" for line in pair.noteworthy)
    verdict = verdict_text(pair.verdict, pair.due_ms)
    return f"{pair.topic}: {pair.upper_tier} > {pair.lower_tier}: window {moment(pair.window_start_ms)}: {verdict}; {hosts}"


def _source_name(pair: "WindowPair", line: "SourceLine") -> str:
    """With the upper tier that it is in, where there are several."""
    name = f"{line.datacenter}/{line.service}/{line.host}/{line.instance}"
    cluster = joined(line.upper_tiers)
    return name if cluster == pair.upper_tier else f"{name} of {cluster}"


def _judged(line: "SourceLine") -> str:
    verdict = verdict_text(line.verdict, line.due_ms)
    return f"{verdict}, {line.note}" if line.note else verdict
