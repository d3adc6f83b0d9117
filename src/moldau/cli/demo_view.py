"""How the demonstration is shown: bars while it runs at a terminal, a line for each step elsewhere, the report at the end."""

import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO

import click

from moldau.cli.audit_view import as_document, edge, print_edges
from moldau.cli.audit_view import print_report as print_audit
from moldau.cli.output import human_bytes, print_table
from moldau.cli.terminal import verdict

if TYPE_CHECKING:
    from moldau.demo.crash import CrashReport
    from moldau.demo.report import DemoReport
    from moldau.demo.run import RunProgress
    from moldau.demo.stream_job import StreamFigures


class _Silent:
    def begin(self, name: str, total: int | None) -> None:
        """Nothing to show."""

    def advance(self, name: str, done: int) -> None:
        """Nothing to show."""

    def end(self, name: str, events: int, seconds: float) -> None:
        """Nothing to show."""


class _LineProgress(_Silent):
    """One line on standard error at the end of each step."""

    def __init__(self, errors: TextIO) -> None:
        self._errors = errors

    def end(self, name: str, events: int, seconds: float) -> None:
        click.echo(f"{name}: {_summary(events, seconds)}", file=self._errors)


class _Bars:
    """One bar for each step."""

    def __init__(self, bars: Any) -> None:
        self._bars = bars
        self._tasks: dict[str, Any] = {}
        self._lock = threading.Lock()

    def begin(self, name: str, total: int | None) -> None:
        with self._lock:
            self._tasks[name] = self._bars.add_task(name, total=total, summary="")

    def advance(self, name: str, done: int) -> None:
        self._bars.update(self._tasks[name], completed=done, summary=f"{done:,}")

    def end(self, name: str, events: int, seconds: float) -> None:
        if name not in self._tasks:
            self.begin(name, None)
        done = max(events, 1)
        self._bars.update(self._tasks[name], total=done, completed=done, summary=_summary(events, seconds))


def _summary(events: int, seconds: float) -> str:
    if not events:
        return f"{seconds:.1f} s"
    return f"{events:,} in {seconds:.1f} s, {events / seconds:,.0f}/s"


@contextmanager
def progress_view(*, quiet: bool) -> "Iterator[RunProgress]":
    """The progress view."""
    if quiet:
        yield _Silent()
        return
    with os.fdopen(os.dup(2), "w") as errors:  # stays standard error while that of this process is Spark's log, until Spark has started
        if not errors.isatty():
            yield _LineProgress(errors)
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

        columns = (
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.description:26}"),
            BarColumn(30),
            TextColumn("{task.fields[summary]}"),
        )
        with Progress(*columns, console=Console(file=errors)) as bars:
            yield _Bars(bars)


def print_report(report: "DemoReport", *, as_json: bool) -> None:
    """The account, for people or for machines."""
    if as_json:
        click.echo(json.dumps(document(report)))
        return
    for number, reason in report.bad_shown:
        click.echo(f"{report.input}:{number}: {reason}", err=True)
    more = report.bad_lines - len(report.bad_shown)
    if more > 0:
        click.echo(f"{report.input}: {more:,} more lines are no events", err=True)
    click.echo()
    print_table(("step", "events", "seconds", "events/s"), _step_rows(report), numeric=("events", "seconds", "events/s"))
    for question in report.questions:
        click.echo(f"\n{question.title}")
        numeric = [name for name, *cells in zip(question.columns, *question.rows, strict=True) if all(map(_is_number, cells))]
        print_table(question.columns, question.rows, numeric=numeric)
        if question.more:
            click.echo(f"... and {question.more:,} more rows")
    click.echo("\nReport of the audit")
    print_audit(report.audit)
    click.echo("\nEach edge, with the time from track() to its lower end")
    print_edges(report.edges)
    click.echo()
    for line in _remarks(report):
        click.echo(line)
    if report.complete:
        click.echo(f"{verdict('complete', sys.stdout)}: nothing missing, nothing doubled, nothing changed")
    else:
        text = f"{verdict('NOT COMPLETE', sys.stderr)}: verdict of the audit: {verdict(report.verdict.value, sys.stderr)}"
        sound = report.sound and (report.stream is None or report.stream.holds)
        click.echo(text if sound else f"{text}; {_unsound(report)}", err=True)


def _remarks(report: "DemoReport") -> Iterator[str]:
    proof, sizes = report.proof, report.sizes
    same = "the audit's" if report.checksums_agree else f"not the audit's, {report.lake.count:,} events with {report.lake.checksum:016x}"
    yield (
        f"Spark SQL over the table: {proof.rows:,} rows, {proof.lines:,} different lines, {proof.guids:,} different guids, "
        f"sum of xxhash64(guid) {proof.checksum:016x}: {same}"
    )
    content = "the same" if proof.content == proof.expected_content else f"NOT the same, {proof.expected_content:016x}"
    yield f"sum of xxhash64 of all fields {proof.content:016x}: {content} over {report.input}"
    if report.dead_letters or report.bad_lines:
        yield f"dead letters: {report.dead_letters:,}, for {report.bad_lines:,} bad lines"
    if report.planted_lines:
        planted = ", ".join(f"{number:,}" for number in report.planted_lines)
        yield f"planted loss: the event of line {planted} was counted by its host as acknowledged, and never sent"
    if report.crash is not None:
        yield _crash(report.crash)
    if report.stream is not None:
        yield from _stream(report.stream)
    yield f"lag of group {report.lag.group}: {report.lag.before:,} before the load, {report.lag.after:,} after"
    copies = f" of {report.brokers} brokers" if report.brokers > 1 else ""
    yield f"in the log   {human_bytes(sizes.log_bytes)}{copies}"
    yield f"in the lake  {human_bytes(sizes.lake_bytes)} in {sizes.lake_files} files: {report.table} at version {sizes.table_version}"
    yield f"tiers over time: {report.picture}"


def _crash(crash: "CrashReport") -> str:
    mirror = f"{crash.mirror} and " if crash.mirror else ""
    back = f"; {crash.mirror} mirrored again {crash.mirror_down_s:.1f} s after its end" if crash.mirror else ""
    return (
        f"{mirror}broker {crash.broker} {'were' if mirror else 'was'} killed (SIGKILL) when {crash.sent:,} of {crash.to_send:,} events "
        f"were sent; the broker led {crash.led} of {crash.partitions} partitions, with other leaders {crash.leaderless_s:.1f} s later; "
        f"started again {crash.down_s:.1f} s after its end, in sync {crash.catch_up_s:.1f} s after that{back}"
    )


def _stream(stream: "StreamFigures") -> Iterator[str]:
    killed = "killed (SIGKILL) half way and resumed" if stream.kills else "not killed in this run"
    if stream.restarts:
        killed += f", started again after {stream.restarts} failures of its own"
    yield (
        f"stream job {stream.job}, {killed}: {stream.rows_in:,} rows in, {stream.windows:,} hours of airports out, "
        f"in {stream.topic_rows:,} records of topic {stream.topic} and {stream.table_rows:,} rows of {stream.table}"
    )
    yield (
        f"late events: {stream.provoked:,} were published after the watermark had passed them; the job put {stream.late_events:,} aside as "
        f"late, {stream.provoked_late:,} of these among them"
    )
    same = (
        "the same in topic and table"
        if stream.holds
        else f"NOT as they must be: {stream.different:,} windows differ, {stream.doubled:,} rows twice, "
        f"{stream.provoked - stream.provoked_late:,} late events in windows, {stream.late_events - stream.provoked_late:,} others late"
    )
    yield f"departures and seats by hour and airport of the stream job, and of a query over the loaded table without late events: {same}"


def _unsound(report: "DemoReport") -> str:
    if report.sound:
        return "the stream job's topic or table is not what a query gives"
    if not report.checksums_agree:
        return "the table is not what the audit counted"
    if not report.proof.holds:
        return "the table is not what the input holds"
    return f"{report.dead_letters:,} dead letters for {report.bad_lines:,} bad lines"


def _is_number(cell: object) -> bool:
    return cell is None or isinstance(cell, (int, float))


def _step_rows(report: "DemoReport") -> list[tuple[str, str, str, str]]:
    return [
        (step.name, f"{step.events:,}" if step.events else "", f"{step.seconds:.1f}", f"{step.rate:,.0f}" if step.rate else "")
        for step in report.steps
    ]


def document(report: "DemoReport") -> dict[str, Any]:
    """For machines; checksums as hexadecimal digits. The audit without its windows and their latencies, which may be very many."""
    proof, sizes = report.proof, report.sizes
    audit = as_document(report.audit)
    faults = [each for each in audit.pop("windows") if each["sources"]]
    audit["latencies"] = [each for each in audit["latencies"] if each["window_start_ms"] is None]
    return {
        "input": report.input,
        "topic": report.topic,
        "table": report.table,
        "read": report.read,
        "bad_lines": report.bad_lines,
        "dead_letters": report.dead_letters,
        "planted_lines": list(report.planted_lines),
        "complete": report.complete,
        "audit": {**audit, "faults": faults},
        "edges": [edge(each) for each in report.edges],
        "proof": {
            "rows": proof.rows,
            "lines": proof.lines,
            "guids": proof.guids,
            "checksum": f"{proof.checksum:016x}",
            "content": f"{proof.content:016x}",
            "expected_rows": proof.expected_rows,
            "expected_content": f"{proof.expected_content:016x}",
            "checksum_is_the_audits": report.checksums_agree,
        },
        "brokers": report.brokers,
        "crash": None if report.crash is None else asdict(report.crash),
        "lag": {"group": report.lag.group, "before": report.lag.before, "after": report.lag.after},
        "this_run": {"published": report.sent, "published_bytes": report.sent_bytes, "loaded": report.loaded},
        "sizes": {
            "log_bytes": sizes.log_bytes,
            "lake_bytes": sizes.lake_bytes,
            "lake_files": sizes.lake_files,
            "table_version": sizes.table_version,
        },
        "steps": [
            {"name": step.name, "events": step.events, "seconds": round(step.seconds, 3), "rate": step.rate and round(step.rate)}
            for step in report.steps
        ],
        "questions": [
            {"title": q.title, "sql": q.sql, "columns": list(q.columns), "rows": [list(r) for r in q.rows], "more": q.more}
            for q in report.questions
        ],
        "stream": None if report.stream is None else {**asdict(report.stream), "holds": report.stream.holds},
        "picture": report.picture,
    }
