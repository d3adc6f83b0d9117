"""A partition of ``__transaction_state`` that this broker coordinates: the machines of its transactional ids."""

import logging
from collections.abc import Callable, Sequence
from sys import getsizeof
from typing import TYPE_CHECKING

from moldau.broker.transactions.events import Loaded
from moldau.broker.transactions.machine import Machine, Surroundings
from moldau.broker.transactions.records import decode_key, decode_value
from moldau.broker.transactions.runner import TransactionRunner
from moldau.broker.transactions.states import State
from moldau.broker.transactions.transaction import NO_PRODUCER_ID
from moldau.cluster.internal_topics import TRANSACTIONS
from moldau.model.budget import Account, Budget
from moldau.model.errors import PeerError
from moldau.model.steps import Steps

if TYPE_CHECKING:
    from moldau.broker.coordinators.partition_coordinator import PartitionCoordinator
    from moldau.broker.coordinators.state_log import LoadedBatch
    from moldau.broker.transactions.producer_epochs import ProducerEpochs
    from moldau.broker.transactions.runner import RunnerParts
    from moldau.broker.transactions.transaction import Transaction

_LOG = logging.getLogger(__name__)


ID_COST = 1300
"""Bytes that an id takes with `PARTITIONS_INCLUDED`, so that a small transaction of an existing id needs no room."""
PARTITIONS_INCLUDED = 4
PARTITION_COST = 220
"""Bytes that each further partition of a transaction takes."""


def id_size(transactional_id: str, partitions: int) -> int:
    """Bytes that an id with a transaction of `partitions` partitions takes."""
    return ID_COST + getsizeof(transactional_id) + PARTITION_COST * max(partitions - PARTITIONS_INCLUDED, 0)


class TransactionPartition:
    """A :class:`moldau.broker.coordinators.partition_coordinator.PartitionState`.

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
        parts: "RunnerParts",
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
        self._replayed: dict[str, Transaction] = {}

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
            machine.counted_partitions = len(transaction.partitions)
            machine.counted_bytes = id_size(transactional_id, machine.counted_partitions)
            self._producers.note(machine)
            self.last_producer_id = max(self.last_producer_id, transaction.producer_id, transaction.next_producer_id)
            if transaction.state is State.ONGOING:
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
            self.runner.take((transactional_id, machine), Loaded())
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
            self._producers.note(machine)
        partitions = machine.partitions_held
        if partitions != machine.counted_partitions:
            size = id_size(transactional_id, partitions)
            self.account.add(size - machine.counted_bytes)
            machine.counted_bytes, machine.counted_partitions = size, partitions

    @property
    def _name(self) -> str:
        return f"{TRANSACTIONS.name}-{self.partition}"
