"""One process for a job: which one runs it stands in `_stream_state`, and the job's transactional id fences one that is only slow.

A process takes a job over if no other one runs it: the last one has ended, or does not exist any more on this host, or reports nothing
for `SILENT_S`, which is waited for. Clocks of hosts are not compared: a report counts from when it was read. The process that takes over
becomes the producer of the job's transactional id; from then on the former one is refused at its next batch and its next report.
"""

import contextlib
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from moldau.lake.writing.transactions import ProducerIdentity, TransactionRequests, is_fenced
from moldau.model.errors import MoldauError
from moldau.streams.errors import JobFencedError, JobTakenError
from moldau.streams.generations import BESIDE, beside_name
from moldau.streams.reports import JobOrder, JobReport, JobState, OrderAnswer, QueryReport, encode_report, order_key, process_key
from moldau.streams.state_topic import StateBoard, StateTopic
from moldau.tracking.clock import now_ms

SILENT_S = 10.0
"""A process that has reported nothing for so long does not run any more, or has stopped to."""
REPORT_S = 2.0
_LOOK_S = 0.5
_TIMEOUT_MS = 60_000


def transactional_id(job: str) -> str:
    """The producer of this id is the job's process."""
    return f"moldau-stream:{job}"


def pid_namespace() -> str:
    """Which process ids are meant; empty where there is no such thing."""
    with contextlib.suppress(OSError):
        return os.readlink("/proc/self/ns/pid")
    return ""


class JobClaim:
    """This process's claim of a job. Used by several threads. WorldError, PeerError."""

    def __init__(
        self,
        topic: StateTopic,
        job: str,
        directory: str,
        generation: int = 1,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._topic = topic
        self._transactions = TransactionRequests(topic.cluster)
        self._monotonic, self._sleep = monotonic, sleep
        self._lock = threading.Lock()
        self._owner: ProducerIdentity | None = None
        time_ms = now_ms()
        self._report = JobReport(
            job, uuid.uuid4().hex, socket.gethostname(), os.getpid(), pid_namespace(), 0, time_ms, time_ms, JobState.RUNNING, directory,
            generation=generation,
        )  # fmt: skip
        self.before: JobReport | None = None
        """The last report of the process that had the job before; that of this generation, where it ran beside the job."""

    @property
    def report(self) -> JobReport:
        """What was reported last."""
        return self._report

    @property
    def job(self) -> str:
        """The name that is claimed: of a generation beside the current one `JOB@N`."""
        return self._report.job

    def look(self) -> None:
        """Read the last report of the job, and take nothing."""
        self.before = self._last_report(self._topic.read()) if self._topic.exists() else None

    def take(self) -> None:
        """Become the job's process. JobTakenError if another one runs it, or takes it over at the same time.

        The claim is confirmed before the write, so that the records which it removes are of former processes only, and after it: a process
        that was overtaken meanwhile removes its own.
        """
        job = self._report.job
        with self._lock:
            self._topic.ensure()
            found = self._topic.read().process_of(job)
            if found is not None:
                found = self._wait_until_silent(found)
            self._owner = self._transactions.take_over(transactional_id(job), _TIMEOUT_MS)
            board = self._topic.read()
            former = board.processes(job)
            self.before = self._last_report(board) or found
            beside = board.processes(beside_name(job, self._report.generation))
            epoch = max((each.epoch for each in former), default=0) + 1
            queries = () if self.before is None else self.before.queries
            is_settled = self.before is not None and self.before.settled and self.before.generation == self._report.generation
            self._report = replace(self._report, epoch=epoch, queries=queries, at_ms=now_ms(), settled=is_settled)
            records: dict[bytes, bytes | None] = {process_key(each.job, each.instance): None for each in [*former, *beside]}
            try:
                self._confirm()
                self._topic.write({**records, order_key(job): None, self._key: encode_report(self._report)})
                self._confirm()
            except JobFencedError as error:
                self._topic.write({self._key: None})
                raise JobTakenError(str(error)) from error

    def _last_report(self, board: StateBoard) -> JobReport | None:
        job, generation = self._report.job, self._report.generation
        last = board.process_of(job)
        if last is not None and last.generation == generation:
            return last
        return board.process_of(beside_name(job, generation)) or last

    def confirm(self) -> None:
        """Raise JobFencedError if another process has taken the job over: before anything is written for it."""
        with self._lock:
            self._confirm()

    def write(
        self,
        queries: Sequence[QueryReport],
        state: JobState = JobState.RUNNING,
        error: str | None = None,
        *,
        settled: bool = False,
        answer: OrderAnswer | None = None,
    ) -> JobOrder | None:
        """Report; the order that has come for this process. JobFencedError."""
        with self._lock:
            self._confirm()
            self._report = replace(
                self._report, queries=tuple(queries), state=state, error=error, at_ms=now_ms(), settled=settled, answer=answer
            )
            self._topic.write({self._key: encode_report(self._report)})
            board = self._topic.read()
            job, current = self._report.job, board.generations_of(self._report.job).current
            if current != self._report.generation and BESIDE not in job:
                raise JobFencedError(
                    f"job {job} has switched to generation {current}; this is {self._report.who} of generation {self._report.generation}, "
                    f"which stops here"
                )
            order = board.orders.get(job)
            return order if order is not None and order.instance == self._report.instance else None

    def switch(self, records: Mapping[bytes, bytes], generation: int, directory: str) -> None:
        """Write what makes another generation the job's, and report as that from now on. JobFencedError."""
        with self._lock:
            self._confirm()
            self._topic.write(records)
            self._report = replace(self._report, generation=generation, directory=directory)
            self._confirm()

    def abandon(self) -> None:
        """Remove the report of this process: another claim of it continues."""
        with self._lock:
            self._topic.write({self._key: None})

    @property
    def _key(self) -> bytes:
        return process_key(self._report.job, self._report.instance)

    def _confirm(self) -> None:
        assert self._owner is not None
        try:
            self._owner = self._transactions.raise_epoch(self._owner, _TIMEOUT_MS)
        except MoldauError as error:
            if not is_fenced(error):
                raise
            other = self._topic.read().process_of(self._report.job)
            by = "another process" if other is None or other.instance == self._report.instance else f"{other.who}, since {_time(other)}"
            raise JobFencedError(f"job {self._report.job} was taken over by {by}; this is {self._report.who}, which stops here") from error

    def _wait_until_silent(self, found: JobReport) -> JobReport:
        """The last report of a process that does not run. JobTakenError when it reports again."""
        begun = self._monotonic()
        while found.state is JobState.RUNNING and not self._is_dead(found) and self._monotonic() < begun + SILENT_S:
            self._sleep(_LOOK_S)
            newest = self._topic.read().process_of(found.job)
            if newest is None:
                break
            if newest.state is JobState.RUNNING and (newest.instance, newest.at_ms) != (found.instance, found.at_ms):
                raise JobTakenError(
                    f"job {found.job} is run by {newest.who}, started at {_time(newest)}, which reported just now; "
                    f"moldau stream stop {found.job} stops it"
                )
            found = newest
        return found

    def _is_dead(self, found: JobReport) -> bool:
        """Whether it is known that the process has ended: it ran on this host, and its number is free."""
        if (found.host, found.pid_namespace) != (self._report.host, self._report.pid_namespace):
            return False
        if found.pid == self._report.pid:
            return False  # another job's run in this process, or its number was used again
        try:
            os.kill(found.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            return False
        return False


def _time(report: JobReport) -> str:
    return datetime.fromtimestamp(report.started_ms / 1000, UTC).strftime("%F %T UTC")
