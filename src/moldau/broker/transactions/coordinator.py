"""The coordinator of the transactional ids whose partition of ``__transaction_state`` this broker leads.

It finds the machine of an id and lets it take its steps; who asked is answered now or later. A request for an id of a partition that is
still being read gets COORDINATOR_LOAD_IN_PROGRESS, one for a partition that is led elsewhere NOT_COORDINATOR.

What becomes due with time is found by sweeps: late transactions, among those that are open, are aborted; unused ids, among all, are
removed.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from moldau.broker.coordinators.partition_coordinator import PartitionCoordinator, Phase
from moldau.broker.coordinators.runtime import CoordinatorRuntime
from moldau.broker.transactions.decisions import partitions_with, verified
from moldau.broker.transactions.events import AddPartitions, EndTransaction, IdExpiry, InitProducer, TimeoutCheck
from moldau.broker.transactions.listing import ListingFilters, TransactionListing, listed
from moldau.broker.transactions.machine import Machine, ProducerEpochs, Surroundings
from moldau.broker.transactions.partition import NOTES_INTERVAL_S, NOTES_MAX, Reply, RunnerParts, TransactionPartition, id_size
from moldau.broker.transactions.transaction import (
    EPOCH_PER_TRANSACTION,
    NO_EPOCH,
    NO_PRODUCER_ID,
    TransactionMetadata,
    TransactionState,
    new_transaction,
    partitions_of,
)
from moldau.cluster.internal_topics import TRANSACTIONS
from moldau.model.errors import CoordinationError, ErrorCode, PeerError
from moldau.model.log_throttle import LogThrottle
from moldau.model.steps import Steps
from moldau.ports.probe import reached

if TYPE_CHECKING:
    from moldau.broker.admission.state import StateBudgets
    from moldau.broker.coordinators.state_log import StateLog
    from moldau.broker.transactions.markers import Marker, MarkersDone
    from moldau.broker.transactions.remote import Question
    from moldau.cluster.producer_ids import ProducerIds
    from moldau.model.config.store import BrokerConfig
    from moldau.model.identity import TopicPartition
    from moldau.ports.clock import Clock

_LOG = logging.getLogger(__name__)


class TransactionExpiry:
    """See the module."""

    def __init__(self, runtime: "CoordinatorRuntime[TransactionPartition]", config: "BrokerConfig") -> None:
        self._clock = runtime.clock
        self._config = config
        self._late = runtime.add_sweep(
            "late transactions",
            lambda: config.int("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            lambda: any(each.state.open for each in runtime.active()),
            self._abort_late,
        )
        self._unused = runtime.add_sweep(
            "unused ids",
            lambda: config.int("transaction.remove.expired.transaction.cleanup.interval.ms"),
            lambda: any(each.state.machines for each in runtime.active()),
            self._forget_unused,
            reloads=True,
        )
        self.opened = self._late.wake
        """There is an open transaction."""
        self.known = self._unused.wake
        """There is an id."""

    def _abort_late(self, coordinator: "PartitionCoordinator[TransactionPartition]") -> Steps:
        partition = coordinator.state
        for transactional_id, machine in list(partition.open.items()):
            if not machine.is_busy and machine.current.is_late(self._clock.time_ms()):
                try:
                    partition.runner.take((transactional_id, machine), TimeoutCheck())
                except PeerError as error:
                    _LOG.error("late transaction not aborted yet: transactional_id=%s reason=%s", transactional_id, error)
                else:
                    reached("transactions: aborted one that was late")
                    _LOG.info(
                        "late transaction aborted: transactional_id=%s producer_id=%d timeout_ms=%d",
                        transactional_id,
                        machine.current.producer_id,
                        machine.current.timeout_ms,
                    )
            yield None

    def _forget_unused(self, coordinator: "PartitionCoordinator[TransactionPartition]") -> Steps:
        partition = coordinator.state
        before_ms = self._clock.time_ms() - self._config.int("transactional.id.expiration.ms")
        for transactional_id, machine in list(partition.machines.items()):
            if machine.current.state.is_at_rest and machine.current.updated_ms <= before_ms:
                partition.runner.take((transactional_id, machine), IdExpiry())
            yield None


PartitionsDone = Callable[["dict[TopicPartition, ErrorCode]"], object]


class Description(NamedTuple):
    """How an id stands."""

    state: TransactionState
    transaction: TransactionMetadata


class TransactionCoordinator:
    """See the module. Everything runs on the broker's thread."""

    def __init__(
        self,
        state_log: "StateLog",
        clock: "Clock",
        producer_ids: "ProducerIds",
        config: "BrokerConfig",
        budgets: "StateBudgets",
        write_markers: "Callable[[Sequence[Marker], MarkersDone], object]",
        ask_elsewhere: "Callable[[Question, PartitionsDone], object] | None" = None,
    ) -> None:
        """`ask_elsewhere` asks the coordinator of an id that is not coordinated here."""
        self._ask_elsewhere = ask_elsewhere
        self._clock = clock
        self._config = config
        self._producer_ids = producer_ids
        self._notes = LogThrottle(NOTES_INTERVAL_S, NOTES_MAX)
        self._surroundings = Surroundings(self._new_producer_id, lambda: config.int("transaction.partitions.max"))
        self.memory = budgets.of("transactions.memory.max.bytes")
        self.producers = ProducerEpochs()
        """The epochs of all producers that have an id here."""
        self.runtime: CoordinatorRuntime[TransactionPartition] = CoordinatorRuntime(TRANSACTIONS.name, state_log, clock, self._make)
        self.load_refused = self.runtime.reload
        self._expiry = TransactionExpiry(self.runtime, config)
        self._parts = RunnerParts(clock, write_markers, self._expiry.opened, LogThrottle(NOTES_INTERVAL_S, NOTES_MAX))

    # Partitions of the internal topic

    def become_coordinator(self, partition: int, epoch: int) -> None:
        """Read the partition and then coordinate its ids; `epoch` is that of the leadership. What was decided is finished."""
        self.runtime.elected(partition, epoch)

    def resign(self, partition: int) -> None:
        """Stop coordinating the partition: it is led elsewhere, or offline."""
        self.runtime.resigned(partition)

    def close(self) -> None:
        """The broker stops: requests that wait are answered, and timers end."""
        self.runtime.close()

    @property
    def is_loading(self) -> bool:
        """Whether a partition is still being read."""
        return self.runtime.is_loading

    def statistics(self) -> dict[str, int]:
        """Numbers for a person who looks into a running broker."""
        partitions = [each.state for each in self.runtime.active()]
        return {
            "transactional_ids": sum(len(each.machines) for each in partitions),
            "transactions_open": sum(len(each.open) for each in partitions),
            "transactions_tried_again": sum(each.runner.retries for each in partitions),
            "transactions_memory_bytes": self.memory.held,
            "transactions_memory_refused": self.memory.refusals,
            "transaction_partitions_too_large": sum(each.phase is Phase.REFUSED for each in self.runtime.unserved.values()),
        }

    # What producers ask

    def init_producer_id(self, transactional_id: str, wanted: InitProducer) -> None:
        """Give a producer its id and epoch. INVALID_REQUEST, INVALID_TRANSACTION_TIMEOUT; POLICY_VIOLATION at the bound on ids.

        Further codes as in docs/transactions.md. The token of `wanted` is a :data:`moldau.broker.transactions.partition.Reply`.
        """
        reply: Reply = wanted.token
        try:
            partition = self._partition_of(transactional_id)
            most_ms = self._config.int("transaction.max.timeout.ms")
            if not 0 < wanted.timeout_ms <= most_ms:
                message = f"{transactional_id}: timeout of {wanted.timeout_ms} ms; transaction.max.timeout.ms is {most_ms}"
                raise PeerError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, message)
            machine = partition.machines.get(transactional_id)
            if machine is None:
                machine = self._new(partition, transactional_id, wanted.timeout_ms)
        except PeerError as error:
            if error.code is ErrorCode.POLICY_VIOLATION and self._notes.due(error.code, self._clock.monotonic()):
                _LOG.warning("producer id not given: transactional_id=%s reason=%s", transactional_id, error)
            reply(error.code, NO_PRODUCER_ID, NO_EPOCH)
            return
        partition.runner.take((transactional_id, machine), wanted)

    def add_partitions(self, transactional_id: str, wanted: AddPartitions) -> None:
        """Take partitions into a transaction, and begin it with them. INVALID_PRODUCER_ID_MAPPING for an id that is not known,
        POLICY_VIOLATION at the bound on memory.
        """
        self._ask(transactional_id, wanted)

    def end(self, transactional_id: str, wanted: EndTransaction) -> None:
        """Commit or abort. INVALID_PRODUCER_ID_MAPPING for an id that is not known."""
        self._ask(transactional_id, wanted)

    def _ask(self, transactional_id: str, wanted: AddPartitions | EndTransaction) -> None:
        try:
            partition, machine = self._known(transactional_id)
            if isinstance(wanted, AddPartitions):
                self._check_room(transactional_id, machine, wanted)
        except PeerError as error:
            wanted.token(error.code, NO_PRODUCER_ID, NO_EPOCH)
            return
        partition.runner.take((transactional_id, machine), wanted)

    # What leaders ask before they append

    def epoch_of(self, producer_id: int) -> int | None:
        """The epoch that a producer with a transactional id was given last; None for one without.

        PeerError NOT_LEADER_OR_FOLLOWER, with which producers try again, while it may be one of those that are still being read.
        """
        found = self.producers.of(producer_id)
        if found is None and self.runtime.is_loading:
            raise PeerError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"producer {producer_id} is not known yet: __transaction_state is still being read"
            )
        return found

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: "Iterable[TopicPartition]",
        done: PartitionsDone,
    ) -> None:
        """Ask whether partitions are in the transaction of a producer that adds them itself (KIP-890, part 1).

        ``done`` takes a code for each: NONE; TRANSACTION_ABORTABLE where it is not in the transaction (INVALID_TXN_STATE for clients that
        do not know that code); INVALID_PRODUCER_EPOCH for a producer that has been replaced; INVALID_PRODUCER_ID_MAPPING,
        CONCURRENT_TRANSACTIONS, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS. All NONE where `transaction.partition.verification.enable`
        is off.
        """
        if not self._config.boolean("transaction.partition.verification.enable"):
            done(dict.fromkeys(partitions, ErrorCode.NONE))
            return
        outcome = self.verified(transactional_id, producer_id, producer_epoch, partitions)
        if outcome is ErrorCode.NOT_COORDINATOR and self._ask_elsewhere is not None:
            from moldau.broker.transactions.remote import Question

            question = Question(transactional_id, producer_id, producer_epoch, partitions, adds=False)
            self._ask_elsewhere(question, lambda codes: done(_for_leaders(partitions, codes)))
        else:
            done(_for_leaders(partitions, outcome))

    def is_verified(self, transactional_id: str, producer_id: int, producer_epoch: int, partition: "TopicPartition") -> bool:
        """Whether `verify` would answer NONE for this partition, now."""
        if not self._config.boolean("transaction.partition.verification.enable"):
            return True
        codes = self.verified(transactional_id, producer_id, producer_epoch, (partition,))
        return isinstance(codes, dict) and codes[partition] is ErrorCode.NONE

    def verified(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: "Iterable[TopicPartition]"
    ) -> "dict[TopicPartition, ErrorCode] | ErrorCode":
        """A code for each partition, or one for all; those that AddPartitionsToTxn answers with."""
        try:
            _, machine = self._known(transactional_id)
        except PeerError as error:
            return error.code
        return verified(machine.current, producer_id, producer_epoch, partitions)

    def add_partitions_for_produce(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: "Iterable[TopicPartition]",
        done: PartitionsDone,
    ) -> None:
        """Take partitions into the transaction of a producer that leaves this to us (KIP-890, part 2); codes as for `verify`.

        While the last transaction is being completed, this waits for a moment: `add.partitions.to.txn.retry.backoff.max.ms`.
        """
        wanted = partitions_of(partitions)
        config, clock = self._config, self._clock
        pause_s = config.int("add.partitions.to.txn.retry.backoff.ms") / 1000
        due = clock.monotonic() + config.int("add.partitions.to.txn.retry.backoff.max.ms") / 1000

        def answer(code: ErrorCode, _producer_id: int = NO_PRODUCER_ID, _epoch: int = NO_EPOCH) -> None:
            if code is ErrorCode.CONCURRENT_TRANSACTIONS and clock.monotonic() + pause_s <= due:
                clock.call_later(pause_s, attempt)
            elif code is ErrorCode.NOT_COORDINATOR and self._ask_elsewhere is not None:
                from moldau.broker.transactions.remote import Question

                question = Question(transactional_id, producer_id, producer_epoch, wanted, adds=True)
                self._ask_elsewhere(question, answered_elsewhere)
            else:
                done(_for_leaders(wanted, code))

        def answered_elsewhere(codes: "dict[TopicPartition, ErrorCode]") -> None:
            if ErrorCode.CONCURRENT_TRANSACTIONS in codes.values():
                answer(ErrorCode.CONCURRENT_TRANSACTIONS)
            else:
                done(_for_leaders(wanted, codes))

        def attempt() -> None:
            self.add_partitions(transactional_id, AddPartitions(answer, producer_id, producer_epoch, wanted, EPOCH_PER_TRANSACTION))

        attempt()

    # What people ask

    def describe(self, transactional_id: str) -> Description:
        """How an id stands. PeerError: INVALID_REQUEST, TRANSACTIONAL_ID_NOT_FOUND, or why this broker cannot tell."""
        machine = self._partition_of(transactional_id).machines.get(transactional_id)
        if machine is None or machine.state is TransactionState.DEAD or machine.current.epoch == NO_EPOCH:
            raise PeerError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"transactional id {transactional_id!r} is not known")
        return Description(machine.state, machine.current)

    def listed(self, filters: ListingFilters) -> Iterator[TransactionListing | None]:
        """The ids that this broker coordinates, and None for each that does not pass, so that the caller can pause.

        PeerError: COORDINATOR_LOAD_IN_PROGRESS; INVALID_REGULAR_EXPRESSION at the first.
        """
        if self.is_loading:
            raise PeerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "not all transactional ids have been read yet")
        machines = (each for coordinator in self.runtime.active() for each in list(coordinator.state.machines.items()))
        return listed(machines, filters, self._clock.time_ms())

    # Parts

    def _make(self, coordinator: PartitionCoordinator[TransactionPartition]) -> TransactionPartition:
        return TransactionPartition(coordinator, self.memory, self.producers, self._surroundings, self._parts, self._loaded)

    def _loaded(self, partition: TransactionPartition) -> None:
        if partition.machines:
            self._expiry.known()
            self._pass_over(partition.last_producer_id)
        if partition.open:
            self._expiry.opened()
        steps = partition.coordinator.while_serving(partition.finish_decided())
        self.runtime.run_steps(steps, _note_bug, droppable=False)

    def _partition_of(self, transactional_id: str) -> TransactionPartition:
        """PeerError INVALID_REQUEST for the empty id; those of `CoordinatorRuntime.coordinator_of`."""
        if not transactional_id:
            raise PeerError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        return self.runtime.coordinator_of(transactional_id).state

    def _known(self, transactional_id: str) -> tuple[TransactionPartition, Machine]:
        """Also the machine of an id. PeerError INVALID_PRODUCER_ID_MAPPING if it is not known."""
        partition = self._partition_of(transactional_id)
        machine = partition.machines.get(transactional_id)
        if machine is None:
            raise PeerError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"transactional id {transactional_id!r} is not known")
        return partition, machine

    def _pass_over(self, used: int) -> None:
        """Assign no producer id that is known: a Kafka may have assigned it, whose directory was adopted."""
        self._producer_ids.pass_over(used)

    def _new(self, partition: TransactionPartition, transactional_id: str, timeout_ms: int) -> Machine:
        most = self._config.int("transactional.ids.max")
        if sum(len(each.state.machines) for each in self.runtime.active()) >= most:
            raise PeerError(ErrorCode.POLICY_VIOLATION, f"there are {most} transactional ids, as many as transactional.ids.max allows")
        if not self.memory.has_room(id_size(transactional_id, 0), f"new transactional id {transactional_id}", new=True):
            raise PeerError(ErrorCode.POLICY_VIOLATION, f"no room for transactional id '{transactional_id}': {self.memory.setting}")
        machine = Machine(new_transaction(self._new_producer_id(), timeout_ms, self._clock.time_ms()), self._surroundings)
        partition.add(transactional_id, machine)
        self._expiry.known()
        return machine

    def _check_room(self, transactional_id: str, machine: Machine, wanted: AddPartitions) -> None:
        """PeerError POLICY_VIOLATION if the transaction would grow beyond what all may take."""
        partitions = partitions_with(machine.current, wanted).count
        if partitions <= machine.counted_partitions:
            return
        growth = id_size(transactional_id, partitions) - machine.counted_bytes
        if not self.memory.has_room(growth, f"partitions of transactional id {transactional_id}"):
            raise PeerError(
                ErrorCode.POLICY_VIOLATION, f"{transactional_id}: {partitions} partitions do not fit into {self.memory.setting}"
            )

    def _new_producer_id(self) -> int:
        try:
            return self._producer_ids.next()
        except CoordinationError as error:
            if self._notes.due("producer ids", self._clock.monotonic()):
                _LOG.error("no producer id: reason=%s", error)
            raise PeerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"no producer id can be had: {error}") from error


def _note_bug(bug: Exception | None) -> None:
    if bug is not None:
        _LOG.error("decided transactions not completed by a bug", exc_info=bug)


def _for_leaders(
    partitions: "Iterable[TopicPartition]", outcome: "dict[TopicPartition, ErrorCode] | ErrorCode"
) -> "dict[TopicPartition, ErrorCode]":
    """A code for each partition; producers expect INVALID_PRODUCER_EPOCH of a partition where PRODUCER_FENCED is the coordinator's."""
    codes = outcome if isinstance(outcome, dict) else dict.fromkeys(partitions, outcome)
    if ErrorCode.PRODUCER_FENCED not in codes.values():
        return codes
    return {each: ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code for each, code in codes.items()}
