"""EndTxn for every state, decision, epoch and protocol: the answers of Kafka 4.3 (`TransactionCoordinator.endTransaction`), and ours."""

import pytest

from moldau.broker.transactions.decisions import ended
from moldau.broker.transactions.events import EndTransaction
from moldau.broker.transactions.transaction import (
    BY_LABEL,
    EPOCH_MAX,
    EPOCH_PER_TRANSACTION,
    LAST_EPOCH,
    OLD_PROTOCOL,
    TransactionMetadata,
    TransactionState,
    new_transaction,
)
from moldau.model.errors import ErrorCode
from support.transactions import partitions

CODES = {
    "done": ErrorCode.NONE,
    "busy": ErrorCode.CONCURRENT_TRANSACTIONS,
    "wrong": ErrorCode.INVALID_TXN_STATE,
    "fenced": ErrorCode.PRODUCER_FENCED,
    "other": ErrorCode.INVALID_PRODUCER_ID_MAPPING,
}
EPOCH = 5
EPOCHS = {"same": EPOCH, "before": EPOCH - 1, "later": EPOCH + 1, "older": EPOCH - 2}
TABLE = """
state           epoch   5:commit       5:abort        4:commit       4:abort
Empty           same    wrong          PrepareAbort   wrong          wrong
Empty           before  fenced         fenced         fenced         fenced
Empty           later   fenced         fenced         fenced         fenced
Empty           older   fenced         fenced         fenced         fenced
Ongoing         same    PrepareCommit  PrepareAbort   PrepareCommit  PrepareAbort
Ongoing         before  fenced         fenced         fenced         fenced
Ongoing         later   fenced         fenced         fenced         fenced
Ongoing         older   fenced         fenced         fenced         fenced
PrepareCommit   same    busy/fenced    busy/fenced    busy           wrong
PrepareCommit   before  busy           wrong          fenced         fenced
PrepareCommit   later   fenced         fenced         fenced         fenced
PrepareCommit   older   fenced         fenced         fenced         fenced
PrepareAbort    same    busy/fenced    busy/fenced    wrong          busy
PrepareAbort    before  wrong          busy           fenced         fenced
PrepareAbort    later   fenced         fenced         fenced         fenced
PrepareAbort    older   fenced         fenced         fenced         fenced
CompleteCommit  same    wrong          PrepareAbort   done           wrong
CompleteCommit  before  done           wrong          fenced         fenced
CompleteCommit  later   fenced         fenced         fenced         fenced
CompleteCommit  older   fenced         fenced         fenced         fenced
CompleteAbort   same    wrong          PrepareAbort   wrong          done
CompleteAbort   before  wrong          done           fenced         fenced
CompleteAbort   later   fenced         fenced         fenced         fenced
CompleteAbort   older   fenced         fenced         fenced         fenced
"""
"""The last transaction raised the epoch: its producer has the one that is stored, a repeated request the one before. Of two answers the
second is Kafka's, which gives a producer its next epoch before all markers are written, and fences it for using that.
"""


def cases() -> list[tuple[str, str, int, bool, str]]:
    header, *rows = [line.split() for line in TABLE.strip().splitlines()]
    columns = [(int(version), decision == "commit") for version, _, decision in (name.partition(":") for name in header[2:])]
    return [(state, epoch, *column, answer) for state, epoch, *answers in rows for column, answer in zip(columns, answers, strict=True)]


def stored(state: TransactionState, *, epoch: int = EPOCH, version: int = EPOCH_PER_TRANSACTION) -> TransactionMetadata:
    has_partitions = state is TransactionState.ONGOING or state.is_decided
    return new_transaction(1000, 60_000, 0)._replace(
        previous_producer_id=1000,
        epoch=epoch,
        last_epoch=epoch - 1,
        state=state,
        partitions=partitions(*(["t-0"] if has_partitions else [])),
        client_version=version,
    )


def answer(
    current: TransactionMetadata, epoch: int, version: int, *, committed: bool, producer_id: int = 1000, busy: bool = False
) -> ErrorCode | str:
    """The code, or the state that is stored next."""
    protocol = EPOCH_PER_TRANSACTION if version >= 5 else OLD_PROTOCOL
    outcome = ended(current, EndTransaction(None, producer_id, epoch, committed, protocol), lambda: 2000, 1, busy=busy)
    return outcome if isinstance(outcome, ErrorCode) else outcome.state.label


def test_the_table_has_every_case() -> None:
    states = [state.label for state in TransactionState if state < TransactionState.DEAD]
    assert [case[:4] for case in cases()] == [
        (state, epoch, version, committed) for state in states for epoch in EPOCHS for version in (5, 4) for committed in (True, False)
    ]


@pytest.mark.parametrize(("state", "epoch", "version", "committed", "expected"), cases())
def test_each_case_is_answered_as_the_table_says(state: str, epoch: str, version: int, committed: bool, expected: str) -> None:
    ours = expected.partition("/")[0]
    assert answer(stored(BY_LABEL[state]), EPOCHS[epoch], version, committed=committed) == CODES.get(ours, ours)


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("state", [TransactionState(number) for number in range(TransactionState.DEAD)])
def test_another_producers_id_and_a_change_that_is_being_stored(state: TransactionState, committed: bool) -> None:
    """As Kafka: version 5 waits first, since the change may give the producer a new id; the older protocol looks at id and epoch first."""
    current = stored(state)
    for version in (5, 4):
        assert answer(current, EPOCH, version, committed=committed, producer_id=999) is CODES["other"]
        assert answer(current, EPOCH, version, committed=committed, busy=True) is CODES["busy"]
    assert answer(current, 3, 5, committed=committed, producer_id=999, busy=True) is CODES["busy"]
    assert answer(current, 3, 4, committed=committed, busy=True) is CODES["fenced"]
    assert answer(current, EPOCH, 4, committed=committed, producer_id=999, busy=True) is CODES["other"]


@pytest.mark.parametrize("state", [TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT])
def test_a_producer_that_was_replaced_before_an_end_of_the_older_protocol_is_fenced(state: TransactionState) -> None:
    """Kafka takes it for the one that ended: it answers NONE, with the epoch of the newer producer."""
    assert answer(stored(state, version=OLD_PROTOCOL), EPOCH - 1, 5, committed=True) is CODES["fenced"]


@pytest.mark.parametrize(("committed", "code"), [(True, "busy"), (False, "wrong")])
def test_a_decision_with_the_last_epoch_knows_its_producer_by_either_id(committed: bool, code: str) -> None:
    """By the id and epoch that it ended with, and by the new id, which it may have received already."""
    current = stored(TransactionState.PREPARE_COMMIT, epoch=EPOCH_MAX)._replace(next_producer_id=2000)
    assert answer(current, LAST_EPOCH, 5, committed=committed) is CODES[code]
    assert answer(current, 0, 5, committed=committed, producer_id=2000) is CODES["busy"]
