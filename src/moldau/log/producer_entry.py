"""One producer, as a partition remembers it, and which of its batches and markers are taken: a batch sent twice is stored once (KIP-98),
and a late marker of one transaction never ends another (KIP-890).

A producer numbers its records per partition. Of each producer the last five batches are kept. For a batch that comes in::

    producer unknown                     taken, whatever its sequence (its state may have expired or been evicted)
    same epoch, next in sequence         taken
    same epoch, one of the last five     not stored again: answered with the first offset it got then
    the same, of a transaction that has ended                                    OUT_OF_ORDER_SEQUENCE_NUMBER
    same epoch, anything else            OUT_OF_ORDER_SEQUENCE_NUMBER
    newer epoch, sequence 0              taken, the older epoch's batches are dropped
    newer epoch, any other sequence      OUT_OF_ORDER_SEQUENCE_NUMBER
    older epoch                          INVALID_PRODUCER_EPOCH
    not transactional, while a transaction of the producer is ongoing here       INVALID_TXN_STATE
    without a sequence, which is how coordinators write for a producer           taken, unless its epoch is older

Where the producer is unknown or its epoch newer, and it has its id from the transaction coordinator, any epoch but the one that it was
given last is INVALID_PRODUCER_EPOCH: so one that was fenced stays fenced where the partition has dropped its state, and a made-up epoch
fences none.

A batch of an unknown producer may be refused with a retriable error: before this broker leads the partition, while the coordinator cannot
say its epoch, while too few replicas are in sync, or when the disk is full. Until it is sent again, a later one is
OUT_OF_ORDER_SEQUENCE_NUMBER. Otherwise the second of five batches in flight would be taken, and librdkafka would then count the first as
stored as well.

No client sends a batch of a transaction again after its end. A producer that gave up a batch without knowing that it was stored, and
numbers the next transaction's records as if it had not been (librdkafka when it aborts while it is about to retry), has new records under
the old numbers: Kafka acknowledges them with the offsets of the old ones, and they are lost.

After sequence 2^31 - 1 follows 0. A transaction begins with its first batch here and ends with a marker; for one that comes in::

    older epoch                                                        INVALID_PRODUCER_EPOCH
    same epoch, transactions of version 2, and one is ongoing          INVALID_PRODUCER_EPOCH
    of an older epoch of the coordinator                               TRANSACTION_COORDINATOR_FENCED
    anything else                                                      taken

Since version 2 each end bumps the epoch, so a marker of an earlier transaction that comes late never has a newer epoch than the one that is
ongoing, and cannot touch it. Only epoch 32767 has no successor, so there it may be equal.
A marker that is repeated finds no transaction. As in Kafka it is written once more: that has no effect on readers, and the next start
learns from it which coordinator was the last.
"""

from typing import NamedTuple

from moldau.log.open_transactions import Verification
from moldau.model.errors import ErrorCode, PeerError
from moldau.ports.probe import reached
from moldau.protocol.records.header import BatchHeader

BATCHES_KEPT = 5
NO_SEQUENCE = -1
"""Of batches that a coordinator writes for a producer."""
SEQUENCE_MASK = 2**31 - 1

_stored = tuple.__new__
EPOCH_MAX = 2**15 - 1
FIRST_VERSION_WITH_EPOCH_BUMP = 2
"""The version of transactions in which every end has its own epoch."""


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
        """Its sequences start again at 0 in another epoch."""
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


def check_epoch(partition: str, producer_id: int, entry: ProducerEntry, epoch: int, sequence: int) -> None:
    """A batch is of the producer's epoch, or begins a newer one. PeerError."""
    if epoch < entry.epoch:
        raise stale_epoch(partition, producer_id, entry, epoch)
    if epoch > entry.epoch and sequence not in (0, NO_SEQUENCE):
        raise PeerError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"{partition}: producer {producer_id} starts epoch {epoch} with sequence {sequence}, not 0",
        )


def check_given(partition: str, producer_id: int, epoch: int, given: int | None) -> None:
    """A batch that the partition has nothing to compare with is of the epoch that the transaction coordinator gave last, if it gave one.

    PeerError.
    """
    if given is not None and epoch != given:
        raise PeerError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"{partition}: producer {producer_id} has epoch {epoch}, the transaction coordinator gave it {given}",
        )


def check_marker(partition: str, producer_id: int, entry: ProducerEntry, epoch: int, coordinator_epoch: int, version: int) -> None:
    """A marker may end what the producer has begun, in transactions of this version. PeerError."""
    is_repeated = entry.transaction_start < 0 or epoch == EPOCH_MAX
    if epoch < entry.epoch or (version >= FIRST_VERSION_WITH_EPOCH_BUMP and epoch == entry.epoch and not is_repeated):
        raise PeerError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"{partition}: marker of producer {producer_id} has epoch {epoch}, its newest is {entry.epoch}",
        )
    if coordinator_epoch < entry.coordinator_epoch:
        raise PeerError(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"{partition}: marker of producer {producer_id} is of coordinator epoch {coordinator_epoch},"
            f" the newest is {entry.coordinator_epoch}",
        )


def check_first(
    partition: str, header: BatchHeader, entry: ProducerEntry | None, asked: Verification, standing: Verification | None
) -> None:
    """The first batch of a transaction here is one that the coordinator was `asked` for, and overtakes no other. PeerError."""
    producer_id, epoch, sequence = header.producer_id, header.producer_epoch, header.base_sequence
    if entry is not None and epoch < entry.epoch:
        raise stale_epoch(partition, producer_id, entry, epoch)
    if asked is not standing:
        raise PeerError(
            ErrorCode.INVALID_TXN_STATE, f"{partition}: the transaction of producer {producer_id} has ended while its batch was waiting"
        )
    if asked.bumps_epoch and sequence != 0 and (entry is None or not entry.batches):
        raise PeerError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"{partition}: producer {producer_id} starts a transaction of epoch {epoch} with sequence {sequence}, not 0",
        )
    check_overtaking(partition, producer_id, asked.epoch, sequence, asked)


def check_overtaking(partition: str, producer_id: int, epoch: int, sequence: int, standing: Verification | None) -> None:
    """No batch of the epoch that waits for the coordinator is overtaken. PeerError."""
    if standing is not None and epoch == standing.epoch and sequence > standing.lowest_sequence:
        raise PeerError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"{partition}: producer {producer_id} sent sequence {sequence}, but {standing.lowest_sequence} is still to come",
        )


def stale_epoch(partition: str, producer_id: int, entry: ProducerEntry, epoch: int) -> PeerError:
    """The producer was fenced."""
    reached("producers: fenced an epoch")
    return PeerError(
        ErrorCode.INVALID_PRODUCER_EPOCH, f"{partition}: producer {producer_id} has epoch {epoch}, its newest is {entry.epoch}"
    )


def out_of_order(partition: str, producer_id: int, entry: ProducerEntry, sequence: int) -> PeerError:
    """A batch is neither the next nor one of the last."""
    return PeerError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"{partition}: producer {producer_id} sent sequence {sequence}, next is {entry.next_sequence}",
    )


def check_repeated(partition: str, producer_id: int, entry: ProducerEntry, repeated: StoredBatch) -> None:
    """A transactional batch that was stored before belongs to the transaction that is ongoing. PeerError."""
    if not 0 <= entry.transaction_start <= repeated.first_offset:
        raise PeerError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"{partition}: producer {producer_id} sent sequence {repeated.first_sequence} again, which it had used at offset"
            f" {repeated.first_offset} in a transaction that has ended",
        )


def outside_transaction(partition: str, producer_id: int, entry: ProducerEntry) -> PeerError:
    """A batch is not transactional while a transaction is ongoing."""
    return PeerError(
        ErrorCode.INVALID_TXN_STATE,
        f"{partition}: producer {producer_id} sent a batch outside of its transaction, ongoing since offset {entry.transaction_start}",
    )
