"""How a driver brings a batch to its end, decided without doing: an event in, the next effect out. No I/O, no clock.

There are three operations. Each begins with becoming the query's driver: no decision of an earlier one can be written after that.

=========  ==================================================================================================================
operation  effects, in this order
=========  ==================================================================================================================
start      take over; read the last decision; if it is not carried out: commit its transactions, write that it is done; abort
           what else the query's tasks have open. Then tasks may write
commit     resume; check the batch's transactions; **write the decision**; commit them; write that it is done; abort what else
           is open: attempts of tasks that do not count
abort      resume; read the last decision; unless it is this batch's: abort its transactions, and what else is open
=========  ==================================================================================================================
The decision is the point of no return. Before it everything may fail, and nothing of the batch is ever visible. After it all that can be
done is to commit what it lists, now or at the next start. A transaction that has ended by then, because brokers aborted it for its age, is
lost: the query fails by name (`LostBatchError`) at every start until a person decides about that batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from moldau.lake.writing.decisions import Decision, DecisionState, TaskTransaction
from moldau.model.errors import MoldauError

# Effects.


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Become the query's driver. → DriverConfirmed"""


@dataclass(frozen=True, slots=True)
class ResumeDriver:
    """Continue as the query's driver, if no other has taken over. → DriverConfirmed; a fenced driver ends here."""


@dataclass(frozen=True, slots=True)
class ReadDecision:
    """Read the query's last decision. → Found"""


@dataclass(frozen=True, slots=True)
class CheckTransactions:
    """See how transactions stand. → TransactionsChecked"""

    transactions: Sequence[TaskTransaction]


@dataclass(frozen=True, slots=True)
class WriteDecision:
    """Write a decision down, durably. → DecisionWritten"""

    decision: Decision


@dataclass(frozen=True, slots=True)
class CommitTransactions:
    """Commit transactions. → TransactionsCommitted"""

    transactions: Sequence[TaskTransaction]


@dataclass(frozen=True, slots=True)
class AbortTransactions:
    """Abort transactions, and whatever else the query's tasks have open. → TransactionsAborted"""

    transactions: Sequence[TaskTransaction] = ()


@dataclass(frozen=True, slots=True)
class Finish:
    """The operation is done; `last` is the query's last decision."""

    last: Decision | None


Effect = TakeOver | ResumeDriver | ReadDecision | CheckTransactions | WriteDecision | CommitTransactions | AbortTransactions | Finish

# Events.


@dataclass(frozen=True, slots=True)
class DriverConfirmed:
    """This is the query's driver."""


@dataclass(frozen=True, slots=True)
class DecisionFound:
    """The last decision, if there is one."""

    decision: Decision | None


@dataclass(frozen=True, slots=True)
class TransactionsChecked:
    """Which transactions are no longer open."""

    gone: Sequence[TaskTransaction]


@dataclass(frozen=True, slots=True)
class DecisionWritten:
    """The decision is written down."""


@dataclass(frozen=True, slots=True)
class TransactionsCommitted:
    """All are committed but those that were lost."""

    lost: Sequence[TaskTransaction]


@dataclass(frozen=True, slots=True)
class TransactionsAborted:
    """Nothing of the query is open."""


Event = DriverConfirmed | DecisionFound | TransactionsChecked | DecisionWritten | TransactionsCommitted | TransactionsAborted


class WriteFailedError(MoldauError):
    """A batch that was not written, and of which nothing is seen."""


class LostBatchError(MoldauError):
    """A batch that was decided and of which transactions were lost after that."""


class BatchStart:
    """Before a batch. `verdict` is a person's decision about a batch that lost transactions: its number and whether to skip it."""

    def __init__(self, verdict: tuple[int, bool] | None = None) -> None:
        self._verdict = verdict
        self._last: Decision | None = None

    def start(self) -> Effect:
        """The first effect."""
        return TakeOver()

    def step(self, event: Event) -> Effect:
        """The next effect. LostBatchError."""
        match event:
            case DriverConfirmed():
                return ReadDecision()
            case DecisionFound(decision):
                self._last = decision
                if decision is not None and decision.state is DecisionState.DECIDED:
                    return CommitTransactions(decision.transactions)
                return AbortTransactions()
            case TransactionsCommitted(lost):
                assert self._last is not None
                self._last = self._judged(self._last, lost)
                return WriteDecision(self._last)
            case DecisionWritten():
                return AbortTransactions()
            case TransactionsAborted():
                return Finish(self._last)
            case _:
                raise AssertionError(event)

    def _judged(self, decision: Decision, lost: Sequence[TaskTransaction]) -> Decision:
        if not lost:
            return decision.done
        if self._verdict is None or self._verdict[0] != decision.batch:
            raise lost_batch(decision, lost)
        if self._verdict[1]:
            return decision.done
        return Decision(decision.query, decision.run, decision.batch - 1, DecisionState.DONE, (), decision.time_ms)


class BatchCommit:
    """What is done after a batch whose tasks have all written: `transactions` has those that count."""

    def __init__(self, query: str, run: str, batch: int, transactions: Sequence[TaskTransaction], time_ms: int) -> None:
        self._decision = Decision(query, run, batch, DecisionState.DECIDED, tuple(transactions), time_ms)

    def start(self) -> Effect:
        """The first effect."""
        return ResumeDriver()

    def step(self, event: Event) -> Effect:
        """The next effect. WriteFailedError, LostBatchError."""
        match event:
            case DriverConfirmed():
                return CheckTransactions(self._decision.transactions)
            case TransactionsChecked(gone):
                if gone:
                    raise _gone(self._decision, gone)
                return WriteDecision(self._decision)
            case DecisionWritten():
                return (
                    CommitTransactions(self._decision.transactions)
                    if self._decision.state is DecisionState.DECIDED
                    else AbortTransactions()
                )
            case TransactionsCommitted(lost):
                if lost:
                    raise lost_batch(self._decision, lost)
                self._decision = self._decision.done
                return WriteDecision(self._decision)
            case TransactionsAborted():
                return Finish(self._decision)
            case _:
                raise AssertionError(event)


class BatchAbort:
    """What is done after a batch that failed. Spark asks for it also where a commit failed, perhaps after its decision."""

    def __init__(self, run: str, batch: int, transactions: Sequence[TaskTransaction]) -> None:
        self._run, self._batch, self._transactions = run, batch, transactions
        self._last: Decision | None = None

    def start(self) -> Effect:
        """The first effect."""
        return ResumeDriver()

    def step(self, event: Event) -> Effect:
        """The next effect."""
        match event:
            case DriverConfirmed():
                return ReadDecision()
            case DecisionFound(decision):
                self._last = decision
                if decision is not None and decision.covers(self._run, self._batch):
                    return Finish(decision)
                return AbortTransactions(self._transactions)
            case TransactionsAborted():
                return Finish(self._last)
            case _:
                raise AssertionError(event)


DriverOperation = BatchStart | BatchCommit | BatchAbort


def lost_batch(decision: Decision, lost: Sequence[TaskTransaction]) -> LostBatchError:
    """Which batch, which transactions, and what can be missing."""
    count = len(decision.transactions)
    return LostBatchError(
        f"query {decision.query}: batch {decision.batch} was decided, but {len(lost)} of its {count} transactions could not be committed "
        f"any more (brokers abort one that is open for longer than transactionTimeout, or another producer took its id); the other "
        f"{count - len(lost)} are committed, and missing are: {'; '.join(map(str, lost))}. Option lostBatch={decision.batch}:skip "
        f"continues without these rows, lostBatch={decision.batch}:again writes the whole batch again, with the "
        f"committed rows twice in the topic"
    )


def _gone(decision: Decision, gone: Sequence[TaskTransaction]) -> WriteFailedError:
    return WriteFailedError(
        f"query {decision.query}: batch {decision.batch} is not written, and none of its rows is seen: these transactions were ended "
        f"before it was decided, because the batch took longer than transactionTimeout or another query has this name: "
        f"{'; '.join(str(each.owner) for each in gone)}"
    )
