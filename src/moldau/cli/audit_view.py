"""What an audit found, as a table, as JSON, and refreshed at a terminal."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from moldau.audit.reconcile import moment
from moldau.audit.summary import overall, summaries
from moldau.audit.verdicts import Verdict
from moldau.cli.output import counted, print_table

if TYPE_CHECKING:
    from moldau.audit.verdicts import Report, SourceLine, WindowPair
    from moldau.tracking.counts import Count

FAULTS_MAX = 50
"""So many windows are listed; --json has all."""
_NAMES_MAX = 10

_SUMMARY = ("topic", "tiers", "windows", "above", "below", "checksum", "verdict", "complete up to")
_NUMERIC = ("windows", "above", "below")


def _summary_rows(report: "Report") -> Iterator[tuple[str, ...]]:
    for each in summaries(report):
        mark = report.watermarks.get((each.topic, each.lower_tier))
        numbers = (f"{sum(each.windows.values()):,}", f"{each.upper.count:,}", f"{each.lower.count:,}")
        checksum = f"{each.lower.checksum:016x}"
        tiers = f"{each.upper_tier} > {each.lower_tier}"
        yield each.topic, tiers, *numbers, checksum, each.verdict_text, "-" if mark is None else moment(mark)


def print_report(report: "Report", *, every_window: bool = False) -> None:
    """The summary, then every window at fault with the sources that are."""
    print_table(_SUMMARY, _summary_rows(report), numeric=_NUMERIC)
    shown = [pair for pair in report.pairs if every_window or pair.noteworthy]
    if shown:
        click.echo()
        columns = ("topic", "window", "tiers", "verdict", "datacenter", "service", "host", "instance", "above", "below", "")
        print_table(columns, (row for pair in shown[:FAULTS_MAX] for row in _window_rows(pair, every_window)), numeric=("above", "below"))
    if len(shown) > FAULTS_MAX:
        click.echo(f"... and {len(shown) - FAULTS_MAX:,} more windows; --json has them all")
    for line in _remarks(report).values():
        click.echo(line)


def _window_rows(pair: "WindowPair", every_window: bool) -> Iterator[tuple[str, ...]]:
    head = (pair.topic, moment(pair.window_start_ms), f"{pair.upper_tier} > {pair.lower_tier}")
    for line in pair.sources if every_window else pair.noteworthy:
        where = (line.datacenter, line.service, line.host, line.instance)
        yield *head, line.verdict.value, *where, f"{line.upper.count:,}", f"{line.lower.count:,}", line.note


def _remarks(report: "Report") -> dict[object, str]:
    """What else there is to say, by what it is about."""
    return dict(_all_remarks(report))


def _all_remarks(report: "Report") -> Iterator[tuple[object, str]]:
    for topic in report.unheard:
        yield ("nothing", topic), f"nothing about topic {topic}: no tier has counts of it"
    if not report.pairs and not report.unheard:
        yield "nothing", "nothing to compare: no window of a topic that two of the tiers are meant to count"
    for tier, topics in report.uncovered.items():
        yield ("uncovered", tier), f"not counted by tier {tier}: {_names(topics)}"
    for host in report.skewed:
        hours = abs(host.ahead_ms) / 3_600_000
        off = f"{hours:,.1f} h {'ahead' if host.ahead_ms > 0 else 'behind'}"
        yield host, f"clock skewed: host {host.host} ({host.datacenter}, {host.service}) is up to {off} in topic {host.topic}"
    yield from _untracked(report)
    for each in report.unreadable:
        yield each, f"unreadable: partition _audit-{each.partition} at offset {each.offset}: {each.reason}"


def _untracked(report: "Report") -> Iterator[tuple[object, str]]:
    """A line for each topic that is compared, and one for all others: queues, logs, and what else is no tracked event."""
    topics: dict[str, list[str]] = {}
    for (tier, topic), count in report.untracked.items():
        topics.setdefault(topic, []).append(f"{counted(count.count, 'record')} of {counted(count.bytes, 'byte')} by tier {tier}")
    compared = {pair.topic for pair in report.pairs} | set(report.unheard)
    for topic in sorted(topics.keys() & compared):
        yield ("untracked", topic), f"untracked in topic {topic}: {', '.join(topics[topic])}"
    others = sorted(topics.keys() - compared)
    if others:
        yield "untracked", f"untracked, too: {_names(others)}; --json has the numbers"


def _names(topics: Sequence[str]) -> str:
    return ", ".join(topics[:_NAMES_MAX]) + (f" and {counted(len(topics) - _NAMES_MAX, 'topic')} more" if len(topics) > _NAMES_MAX else "")


def as_document(report: "Report") -> dict[str, Any]:
    """The whole report for JSON. Times are in ms since 1970, UTC; checksums are 16 hex digits."""
    return {
        "verdict": overall(report),
        "complete": report.complete,
        "tiers": list(report.tiers),
        "topics": [
            {
                "topic": each.topic,
                "upper_tier": each.upper_tier,
                "lower_tier": each.lower_tier,
                "verdict": each.verdict.value,
                "windows": {verdict.value: number for verdict, number in each.windows.items()},
                "upper": _count(each.upper),
                "lower": _count(each.lower),
                "completion_watermark_ms": report.watermarks.get((each.topic, each.lower_tier)),
            }
            for each in summaries(report)
        ],
        "windows": [_window(pair) for pair in report.pairs],
        "untracked": [{"tier": tier, "topic": topic, **_count(count)} for (tier, topic), count in report.untracked.items()],
        "skewed": [
            {"topic": each.topic, "datacenter": each.datacenter, "service": each.service, "host": each.host, "ahead_ms": each.ahead_ms}
            for each in report.skewed
        ],
        "not_counted": {tier: list(topics) for tier, topics in report.uncovered.items()},
        "unknown_topics": list(report.unheard),
        "unreadable": [{"partition": each.partition, "offset": each.offset, "reason": each.reason} for each in report.unreadable],
    }


def _window(pair: "WindowPair") -> dict[str, Any]:
    return {
        "topic": pair.topic,
        "window_start_ms": pair.window_start_ms,
        "window_end_ms": pair.window_end_ms,
        "upper_tier": pair.upper_tier,
        "lower_tier": pair.lower_tier,
        "verdict": pair.verdict.value,
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
        "upper": _count(line.upper),
        "lower": _count(line.lower),
        "note": line.note,
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


@contextmanager
def watching_view() -> "Iterator[Callable[[Report], None]]":
    """What shows one report after the other."""
    if sys.stdout.isatty():
        with _terminal_view() as show:
            yield show
    else:
        yield _Lines().show


@contextmanager
def _terminal_view() -> "Iterator[Callable[[Report], None]]":
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    def drawn(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for name in columns:
            table.add_column(name.upper(), justify="right" if name in _NUMERIC else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(cell, style="bold red" if cell.startswith(_ALARMS) else "") for cell in row))
        return table

    with Live(refresh_per_second=4, transient=False) as live:

        def show(report: "Report") -> None:
            faults = [row[:2] + row[3:] for pair in report.pairs if pair.verdict.alarming for row in _window_rows(pair, False)]
            parts: list[Any] = [drawn(_SUMMARY, _summary_rows(report))]
            if faults:
                columns = ("topic", "window", "verdict", "datacenter", "service", "host", "instance", "above", "below", "")
                parts.append(drawn(columns, faults[:FAULTS_MAX]))
            live.update(Group(*parts, *(Text(line) for line in _remarks(report).values())))

        yield show


_ALARMS = tuple(verdict.value for verdict in Verdict if verdict.alarming)


class _Lines:
    """A line for each change."""

    def __init__(self) -> None:
        self._shown: dict[object, str] = {}

    def show(self, report: "Report") -> None:
        """Print what has changed since the last report."""
        for row in _summary_rows(report):
            topic, tiers, windows, above, below, _, verdict, mark = row
            noun = "window" if windows == "1" else "windows"
            text = f"{topic}: {tiers}: {verdict}; {above} > {below} events in {windows} {noun}, complete up to {mark}"
            self._print((topic, tiers), text)
        for pair in report.pairs:
            if pair.verdict.alarming or (pair.lower_tier, pair.topic, pair.window_start_ms) in self._shown:
                self._print((pair.lower_tier, pair.topic, pair.window_start_ms), _fault(pair))
        for about, line in _remarks(report).items():
            self._print(about, line)

    def _print(self, key: object, text: str) -> None:
        if self._shown.get(key) != text:
            self._shown[key] = text
            click.echo(text)
            sys.stdout.flush()


def _fault(pair: "WindowPair") -> str:
    hosts = "; ".join(
        f"{line.datacenter}/{line.service}/{line.host}/{line.instance}: {line.verdict.value}, {line.note}" for line in pair.noteworthy
    )
    return f"{pair.topic}: {pair.upper_tier} > {pair.lower_tier}: window {moment(pair.window_start_ms)}: {pair.verdict.value}; {hosts}"
