"""The driver of a transactional write: carries out what `machine` decides, over the raw connection."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from moldau.client.cluster import Cluster
from moldau.lake.writing import machine
from moldau.lake.writing.decisions import TIMEOUT_MS, Decision, DecisionLog, DecisionState, TaskTransaction, driver_id, ids_of
from moldau.lake.writing.options import TransactionOptions, WriteOptions
from moldau.lake.writing.points import reached
from moldau.lake.writing.producing import BatchSender
from moldau.lake.writing.transactions import ONGOING, ProducerIdentity, TransactionRequests, TransactionStatus, is_fenced
from moldau.model.errors import MoldauError
from moldau.tracking.clock import now_ms

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DriverClaim:
    """The proof that this driver is the query's, until another one takes over; `last` is what was decided before."""

    owner: ProducerIdentity
    last: Decision | None


class DriverFencedError(MoldauError):
    """Another driver has taken the query over."""


class Driver:
    """Brings batches of one query to their end. WorldError, PeerError, and the errors of `machine`."""

    def __init__(self, options: WriteOptions) -> None:
        assert options.transactions is not None
        self._how: TransactionOptions = options.transactions
        timeout_s = options.delivery_timeout_ms / 1000
        self._cluster = Cluster(options.bootstrap, client_id=options.client_id, timeout_s=timeout_s)
        self._producing = BatchSender(
            options.bootstrap, client_id=options.client_id, timeout_s=timeout_s, request_timeout_ms=options.request_timeout_ms
        )
        self._transactions = TransactionRequests(self._cluster)
        self._decisions = DecisionLog(self._cluster, self._producing, self._how.decisions_topic, self._how.query)
        self._owner: ProducerIdentity | None = None

    def begin(self) -> DriverClaim:
        """Before a batch: become the query's driver, finish what was decided, abort what was not. LostBatchError."""
        last = self._run(machine.BatchStart(self._how.lost_batch))
        assert self._owner is not None
        return DriverClaim(self._owner, last)

    def commit(self, claim: DriverClaim, run: str, batch: int, transactions: Sequence[TaskTransaction]) -> None:
        """After a batch: decide that it is visible, and make it so. WriteFailedError, FencedError: it is not; LostBatchError."""
        self._owner = claim.owner
        errand = machine.BatchCommit(self._how.query, run, batch, transactions, now_ms())
        self._run(errand)

    def abort(self, claim: DriverClaim, run: str, batch: int, transactions: Sequence[TaskTransaction]) -> None:
        """After a batch that failed: abort it, unless it is decided."""
        self._owner = claim.owner
        self._run(machine.BatchAbort(run, batch, transactions))

    def _run(self, errand: machine.DriverOperation) -> Decision | None:
        effect = errand.start()
        while not isinstance(effect, machine.Finish):
            effect = errand.step(self._carry_out(effect))
        return effect.last

    def _carry_out(self, effect: machine.Effect) -> machine.Event:
        match effect:
            case machine.TakeOver():
                self._decisions.ensure()
                self._owner = self._transactions.take_over(driver_id(self._how.query), TIMEOUT_MS)
                reached("driver taken over")
                return machine.DriverConfirmed()
            case machine.ResumeDriver():
                self._resume()
                reached("driver resumed")
                return machine.DriverConfirmed()
            case machine.ReadDecision():
                return machine.DecisionFound(self._decisions.last())
            case machine.CheckTransactions(transactions):
                gone = self._gone(transactions)
                reached("looked at")
                return machine.TransactionsChecked(gone)
            case machine.WriteDecision(decision):
                self._note(decision)
                return machine.DecisionWritten()
            case machine.CommitTransactions(transactions):
                lost = [each for number, each in enumerate(transactions) if not self._committed(each, number)]
                reached("all committed")
                return machine.TransactionsCommitted(lost)
            case machine.AbortTransactions(transactions):
                self._abort(transactions)
                return machine.TransactionsAborted()
            case machine.Finish():
                raise AssertionError(effect)

    def _resume(self) -> None:
        assert self._owner is not None
        try:
            self._owner = self._transactions.raise_epoch(self._owner, TIMEOUT_MS)
        except MoldauError as error:
            raise self._fenced(error) from error

    def _gone(self, transactions: Sequence[TaskTransaction]) -> list[TaskTransaction]:
        standing = self._transactions.standing(_id(each) for each in transactions)
        return [
            each for each in transactions if standing.get(_id(each)) != TransactionStatus(ONGOING, each.owner.producer_id, each.owner.epoch)
        ]

    def _note(self, decision: Decision) -> None:
        assert self._owner is not None
        done = decision.state is DecisionState.DONE
        try:
            self._decisions.write(self._owner, decision, forget=done and not self._how.named)
        except MoldauError as error:
            raise self._fenced(error) from error
        reached("noted done" if done else "decided")

    def _committed(self, transaction: TaskTransaction, number: int) -> bool:
        try:
            self._transactions.end(transaction.owner, committed=True)
        except MoldauError as error:
            if not is_fenced(error):
                raise
            return False
        if number == 0:
            reached("one committed")
        return True

    def _abort(self, transactions: Sequence[TaskTransaction]) -> None:
        """These by their owners, then whatever is open under ids of the query: taking an id over aborts what it has open."""
        for each in transactions:
            try:
                self._transactions.end(each.owner, committed=False)
            except MoldauError as error:
                if not is_fenced(error):
                    raise
        for transactional_id in ids_of(self._how.query, self._transactions.open_ones()):
            log.warning("query %s: aborting what %s left open", self._how.query, transactional_id)
            self._transactions.take_over(transactional_id, self._how.timeout_ms)
        reached("leftovers aborted")

    def _fenced(self, error: MoldauError) -> MoldauError:
        if not is_fenced(error):
            return error
        return DriverFencedError(
            f"query {self._how.query}: another driver has taken it over; one query at a time may have this name ({error})"
        )

    def close(self) -> None:
        """Close the connections."""
        self._producing.close()
        self._cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _id(transaction: TaskTransaction) -> str:
    assert transaction.owner.transactional_id is not None
    return transaction.owner.transactional_id
