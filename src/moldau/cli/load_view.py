"""What ``moldau load`` shows: a line at the terminal while it runs, and what became of each topic in a round."""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from moldau.cli.output import counted, visible

if TYPE_CHECKING:
    from moldau.lake.loading.service import LoadOutcome

EVERY_S = 0.2
SHOWN_AFTER_S = 0.5


class LoadProgress:
    """Shows what `doing` returns until it is ended. It has a copy of standard error: that of Spark goes elsewhere while it starts."""

    def __init__(self, doing: Callable[[], str]) -> None:
        self._doing = doing
        self._begun = time.monotonic()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._terminal = os.dup(sys.stderr.fileno()) if sys.stderr.isatty() else None

    def _run(self) -> None:
        while not self._over.wait(EVERY_S):
            passed = time.monotonic() - self._begun
            if passed >= SHOWN_AFTER_S and (what := self._doing()):
                with self._lock:
                    self._write(f"\r{what}, {passed:.0f} s\033[K")

    def _write(self, text: str) -> None:
        if self._terminal is not None:
            os.write(self._terminal, text.encode())

    @contextmanager
    def shown(self) -> Iterator[None]:
        """While this lasts."""
        if self._terminal is None:
            yield
            return
        thread = threading.Thread(target=self._run, name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
            self._write("\r\033[K")
            os.close(self._terminal)
            self._terminal = None

    @contextmanager
    def away(self) -> Iterator[None]:
        """The line is removed while this lasts: something else is printed."""
        with self._lock:
            self._write("\r\033[K")
            yield


def show_outcome(outcome: "LoadOutcome", *, as_json: bool) -> None:
    """One line on standard output, and one on standard error for what went wrong."""
    if as_json:
        click.echo(json.dumps(_described(outcome), ensure_ascii=False))
    elif any(each.ranges for each in outcome.loads):
        click.echo(f"{outcome.job.topic}: {_summary(outcome)}")
    elif outcome.error is None and not outcome.changed:
        click.echo(f"{outcome.job.topic}: nothing new{_skipped(outcome)}")
    if not as_json and outcome.compacted is not None and outcome.compacted.version is not None:
        done = outcome.compacted
        click.echo(f"{outcome.job.topic}: compacted {counted(done.files_before, 'file')} into {done.files_after:,}, version {done.version}")
    merge = None if not outcome.loads else outcome.loads[-1].merge
    if not as_json and merge is not None and merge.changed:
        left_out = f", {counted(merge.rows_without_key, 'row')} without a key" if merge.rows_without_key else ""
        click.echo(f"{outcome.job.topic}: merged into {counted(merge.rows, 'row')}, version {merge.version}{left_out}")
    for problem in _problems(outcome):
        click.echo(f"{outcome.job.topic}: {problem}", err=True)
    sys.stdout.flush()


def _summary(outcome: "LoadOutcome") -> str:
    loads = outcome.loads
    parts = [counted(outcome.rows, "row"), counted(sum(each.files for each in loads), "file")]
    if outcome.dead_letters:
        parts.insert(1, counted(outcome.dead_letters, "dead letter"))
    line = f"{', '.join(parts)}, version {loads[-1].version}, in {outcome.seconds:.1f} s{_skipped(outcome)}"
    first = outcome.first_dead_letter
    return line if first is None else f"{line}; first dead letter: {visible(first)}"


def _skipped(outcome: "LoadOutcome") -> str:
    """The end of the line where records were skipped; empty where none were."""
    counts = [f"{counted(count, 'offset')} of partition {partition}" for partition, count in outcome.skipped.items()]
    return f"; skipped, no longer in the log: {', '.join(counts)}" if counts else ""


def _problems(outcome: "LoadOutcome") -> list[str]:
    found = []
    if outcome.loads:
        last = outcome.loads[-1]
        for what, error in (("group", last.group_error), ("audit", last.audit_error)):
            if error is not None:
                found.append(f"the {what} is not up to date: {error}")
    if outcome.error is not None:
        found.append(f"failed: {outcome.error}")
    return found


def _described(outcome: "LoadOutcome") -> dict[str, Any]:
    loads = outcome.loads
    return {
        "topic": outcome.job.topic,
        "table": outcome.job.table,
        "rows": outcome.rows,
        "dead_letters": outcome.dead_letters,
        "first_dead_letter": outcome.first_dead_letter,
        "files": sum(each.files for each in loads),
        "bytes": sum(each.bytes for each in loads),
        "version": loads[-1].version if loads else None,
        "merged_version": None if not loads or loads[-1].merge is None else loads[-1].merge.version,
        "ranges": [[r.partition, r.start, r.end] for each in loads for r in each.ranges],
        "skipped": {str(partition): count for partition, count in outcome.skipped.items()},
        "seconds": round(outcome.seconds, 3),
        "error": None if outcome.error is None else str(outcome.error),
    }
