"""How the demonstration is shown: bars while it runs at a terminal, a line for each step elsewhere, the report at the end."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from moldau.cli.output import human_bytes, print_table

if TYPE_CHECKING:
    from moldau.lake.demo.report import Report
    from moldau.lake.demo.run import Progress


class _Silent:
    def begin(self, name: str, total: int | None) -> None:
        """Nothing to show."""

    def advance(self, done: int) -> None:
        """Nothing to show."""

    def end(self, events: int, seconds: float) -> None:
        """Nothing to show."""


class _Lines(_Silent):
    """One line on standard error at the end of each step."""

    def __init__(self) -> None:
        self._name = ""

    def begin(self, name: str, total: int | None) -> None:
        self._name = name

    def end(self, events: int, seconds: float) -> None:
        click.echo(f"{self._name}: {_summary(events, seconds)}", err=True)


class _Bars:
    """One bar for each step."""

    def __init__(self, bars: Any) -> None:
        self._bars = bars
        self._task: Any = None

    def begin(self, name: str, total: int | None) -> None:
        self._task = self._bars.add_task(name, total=total, summary="")

    def advance(self, done: int) -> None:
        self._bars.update(self._task, completed=done)

    def end(self, events: int, seconds: float) -> None:
        done = max(events, 1)
        self._bars.update(self._task, total=done, completed=done, summary=_summary(events, seconds))


def _summary(events: int, seconds: float) -> str:
    if not events:
        return f"{seconds:.1f} s"
    return f"{events:,} in {seconds:.1f} s, {events / seconds:,.0f}/s"


@contextmanager
def progress_view(*, quiet: bool) -> "Iterator[Progress]":
    """Whom to tell how it goes."""
    if quiet:
        yield _Silent()
    elif not sys.stderr.isatty():
        yield _Lines()
    else:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

        columns = (
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.description:18}"),
            BarColumn(30),
            TextColumn("{task.fields[summary]}"),
        )
        with Progress(*columns, console=Console(stderr=True)) as bars:
            yield _Bars(bars)


def print_report(report: "Report", *, as_json: bool) -> None:
    """The account, for people or for machines."""
    if as_json:
        click.echo(json.dumps(report.as_json()))
        return
    for bad in report.bad_lines:
        click.echo(f"{report.input}:{bad.line}: {bad.reason}", err=True)
    more = report.expected_dead.events - len(report.bad_lines)
    if more > 0:
        click.echo(f"{report.input}: {more:,} more lines are no events", err=True)
    click.echo()
    print_table(("step", "events", "seconds", "events/s"), _step_rows(report), numeric=("events", "seconds", "events/s"))
    for question in report.questions:
        click.echo(f"\n{question.title}")
        print_table(question.columns, question.rows, numeric=question.columns[1:])
    click.echo()
    print_table(("", "events", "checksum"), _count_rows(report), numeric=("events", "checksum"))
    click.echo(f"\nlag of group {report.lag.group}: {report.lag.before:,} before the load, {report.lag.after:,} after")
    click.echo(f"in the log   {human_bytes(report.log_bytes)}")
    click.echo(
        f"in the lake  {human_bytes(report.lake_bytes)} in {report.lake_files} files: {report.table} at version {report.table_version}"
    )
    if report.complete:
        click.echo("complete: nothing missing, nothing doubled, nothing changed")
    else:
        changed = "" if report.checksums_agree else ", checksums differ"
        click.echo(f"NOT COMPLETE: {report.missing:,} missing, {report.doubled:,} doubled{changed}", err=True)


def _step_rows(report: "Report") -> list[tuple[str, str, str, str]]:
    return [
        (step.name, f"{step.events:,}" if step.events else "", f"{step.seconds:.1f}", f"{step.rate:,.0f}" if step.rate else "")
        for step in report.steps
    ]


def _count_rows(report: "Report") -> list[tuple[str, str, str]]:
    rows = [
        ("read", report.expected.events, f"{report.expected.checksum:016x}"),
        ("published", report.log.events, f"{report.log.checksum:016x}"),
        ("stored", report.lake.events, f"{report.lake.checksum:016x}"),
    ]
    if report.dead_letters.events or report.expected_dead.events:
        rows.append(("dead letters", report.dead_letters.events, f"{report.dead_letters.checksum:016x}"))
    rows += [("missing", report.missing, ""), ("doubled", report.doubled, "")]
    return [(name, f"{count:,}", checksum) for name, count, checksum in rows]
