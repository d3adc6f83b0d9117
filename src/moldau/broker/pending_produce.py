"""An acknowledgement that waits for the disk: with `flush.messages` reached, for the sync that covers its batches."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from moldau.broker.handlers.produce import ProduceOutcome
from moldau.broker.partition import Partition
from moldau.model.errors import StorageError

if TYPE_CHECKING:
    from moldau.broker.broker import Broker


class PendingProduce:
    """A Produce request whose batches are staged and will need a sync. Without `answer` (acks 0) nobody waits for it."""

    __slots__ = ("_answer", "_broker", "_failures", "_left", "_outcome")

    def __init__(self, broker: "Broker", outcome: ProduceOutcome, answer: Callable[[tuple[bytes]], object] | None) -> None:
        self._broker = broker
        self._outcome = outcome
        self._answer = answer
        self._left = 0
        self._failures: dict[Partition, StorageError] = {}

    def start(self) -> None:
        """After the write: wait for the sync of whatever was written; answer at once if nothing was."""
        outcome, flusher = self._outcome, self._broker.flusher
        waiting = [(partition, last_offset) for partition, last_offset in outcome.unflushed if last_offset < partition.log.written_offset]
        self._left = len(waiting)
        if not waiting:
            self._finish()
        for partition, last_offset in waiting:
            flusher.wait(partition, last_offset, partial(self._done, partition))

    def _done(self, partition: Partition, error: StorageError | None) -> None:
        if error is not None:
            self._failures[partition] = error
        self._left -= 1
        if self._left == 0:
            self._finish()

    def _finish(self) -> None:
        if self._failures:
            self._outcome.fail(self._failures)
        if self._answer is not None:
            self._answer((self._outcome.encode(),))
