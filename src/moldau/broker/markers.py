"""Writing the markers that end a transaction to the partitions that this broker leads (WriteTxnMarkers, and our own coordinator).

All partitions together take one write each; then the fetches that waited for the outcome are looked at, and the offsets that a group
committed in the transaction count or are gone. A marker is as safe as an acknowledged batch: with `flush.messages` reached it is on disk
before it is reported as written.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from moldau.broker.internal_topics import OFFSETS
from moldau.model.errors import ErrorCode, PeerError, StorageError
from moldau.model.identity import TopicPartition
from moldau.protocol.records.control import ControlType, EndTxnMarker

if TYPE_CHECKING:
    from moldau.broker.broker import Broker
    from moldau.broker.partition import Partition

MARKER_BYTES = 78
"""A batch with one control record."""


class Marker(NamedTuple):
    """The end of one transaction, and where it has to be known."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    transaction_version: int
    partitions: Iterable[TopicPartition]


MarkerResults = dict[TopicPartition, ErrorCode]
MarkersDone = Callable[[Sequence[MarkerResults]], object]


def write_markers(broker: "Broker", markers: Sequence[Marker], done: MarkersDone) -> None:
    """Write every marker to every partition; then ``done`` with the codes by partition, in the order of `markers`, now or later.

    Codes: UNKNOWN_TOPIC_OR_PARTITION for a partition that is gone, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, NOT_ENOUGH_REPLICAS,
    INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
    """
    writing = _Writing(broker, done, [{} for _ in markers])
    for marker, results in zip(markers, writing.results, strict=True):
        writing.stage(marker, results)
    writing.write()


class _Staged(NamedTuple):
    """A marker that is in a log, but perhaps not yet where it has to be."""

    partition: "Partition"
    marker: Marker
    results: MarkerResults
    last_offset: int


class _Writing:
    """One call of `write_markers`."""

    __slots__ = ("_broker", "_done", "_left", "_staged", "results")

    def __init__(self, broker: "Broker", done: MarkersDone, results: list[MarkerResults]) -> None:
        self.results = results
        self._broker = broker
        self._done = done
        self._staged: list[_Staged] = []
        self._left = 0

    def stage(self, marker: Marker, results: MarkerResults) -> None:
        """Append a marker to its partitions, unwritten."""
        end = EndTxnMarker(ControlType.COMMIT if marker.committed else ControlType.ABORT, marker.coordinator_epoch)
        now_ms = self._broker.clock.time_ms()
        for topic_partition in marker.partitions:
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

    def _stage(self, partition: "Partition", marker: Marker, end: EndTxnMarker, now_ms: int, results: MarkerResults) -> ErrorCode:
        if partition.rules.min_insync_replicas > 1:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        log = partition.log
        before = log.end_offset
        appended = log.append_marker(marker.producer_id, marker.producer_epoch, end, now_ms, transaction_version=marker.transaction_version)
        if log.end_offset > before:
            self._broker.staged_writes.add(partition, MARKER_BYTES)
        self._staged.append(_Staged(partition, marker, results, appended.last_offset))
        return ErrorCode.NONE

    def write(self) -> None:
        """Write what is staged, and tell whom it concerns."""
        broker = self._broker
        failures = broker.staged_writes.write()
        written = []
        for staged in self._staged:
            if staged.partition in failures or not staged.partition.is_open:
                staged.results[staged.partition.topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
            else:
                written.append(staged)
        for staged in written:
            _tell_groups(broker, staged)
        for partition in {staged.partition for staged in written}:
            if partition.watchers:
                broker.delayed.changed(partition)
        broker.staged_writes.notify()
        self._wait(written)

    def _wait(self, written: list[_Staged]) -> None:
        """Report when those are on disk that have to be."""
        self._left = 1
        for staged in written:
            log = staged.partition.log
            if staged.last_offset >= log.flushed_offset and log.end_offset - log.flushed_offset >= log.config.flush_messages:
                self._left += 1
                self._broker.flusher.wait(staged.partition, staged.last_offset, partial(self._flushed, staged))
        self._finished()

    def _flushed(self, staged: _Staged, error: StorageError | None) -> None:
        if error is not None:
            staged.results[staged.partition.topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
        self._finished()

    def _finished(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._done(self.results)


def _tell_groups(broker: "Broker", staged: _Staged) -> None:
    topic, index = staged.partition.topic_partition
    if topic == OFFSETS.name:
        broker.groups.transaction_ended(index, staged.marker.producer_id, committed=staged.marker.committed)
