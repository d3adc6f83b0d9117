"""One transactional id as a machine: an event and the time go in, effects come out.

The order that matters: a change is stored before a client learns of it, and a decision before its first marker is written. So a
coordinator that crashes between any two effects finds, when it loads, either a transaction that is still open or one whose outcome stands,
whose markers it writes again (a repeated marker is harmless). EndTxn is answered when the transaction is complete, or else at the first
sign that this will take a while: from its first store on, the outcome cannot change.

    end ──> StoreTransaction(PrepareCommit) ──stored──> WriteMarkers ──written──> StoreTransaction(CompleteCommit) ──stored──> answer
                    │                                       └──delayed──> answer              └──error──> answer, RetryStore
                    └──error──> answer(error), the transaction is open as before

While a change is under way, requests are answered CONCURRENT_TRANSACTIONS, an EndTxn that contradicts what is decided INVALID_TXN_STATE. An
InitProducerId that finds a transaction open aborts it and then continues by itself; Kafka's sends the client away in between, with the same
outcome.
"""

from collections.abc import Callable
from typing import Protocol, assert_never

from moldau.broker.transactions.decisions import NewProducerId, added, completed, ended, fenced, initiated
from moldau.broker.transactions.events import (
    AddPartitions,
    AnswerRequest,
    Effect,
    EffectDelayed,
    EndTransaction,
    Event,
    ForgetTransaction,
    IdExpiry,
    InitProducer,
    MarkersWritten,
    RetryStore,
    StoreTransaction,
    TimeoutCheck,
    TransactionLoaded,
    TransactionStored,
    WriteMarkers,
)
from moldau.broker.transactions.transaction import EPOCH_PER_TRANSACTION, MOVES, NO_EPOCH, TransactionMetadata, TransactionState
from moldau.model.errors import ErrorCode, PeerError

BUSY = ErrorCode.CONCURRENT_TRANSACTIONS


class Surroundings:
    """What the machines of a coordinator have in common."""

    __slots__ = ("new_producer_id", "partitions_max")

    def __init__(self, new_producer_id: NewProducerId, partitions_max: Callable[[], int]) -> None:
        self.new_producer_id = new_producer_id
        self.partitions_max = partitions_max


class Machine:
    """See the module. `current` is what is stored.

    Invariant: `_target` is what is being stored, `current` once no store is under way; `_asked` is the request that the change under way is
    for, until it is answered; `_ended_over` is the newest connection over which a producer of the older protocol has ended a transaction.
    """

    __slots__ = ("_asked", "_ended_over", "_pending", "_surroundings", "_target", "counted_bytes", "counted_partitions", "current")

    def __init__(self, current: TransactionMetadata, surroundings: Surroundings) -> None:
        self.current = current
        self._surroundings = surroundings
        self._pending: TransactionState | None = None
        self._target: TransactionMetadata | None = None
        self._asked: InitProducer | AddPartitions | EndTransaction | None = None
        self._ended_over = 0
        self.counted_bytes = 0
        """What the budget of all ids has for this one."""
        self.counted_partitions = -1
        """How many partitions that is with, at least those that are included; -1 before it has been counted."""

    @property
    def partitions_held(self) -> int:
        """How many partitions are kept of it, of the value that is stored or of the one that is being stored."""
        held = self.current.partitions.count
        return held if self._target is None else max(held, self._target.partitions.count)

    @property
    def state(self) -> TransactionState:
        """Where the id stands, for people: the state that is stored, or a passing one that never is."""
        return self._pending if self._pending in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE) else self.current.state

    @property
    def is_busy(self) -> bool:
        """Whether a change is under way: a store, or the markers of a decision."""
        return self._pending is not None or self.current.state.is_decided

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """What to do now, in this order."""
        match event:
            case InitProducer():
                return self._init(event, now_ms)
            case AddPartitions():
                return self._add(event, now_ms)
            case EndTransaction():
                return self._end(event, now_ms)
            case TransactionStored():
                return self._stored(event.error, now_ms)
            case MarkersWritten():
                return self._store(completed(self.current, now_ms))
            case EffectDelayed():
                return self._answer_early()
            case TimeoutCheck():
                return self._late(now_ms)
            case IdExpiry():
                return self._unused()
            case TransactionLoaded():
                return [WriteMarkers(self.current)] if self.current.state.is_decided else []
            case _:
                assert_never(event)

    def give_up(self, code: ErrorCode) -> list[Effect]:
        """Another coordinator continues from what is stored: answer the request that waits here."""
        asked, self._asked = self._asked, None
        return [] if asked is None else [AnswerRequest(asked.token, code)]

    # Requests

    def _init(self, asked: InitProducer, now_ms: int) -> list[Effect]:
        if self.is_busy:
            return [AnswerRequest(asked.token, BUSY)]
        try:
            target = initiated(self.current, asked, self._surroundings.new_producer_id, now_ms)
        except PeerError as error:
            return [AnswerRequest(asked.token, error.code)]
        if isinstance(target, ErrorCode):
            return [AnswerRequest(asked.token, target)]
        self._asked = asked
        return self._store(target, TransactionState.PREPARE_EPOCH_FENCE if target.state is TransactionState.PREPARE_ABORT else None)

    def _add(self, asked: AddPartitions, now_ms: int) -> list[Effect]:
        if self.is_busy:
            return [AnswerRequest(asked.token, BUSY)]
        target = added(self.current, asked, self._surroundings.partitions_max(), now_ms)
        if isinstance(target, ErrorCode):
            return [AnswerRequest(asked.token, target)]
        self._asked = asked
        return self._store(target)

    def _end(self, asked: EndTransaction, now_ms: int) -> list[Effect]:
        current = self.current
        if self._is_overtaken(asked):
            return [AnswerRequest(asked.token, ErrorCode.INVALID_TXN_STATE)]
        try:
            target = ended(current, asked, self._surroundings.new_producer_id, now_ms, busy=self._pending is not None)
        except PeerError as error:
            return [AnswerRequest(asked.token, error.code)]
        if target is ErrorCode.NONE:
            return [AnswerRequest(asked.token, ErrorCode.NONE, current.producer_id, current.epoch)]
        if isinstance(target, ErrorCode):
            return [AnswerRequest(asked.token, target)]
        self._asked = asked
        return self._store(target)

    def _is_overtaken(self, asked: EndTransaction) -> bool:
        """Whether an EndTxn of the older protocol comes over a connection that its producer has given up for another one since.

        With its epoch alone it could end a transaction that has begun meanwhile. A producer ends its transactions over one
        connection, and makes another when that is lost; so what arrives over the lost one later was meant for an earlier transaction.
        """
        current = self.current
        if asked.client_version >= EPOCH_PER_TRANSACTION or (asked.producer_id, asked.epoch) != (current.producer_id, current.epoch):
            return False
        newest, self._ended_over = self._ended_over, max(self._ended_over, asked.connection)
        return asked.connection < newest

    # Time

    def _late(self, now_ms: int) -> list[Effect]:
        """PeerError if there is no producer id to continue with."""
        if self.is_busy or not self.current.is_late(now_ms):
            return []
        return self._store(fenced(self.current, self._surroundings.new_producer_id, now_ms), TransactionState.PREPARE_EPOCH_FENCE)

    def _unused(self) -> list[Effect]:
        if self.is_busy or not self.current.state.is_at_rest:
            return []
        self._pending = TransactionState.DEAD
        return [StoreTransaction(None)]

    # Stores

    def _store(self, target: TransactionMetadata, passing: TransactionState | None = None) -> list[Effect]:
        assert target.state in MOVES[self.current.state]
        self._target = target
        self._pending = passing or target.state
        return [StoreTransaction(target)]

    def _stored(self, error: ErrorCode, now_ms: int) -> list[Effect]:
        target, self._target = self._target, None
        if error is not ErrorCode.NONE:
            return self._not_stored(target, error)
        self._pending = None
        if target is None:
            return [ForgetTransaction()]
        self.current = target
        if target.state.is_decided:
            return [WriteMarkers(target)]
        asked, self._asked = self._asked, None
        match asked:
            case None:
                return []
            case InitProducer() if target.state.is_complete:
                return self._init(asked, now_ms)
            case AddPartitions():
                return [AnswerRequest(asked.token, ErrorCode.NONE)]
            case _:
                return [AnswerRequest(asked.token, ErrorCode.NONE, target.producer_id, target.epoch)]

    def _not_stored(self, target: TransactionMetadata | None, error: ErrorCode) -> list[Effect]:
        if target is not None and target.state.is_complete:
            self._target = target
            return [*self._answer_early(), RetryStore(target)]
        self._pending = None
        effects = self.give_up(error)
        if self.current.epoch == NO_EPOCH:
            effects.append(ForgetTransaction())
        return effects

    def _answer_early(self) -> list[Effect]:
        """Answer the request that waits for a transaction to be complete: the outcome cannot change. A producer that takes over retries."""
        asked, self._asked = self._asked, None
        match asked:
            case None:
                return []
            case EndTransaction():
                after = completed(self.current, self.current.updated_ms)
                return [AnswerRequest(asked.token, ErrorCode.NONE, after.producer_id, after.epoch)]
            case _:
                return [AnswerRequest(asked.token, BUSY)]


class Coordination(Protocol):
    """The term of the partition that a machine belongs to."""

    is_over: bool
    """Whether another broker may coordinate it, and give its producers other epochs."""


class ProducerEpochs:
    """The epoch of each producer with a transactional id, by producer id: it distinguishes a producer that was replaced from its successor
    where a partition has evicted both.

    Invariant: each machine that was noted and not removed is found by the producer id of its `current`, until its term is over.
    """

    __slots__ = ("_machines",)

    def __init__(self) -> None:
        self._machines: dict[int, tuple[Machine, Coordination]] = {}

    def note(self, machine: Machine, term: Coordination) -> None:
        """The machine is new, or has taken a step."""
        current = machine.current
        if current.previous_producer_id != current.producer_id:
            self._machines.pop(current.previous_producer_id, None)
        self._machines[current.producer_id] = machine, term

    def forget(self, machine: Machine) -> None:
        """Its id is not coordinated here any more."""
        found = self._machines.get(machine.current.producer_id)
        if found is not None and found[0] is machine:
            del self._machines[machine.current.producer_id]

    def of(self, producer_id: int) -> int | None:
        """The epoch that the producer was given last; None for one without a transactional id that is coordinated here."""
        found = self._machines.get(producer_id)
        if found is None:
            return None
        machine, term = found
        return None if term.is_over or machine.current.epoch == NO_EPOCH else machine.current.epoch
