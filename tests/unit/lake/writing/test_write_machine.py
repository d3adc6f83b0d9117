"""A batch is decided only when all its transactions are open; behind the decision nothing is taken back, and what is lost is named."""

from typing import Any

import pytest

from moldau.lake.writing.decisions import Decision, DecisionState, TaskTransaction, WrittenRange
from moldau.lake.writing.machine import (
    AbortTransactions,
    BatchAbort,
    BatchCommit,
    BatchStart,
    CheckTransactions,
    CommitTransactions,
    DecisionFound,
    DecisionWritten,
    DriverConfirmed,
    Effect,
    Event,
    Finish,
    LostBatchError,
    ReadDecision,
    ResumeDriver,
    TakeOver,
    TransactionsAborted,
    TransactionsChecked,
    TransactionsCommitted,
    WriteDecision,
    WriteFailedError,
)
from moldau.lake.writing.transactions import ProducerIdentity


def transaction(task: int, epoch: int = 0) -> TaskTransaction:
    return TaskTransaction(ProducerIdentity(f"moldau-spark-q-{task}-0", 100 + task, epoch), (WrittenRange("t", task, 10, 1000 * task),))


ONE, TWO = transaction(0), transaction(1)
DECIDED = Decision("q", "r", 7, DecisionState.DECIDED, (ONE, TWO), 5)


def dialogue(errand: Any, *lines: Event | Effect) -> None:
    """The first effect, then in turn what happens and what is to be done."""
    effect, *rest = lines
    assert errand.start() == effect
    for event, expected in zip(rest[::2], rest[1::2], strict=True):
        assert errand.step(event) == expected


def test_the_first_batch_of_a_query() -> None:
    dialogue(
        BatchStart(),
        TakeOver(),
        DriverConfirmed(),
        ReadDecision(),
        DecisionFound(None),
        AbortTransactions(),
        TransactionsAborted(),
        Finish(None),
    )


def test_a_start_behind_a_batch_that_is_done() -> None:
    dialogue(
        BatchStart(),
        TakeOver(),
        DriverConfirmed(),
        ReadDecision(),
        DecisionFound(DECIDED.done),
        AbortTransactions(),
        TransactionsAborted(),
        Finish(DECIDED.done),
    )


def test_a_decided_batch_is_finished_at_the_next_start() -> None:
    """Its transactions are committed before anything else of the query is ended, and before a task can take their ids over."""
    dialogue(
        BatchStart(),
        TakeOver(),
        *(DriverConfirmed(), ReadDecision()),
        *(DecisionFound(DECIDED), CommitTransactions((ONE, TWO))),
        *(TransactionsCommitted(()), WriteDecision(DECIDED.done)),
        *(DecisionWritten(), AbortTransactions()),
        *(TransactionsAborted(), Finish(DECIDED.done)),
    )


def test_a_transaction_lost_behind_the_decision_fails_every_start_by_name() -> None:
    for _ in range(2):
        errand = BatchStart()
        dialogue(errand, TakeOver(), DriverConfirmed(), ReadDecision(), DecisionFound(DECIDED), CommitTransactions((ONE, TWO)))
        with pytest.raises(LostBatchError) as caught:
            errand.step(TransactionsCommitted([TWO]))
        for part in ("query q", "batch 7", "moldau-spark-q-1-0 (producer id 101, epoch 0)", "10 rows in t-1 from offset 1000 on"):
            assert part in str(caught.value)
        assert "q-0-0" not in str(caught.value), "what is committed is not missing"


@pytest.mark.parametrize(
    ("skip", "last"),
    [(True, DECIDED.done), (False, Decision("q", "r", 6, DecisionState.DONE, (), 5))],
    ids=["skip", "again"],
)
def test_a_person_says_what_becomes_of_it(skip: bool, last: Decision) -> None:
    dialogue(
        BatchStart((7, skip)),
        TakeOver(),
        *(DriverConfirmed(), ReadDecision()),
        *(DecisionFound(DECIDED), CommitTransactions((ONE, TWO))),
        *(TransactionsCommitted([TWO]), WriteDecision(last)),
        *(DecisionWritten(), AbortTransactions()),
        *(TransactionsAborted(), Finish(last)),
    )


def test_what_a_person_said_of_another_batch_does_not_count() -> None:
    errand = BatchStart((6, True))
    dialogue(errand, TakeOver(), DriverConfirmed(), ReadDecision(), DecisionFound(DECIDED), CommitTransactions((ONE, TWO)))
    with pytest.raises(LostBatchError):
        errand.step(TransactionsCommitted([TWO]))


def test_a_batch_is_looked_at_then_decided_then_committed_then_done() -> None:
    dialogue(
        BatchCommit("q", "r", 7, [ONE, TWO], 5),
        ResumeDriver(),
        *(DriverConfirmed(), CheckTransactions((ONE, TWO))),
        *(TransactionsChecked(()), WriteDecision(DECIDED)),
        *(DecisionWritten(), CommitTransactions((ONE, TWO))),
        *(TransactionsCommitted(()), WriteDecision(DECIDED.done)),
        *(DecisionWritten(), AbortTransactions()),
        *(TransactionsAborted(), Finish(DECIDED.done)),
    )


def test_a_transaction_gone_before_the_decision_fails_the_batch_undecided() -> None:
    errand = BatchCommit("q", "r", 7, [ONE, TWO], 5)
    dialogue(errand, ResumeDriver(), DriverConfirmed(), CheckTransactions((ONE, TWO)))
    with pytest.raises(WriteFailedError, match=r"query q: batch 7 is not written, and none of its rows is seen.*moldau-spark-q-1-0"):
        errand.step(TransactionsChecked([TWO]))


def test_a_transaction_lost_between_decision_and_commit_is_named_at_once() -> None:
    errand = BatchCommit("q", "r", 7, [ONE, TWO], 5)
    dialogue(
        errand,
        ResumeDriver(),
        DriverConfirmed(),
        CheckTransactions((ONE, TWO)),
        TransactionsChecked(()),
        WriteDecision(DECIDED),
        DecisionWritten(),
        CommitTransactions((ONE, TWO)),
    )
    with pytest.raises(LostBatchError, match=r"batch 7 was decided, but 1 of its 2 transactions.*q-0-0"):
        errand.step(TransactionsCommitted([ONE]))


def test_a_batch_without_rows_is_decided_too() -> None:
    """So that its number is not written again."""
    empty = Decision("q", "r", 7, DecisionState.DECIDED, (), 5)
    dialogue(
        BatchCommit("q", "r", 7, [], 5),
        ResumeDriver(),
        DriverConfirmed(),
        CheckTransactions(()),
        TransactionsChecked(()),
        WriteDecision(empty),
        DecisionWritten(),
        CommitTransactions(()),
    )


def test_a_batch_that_failed_is_aborted_whole() -> None:
    before = Decision("q", "r", 6, DecisionState.DONE, (), 5)
    dialogue(
        BatchAbort("r", 7, [ONE]),
        ResumeDriver(),
        DriverConfirmed(),
        ReadDecision(),
        DecisionFound(before),
        AbortTransactions([ONE]),
        TransactionsAborted(),
        Finish(before),
    )


@pytest.mark.parametrize("decision", [DECIDED, DECIDED.done], ids=["decided", "done"])
def test_a_commit_that_failed_behind_its_decision_is_not_aborted(decision: Decision) -> None:
    """Spark calls abort then too; the next start commits the rest."""
    dialogue(BatchAbort("r", 7, [ONE, TWO]), ResumeDriver(), DriverConfirmed(), ReadDecision(), DecisionFound(decision), Finish(decision))


def test_the_decision_of_another_checkpoint_says_nothing_of_this_batch() -> None:
    """Batches of a new checkpoint are counted from 0 again."""
    dialogue(
        BatchAbort("another run", 3, [ONE]),
        ResumeDriver(),
        DriverConfirmed(),
        ReadDecision(),
        DecisionFound(DECIDED.done),
        AbortTransactions([ONE]),
    )
    assert not DECIDED.covers("another run", 3)
    assert DECIDED.covers("r", 7)
    assert DECIDED.covers("r", 6)
    assert not DECIDED.covers("r", 8)


@pytest.mark.parametrize(
    ("errand", "event"),
    [
        (BatchStart(), TransactionsChecked(())),
        (BatchCommit("q", "r", 1, [], 0), DecisionFound(None)),
        (BatchAbort("r", 1, []), TransactionsCommitted(())),
    ],
    ids=["begin", "commit", "abort"],
)
def test_events_of_another_errand_are_a_bug(errand: Any, event: Event) -> None:
    with pytest.raises(AssertionError):
        errand.step(event)
