"""Writing the markers that end a transaction to the partitions that this broker leads (WriteTxnMarkers, and our own coordinator).

Every partition takes one write; then the fetches that waited for the outcome are attempted, and the offsets that a group committed in the
transaction become visible or are dropped. A marker is as safe as an acknowledged batch: with `flush.messages` reached it is on disk
before it is reported as written. Many partitions, and many such offsets, are done in turns (see `slices`). A mirror's partition takes no
marker: the transactions in it are those of the source.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol

from moldau.broker.replicas.append_batch import MarkerBatch
from moldau.broker.replicas.partition_events import Level
from moldau.cluster.internal_topics import OFFSETS
from moldau.model.errors import ErrorCode, PeerError, StorageError
from moldau.model.identity import TopicPartition
from moldau.model.steps import UNFINISHED, Steps
from moldau.protocol.records.control import ControlType, EndTxnMarker

if TYPE_CHECKING:
    from moldau.broker.admission.slices import SliceScheduler
    from moldau.broker.replicas.hosted import HostedPartition
    from moldau.broker.replicas.manager import ReplicaManager
    from moldau.ports.clock import Clock

_LOG = logging.getLogger(__name__)

PARTITIONS_PER_STEP = 10
"""Partitions whose markers are written before other work runs: each takes about 0.06 ms."""


NO_PARTITION = -1


class TransactionalOffsets(Protocol):
    """Offsets that groups commit in transactions."""

    def transaction_ended(self, partition: int, producer_id: int, *, committed: bool) -> Steps:
        """As :meth:`moldau.broker.groups.coordinator.GroupCoordinator.transaction_ended`."""


class Services(Protocol):
    """What writing markers uses of the broker."""

    @property
    def clock(self) -> "Clock":
        """Its time."""

    @property
    def groups(self) -> TransactionalOffsets:
        """Loaded when first asked for."""

    @property
    def replicas(self) -> "ReplicaManager":
        """Partitions and appends."""

    @property
    def slices(self) -> "SliceScheduler":
        """Work in turns."""


class Marker(NamedTuple):
    """The end of one transaction, and where it has to be known."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    transaction_version: int
    partitions: Collection[TopicPartition]
    state_partition: int = NO_PARTITION
    """The partition of ``__transaction_state`` that the transaction belongs to, where that is known."""


MarkerResults = dict[TopicPartition, ErrorCode]
MarkersDone = Callable[[Sequence[MarkerResults]], object]
Check = Callable[["HostedPartition", Marker], object]
"""Raises PeerError for a marker that a partition must not take."""


def write_markers(broker: Services, markers: Sequence[Marker], done: MarkersDone, check: Check | None = None) -> None:
    """Write every marker to every partition that passes `check`; then ``done`` with the codes by partition, in the order of `markers`, now
    or later.

    Codes: UNKNOWN_TOPIC_OR_PARTITION for a partition that does not exist, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, NOT_ENOUGH_REPLICAS,
    INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED; REQUEST_TIMED_OUT, to be tried again, where a bug kept it from being known.
    """
    writing = _MarkerWrite(broker, done, [{} for _ in markers], check)

    def ended(bug: Exception | None) -> None:
        if bug is not None:
            _LOG.error("markers not written because of a bug", exc_info=bug)
            writing.failed(markers)

    broker.slices.run(writing.steps(markers), ended)


class _MarkerWrite:
    """One call of `write_markers`."""

    __slots__ = ("_broker", "_check", "_done", "_left", "results")

    def __init__(self, broker: Services, done: MarkersDone, results: list[MarkerResults], check: Check | None) -> None:
        self.results = results
        self._check = check
        self._broker = broker
        self._done = done
        self._left = 1
        """Appends that are not acknowledged yet, and one until the last is written."""

    def steps(self, markers: Sequence[Marker]) -> Steps:
        """Do all of it."""
        replicas = self._broker.replicas
        for marker, results in zip(markers, self.results, strict=True):
            partitions = iter(marker.partitions)
            while some := list(islice(partitions, PARTITIONS_PER_STEP)):
                now_ms = self._broker.clock.time_ms()
                offsets: list[Steps] = []
                try:
                    for batch in self._batches(marker, some, results):
                        replicas.append_at_once(batch, now_ms, completes=False)
                        where = batch.partition.topic_partition
                        if batch.error is not None or batch.level is Level.WRITTEN:
                            results[where] = _code(batch.error)
                        else:
                            self._left += 1
                            acknowledged = partial(self._acknowledged, results, where)
                            replicas.wait(batch.partition, batch.last_offset, batch.level, acknowledged, completes=False)
                        if batch.in_log and where.topic == OFFSETS.name:
                            groups, committed = self._broker.groups, marker.committed
                            offsets.append(groups.transaction_ended(where.partition, marker.producer_id, committed=committed))
                finally:
                    replicas.appends.complete()  # once for all: each time may attempt as many fetches as a turn has room for
                for steps in offsets:  # which may wait for followers, whose fetches have been attempted
                    yield from steps
                yield UNFINISHED
        self._finished()

    def failed(self, markers: Sequence[Marker]) -> None:
        """A bug has ended the steps: what is not acknowledged by now has to be tried again. Nothing once all is done."""
        if self._left > 0:
            for marker, results in zip(markers, self.results, strict=True):
                for topic_partition in marker.partitions:
                    results.setdefault(topic_partition, ErrorCode.REQUEST_TIMED_OUT)
            self._left = 0  # later acknowledgements count no more
            self._done(self.results)

    def _batches(self, marker: Marker, partitions: Sequence[TopicPartition], results: MarkerResults) -> list[MarkerBatch]:
        """The markers for those of the partitions that may take one."""
        end = EndTxnMarker(ControlType.COMMIT if marker.committed else ControlType.ABORT, marker.coordinator_epoch)
        batches = []
        for topic_partition in partitions:
            partition = self._broker.replicas.partitions.get(topic_partition)
            try:
                if partition is None:
                    raise self._broker.replicas.missing(topic_partition.topic.encode(), topic_partition.partition, by_id=False)
                if self._check is not None:
                    self._check(partition, marker)
                if partition.machine.is_mirror:  # refuses what clients write, so that the transaction has no record in it
                    results[topic_partition] = ErrorCode.NONE
                    continue
            except PeerError as error:
                results[topic_partition] = error.code
            else:
                batches.append(MarkerBatch(partition, marker.producer_id, marker.producer_epoch, end, marker.transaction_version))
        return batches

    def _acknowledged(self, results: MarkerResults, where: TopicPartition, error: PeerError | StorageError | None) -> None:
        results[where] = _code(error)
        self._finished()

    def _finished(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._done(self.results)


def _code(error: PeerError | StorageError | None) -> ErrorCode:
    return ErrorCode.NONE if error is None else error.code if isinstance(error, PeerError) else ErrorCode.KAFKA_STORAGE_ERROR
