"""What a partition remembers of each idempotent producer, so that a batch sent twice is stored once (KIP-98).

A producer numbers its records per partition. Of each producer the last five batches are kept. For a batch that comes in::

    producer unknown                     taken, whatever its sequence (its state may have expired)
    same epoch, next in sequence         taken
    same epoch, one of the last five     not stored again: answered with the first offset it got then
    same epoch, anything else            OUT_OF_ORDER_SEQUENCE_NUMBER
    newer epoch, sequence 0              taken, the older epoch's batches are forgotten
    newer epoch, any other sequence      OUT_OF_ORDER_SEQUENCE_NUMBER
    older epoch                          INVALID_PRODUCER_EPOCH

After sequence 2^31 - 1 follows 0. Batches are noted when they are staged; `undo` takes back those whose write failed.
A snapshot holds only each producer's last batch (the file is Kafka's), yet a producer may send up to five again after a restart. So when
a batch would be refused, the batches before the snapshot are looked up in the log, once (`look_back`).
Expiry goes by the time of the append, not by the records' timestamps as in Kafka: else a producer that writes events of years ago
would lose its state at the next check.
"""

from collections.abc import Callable
from typing import NamedTuple

from moldau.model.errors import ErrorCode, PeerError
from moldau.protocol.records.header import BatchHeader

BATCHES_KEPT = 5
_SEQUENCE_MASK = 2**31 - 1


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


_Before = tuple[int, ProducerEntry | None, int, tuple[StoredBatch, ...], int, int]
_stored = tuple.__new__


class Producers:
    """All producers of one partition, by id."""

    __slots__ = ("_undo", "entries", "look_back", "partition")

    def __init__(self, partition: str) -> None:
        self.partition = partition
        self.entries: dict[int, ProducerEntry] = {}
        self.look_back: Callable[[], dict[int, ProducerEntry]] | None = None
        """Finds the state before the snapshot that `entries` come from."""
        self._undo: list[_Before] = []

    def stage(
        self, producer_id: int, epoch: int, sequence: int, delta: int, offset: int, timestamp: int, now_ms: int
    ) -> StoredBatch | None:
        """Note a batch that is about to be stored at `offset`, or find the one that it repeats. PeerError after the table above."""
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(epoch, now_ms)
            self._undo.append((producer_id, None, 0, (), 0, 0))
        elif epoch == entry.epoch and sequence == entry.next_sequence:
            self._undo.append((producer_id, entry, epoch, entry.batches, sequence, entry.timestamp))
        else:
            repeated = self._repeated_or_refused(producer_id, entry, epoch, sequence, delta)
            if repeated is not None:
                return repeated
            self._undo.append((producer_id, entry, entry.epoch, entry.batches, entry.next_sequence, entry.timestamp))
            entry.epoch = epoch
            entry.batches = ()
        self._note(entry, sequence, delta, offset, timestamp)
        entry.seen_ms = now_ms
        return None

    def commit(self) -> None:
        """What was staged is written."""
        self._undo.clear()

    def undo(self) -> None:
        """What was staged was not written: go back to the state before."""
        while self._undo:
            producer_id, entry, epoch, batches, next_sequence, timestamp = self._undo.pop()
            if entry is None:
                del self.entries[producer_id]
            else:
                entry.epoch, entry.batches, entry.next_sequence, entry.timestamp = epoch, batches, next_sequence, timestamp

    def replay(self, header: BatchHeader, now_ms: int) -> None:
        """Note a batch of a producer that is in the log already (recovery): no rule applies any more."""
        epoch = header.producer_epoch
        entry = self.entries.get(header.producer_id)
        if entry is None:
            entry = self.entries[header.producer_id] = ProducerEntry(epoch, now_ms)
        elif epoch != entry.epoch:
            entry.epoch = epoch
            entry.batches = ()
            entry.next_sequence = 0
        if header.is_control:
            entry.transaction_start = -1
            entry.timestamp = header.max_timestamp
            return
        if header.is_transactional and entry.transaction_start < 0:
            entry.transaction_start = header.base_offset
        self._note(entry, header.base_sequence, header.last_offset_delta, header.base_offset, header.max_timestamp)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that have not appended for `expiration_ms`; how many."""
        idle = [
            producer_id
            for producer_id, entry in self.entries.items()
            if now_ms - entry.seen_ms >= expiration_ms and entry.transaction_start < 0
        ]
        for producer_id in idle:
            del self.entries[producer_id]
        return len(idle)

    def clear(self) -> None:
        """Forget every producer."""
        self.entries.clear()
        self.look_back = None
        self._undo.clear()

    def _note(self, entry: ProducerEntry, sequence: int, delta: int, offset: int, timestamp: int) -> None:
        last_sequence = (sequence + delta) & _SEQUENCE_MASK
        batch = _stored(StoredBatch, (sequence, last_sequence, offset, offset + delta, timestamp))
        entry.batches = (*entry.batches[1 - BATCHES_KEPT :], batch)
        entry.next_sequence = (last_sequence + 1) & _SEQUENCE_MASK
        entry.timestamp = timestamp

    def _prepend(self, earlier: dict[int, ProducerEntry]) -> None:
        """Complete the last five of each producer with batches that come directly before those known."""
        for producer_id, entry in self.entries.items():
            found = earlier.get(producer_id)
            if found is None or found.epoch != entry.epoch:
                continue
            batches = entry.batches
            for batch in reversed(found.batches):
                follows = bool(batches) and (batch.last_sequence + 1) & _SEQUENCE_MASK == batches[0].first_sequence
                if follows and batch.last_offset < batches[0].first_offset:
                    batches = (batch, *batches)
            entry.batches = batches[-BATCHES_KEPT:]

    def _repeated_or_refused(self, producer_id: int, entry: ProducerEntry, epoch: int, sequence: int, delta: int) -> StoredBatch | None:
        if epoch < entry.epoch:
            raise PeerError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"{self.partition}: producer {producer_id} has epoch {epoch}, its newest is {entry.epoch}",
            )
        if epoch > entry.epoch:
            if sequence == 0:
                return None
            raise PeerError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"{self.partition}: producer {producer_id} starts epoch {epoch} with sequence {sequence}, not 0",
            )
        last_sequence = (sequence + delta) & _SEQUENCE_MASK
        for batch in entry.batches:
            if batch.first_sequence == sequence and batch.last_sequence == last_sequence:
                return batch
        if self.look_back is not None:
            look_back, self.look_back = self.look_back, None
            self._prepend(look_back())
            return self._repeated_or_refused(producer_id, entry, epoch, sequence, delta)
        raise PeerError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"{self.partition}: producer {producer_id} sent sequence {sequence}, next is {entry.next_sequence}",
        )
