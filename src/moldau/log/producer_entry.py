"""One producer, as a partition remembers it: its epoch, its last batches, and where its transaction began."""

from typing import NamedTuple

BATCHES_KEPT = 5
NO_SEQUENCE = -1
"""Of batches that a coordinator writes for a producer."""
SEQUENCE_MASK = 2**31 - 1

_stored = tuple.__new__


class StoredBatch(NamedTuple):
    """A batch of a producer as it lies in the log; sequences and offsets of its first and last record."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class ProducerEntry:
    """One producer. Invariant: `next_sequence` follows the last of `batches`, oldest first; it is 0 when there are none."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "next_sequence", "seen_ms", "timestamp", "transaction_start")

    def __init__(self, epoch: int, seen_ms: int) -> None:
        self.epoch = epoch
        self.batches: tuple[StoredBatch, ...] = ()
        self.next_sequence = 0
        self.timestamp = -1
        self.seen_ms = seen_ms
        self.coordinator_epoch = -1
        self.transaction_start = -1

    @property
    def last_sequence(self) -> int:
        """Sequence of the producer's last record, -1 without one."""
        return self.batches[-1].last_sequence if self.batches else -1

    def note(self, sequence: int, delta: int, offset: int, timestamp: int) -> None:
        """Its newest batch; the last five are kept."""
        self.timestamp = timestamp
        if sequence == NO_SEQUENCE:
            self.batches = (StoredBatch(NO_SEQUENCE, NO_SEQUENCE, offset, offset + delta, timestamp),)
            self.next_sequence = 0
            return
        last_sequence = (sequence + delta) & SEQUENCE_MASK
        batch = _stored(StoredBatch, (sequence, last_sequence, offset, offset + delta, timestamp))
        self.batches = (*self.batches[1 - BATCHES_KEPT :], batch)
        self.next_sequence = (last_sequence + 1) & SEQUENCE_MASK

    def bump(self, epoch: int) -> None:
        """Its sequences start anew in another epoch."""
        self.epoch = epoch
        self.batches = ()
        self.next_sequence = 0

    def find(self, sequence: int, delta: int) -> StoredBatch | None:
        """The batch with these first and last sequences, if it is one of the last."""
        last_sequence = (sequence + delta) & SEQUENCE_MASK
        for batch in self.batches:
            if batch.first_sequence == sequence and batch.last_sequence == last_sequence:
                return batch
        return None
