"""What an audit finds as it goes on: refreshed at a terminal, elsewhere what has changed, as lines or as JSON."""

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from moldau.audit.verdicts import verdict_text
from moldau.cli import audit_view
from moldau.cli.audit_view import (
    FAULTS,
    FAULTS_DROPPED,
    FAULTS_MAX,
    FAULTS_UNDER,
    NUMERIC,
    SUMMARY,
    SUMMARY_DROPPED,
    remark_lines,
    summary_rows,
    window_rows,
)
from moldau.cli.output import table_lines
from moldau.tracking.clock import moment, now_ms

if TYPE_CHECKING:
    from moldau.audit.verdicts import Report, SourceLine, WindowPair


@contextmanager
def watching_view(*, as_json: bool = False) -> "Iterator[Callable[[Report], None]]":
    """What shows one report after the other."""
    if as_json:
        yield _Objects().show
    elif sys.stdout.isatty():
        with _terminal_view() as show:
            yield show
    else:
        yield _Lines().show


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
        """Print it; what the report does not speak of any more is forgotten."""
        shown = dict(self._lines(report))
        for key, text in shown.items():
            if self._shown.get(key) != text:
                self._print(text)
        sys.stdout.flush()
        self._shown = shown

    @abstractmethod
    def _lines(self, report: "Report") -> Iterator[tuple[object, str]]:
        """What there is to say now, by what it is about."""

    def _print(self, text: str) -> None:
        click.echo(text)

    def _faults(self, report: "Report") -> "Iterator[tuple[object, WindowPair]]":
        """Windows at fault, and those that were until now."""
        for pair in report.pairs:
            key = (pair.lower_tier, pair.topic, pair.window_start_ms)
            if pair.verdict.alarming or key in self._shown:
                yield key, pair


class _Lines(_Changes):
    """A line for each change."""

    def _lines(self, report: "Report") -> Iterator[tuple[object, str]]:
        for row in summary_rows(report):
            topic, tiers, windows, above, below, _, verdict, mark = row
            noun = "window" if windows == "1" else "windows"
            yield (topic, tiers), f"{topic}: {tiers}: {verdict}; {above} > {below} events in {windows} {noun}, complete up to {mark}"
        for key, pair in self._faults(report):
            yield key, _fault(pair)
        yield from remark_lines(report).items()


class _Objects(_Changes):
    """A JSON object in a line for each change: `kind` says of what, `seen_ms` when it was seen."""

    def _lines(self, report: "Report") -> Iterator[tuple[object, str]]:
        for each in audit_view.topics(report):
            yield (each["topic"], each["lower_tier"]), json.dumps({"kind": "topic", **each}, ensure_ascii=False)
        for key, pair in self._faults(report):
            yield key, json.dumps({"kind": "window", **audit_view.window(pair)}, ensure_ascii=False)
        for about, remark in audit_view.remarks(report):
            yield about, json.dumps(remark, ensure_ascii=False)

    def _print(self, text: str) -> None:
        click.echo(f'{{"seen_ms": {now_ms()}, {text[1:]}')


def _fault(pair: "WindowPair") -> str:
    hosts = "; ".join(f"{line.datacenter}/{line.service}/{line.host}/{line.instance}: {_judged(line)}" for line in pair.noteworthy)
    verdict = verdict_text(pair.verdict, pair.due_ms)
    return f"{pair.topic}: {pair.upper_tier} > {pair.lower_tier}: window {moment(pair.window_start_ms)}: {verdict}; {hosts}"


def _judged(line: "SourceLine") -> str:
    verdict = verdict_text(line.verdict, line.due_ms)
    return f"{verdict}, {line.note}" if line.note else verdict
