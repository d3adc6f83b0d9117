"""An acknowledgement that waits for the disk: with `flush.messages` reached, for the sync that covers its batches."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from moldau.broker.handlers.produce import ProduceOutcome
from moldau.broker.replicas.hosted import HostedPartition
from moldau.broker.replicas.partition_events import Level
from moldau.model.errors import PeerError, StorageError

if TYPE_CHECKING:
    from moldau.broker.broker import Broker


class PendingProduce:
    """A Produce request whose batches are staged and will need a sync. `done` is called when its outcome is known."""

    __slots__ = ("_broker", "_done", "_failures", "_left", "_outcome", "_seen")

    def __init__(self, broker: "Broker", outcome: ProduceOutcome, done: Callable[[], object]) -> None:
        self._broker = broker
        self._outcome = outcome
        self._done = done
        self._left = 1
        """Syncs under way, and one until `start`."""
        self._seen = 0
        self._failures: dict[HostedPartition, StorageError] = {}

    def written(self) -> None:
        """After a write: begin to wait for the sync of what it has written."""
        replicas, unflushed = self._broker.replicas, self._outcome.unflushed
        while self._seen < len(unflushed):
            partition, last_offset = unflushed[self._seen]
            self._seen += 1
            if last_offset < partition.log.log_end_offset:
                self._left += 1
                replicas.wait(partition, last_offset, Level.FLUSHED, partial(self._synced, partition))

    def start(self) -> None:
        """After the last write: wait for the syncs of all that was written; done at once if there are none."""
        self.written()
        self._one_less()

    def _synced(self, partition: HostedPartition, error: PeerError | StorageError | None) -> None:
        if isinstance(error, StorageError):
            self._failures[partition] = error
        self._one_less()

    def _one_less(self) -> None:
        self._left -= 1
        if self._left == 0:
            if self._failures:
                self._outcome.fail(self._failures)
            self._done()
