"""A partition of ``__transaction_state`` that this broker coordinates: the machines of its transactional ids, and what runs them.

The values of a machine go to the internal topic, its markers to the partitions of the transaction. What cannot be written is retried after
a while.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from sys import getsizeof
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from moldau.broker.admission.state import Account, Budget
from moldau.broker.coordinators.machine_runner import MachineRunner
from moldau.broker.transactions.events import (
    AddPartitions,
    AnswerRequest,
    Effect,
    EffectDelayed,
    EndTransaction,
    Event,
    ForgetTransaction,
    InitProducer,
    MarkersWritten,
    RetryStore,
    StoreTransaction,
    TransactionLoaded,
    TransactionStored,
    WriteMarkers,
)
from moldau.broker.transactions.machine import Machine, Surroundings
from moldau.broker.transactions.markers import Marker
from moldau.broker.transactions.records import decode_key, decode_value, encode_key, encode_value
from moldau.broker.transactions.transaction import NO_EPOCH, NO_PRODUCER_ID, TransactionState
from moldau.cluster.internal_topics import TRANSACTIONS
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.log_throttle import LogThrottle
from moldau.model.steps import Steps
from moldau.ports.probe import reached

if TYPE_CHECKING:
    from moldau.broker.coordinators.partition_coordinator import PartitionCoordinator
    from moldau.broker.coordinators.state_log import KeyValue, LoadedBatch
    from moldau.broker.transactions.machine import ProducerEpochs
    from moldau.broker.transactions.markers import MarkerResults, MarkersDone
    from moldau.broker.transactions.transaction import TransactionMetadata
    from moldau.model.identity import TopicPartition
    from moldau.ports.clock import Clock

_LOG = logging.getLogger(__name__)

NOTES_INTERVAL_S = 60.0
NOTES_MAX = 256
"""What cannot be stored is logged once in this time for each id, and for no more ids than this."""

RETRY_MS = 1000
"""How long until what failed for want of space is tried again."""
MARKERS_RETRY_MS = 100
"""How long until markers that found no leader are routed again the first time; then twice as long each time, up to `RETRY_MS`."""

Reply = Callable[[ErrorCode, int, int], object]
"""The token of a request: takes the outcome, the producer's id and its epoch."""

_WRITTEN = frozenset({ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
"""A deleted partition needs no marker."""

ID_COST = 1300
"""Bytes that an id takes with `PARTITIONS_INCLUDED`, so that a small transaction of an existing id needs no room."""
PARTITIONS_INCLUDED = 4
PARTITION_COST = 220
"""Bytes that each further partition of a transaction takes."""


def id_size(transactional_id: str, partitions: int) -> int:
    """Bytes that an id with a transaction of `partitions` partitions takes."""
    return ID_COST + getsizeof(transactional_id) + PARTITION_COST * max(partitions - PARTITIONS_INCLUDED, 0)


class RunnerParts(NamedTuple):
    """What the runners of all partitions have in common."""

    clock: "Clock"
    write_markers: "Callable[[Sequence[Marker], MarkersDone], object]"
    on_open: Callable[[], object]
    """Called when a transaction is open."""
    notes: LogThrottle


Subject: TypeAlias = tuple[str, Machine]
"""A transactional id and its machine."""


class TransactionPartition:
    """A :class:`moldau.broker.coordinators.partition_coordinator.CoordinatorState`.

    Invariant: `open` holds those of `machines` whose transaction is open, except while one of them is taking a step.
    """

    __slots__ = (
        "_decided",
        "_memory",
        "_on_loaded",
        "_producers",
        "_replayed",
        "_surroundings",
        "account",
        "coordinator",
        "last_producer_id",
        "machines",
        "open",
        "partition",
        "runner",
    )

    def __init__(
        self,
        coordinator: "PartitionCoordinator[TransactionPartition]",
        memory: Budget,
        producers: "ProducerEpochs",
        surroundings: Surroundings,
        parts: RunnerParts,
        on_loaded: "Callable[[TransactionPartition], object]",
    ) -> None:
        self.coordinator = coordinator
        self.partition = coordinator.partition
        self.machines: dict[str, Machine] = {}
        self.open: dict[str, Machine] = {}
        self.last_producer_id = NO_PRODUCER_ID
        """The largest that an id had in the log."""
        self._decided: dict[str, Machine] = {}
        self.account = Account(memory)
        """Memory of the ids."""
        self.runner = TransactionRunner(self, coordinator, parts)
        self._memory = memory
        self._producers = producers
        self._surroundings = surroundings
        self._on_loaded = on_loaded
        self._replayed: dict[str, TransactionMetadata] = {}

    # For the runtime

    def replay(self, batch: "LoadedBatch") -> None:
        """Note what a stored batch says. A record that cannot be read is as if it were not there, but for a line in the log."""
        for record in batch.records:
            try:
                transactional_id = decode_key(record.key)
                if transactional_id is None:
                    _LOG.warning("record of an unknown kind skipped: partition=%s offset=%d", self._name, record.offset)
                else:
                    value = None if record.value is None else decode_value(record.value)
                    before = self._replayed.pop(transactional_id, None)
                    if before is not None:
                        self.account.add(-id_size(transactional_id, len(before.partitions)))
                    if value is not None:
                        self.account.add(id_size(transactional_id, len(value.partitions)))
                        self._replayed[transactional_id] = value
            except PeerError as error:
                _LOG.error("damaged record left out: partition=%s offset=%d reason=%s", self._name, record.offset, error.message)

    def finish_replay(self) -> Steps:
        """Make the machines of what was read."""
        replayed, self._replayed = self._replayed, {}
        for transactional_id, transaction in replayed.items():
            machine = self.machines[transactional_id] = Machine(transaction, self._surroundings)
            machine.counted_partitions = max(len(transaction.partitions), PARTITIONS_INCLUDED)
            machine.counted_bytes = id_size(transactional_id, machine.counted_partitions)
            self._producers.note(machine, self.coordinator)
            self.last_producer_id = max(self.last_producer_id, transaction.producer_id, transaction.next_producer_id)
            if transaction.state is TransactionState.ONGOING:
                self.open[transactional_id] = machine
            elif transaction.state.is_decided:
                self._decided[transactional_id] = machine
            yield None

    def loaded(self) -> None:
        """Serve."""
        self._on_loaded(self)

    def finish_decided(self) -> Steps:
        """Complete the transactions that were decided and not completed when the partition was loaded."""
        decided, self._decided = self._decided, {}
        for transactional_id, machine in decided.items():
            _LOG.info("finishing what was decided: transactional_id=%s state=%s", transactional_id, machine.state.label)
            self.runner.take((transactional_id, machine), TransactionLoaded())
            yield None

    def resigned(self, error: PeerError) -> Steps:
        """Another coordinator continues from what is stored; clients that wait receive the error."""
        machines, self.machines = self.machines, {}
        self.open, self._replayed = {}, {}
        self.account.close()
        return self._release(machines, error)

    def _release(self, machines: dict[str, Machine], error: PeerError) -> Steps:
        while machines:
            transactional_id, machine = machines.popitem()
            self.runner.give_up(transactional_id, machine, error.code)
            self._producers.forget(machine)
            yield None

    def memory(self) -> Sequence[Budget]:
        """The one of all ids."""
        return (self._memory,)

    # For the machines

    def add(self, transactional_id: str, machine: Machine) -> None:
        """A new id."""
        self.machines[transactional_id] = machine
        self.count(transactional_id, machine, changed=True)

    def forget(self, transactional_id: str) -> None:
        """An id was removed."""
        machine = self.machines.pop(transactional_id, None)
        if machine is not None:
            self._producers.forget(machine)
            self.account.add(-machine.counted_bytes)

    def count(self, transactional_id: str, machine: Machine, *, changed: bool) -> None:
        """The machine has taken a step, in which its `current` may have `changed`: count what it holds now."""
        if self.machines.get(transactional_id) is not machine:
            return
        if changed:
            self._producers.note(machine, self.coordinator)
        partitions = max(machine.partitions_held, PARTITIONS_INCLUDED)
        if partitions != machine.counted_partitions:
            size = id_size(transactional_id, partitions)
            self.account.add(size - machine.counted_bytes)
            machine.counted_bytes, machine.counted_partitions = size, partitions

    @property
    def _name(self) -> str:
        return f"{TRANSACTIONS.name}-{self.partition}"


class TransactionRunner:
    """A :class:`moldau.broker.coordinators.machine_runner.MachineKind`, with the runner of its machines."""

    __slots__ = ("_coordinator", "_machines", "_partition", "_parts", "retries", "take")

    store = StoreTransaction
    requests = (InitProducer, AddPartitions, EndTransaction)

    def __init__(
        self, partition: TransactionPartition, coordinator: "PartitionCoordinator[TransactionPartition]", parts: RunnerParts
    ) -> None:
        self.retries = 0
        """How many stores and markers wait for another try."""
        self._partition = partition
        self._coordinator = coordinator
        self._parts = parts
        self._machines: MachineRunner[Subject, Event, Effect] = MachineRunner(coordinator, self)
        self.take = self._machines.take
        """Let something happen to an id. PeerError only from `Late`."""

    def give_up(self, transactional_id: str, machine: Machine, code: ErrorCode) -> None:
        """The coordinator resigns: answer those who wait for this id."""
        self._machines.carry_out((transactional_id, machine), machine.give_up(code))

    # The kind of machine

    def step(self, subject: Subject, event: Event) -> Iterable[Effect]:
        """Take the step, and count what the machine holds then."""
        transactional_id, machine = subject
        before = machine.current
        effects = machine.step(event, self._parts.clock.time_ms())
        self._partition.count(transactional_id, machine, changed=machine.current is not before)
        return effects

    def records(self, subject: Subject, effect: StoreTransaction) -> "Sequence[KeyValue]":
        """The record of the id."""
        value = effect.value
        return ((encode_key(subject[0]), None if value is None else encode_value(value)),)

    def stored(self, subject: Subject, effect: StoreTransaction, error: PeerError | None) -> Event:
        """A value is stored, or not; an id whose transaction is open is among those that may be late."""
        transactional_id, machine = subject
        partition, value = self._partition, effect.value
        if error is not None:
            self._note_not_stored(transactional_id, error)
        elif value is not None and value.state is TransactionState.ONGOING:
            partition.open[transactional_id] = machine
            self._parts.on_open()
        else:
            partition.open.pop(transactional_id, None)
        return _STORED if error is None else TransactionStored(_code_for_clients(error))

    def carry_out(self, subject: Subject, effect: Effect) -> None:
        """Answer, write markers, store later, forget."""
        match effect:
            case AnswerRequest():
                effect.token(effect.code, effect.producer_id, effect.epoch)
            case WriteMarkers():
                self._write(subject, effect.transaction)
            case RetryStore():
                self._retry(subject, partial(self._machines.carry_out, subject, [StoreTransaction(effect.value)]), RETRY_MS)
            case ForgetTransaction():
                self._partition.forget(subject[0])

    def refuse(self, cause: Event | Effect) -> bool:
        """Answer UNKNOWN_SERVER_ERROR to a request, or in place of an answer."""
        match cause:
            case InitProducer() | AddPartitions() | EndTransaction() | AnswerRequest():
                cause.token(ErrorCode.UNKNOWN_SERVER_ERROR, NO_PRODUCER_ID, NO_EPOCH)
                return True
            case _:
                return False

    def _note_not_stored(self, transactional_id: str, error: PeerError) -> None:
        if self._parts.notes.due((transactional_id, error.code), self._parts.clock.monotonic()):
            _LOG.error("transaction not stored: transactional_id=%s reason=%s", transactional_id, error)

    def _write(
        self,
        subject: Subject,
        transaction: "TransactionMetadata",
        left: "dict[TopicPartition, None] | None" = None,
        retry_ms: int = MARKERS_RETRY_MS,
    ) -> None:
        """Write markers: to all partitions first, then to those that were `left`; again after `retry_ms`."""
        if not transaction.partitions:
            self.take(subject, MarkersWritten())
            return
        transactional_id = subject[0]

        def done(results: "Sequence[MarkerResults]") -> None:
            if self._coordinator.is_over:
                return
            left_now = dict.fromkeys(self._not_written(transactional_id, results[0], is_first=left is None))
            if not left_now:
                if left is not None:
                    _LOG.info("markers written at last: transactional_id=%s", transactional_id)
                self.take(subject, MarkersWritten())
                return
            self.take(subject, EffectDelayed())
            self._retry(subject, partial(self._write, subject, transaction, left_now, min(2 * retry_ms, RETRY_MS)), retry_ms)

        marker = Marker(
            transaction.producer_id,
            transaction.epoch,
            transaction.is_committed,
            self._coordinator.epoch,
            transaction.client_version,
            transaction.partitions if left is None else left,
            self._partition.partition,
        )
        self._parts.write_markers([marker], done)

    def _not_written(self, transactional_id: str, results: "MarkerResults", *, is_first: bool) -> "Iterable[TopicPartition]":
        """The partitions to try again.

        To ask again where nothing will change, as where a later epoch of the producer or the coordinator was seen, would hold up the
        producer for ever; so the transaction is complete without that partition, and the log says so.
        """
        problems: dict[ErrorCode, list[TopicPartition]] = {}
        for partition, code in results.items():
            if code not in _WRITTEN:
                problems.setdefault(code, []).append(partition)
        for code, partitions in problems.items():
            about = transactional_id, code.name, len(partitions), min(partitions)
            if not code.retriable:
                _LOG.error("markers refused, not retried: transactional_id=%s error=%s partitions=%d first=%s", *about)
                continue
            if is_first:
                _LOG.warning("markers not written yet, retrying: transactional_id=%s error=%s partitions=%d first=%s", *about)
            yield from partitions

    def _retry(self, subject: Subject, action: Callable[[], object], delay_ms: int) -> None:
        """Try again after a while; a machine waits for one thing at a time."""

        def again() -> None:
            self.retries -= 1
            action()

        self.retries += 1
        reached("transactions: a step failed and is repeated later")
        self._coordinator.deadline(("retry", subject[0]), self._coordinator.now_ms() + delay_ms, again)


_STORED = TransactionStored()


def _code_for_clients(error: PeerError) -> ErrorCode:
    """The code for a store that failed; as in Kafka, a client cannot do anything about a value that is too large."""
    return ErrorCode.UNKNOWN_SERVER_ERROR if error.code is ErrorCode.MESSAGE_TOO_LARGE else error.code
