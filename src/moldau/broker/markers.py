"""Writing the markers that end a transaction to the partitions that this broker leads (WriteTxnMarkers, and our own coordinator).

Every partition takes one write; then the fetches that waited for the outcome are looked at, and the offsets that a group
committed in the transaction count or are gone. A marker is as safe as an acknowledged batch: with `flush.messages` reached it is on disk
before it is reported as written. Many partitions, and many such offsets, are done in turns (see `slices`).
"""

import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from moldau.broker.coordinators.internal_topics import OFFSETS
from moldau.model.errors import ErrorCode, PeerError, StorageError
from moldau.model.identity import TopicPartition
from moldau.model.steps import UNFINISHED, Steps
from moldau.protocol.records.control import ControlType, EndTxnMarker

if TYPE_CHECKING:
    from moldau.broker.broker import Broker
    from moldau.broker.replicas.hosted import HostedPartition

_LOG = logging.getLogger(__name__)

PARTITIONS_PER_STEP = 10
"""Partitions whose markers are written before other work runs: each takes about 0.06 ms."""
MARKER_BYTES = 78
"""A batch with one control record."""


class Marker(NamedTuple):
    """The end of one transaction, and where it has to be known."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    transaction_version: int
    partitions: Collection[TopicPartition]


MarkerResults = dict[TopicPartition, ErrorCode]
MarkersDone = Callable[[Sequence[MarkerResults]], object]
Check = Callable[["HostedPartition", Marker], object]
"""Raises PeerError for a marker that a partition must not take."""


def write_markers(broker: "Broker", markers: Sequence[Marker], done: MarkersDone, check: Check | None = None) -> None:
    """Write every marker to every partition that passes `check`; then ``done`` with the codes by partition, in the order of `markers`, now
    or later.

    Codes: UNKNOWN_TOPIC_OR_PARTITION for a partition that is gone, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, NOT_ENOUGH_REPLICAS,
    INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
    """
    broker.slices.run(_Writing(broker, done, [{} for _ in markers], check).steps(markers), _report)


class _Staged(NamedTuple):
    """A marker that is in a log, but perhaps not yet where it has to be."""

    partition: "HostedPartition"
    marker: Marker
    results: MarkerResults
    last_offset: int


class _Writing:
    """One call of `write_markers`."""

    __slots__ = ("_broker", "_check", "_done", "_left", "_staged", "results")

    def __init__(self, broker: "Broker", done: MarkersDone, results: list[MarkerResults], check: Check | None) -> None:
        self.results = results
        self._check = check
        self._broker = broker
        self._done = done
        self._staged: list[_Staged] = []
        self._left = 0

    def steps(self, markers: Sequence[Marker]) -> Steps:
        """Do all of it."""
        self._left = 1
        for marker, results in zip(markers, self.results, strict=True):
            partitions = iter(marker.partitions)
            while some := list(islice(partitions, PARTITIONS_PER_STEP)):
                self._stage_all(marker, some, results)
                for offsets in self._write():
                    yield from offsets
                yield UNFINISHED
        self._finished()

    def _stage_all(self, marker: Marker, partitions: Sequence[TopicPartition], results: MarkerResults) -> None:
        """Append a marker to partitions, unwritten."""
        end = EndTxnMarker(ControlType.COMMIT if marker.committed else ControlType.ABORT, marker.coordinator_epoch)
        now_ms = self._broker.clock.time_ms()
        for topic_partition in partitions:
            partition = self._broker.partitions.get(topic_partition)
            if partition is None:
                results[topic_partition] = self._broker.missing_partition(
                    topic_partition.topic.encode(), topic_partition.partition, by_id=False
                ).code
                continue
            try:
                results[topic_partition] = self._stage(partition, marker, end, now_ms, results)
            except PeerError as error:
                results[topic_partition] = error.code
            except StorageError as error:
                results[topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
                self._broker.storage_failed(partition, error)

    def _stage(self, partition: "HostedPartition", marker: Marker, end: EndTxnMarker, now_ms: int, results: MarkerResults) -> ErrorCode:
        if partition.rules.min_insync_replicas > 1:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        if self._check is not None:
            self._check(partition, marker)
        log = partition.log
        before = log.staged_end_offset
        appended = log.append_marker_as_leader(
            marker.producer_id, marker.producer_epoch, end, now_ms, transaction_version=marker.transaction_version
        )
        if log.staged_end_offset > before:
            self._broker.staged_writes.add(partition, MARKER_BYTES)
        self._staged.append(_Staged(partition, marker, results, appended.last_offset))
        return ErrorCode.NONE

    def _write(self) -> list[Steps]:
        """Write what is staged, and tell whom it concerns. The steps have the offsets that groups committed in the transactions count."""
        broker = self._broker
        failures = broker.staged_writes.write()
        written = []
        stages, self._staged = self._staged, []
        for staged in stages:
            if staged.partition in failures or not staged.partition.is_led:
                staged.results[staged.partition.topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
            else:
                written.append(staged)
        offsets = [_end_for_groups(broker, staged) for staged in written if staged.partition.topic_partition.topic == OFFSETS.name]
        for partition in dict.fromkeys(staged.partition for staged in written):
            if partition.watchers:
                broker.delayed.changed(partition)
        broker.staged_writes.notify()
        self._wait(written)
        return offsets

    def _wait(self, written: list[_Staged]) -> None:
        """Report no sooner than those are on disk that have to be."""
        for staged in written:
            log = staged.partition.log
            if staged.last_offset >= log.flushed_offset and log.log_end_offset - log.flushed_offset >= log.config.flush_messages:
                self._left += 1
                self._broker.flusher.wait(staged.partition, staged.last_offset, partial(self._flushed, staged))

    def _flushed(self, staged: _Staged, error: StorageError | None) -> None:
        if error is not None:
            staged.results[staged.partition.topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
        self._finished()

    def _finished(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._done(self.results)


def _report(error: Exception | None) -> None:
    if error is not None:
        _LOG.error("markers not written because of a bug", exc_info=error)


def _end_for_groups(broker: "Broker", staged: _Staged) -> Steps:
    index, marker = staged.partition.topic_partition.partition, staged.marker
    return broker.groups.transaction_ended(index, marker.producer_id, committed=marker.committed)
