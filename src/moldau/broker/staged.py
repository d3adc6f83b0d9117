"""Batches staged in logs during one read, and their write.

All staged views lie in the buffer of the connection that is being read, so a write comes before anything else is received.
"""

import logging

from moldau.broker.delayed import DelayedRequests
from moldau.broker.replicas.hosted import HostedPartition
from moldau.broker.replicas.manager import ReplicaManager
from moldau.model.errors import StorageError

_LOG = logging.getLogger(__name__)


class StagedWrites:
    """The logs with staged batches."""

    __slots__ = ("_delayed", "_replicas", "_written", "dirty")

    def __init__(self, delayed: DelayedRequests, replicas: ReplicaManager) -> None:
        self._delayed = delayed
        self._replicas = replicas
        self.dirty: list[HostedPartition] = []
        """Partitions whose logs have staged batches."""
        self._written: list[tuple[HostedPartition, int]] = []

    def add(self, partition: HostedPartition, count: int) -> None:
        """`count` more bytes are staged in the log of `partition`."""
        if partition.staged_bytes == 0:
            self.dirty.append(partition)
        partition.staged_bytes += count

    def write(self) -> dict[HostedPartition, StorageError]:
        """One write for each log; the logs whose write failed. Of their batches only those are there that `HostedPartition.has_written`."""
        failures: dict[HostedPartition, StorageError] = {}
        dirty, self.dirty = self.dirty, []
        for partition in dirty:
            count, partition.staged_bytes = partition.staged_bytes, 0
            try:
                if not partition.is_led:
                    raise StorageError("the partition went offline", path=str(partition.topic_partition))
                partition.log.write_staged()
                partition.traffic.bytes_in += count
            except StorageError as error:
                failures[partition] = error
            if self._replicas.wrote(partition) and partition.watchers:  # also after a failure: what an older segment got is written
                self._written.append((partition, count))
        for partition, failure in failures.items():
            self._replicas.storage_failed(partition, failure)
        return failures

    def notify(self) -> None:
        """Complete the fetches that waited for what was written."""
        while self._written:
            written, self._written = self._written, []
            for partition, count in written:
                self._delayed.appended(partition, count)
