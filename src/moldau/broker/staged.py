"""Batches staged in logs during one read, and their write.

All staged views lie in the buffer of the connection that is being read, so a write comes before anything else is received.
"""

import logging
from collections.abc import Callable

from moldau.broker.delayed import DelayedRequests
from moldau.broker.partition import Partition
from moldau.model.errors import StorageError

_LOG = logging.getLogger(__name__)


class StagedWrites:
    """The logs with staged batches."""

    __slots__ = ("_delayed", "_storage_failed", "_written", "dirty")

    def __init__(self, delayed: DelayedRequests, storage_failed: Callable[[Partition, StorageError], object]) -> None:
        self._delayed = delayed
        self._storage_failed = storage_failed
        self.dirty: list[Partition] = []
        """Partitions whose logs have staged batches."""
        self._written: list[tuple[Partition, int]] = []

    def add(self, partition: Partition, count: int) -> None:
        """`count` more bytes are staged in the log of `partition`."""
        if partition.staged_bytes == 0:
            self.dirty.append(partition)
        partition.staged_bytes += count

    def write(self) -> dict[Partition, StorageError]:
        """One write for each log; the logs whose write failed. Of their batches only those are there that `Partition.has_written`."""
        failures: dict[Partition, StorageError] = {}
        dirty, self.dirty = self.dirty, []
        for partition in dirty:
            count, partition.staged_bytes = partition.staged_bytes, 0
            try:
                if not partition.is_open:
                    raise StorageError("the partition went offline", path=str(partition.topic_partition))
                partition.log.write_staged()
                partition.traffic.bytes_in += count
            except StorageError as error:
                failures[partition] = error
            if partition.advance() and partition.watchers:  # also after a failure: what an older segment got is written
                self._written.append((partition, count))
        for partition, failure in failures.items():
            self._storage_failed(partition, failure)
        return failures

    def notify(self) -> None:
        """Complete the fetches that waited for what was written."""
        while self._written:
            written, self._written = self._written, []
            for partition, count in written:
                self._delayed.appended(partition, count)
