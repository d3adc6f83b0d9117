"""The metrics of a process of a mirror, for Prometheus: families, and the endpoint that serves them."""

import asyncio
import socket
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from typing import TYPE_CHECKING

from moldau.adapters.binding import bind
from moldau.adapters.metrics_server import MetricsServer, UnavailableError
from moldau.broker.metrics.families import Family, counter, gauge
from moldau.mirror.state.reports import WHOLE_TOPIC, State

if TYPE_CHECKING:
    from moldau.mirror.process import MirrorProcess
    from moldau.mirror.state.following import Following

ANSWER_S = 10.0
_LABELS = ("source", "topic", "partition")


def families(process: "MirrorProcess", now_ms: int) -> list[Family]:
    """All metrics of a process. What is not known of a partition has no sample."""
    states = gauge("moldau_mirror_partitions", "Partitions of this process by state.", "state")
    halted = gauge(
        "moldau_mirror_partition_halted",
        "Partitions and topics that wait for an operator; without a partition: the topic.",
        *_LABELS,
        "state",
    )
    position = gauge("moldau_mirror_position", "Offset of the source that is mirrored next.", *_LABELS)
    records = gauge("moldau_mirror_lag_records", "Offsets of the source that are not in the target.", *_LABELS)
    size = gauge("moldau_mirror_lag_bytes", "The same in bytes, estimated by what was fetched lately.", *_LABELS)
    age = gauge("moldau_mirror_lag_seconds", "Age of the newest mirrored record while there is a lag, else 0.", *_LABELS)
    bytes_total = counter("moldau_mirror_bytes", "Bytes of batches that were mirrored.", *_LABELS)
    records_total = counter("moldau_mirror_records", "Records that were mirrored.", *_LABELS)
    retrying = gauge("moldau_mirror_retrying", "Whether the process as a whole tries something again.")
    transactions = counter("moldau_mirror_transactions", "Transactions that were committed.")
    retries = counter("moldau_mirror_retries", "What has failed and was tried again.")
    counts = dict.fromkeys(State, 0)
    for row in process.control.rows():
        labels = (row.source, row.topic, "" if row.number == WHOLE_TOPIC else str(row.number))
        if row.state.is_halted:
            halted.add(1, *labels, row.state.value)
        if row.number == WHOLE_TOPIC:
            continue
        counts[row.state] += 1
        for family, value in ((position, row.position), (records, row.lag_records), (size, row.lag_bytes), (age, row.lag_s(now_ms))):
            if value is not None:
                family.add(value, *labels)
    for partition, meter in process.measures.meters():
        labels = (partition.source, partition.topic, str(partition.number))
        bytes_total.add(meter.size, *labels)
        records_total.add(meter.records, *labels)
    for state, count in counts.items():
        states.add(count, state.value)
    retrying.add(bool(process.failure()))
    transactions.add(process.transactions())
    retries.add(process.retry_count)
    return [
        *_following(process.follower.report()),
        states,
        halted,
        position,
        records,
        size,
        age,
        bytes_total,
        records_total,
        retrying,
        transactions,
        retries,
    ]


def _following(report: "Following | None") -> list[Family]:
    """Without samples in processes that do not do it."""
    groups = gauge(
        "moldau_mirror_groups", "Consumer groups whose offsets are mirrored; busy: left alone for members in the target.", "state"
    )
    synced = gauge("moldau_mirror_synced_timestamp_seconds", "End of the last round over groups or configurations.", "subject")
    commits = counter("moldau_mirror_group_commits", "Offsets of groups that were committed in the target.")
    checkpoints = counter("moldau_mirror_checkpoints", "Checkpoints that were written.")
    changed = counter("moldau_mirror_configs_changed", "Configurations that were changed in the target.")
    refused = gauge("moldau_mirror_configs_refused", "Configurations that the target refuses, or that cannot be read.")
    if report is not None:
        for state, count in (("selected", report.groups), ("busy", report.groups_busy), ("failed", report.group_failure_count)):
            groups.add(count, state)
        for subject, at_ms in (("groups", report.groups_ms), ("configs", report.configs_ms)):
            if at_ms:
                synced.add(at_ms / 1000, subject)
        commits.add(report.commits)
        checkpoints.add(report.checkpoints)
        changed.add(report.configs_changed)
        refused.add(report.refused_count)
    return [groups, synced, commits, checkpoints, changed, refused]


class MirrorMetrics:
    """Serves the metrics of a process. Call `serve` once, and `stop` in the end."""

    def __init__(self, host: str, port: int) -> None:
        """Take the port. OSError if it cannot be had."""
        self._sockets: list[socket.socket] = bind(host, port)
        self.address = host, int(self._sockets[0].getsockname()[1])
        self._server: MetricsServer | None = None

    def serve(self, loop: asyncio.AbstractEventLoop, collect: Callable[[], list[Family]]) -> None:
        """Answer from now on. `collect` is called on the loop's thread."""

        def ask() -> list[Family]:
            future: Future[list[Family]] = Future()
            loop.call_soon_threadsafe(_answer, future, collect)
            try:
                return future.result(ANSWER_S)
            except LateError:
                raise UnavailableError(f"the mirror has not answered within {ANSWER_S:g} s") from None

        self._server = MetricsServer(self._sockets, ask, list)
        self._sockets = []
        self._server.start()

    def stop(self) -> None:
        """End; harmless at any time."""
        if self._server is not None:
            self._server.stop()
        for bound in self._sockets:
            bound.close()


def _answer(future: "Future[list[Family]]", collect: Callable[[], list[Family]]) -> None:
    try:
        future.set_result(collect())
    except Exception as error:
        future.set_exception(error)
