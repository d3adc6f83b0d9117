"""Runs the machines of one partition: values go to the internal topic, markers to the partitions of a transaction. What has to get there
and does not is tried again after a while.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from moldau.broker.coordinators.machine_runner import MachineRunner
from moldau.broker.markers import Marker
from moldau.broker.transactions.events import (
    Add,
    Answer,
    Delayed,
    Effect,
    End,
    Event,
    Forget,
    Init,
    MarkersWritten,
    Store,
    StoreAgain,
    Stored,
    WriteMarkers,
)
from moldau.broker.transactions.machine import Machine
from moldau.broker.transactions.records import encode_key, encode_value
from moldau.broker.transactions.states import State
from moldau.broker.transactions.transaction import NO_EPOCH, NO_PRODUCER_ID
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.log_throttle import LogThrottle
from moldau.ports.probe import reached

if TYPE_CHECKING:
    from moldau.broker.coordinators.partition_coordinator import PartitionCoordinator
    from moldau.broker.coordinators.state_log import KeyValue
    from moldau.broker.markers import MarkerResults, MarkersDone
    from moldau.broker.transactions.partition import TransactionPartition
    from moldau.broker.transactions.transaction import Transaction
    from moldau.model.identity import TopicPartition
    from moldau.ports.clock import Clock

_LOG = logging.getLogger(__name__)

NOTES_INTERVAL_S = 60.0
NOTES_MAX = 256
"""What cannot be stored is logged once in this time for each id, and for no more ids than this."""

RETRY_MS = 1000
"""How long until what failed for want of space, or of a leader, is tried again."""

Reply = Callable[[ErrorCode, int, int], object]
"""The token of a request: takes the outcome, the producer's id and its epoch."""

_WRITTEN = frozenset({ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
"""A partition that is gone needs no marker."""


class RunnerParts(NamedTuple):
    """What the runners of all partitions have in common."""

    clock: "Clock"
    write_markers: "Callable[[Sequence[Marker], MarkersDone], object]"
    on_open: Callable[[], object]
    """Called when a transaction is open."""
    notes: LogThrottle


Subject: TypeAlias = tuple[str, Machine]
"""A transactional id and its machine."""


class TransactionRunner:
    """A :class:`moldau.broker.coordinators.machine_runner.MachineKind`, with the runner of its machines."""

    __slots__ = ("_coordinator", "_machines", "_partition", "_parts", "retries", "take")

    store = Store
    requests = (Init, Add, End)

    def __init__(
        self, partition: "TransactionPartition", coordinator: "PartitionCoordinator[TransactionPartition]", parts: RunnerParts
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

    def records(self, subject: Subject, effect: Store) -> "Sequence[KeyValue]":
        """The record of the id."""
        value = effect.value
        return ((encode_key(subject[0]), None if value is None else encode_value(value)),)

    def stored(self, subject: Subject, effect: Store, error: PeerError | None) -> Event:
        """A value is stored, or not; an id whose transaction is open is among those that may be late."""
        transactional_id, machine = subject
        partition, value = self._partition, effect.value
        if error is not None:
            self._note_not_stored(transactional_id, error)
        elif value is not None and value.state is State.ONGOING:
            partition.open[transactional_id] = machine
            self._parts.on_open()
        else:
            partition.open.pop(transactional_id, None)
        return _STORED if error is None else Stored(_code_for_clients(error))

    def carry_out(self, subject: Subject, effect: Effect) -> None:
        """Answer, write markers, store later, forget."""
        match effect:
            case Answer(token, code, producer_id, epoch):
                token(code, producer_id, epoch)
            case WriteMarkers(transaction):
                self._write(subject, transaction, None)
            case StoreAgain(value):
                self._retry(subject, partial(self._machines.carry_out, subject, [Store(value)]))
            case Forget():
                self._partition.forget(subject[0])

    def refuse(self, cause: Event | Effect) -> bool:
        """Answer UNKNOWN_SERVER_ERROR to a request, or in place of an answer."""
        match cause:
            case Init() | Add() | End() | Answer():
                cause.token(ErrorCode.UNKNOWN_SERVER_ERROR, NO_PRODUCER_ID, NO_EPOCH)
                return True
            case _:
                return False

    def _note_not_stored(self, transactional_id: str, error: PeerError) -> None:
        if self._parts.notes.due((transactional_id, error.code), self._parts.clock.monotonic()):
            _LOG.error("transaction not stored: transactional_id=%s reason=%s", transactional_id, error)

    def _write(self, subject: Subject, transaction: "Transaction", left: "dict[TopicPartition, None] | None") -> None:
        """Write markers: to all partitions first, then to those that were `left`."""
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
            self.take(subject, Delayed())
            self._retry(subject, partial(self._write, subject, transaction, left_now))

        marker = Marker(
            transaction.producer_id,
            transaction.epoch,
            transaction.is_committed,
            self._coordinator.epoch,
            transaction.client_version,
            transaction.partitions if left is None else left,
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
                _LOG.error("markers refused for good: transactional_id=%s error=%s partitions=%d first=%s", *about)
                continue
            if is_first:
                _LOG.warning("markers not written yet, retrying: transactional_id=%s error=%s partitions=%d first=%s", *about)
            yield from partitions

    def _retry(self, subject: Subject, action: Callable[[], object]) -> None:
        """Try again after a while; a machine waits for one thing at a time."""

        def again() -> None:
            self.retries -= 1
            action()

        self.retries += 1
        reached("transactions: a step failed and is repeated later")
        self._coordinator.deadline(("retry", subject[0]), self._coordinator.now_ms() + RETRY_MS, again)


_STORED = Stored()


def _code_for_clients(error: PeerError) -> ErrorCode:
    """The code for a store that failed; as in Kafka, a client cannot do anything about a value that is too large."""
    return ErrorCode.UNKNOWN_SERVER_ERROR if error.code is ErrorCode.MESSAGE_TOO_LARGE else error.code
