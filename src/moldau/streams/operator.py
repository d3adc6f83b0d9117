"""What an operator sees and orders of the jobs of a cluster, from any host: reports in `_stream_state`, lags by the brokers, a stop."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from moldau.client.partition_requests import LATEST, READ_COMMITTED
from moldau.model.identity import TopicPartition
from moldau.streams.claim import SILENT_S, JobClaim
from moldau.streams.errors import StreamError
from moldau.streams.generations import beside_name
from moldau.streams.reports import JobOrder, JobReport, JobState, OrderKind, QueryReport, encode_order, order_key
from moldau.streams.savepoints import write_savepoint
from moldau.streams.state_topic import StateTopic
from moldau.tracking.clock import now_ms

SILENT = "silent"
"""The state of a process that was running, and reports nothing."""
_LOOK_S = 0.3


class StreamOperator:
    """Asks the cluster that `bootstrap` belongs to. WorldError, PeerError."""

    def __init__(
        self,
        bootstrap: str,
        *,
        timeout_s: float = 10.0,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._topic = StateTopic(bootstrap, timeout_s=timeout_s)
        self._bootstrap = bootstrap
        self._monotonic, self._sleep = monotonic, sleep

    def jobs(self) -> list[str]:
        """All that have ever run here."""
        return self._topic.read_if_there().jobs

    def status(self, job: str) -> dict[str, Any]:
        """How a job stands, as a document. StreamError if it has never run here."""
        report = self._found(job)
        ends = self._ends({(topic, partition) for query in report.queries for topic, of in query.positions.items() for partition in of})
        return job_document(report, ends, now_ms())

    def stop(self, job: str, wait_s: float) -> JobReport:
        """Order the job's process to stop at the end of its batch, and wait until it has; its last report. StreamError, also if it reports
        nothing meanwhile: it has ended without a word, or does not reach the brokers.
        """
        report = self._found(job)
        if report.state is not JobState.RUNNING:
            return report
        self._topic.write({order_key(job): encode_order(JobOrder(report.instance, now_ms()))})
        heard = self._monotonic()
        deadline, last = heard + wait_s, report
        while True:
            now = self._found(job)
            if now.instance != report.instance or now.state is not JobState.RUNNING:
                return now
            if now.at_ms != last.at_ms:
                heard, last = self._monotonic(), now
            if self._monotonic() >= heard + SILENT_S:
                raise StreamError(
                    f"job {job}: {now.who} was not stopped: it has reported nothing for {(now_ms() - now.at_ms) / 1000:.0f} s, "
                    f"and does not run, or does not reach the brokers; the next start of the job takes it over"
                )
            if self._monotonic() >= deadline:
                raise StreamError(
                    f"job {job}: {now.who} has not stopped within {wait_s:g} s; it stops at the end of its batch, if it still runs: "
                    f"its last report is of {(now_ms() - now.at_ms) / 1000:.0f} s ago"
                )
            self._sleep(_LOOK_S)

    def switch(self, job: str, wait_s: float) -> int:
        """Order the process that reprocesses a job to switch to what it makes, and wait until it has; the generation. StreamError."""
        known = self._topic.read_if_there().generations_of(job)
        beside = known.reprocessing
        if beside is None or known.is_switch_open:
            raise StreamError(f"job {job} is not being reprocessed: moldau stream reprocess begins to")
        name = beside_name(job, beside.number)
        report = self._found(name)
        if report.state is not JobState.RUNNING:
            raise StreamError(
                f"job {name} does not run: {report.who}: {report.state.value}; moldau stream reprocess continues it, and switches"
            )
        self._topic.write({order_key(name): encode_order(JobOrder(report.instance, now_ms(), OrderKind.SWITCH))})
        deadline = self._monotonic() + wait_s
        while self._topic.read_if_there().generations_of(job).current != beside.number:
            now = self._topic.read_if_there().process_of(name)
            if now is not None and now.state is JobState.FAILED:
                raise StreamError(f"job {name} has failed: {now.error}")
            if self._monotonic() >= deadline:
                raise StreamError(f"job {name} has not switched within {wait_s:g} s; it does when it has caught up with job {job}")
            self._sleep(_LOOK_S)
        return beside.number

    def savepoint(self, job: str, to: str, wait_s: float) -> JobReport:
        """Copy a job's checkpoints into the directory `to`: by its process between two batches, or here if it has stopped. Its report.

        StreamError, CheckpointError, JobTakenError.
        """
        report = self._found(job)
        if report.state is not JobState.RUNNING:
            return self._copy(report, to)
        at_ms = now_ms()
        self._topic.write({order_key(job): encode_order(JobOrder(report.instance, at_ms, OrderKind.SAVEPOINT, to))})
        deadline = self._monotonic() + wait_s
        while True:
            now = self._found(job)
            if now.instance == report.instance and now.answer is not None and now.answer.order_ms == at_ms:
                if now.answer.error is not None:
                    raise StreamError(f"job {job}: there is no savepoint: {now.answer.error}")
                return now
            if now.instance != report.instance or now.state is not JobState.RUNNING or self._monotonic() >= deadline:
                raise StreamError(f"job {job}: {report.who} has made no savepoint within {wait_s:g} s, and is {now.state.value}: try again")
            self._sleep(_LOOK_S)

    def _copy(self, report: JobReport, to: str) -> JobReport:
        """Under the claim, so that no process begins a batch meanwhile."""
        claim = JobClaim(self._topic, report.job, report.directory, report.generation)
        claim.take()
        try:
            write_savepoint(to, report.job, report.generation, report.directory, report.queries)
        finally:
            claim.write(report.queries, report.state, report.error, settled=report.settled)
        return report

    def close(self) -> None:
        """Close the connections."""
        self._topic.close()

    def _found(self, job: str) -> JobReport:
        report = self._topic.read_if_there().process_of(job)
        if report is None:
            raise StreamError(f"no process has run a job {job} at {self._bootstrap}")
        return report

    def _ends(self, partitions: set[tuple[str, str]]) -> Mapping[tuple[str, str], int]:
        """Where the partitions end now; those of topics that do not exist any more are left out."""
        known = self._topic.cluster.metadata({topic for topic, _ in partitions}).topics if partitions else {}
        counts = {name: len(topic.partitions) for name, topic in known.items() if not topic.error}
        wanted = {TopicPartition(topic, int(number)): LATEST for topic, number in partitions if int(number) < counts.get(topic, 0)}
        found = self._topic.cluster.list_offsets(wanted, isolation_level=READ_COMMITTED) if wanted else {}
        return {(where.topic, str(where.partition)): listed.offset for where, listed in found.items()}


def job_document(report: JobReport, ends: Mapping[tuple[str, str], int], time_ms: int) -> dict[str, Any]:
    """The status of a job. Pure. Times in ms since 1970, lags in records (offsets) and seconds."""
    silent = report.state is JobState.RUNNING and time_ms - report.at_ms > SILENT_S * 1000
    return {
        "job": report.job,
        "state": SILENT if silent else report.state.value,
        "error": report.error,
        "host": report.host,
        "pid": report.pid,
        "instance": report.instance,
        "epoch": report.epoch,
        "started_ms": report.started_ms,
        "reported_ms": report.at_ms,
        "reported_s_ago": max(0, time_ms - report.at_ms) / 1000,
        "directory": report.directory,
        "generation": report.generation,
        "queries": [_query_document(each, ends, time_ms) for each in report.queries],
    }


def _query_document(query: QueryReport, ends: Mapping[tuple[str, str], int], time_ms: int) -> dict[str, Any]:
    lags = {
        topic: sum(max(0, ends[topic, partition] - offset) for partition, offset in positions.items() if (topic, partition) in ends)
        for topic, positions in query.positions.items()
    }
    newest = [
        counts.newest_ms
        for name, counts in query.inputs.items()
        if counts.newest_ms is not None and lags.get(name.partition(" ")[0], 0) > 0
    ]
    lag = sum(lags.values())
    return {
        "query": query.name,
        "run": query.run,
        "outputs": list(query.outputs),
        "batch": query.batch,
        "batch_ms": query.batch_ms,
        "batch_rows": query.batch_rows,
        "finished_ms": query.finished_ms,
        "watermark_ms": query.watermark_ms,
        "lag_records": None if query.batch is None else lag,
        "lag_s": None if query.batch is None else max(0, time_ms - min(newest)) / 1000 if newest else 0.0 if lag == 0 else None,
        "lags": lags,
        "positions": {topic: dict(of) for topic, of in query.positions.items()},
        "inputs": {topic: asdict(counts) for topic, counts in query.inputs.items()},
        "state_rows": query.state_rows,
        "state_bytes": query.state_bytes,
        "late_rows": query.late_rows,
    }
