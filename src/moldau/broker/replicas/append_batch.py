"""A batch on its way to a log: a client's, a coordinator's, or the marker that ends a transaction."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moldau.broker.replicas.hosted import HostedPartition
    from moldau.broker.replicas.partition_events import Level
    from moldau.log.partition_log import AppendResult
    from moldau.model.errors import PeerError, StorageError
    from moldau.protocol.records.control import EndTxnMarker
    from moldau.protocol.records.header import BatchHeader

_MARKER = memoryview(bytes(78))
"""As long as a batch with one control record."""


class AppendBatch:
    """A batch that was checked, for a partition, and what became of it. Its memory stays as it is until it is written."""

    __slots__ = (
        "append_time_ms",
        "base_offset",
        "error",
        "header",
        "in_log",
        "last_offset",
        "level",
        "log_start_offset",
        "partition",
        "records",
    )

    base_offset: int
    """Once it is staged, as are the other offsets and times."""
    last_offset: int
    append_time_ms: int
    log_start_offset: int
    level: "Level"
    """What its acknowledgement waits for."""

    def __init__(self, partition: "HostedPartition", records: memoryview, header: "BatchHeader") -> None:
        self.partition = partition
        self.records = records
        self.header = header
        self.error: PeerError | StorageError | None = None
        self.in_log = False
        """Whether the log has it: final after the `write_staged` that follows. With an error it is not as safe as it should be."""

    def stage(self, now_ms: int) -> "AppendResult":
        """Stage it in the log. PeerError, StorageError."""
        return self.partition.log.append_as_leader(self.records, self.header, now_ms)

    def refused(self, now_ms: int) -> None:
        """Too few replicas are in sync: its sender sends it again, and no later batch of an unknown producer may overtake it."""
        header = self.header
        self.partition.log.note_refused(header.producer_id, header.producer_epoch, header.base_sequence, now_ms)


class MarkerBatch(AppendBatch):
    """The control batch that ends a transaction of a producer in a partition."""

    __slots__ = ("_marker", "_producer_epoch", "_producer_id", "_transaction_version")

    def __init__(
        self, partition: "HostedPartition", producer_id: int, producer_epoch: int, marker: "EndTxnMarker", transaction_version: int
    ) -> None:
        self.partition = partition
        self.error = None
        self.in_log = False
        self.records = _MARKER
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._marker = marker
        self._transaction_version = transaction_version

    def stage(self, now_ms: int) -> "AppendResult":
        """Stage it in the log. PeerError, StorageError."""
        return self.partition.log.append_marker_as_leader(
            self._producer_id, self._producer_epoch, self._marker, now_ms, transaction_version=self._transaction_version
        )

    def refused(self, now_ms: int) -> None:
        """Its coordinator sends it until it is taken."""
