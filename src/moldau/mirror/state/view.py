"""The newest that is known of each partition of a mirror, of whatever process reported it."""

from collections.abc import Iterable
from typing import NamedTuple

from moldau.mirror.state.board import Board
from moldau.mirror.state.reports import Process, Row, State

SILENT_MS = 20_000
"""A process that has not reported for so long is not taken to run. A report comes every few seconds."""


RETRYING_MS = 60_000
"""What was tried again for so long does not end by itself soon."""


class SeenRow(NamedTuple):
    """A row, and the process that reported it."""

    row: Row
    process: Process
    is_current: bool
    """Whether that process runs."""

    @property
    def retries_long(self) -> bool:
        """Whether it has been tried again for long."""
        row = self.row
        return row.state is State.RETRYING and _is_long(row.since_ms, self.process)

    @property
    def lag_is_known(self) -> bool:
        """Whether the row has the lag as it is now. What was deleted in the source, or promoted, has none."""
        row = self.row
        return row.state in (State.DELETED, State.PROMOTED) or (self.is_current and row.lag_records is not None)


def is_running(process: Process, now_ms: int) -> bool:
    """Whether a process still reports."""
    return not process.ended and now_ms - process.at_ms < SILENT_MS


def retries_long(process: Process) -> bool:
    """Whether a process as a whole has tried something again for long."""
    return bool(process.reason) and _is_long(process.reason_since_ms, process)


def _is_long(since_ms: int, process: Process) -> bool:
    return 0 < since_ms <= process.at_ms - RETRYING_MS


def newest_rows(board: Board, now_ms: int, instances: Iterable[str]) -> list[SeenRow]:
    """By source, topic and partition, of these processes. Of a topic that a running process reports only such reports count."""
    found: dict[tuple[str, str, int], SeenRow] = {}
    current: set[tuple[str, str]] = set()
    for process in sorted((board.processes[name] for name in instances), key=lambda each: (is_running(each, now_ms), each.at_ms)):
        is_current = is_running(process, now_ms)
        for row in board.rows(process.instance):
            found[row.source, row.topic, row.number] = SeenRow(row, process, is_current)
            if is_current:
                current.add((row.source, row.topic))
    return [seen for key, seen in sorted(found.items()) if seen.is_current or key[:2] not in current]
