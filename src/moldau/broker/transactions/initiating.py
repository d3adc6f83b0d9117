"""InitProducerId decided: who speaks for a transactional id from now on. Values in, values out.

A producer that names no id and epoch takes over: the epoch rises by one, and whoever had it before is fenced. One that names its own goes
on after an error that it could not tell the outcome of (KIP-360): it is fenced if another has taken over meanwhile, and a repeated request
whose first answer was lost gets that answer again.

A transaction that is open is aborted first, with an epoch in between that no producer ever gets (:func:`fenced`).
"""

from collections.abc import Callable

from moldau.broker.transactions.events import Init
from moldau.broker.transactions.partitions import NO_PARTITIONS
from moldau.broker.transactions.states import State
from moldau.broker.transactions.transaction import (
    EPOCH_MAX,
    EPOCH_PER_TRANSACTION,
    LAST_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    Transaction,
)
from moldau.model.errors import ErrorCode

NewProducerId = Callable[[], int]
"""A producer id that nobody has had. PeerError COORDINATOR_NOT_AVAILABLE when none can be had now."""


def initiated(current: Transaction, wanted: Init, new_producer_id: NewProducerId, now_ms: int) -> Transaction | ErrorCode:
    """What to store for the request: the producer's new epoch in Empty, or first the abort of an open transaction.

    PRODUCER_FENCED for a producer that another one has replaced.
    """
    expects = wanted.producer_id != NO_PRODUCER_ID
    if expects and not _may_be(current, wanted):
        return ErrorCode.PRODUCER_FENCED
    if current.state is State.ONGOING:
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


def fenced(current: Transaction, new_producer_id: NewProducerId, now_ms: int) -> Transaction:
    """The abort of an open transaction, with an epoch that shuts out the producer that opened it."""
    return decided(current, State.PREPARE_ABORT, EPOCH_PER_TRANSACTION, new_producer_id, now_ms)


def decided(current: Transaction, state: State, client_version: int, new_producer_id: NewProducerId, now_ms: int) -> Transaction:
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
        start_ms=current.start_ms if current.state is State.ONGOING else now_ms,
        updated_ms=now_ms,
        client_version=client_version,
    )


def completed(current: Transaction, now_ms: int) -> Transaction:
    """After the markers of a decided transaction: with the last epoch used up, its producer goes on with the next id."""
    producer_id, epoch = current.producer_id, current.epoch
    if current.next_producer_id != NO_PRODUCER_ID:
        producer_id, epoch = current.next_producer_id, 0
    return current._replace(
        producer_id=producer_id,
        previous_producer_id=current.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        epoch=epoch,
        state=State.COMPLETE_COMMIT if current.is_committed else State.COMPLETE_ABORT,
        partitions=NO_PARTITIONS,
        updated_ms=now_ms,
    )


def _may_be(current: Transaction, wanted: Init) -> bool:
    """Whether the producer that asks may be the one that has the id now: its answer with a new id may have been lost."""
    return (
        current.epoch == NO_EPOCH
        or wanted.producer_id == current.producer_id
        or (wanted.producer_id == current.previous_producer_id and wanted.epoch >= LAST_EPOCH)
    )


def _begun(current: Transaction, wanted: Init, producer_id: int, epoch: int, last_epoch: int, now_ms: int) -> Transaction:
    return Transaction(
        producer_id,
        current.producer_id,
        NO_PRODUCER_ID,
        epoch,
        last_epoch,
        wanted.timeout_ms,
        State.EMPTY,
        NO_PARTITIONS,
        -1,
        now_ms,
        current.client_version,
    )
