"""Writes what a process of a mirror reports of itself into `_mirror_state`, and removes the records that a report needs no more."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from moldau.mirror.state.board import Board, process_key
from moldau.mirror.state.following import Following, following_key
from moldau.mirror.state.reports import OsProcess, Process, Row, chunks_of, process_value
from moldau.mirror.state.topic import STATE, KeyValue, append

if TYPE_CHECKING:
    from moldau.ports.clock import Clock
    from moldau.wire.brokers import Brokers


class Figures(NamedTuple):
    """Of the process as a whole."""

    generation: int
    transactions: int
    retries: int
    reason: str
    """Why it tries something again; empty while it does not."""


class Reporter:
    """See the module. `prepare` comes first."""

    def __init__(self, mirror: str, instance: str, target: "Brokers", clock: "Clock", os_process: OsProcess) -> None:
        self._mirror = mirror
        self._instance = instance
        self._target = target
        self._clock = clock
        self._os_process = os_process
        self._started_ms = clock.time_ms()
        self._failing_since_ms = 0
        """Since when the process as a whole tries something again; 0 while it does not."""
        self._chunks = 0
        """Records with rows that this process may have in the topic."""
        self._reported = 0
        """Those of its last report."""

    def prepare(self, board: Board) -> None:
        """Begin with the records that an earlier process of this instance has left."""
        self._chunks = max(board.chunks(self._instance), default=-1) + 1
        own = board.processes.get(self._instance)
        self._reported = 0 if own is None else own.chunks

    async def write(self, rows: Iterable[Row], figures: Figures, following: Following | None) -> int:
        """Write a report; its size in bytes. `following`: how what comes along with the records is, of the process that does that.

        PeerError, WorldError.
        """
        chunks = chunks_of(rows)
        records: list[KeyValue] = [(process_key(self._mirror, self._instance, number), chunk) for number, chunk in enumerate(chunks)]
        records += [(process_key(self._mirror, self._instance, number), None) for number in range(len(chunks), self._chunks)]
        self._chunks = max(self._chunks, len(chunks))
        if following is not None:
            records.append((following_key(self._mirror), following.encode()))
        await self._append([*records, self._process(len(chunks), figures)])
        self._chunks = self._reported = len(chunks)
        return sum(map(len, chunks))

    async def end(self, figures: Figures) -> None:
        """Write the last report. It leaves the rows as they are: what was known before the process ended. PeerError, WorldError."""
        await self._append([self._process(self._reported, figures, ended=True)])

    async def remove(self, board: Board, instance: str) -> None:
        """Remove all that another process has reported. PeerError, WorldError."""
        chunks = [(process_key(self._mirror, instance, number), None) for number in board.chunks(instance)]
        await self._append([*chunks, (process_key(self._mirror, instance), None)])

    def _process(self, chunks: int, figures: Figures, *, ended: bool = False) -> KeyValue:
        now_ms = self._clock.time_ms()
        self._failing_since_ms = (self._failing_since_ms or now_ms) if figures.reason else 0
        process = Process(
            self._instance,
            now_ms,
            self._started_ms,
            *self._os_process,
            chunks,
            figures.generation,
            figures.transactions,
            figures.retries,
            figures.reason,
            ended,
            self._failing_since_ms,
        )
        return process_key(self._mirror, self._instance), process_value(process)

    async def _append(self, records: Iterable[KeyValue]) -> None:
        await append(self._target, STATE, records, self._clock.time_ms())
