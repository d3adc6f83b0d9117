"""What a request makes of a transaction: AddPartitionsToTxn, InitProducerId, EndTxn. Values in, values out.

InitProducerId: a producer that names no id and epoch takes over; the epoch rises by one, and the producer before is fenced. One that names
its own continues after an error with an unknown outcome (KIP-360): it is fenced if another has taken over meanwhile, and a repeated request
whose first answer was lost gets that answer again. A transaction that is open is aborted first, with an epoch in between that no producer
ever gets (:func:`fenced`).

EndTxn: the older protocol leaves the producer's epoch as it is, so a repeated EndTxn looks like the first one and differs only by the
state. Under version 2 each end raises the epoch. A request with the epoch before is then a repeated one, whose answer is given again, and
can never be taken for the end of the transaction after it (KIP-890).
"""

from collections.abc import Callable, Iterable

from moldau.broker.transactions.events import AddPartitions, EndTransaction, InitProducer
from moldau.broker.transactions.transaction import (
    EPOCH_MAX,
    EPOCH_PER_TRANSACTION,
    LAST_EPOCH,
    NO_EPOCH,
    NO_PARTITIONS,
    NO_PRODUCER_ID,
    Partitions,
    TransactionMetadata,
    TransactionState,
)
from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition

VALUE_BYTES_MAX = 900_000
"""Most bytes that the names and numbers of a transaction's partitions may take where it is stored: what ends the transaction holds them
once more and has to fit into a batch of the internal topic (`max.message.bytes`, 1,048,588 unless set otherwise).
"""

NewProducerId = Callable[[], int]
"""A producer id that no producer has had. PeerError COORDINATOR_NOT_AVAILABLE when there is none now."""

_COMMIT, _ABORT = True, False
_REPEATED, _NEW = True, False

DONE = ErrorCode.NONE
WRONG = ErrorCode.INVALID_TXN_STATE
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS

OLD: dict[tuple[TransactionState, bool], TransactionState | ErrorCode] = {
    (TransactionState.EMPTY, _COMMIT): WRONG,
    (TransactionState.EMPTY, _ABORT): WRONG,
    (TransactionState.ONGOING, _COMMIT): TransactionState.PREPARE_COMMIT,
    (TransactionState.ONGOING, _ABORT): TransactionState.PREPARE_ABORT,
    (TransactionState.PREPARE_COMMIT, _COMMIT): BUSY,
    (TransactionState.PREPARE_COMMIT, _ABORT): WRONG,
    (TransactionState.PREPARE_ABORT, _COMMIT): WRONG,
    (TransactionState.PREPARE_ABORT, _ABORT): BUSY,
    (TransactionState.COMPLETE_COMMIT, _COMMIT): DONE,
    (TransactionState.COMPLETE_COMMIT, _ABORT): WRONG,
    (TransactionState.COMPLETE_ABORT, _COMMIT): WRONG,
    (TransactionState.COMPLETE_ABORT, _ABORT): DONE,
}
"""EndTxn up to version 4: by state, and by whether it is to commit."""

PER_EPOCH: dict[tuple[TransactionState, bool, bool], TransactionState | ErrorCode] = {
    (TransactionState.EMPTY, _COMMIT, _NEW): WRONG,
    (TransactionState.EMPTY, _ABORT, _NEW): TransactionState.PREPARE_ABORT,
    (TransactionState.ONGOING, _COMMIT, _NEW): TransactionState.PREPARE_COMMIT,
    (TransactionState.ONGOING, _ABORT, _NEW): TransactionState.PREPARE_ABORT,
    (TransactionState.PREPARE_COMMIT, _COMMIT, _NEW): BUSY,
    (TransactionState.PREPARE_COMMIT, _ABORT, _NEW): BUSY,
    (TransactionState.PREPARE_COMMIT, _COMMIT, _REPEATED): BUSY,
    (TransactionState.PREPARE_COMMIT, _ABORT, _REPEATED): WRONG,
    (TransactionState.PREPARE_ABORT, _COMMIT, _NEW): BUSY,
    (TransactionState.PREPARE_ABORT, _ABORT, _NEW): BUSY,
    (TransactionState.PREPARE_ABORT, _COMMIT, _REPEATED): WRONG,
    (TransactionState.PREPARE_ABORT, _ABORT, _REPEATED): BUSY,
    (TransactionState.COMPLETE_COMMIT, _COMMIT, _NEW): WRONG,
    (TransactionState.COMPLETE_COMMIT, _ABORT, _NEW): TransactionState.PREPARE_ABORT,
    (TransactionState.COMPLETE_COMMIT, _COMMIT, _REPEATED): DONE,
    (TransactionState.COMPLETE_COMMIT, _ABORT, _REPEATED): WRONG,
    (TransactionState.COMPLETE_ABORT, _COMMIT, _NEW): WRONG,
    (TransactionState.COMPLETE_ABORT, _ABORT, _NEW): TransactionState.PREPARE_ABORT,
    (TransactionState.COMPLETE_ABORT, _COMMIT, _REPEATED): WRONG,
    (TransactionState.COMPLETE_ABORT, _ABORT, _REPEATED): DONE,
}
"""EndTxn from version 5: also by whether the request is a repeated one. A producer may abort without having added anything: what it sent
may still be on its way, and the new epoch shuts that out. It may have received its next epoch before all markers are written; Kafka fences
it where it ends the next transaction so early.
"""


def partitions_with(current: TransactionMetadata, wanted: AddPartitions) -> Partitions:
    """Those that the transaction then has; the same object as now if it has them all."""
    return current.partitions | wanted.partitions if current.state is TransactionState.ONGOING else wanted.partitions


def added(current: TransactionMetadata, wanted: AddPartitions, partitions_max: int, now_ms: int) -> TransactionMetadata | ErrorCode:
    """What to store for the request, or the answer: NONE when all partitions are in the transaction already.

    INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED; POLICY_VIOLATION for more partitions than a transaction may have.
    """
    if wanted.producer_id != current.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if wanted.epoch != current.epoch:
        return ErrorCode.PRODUCER_FENCED
    is_open = current.state is TransactionState.ONGOING
    partitions = partitions_with(current, wanted)
    if is_open and partitions is current.partitions:
        return ErrorCode.NONE
    if len(partitions) > partitions_max or partitions.encoded_bytes > VALUE_BYTES_MAX:
        return ErrorCode.POLICY_VIOLATION
    return current._replace(
        previous_producer_id=current.producer_id,
        state=TransactionState.ONGOING,
        partitions=partitions,
        start_ms=current.start_ms if is_open else now_ms,
        updated_ms=now_ms,
        client_version=wanted.client_version,
    )


def verified(
    current: TransactionMetadata, producer_id: int, epoch: int, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ErrorCode] | ErrorCode:
    """For each partition NONE or TRANSACTION_ABORTABLE (it is not in the transaction), or one error for all of them (KIP-890)."""
    if current.producer_id != producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if current.epoch != epoch:
        return ErrorCode.PRODUCER_FENCED
    if current.state.is_decided:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    codes = dict.fromkeys(partitions, ErrorCode.NONE)
    codes.update(dict.fromkeys(current.partitions.missing(codes), ErrorCode.TRANSACTION_ABORTABLE))
    return codes


def initiated(
    current: TransactionMetadata, wanted: InitProducer, new_producer_id: NewProducerId, now_ms: int
) -> TransactionMetadata | ErrorCode:
    """What to store for the request: the producer's new epoch in Empty, or first the abort of an open transaction.

    PRODUCER_FENCED for a producer that another one has replaced.
    """
    expects = wanted.producer_id != NO_PRODUCER_ID
    if expects and not _may_be(current, wanted):
        return ErrorCode.PRODUCER_FENCED
    if current.state is TransactionState.ONGOING:
        if expects and wanted.epoch != current.epoch:
            # Kafka aborts here without looking at the epoch, so a replaced producer could end the transaction of the one after it.
            return ErrorCode.PRODUCER_FENCED
        return fenced(current, new_producer_id, now_ms)
    if current.is_exhausted and (not expects or wanted.epoch == current.epoch):
        return _begun(current, wanted, new_producer_id(), 0, current.epoch if expects else NO_EPOCH, now_ms)
    if not expects:
        return _begun(current, wanted, current.producer_id, current.epoch + 1, NO_EPOCH, now_ms)
    if wanted.epoch == current.epoch or current.epoch == NO_EPOCH:
        return _begun(current, wanted, current.producer_id, current.epoch + 1, current.epoch, now_ms)
    if wanted.epoch == current.last_epoch and current.epoch <= LAST_EPOCH:
        return _begun(current, wanted, current.producer_id, current.epoch, current.last_epoch, now_ms)
    return ErrorCode.PRODUCER_FENCED


def fenced(current: TransactionMetadata, new_producer_id: NewProducerId, now_ms: int) -> TransactionMetadata:
    """The abort of an open transaction, with an epoch that shuts out the producer that opened it."""
    return decided(current, TransactionState.PREPARE_ABORT, EPOCH_PER_TRANSACTION, new_producer_id, now_ms)


def decided(
    current: TransactionMetadata, state: TransactionState, client_version: int, new_producer_id: NewProducerId, now_ms: int
) -> TransactionMetadata:
    """The decision about `current`: PrepareCommit or PrepareAbort, with the epoch that the markers carry.

    Without a transaction (only under version 2, and to abort) it is one that begins and ends now.
    """
    epoch, last_epoch, next_producer_id = current.epoch, current.last_epoch, NO_PRODUCER_ID
    if client_version >= EPOCH_PER_TRANSACTION:
        if current.is_exhausted:
            next_producer_id = new_producer_id()
        epoch, last_epoch = min(epoch + 1, EPOCH_MAX), epoch
    return current._replace(
        previous_producer_id=current.producer_id,
        next_producer_id=next_producer_id,
        epoch=epoch,
        last_epoch=last_epoch,
        state=state,
        start_ms=current.start_ms if current.state is TransactionState.ONGOING else now_ms,
        updated_ms=now_ms,
        client_version=client_version,
    )


def completed(current: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """After the markers of a decided transaction: with the last epoch used up, its producer continues with the next id."""
    producer_id, epoch = current.producer_id, current.epoch
    if current.next_producer_id != NO_PRODUCER_ID:
        producer_id, epoch = current.next_producer_id, 0
    return current._replace(
        producer_id=producer_id,
        previous_producer_id=current.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        epoch=epoch,
        state=TransactionState.COMPLETE_COMMIT if current.is_committed else TransactionState.COMPLETE_ABORT,
        partitions=NO_PARTITIONS,
        updated_ms=now_ms,
    )


def _may_be(current: TransactionMetadata, wanted: InitProducer) -> bool:
    """Whether the producer that asks may be the one that has the id now: its answer with a new id may have been lost."""
    return (
        current.epoch == NO_EPOCH
        or wanted.producer_id == current.producer_id
        or (wanted.producer_id == current.previous_producer_id and wanted.epoch >= LAST_EPOCH)
    )


def _begun(
    current: TransactionMetadata, wanted: InitProducer, producer_id: int, epoch: int, last_epoch: int, now_ms: int
) -> TransactionMetadata:
    return TransactionMetadata(
        producer_id,
        current.producer_id,
        NO_PRODUCER_ID,
        epoch,
        last_epoch,
        wanted.timeout_ms,
        TransactionState.EMPTY,
        NO_PARTITIONS,
        -1,
        now_ms,
        current.client_version,
    )


def ended(
    current: TransactionMetadata, wanted: EndTransaction, new_producer_id: NewProducerId, now_ms: int, *, busy: bool
) -> TransactionMetadata | ErrorCode:
    """What to store for the request; or the answer: NONE when it is done already, with the id and epoch that `current` has.

    `busy`: a change is being stored, so that the client has to retry (CONCURRENT_TRANSACTIONS); so it has while the markers of the decision
    that it asks for are written. INVALID_PRODUCER_ID_MAPPING for another producer's id, PRODUCER_FENCED for another epoch,
    INVALID_TXN_STATE where there is nothing to end in that way.
    """
    if wanted.client_version < EPOCH_PER_TRANSACTION:
        if wanted.producer_id != current.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if wanted.epoch != current.epoch:
            return ErrorCode.PRODUCER_FENCED
        outcome = BUSY if busy else OLD[current.state, wanted.committed]
    else:
        if busy:
            return BUSY
        repeated = _is_repeated(current, wanted)
        if not repeated:
            given = completed(current, now_ms) if current.state.is_decided else current
            if wanted.producer_id != given.producer_id:
                return ErrorCode.INVALID_PRODUCER_ID_MAPPING
            if wanted.epoch != given.epoch:
                return ErrorCode.PRODUCER_FENCED
        outcome = PER_EPOCH[current.state, wanted.committed, repeated]
    if isinstance(outcome, ErrorCode):
        return outcome
    return decided(current, outcome, wanted.client_version, new_producer_id, now_ms)


def _is_repeated(current: TransactionMetadata, wanted: EndTransaction) -> bool:
    """Whether the request is the one that led to where `current` is: the epoch has risen by one since, or begun again with a new id."""
    if current.client_version < EPOCH_PER_TRANSACTION or not (current.state.is_decided or current.state.is_complete):
        return False
    if wanted.producer_id == current.producer_id:
        return wanted.epoch + 1 == current.epoch
    return wanted.producer_id == current.previous_producer_id and wanted.epoch == LAST_EPOCH and current.epoch == 0
