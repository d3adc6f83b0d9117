"""What an audit found, as a table and lines below it."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from moldau.audit.summary import summaries, verdict_text
from moldau.cli.output import counted, print_table
from moldau.tracking.clock import moment

if TYPE_CHECKING:
    from moldau.audit.told import ToldGap
    from moldau.audit.verdicts import Report, WindowPair

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
    shown = [pair for pair in report.pairs if every_window or pair.noteworthy]
    if shown:
        click.echo()
        rows = [row for pair in shown[:FAULTS_MAX] for row in window_rows(pair, every_window)]
        print_table(FAULTS, rows, numeric=NUMERIC, drop=FAULTS_DROPPED, under=FAULTS_UNDER)
    if len(shown) > FAULTS_MAX:
        click.echo(f"... and {len(shown) - FAULTS_MAX:,} more windows; --json has them all")
    for line in remarks(report).values():
        click.echo(line)


def window_rows(pair: "WindowPair", every_window: bool) -> Iterator[tuple[str, ...]]:
    """The sources at fault, or all of them."""
    head = (pair.topic, moment(pair.window_start_ms), f"{pair.upper_tier} > {pair.lower_tier}")
    for line in pair.sources if every_window else pair.noteworthy:
        where = (line.datacenter, line.service, line.host, line.instance)
        yield *head, verdict_text(line.verdict, line.due_ms), *where, f"{line.upper.count:,}", f"{line.lower.count:,}", line.note


def remarks(report: "Report") -> dict[object, str]:
    """What else there is to say, by what it is about."""
    return dict(_all_remarks(report))


def _all_remarks(report: "Report") -> Iterator[tuple[object, str]]:
    for topic in report.unheard:
        yield ("nothing", topic), f"nothing about topic {topic}: no tier has counts of it"
    if not report.pairs and not report.unheard:
        yield "nothing", "nothing to compare: no window of a topic that two of the tiers are meant to count"
    for tier, topics in report.uncovered.items():
        yet = " yet" if tier in report.awaited else ""
        yield ("uncovered", tier), f"not counted{yet} by tier {tier}: {_names(topics)}"
    for host in report.skewed:
        hours = abs(host.ahead_ms) / 3_600_000
        off = f"{hours:,.1f} h {'ahead' if host.ahead_ms > 0 else 'behind'}"
        yield host, f"clock skewed: host {host.host} ({host.datacenter}, {host.service}) is up to {off} in topic {host.topic}"
    for gap in report.gaps:
        yield gap, _gap(gap)
    yield from _untracked(report)
    for each in report.unreadable:
        yield each, f"unreadable: partition _audit-{each.partition} at offset {each.offset}: {each.reason}"


def _gap(told: "ToldGap") -> str:
    gap = told.gap
    offsets = f"partition {told.topic}-{gap.partition}, offsets {gap.start_offset} to {gap.end_offset - 1}"
    if gap.cause == "gone":
        return f"gap: {offsets} were gone from the log before tier {told.tier} had counted them"
    return f"gap: {offsets} were counted by tier {told.tier}, and then the log lost its end"


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
        yield "untracked", f"untracked, too: {_names(others)}; --json has the numbers"


def _names(topics: Sequence[str]) -> str:
    return ", ".join(topics[:_NAMES_MAX]) + (f" and {counted(len(topics) - _NAMES_MAX, 'topic')} more" if len(topics) > _NAMES_MAX else "")
