"""Carries out what the machines want: answers, stores, markers. What has to get there and does not is tried again after a while."""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from moldau.broker.markers import Marker
from moldau.broker.transactions.events import (
    Answer,
    Delayed,
    Effect,
    Event,
    Forget,
    MarkersWritten,
    Store,
    StoreAgain,
    Stored,
    WriteMarkers,
)
from moldau.broker.transactions.records import encode_key, encode_value
from moldau.broker.transactions.states import State
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.seldom import Seldom

if TYPE_CHECKING:
    from moldau.broker.coordinators.state_log import StateLog
    from moldau.broker.markers import MarkerResults, MarkersDone
    from moldau.broker.transactions.machine import Machine
    from moldau.broker.transactions.owned import Owned
    from moldau.broker.transactions.transaction import Transaction
    from moldau.model.identity import TopicPartition
    from moldau.ports.clock import Clock, Timer

_LOG = logging.getLogger(__name__)

NOTES_INTERVAL_S = 60.0
NOTES_MAX = 256
"""What cannot be stored is told of once in this time for each id, and for no more ids than this."""

RETRY_S = 1.0
"""How long until what failed for want of space, or of a leader, is tried again."""

Reply = Callable[[ErrorCode, int, int], object]
"""The token of a request: takes the outcome, the producer's id and its epoch."""

_WRITTEN = frozenset({ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
"""A partition that is gone needs no marker."""


class Runner:
    """See the module."""

    def __init__(self, state_log: "StateLog", clock: "Clock", write_markers: "Callable[[Sequence[Marker], MarkersDone], object]") -> None:
        self._state_log = state_log
        self._clock = clock
        self._write_markers = write_markers
        self.on_open: Callable[[], object] = lambda: None
        """Called when a transaction is open."""
        self._again: list[Callable[[], object]] = []
        self._timer: Timer | None = None
        self._told = Seldom(NOTES_INTERVAL_S, NOTES_MAX)

    def step(self, owned: "Owned", transactional_id: str, machine: "Machine", event: Event) -> None:
        """Let something happen to an id. PeerError only from `Late`."""
        effects = machine.step(event, self._clock.time_ms())
        owned.count(transactional_id, machine)
        self._run(owned, transactional_id, machine, effects)

    def give_up(self, owned: "Owned") -> None:
        """Another coordinator goes on with a partition: whoever waits has to ask that one."""
        owned.is_over = True
        for transactional_id, machine in owned.machines.items():
            self._run(owned, transactional_id, machine, machine.give_up(ErrorCode.NOT_COORDINATOR))

    @property
    def tried_again(self) -> int:
        """How many stores and markers wait for another try."""
        return len(self._again)

    def stop(self) -> None:
        """Try nothing again."""
        self._again.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _run(self, owned: "Owned", transactional_id: str, machine: "Machine", effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Answer(token, code, producer_id, epoch):
                    token(code, producer_id, epoch)
                case Store(value):
                    self._store(owned, transactional_id, machine, value)
                case WriteMarkers(transaction):
                    self._write(owned, transactional_id, machine, transaction, None)
                case StoreAgain(value):
                    self._later(owned, partial(self._store, owned, transactional_id, machine, value))
                case Forget():
                    owned.forget(transactional_id)

    def _store(self, owned: "Owned", transactional_id: str, machine: "Machine", value: "Transaction | None") -> None:
        def done(error: PeerError | None) -> None:
            if owned.is_over:
                return
            if error is not None:
                self._tell_not_stored(transactional_id, error)
            elif value is not None and value.state is State.ONGOING:
                owned.open[transactional_id] = machine
                self.on_open()
            else:
                owned.open.pop(transactional_id, None)
            self.step(owned, transactional_id, machine, Stored(_told(error)))

        record = encode_key(transactional_id), None if value is None else encode_value(value)
        self._state_log.append(owned.partition, [record], done)

    def _tell_not_stored(self, transactional_id: str, error: PeerError) -> None:
        if self._told.due((transactional_id, error.code), self._clock.monotonic()):
            _LOG.error("transaction not stored: transactional_id=%s reason=%s", transactional_id, error)

    def _write(
        self,
        owned: "Owned",
        transactional_id: str,
        machine: "Machine",
        transaction: "Transaction",
        left: "dict[TopicPartition, None] | None",
    ) -> None:
        """Write markers: to all partitions first, then to those that were `left`."""
        if not transaction.partitions:
            self.step(owned, transactional_id, machine, MarkersWritten())
            return

        def done(results: "Sequence[MarkerResults]") -> None:
            if owned.is_over:
                return
            left_now = dict.fromkeys(self._not_written(transactional_id, results[0], is_first=left is None))
            if not left_now:
                if left is not None:
                    _LOG.info("markers written at last: transactional_id=%s", transactional_id)
                self.step(owned, transactional_id, machine, MarkersWritten())
                return
            self.step(owned, transactional_id, machine, Delayed())
            self._later(owned, partial(self._write, owned, transactional_id, machine, transaction, left_now))

        marker = Marker(
            transaction.producer_id,
            transaction.epoch,
            transaction.is_committed,
            owned.epoch,
            transaction.client_version,
            transaction.partitions if left is None else left,
        )
        self._write_markers([marker], done)

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

    def _later(self, owned: "Owned", again: Callable[[], object]) -> None:
        self._again.append(lambda: owned.is_over or again())
        if self._timer is None:
            self._timer = self._clock.call_later(RETRY_S, self._retry)

    def _retry(self) -> None:
        self._timer = None
        again, self._again = self._again, []
        for each in again:
            each()


def _told(error: PeerError | None) -> ErrorCode:
    """What a client is told of a store that failed; as in Kafka, a value that is too large is not the client's to understand."""
    if error is None:
        return ErrorCode.NONE
    return ErrorCode.UNKNOWN_SERVER_ERROR if error.code is ErrorCode.MESSAGE_TOO_LARGE else error.code
