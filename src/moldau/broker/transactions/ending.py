"""EndTxn decided: the two tables, and who may ask. Values in, values out.

The older protocol leaves the producer's epoch as it is, so a repeated EndTxn looks like the first one: it is told apart only by the
state. Under version 2 each end raises the epoch. A request with the epoch before is then a repeated one, whose answer is given again, and
can never be taken for the end of the transaction after it (KIP-890).
"""

from moldau.broker.transactions.events import End
from moldau.broker.transactions.initiating import NewProducerId, decided
from moldau.broker.transactions.states import State
from moldau.broker.transactions.transaction import EPOCH_PER_TRANSACTION, LAST_EPOCH, Transaction
from moldau.model.errors import ErrorCode

_COMMIT, _ABORT = True, False
_REPEATED, _NEW = True, False

DONE = ErrorCode.NONE
WRONG = ErrorCode.INVALID_TXN_STATE
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS

OLD: dict[tuple[State, bool], State | ErrorCode] = {
    (State.EMPTY, _COMMIT): WRONG,
    (State.EMPTY, _ABORT): WRONG,
    (State.ONGOING, _COMMIT): State.PREPARE_COMMIT,
    (State.ONGOING, _ABORT): State.PREPARE_ABORT,
    (State.COMPLETE_COMMIT, _COMMIT): DONE,
    (State.COMPLETE_COMMIT, _ABORT): WRONG,
    (State.COMPLETE_ABORT, _COMMIT): WRONG,
    (State.COMPLETE_ABORT, _ABORT): DONE,
}
"""EndTxn up to version 4: by state, and by whether it is to commit."""

PER_EPOCH: dict[tuple[State, bool, bool], State | ErrorCode] = {
    (State.EMPTY, _COMMIT, _NEW): WRONG,
    (State.EMPTY, _ABORT, _NEW): State.PREPARE_ABORT,
    (State.ONGOING, _COMMIT, _NEW): State.PREPARE_COMMIT,
    (State.ONGOING, _ABORT, _NEW): State.PREPARE_ABORT,
    (State.COMPLETE_COMMIT, _COMMIT, _NEW): WRONG,
    (State.COMPLETE_COMMIT, _ABORT, _NEW): State.PREPARE_ABORT,
    (State.COMPLETE_COMMIT, _COMMIT, _REPEATED): DONE,
    (State.COMPLETE_COMMIT, _ABORT, _REPEATED): WRONG,
    (State.COMPLETE_ABORT, _COMMIT, _NEW): WRONG,
    (State.COMPLETE_ABORT, _ABORT, _NEW): State.PREPARE_ABORT,
    (State.COMPLETE_ABORT, _COMMIT, _REPEATED): WRONG,
    (State.COMPLETE_ABORT, _ABORT, _REPEATED): DONE,
}
"""EndTxn from version 5: also by whether the request is a repeated one. A producer may abort without having added anything: what it sent
may still be on its way, and the new epoch shuts that out.
"""


def ended(current: Transaction, wanted: End, new_producer_id: NewProducerId, now_ms: int, *, busy: bool) -> Transaction | ErrorCode:
    """What to store for the request; or the answer: NONE when it is done already, with the id and epoch that `current` has.

    `busy`: a change is under way, so that the client has to come again (CONCURRENT_TRANSACTIONS). INVALID_PRODUCER_ID_MAPPING for another
    producer's id, PRODUCER_FENCED for another epoch, INVALID_TXN_STATE where there is nothing to end in that way.
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
            if wanted.producer_id != current.producer_id:
                return ErrorCode.INVALID_PRODUCER_ID_MAPPING
            if wanted.epoch != current.epoch:
                return ErrorCode.PRODUCER_FENCED
        outcome = PER_EPOCH[current.state, wanted.committed, repeated]
    if isinstance(outcome, ErrorCode):
        return outcome
    return decided(current, outcome, wanted.client_version, new_producer_id, now_ms)


def _is_repeated(current: Transaction, wanted: End) -> bool:
    """Whether the request is the one that led to where `current` is: the epoch has risen by one since, or begun again with a new id."""
    if current.client_version < EPOCH_PER_TRANSACTION or not current.state.is_complete:
        return False
    if wanted.producer_id == current.producer_id:
        return wanted.epoch + 1 == current.epoch
    return wanted.producer_id == current.previous_producer_id and wanted.epoch == LAST_EPOCH and current.epoch == 0
