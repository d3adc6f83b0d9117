"""A partition of ``__transaction_state`` that this broker looks after: the machines of its transactional ids."""

import logging
from sys import getsizeof
from typing import TYPE_CHECKING

from moldau.broker.coordinators.internal_topics import TRANSACTIONS
from moldau.broker.transactions.machine import Machine, Surroundings
from moldau.broker.transactions.records import decode_key, decode_value
from moldau.broker.transactions.states import State
from moldau.model.budget import Account, Budget
from moldau.model.errors import PeerError

if TYPE_CHECKING:
    from moldau.broker.coordinators.state_log import LoadedBatch
    from moldau.broker.transactions.producer_epochs import ProducerEpochs
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


class Owned:
    """One partition, from the moment that this broker becomes its coordinator until it resigns; then `is_over`.

    Invariant: `open` holds those of `machines` whose transaction is open, except while one of them is taking a step.
    """

    __slots__ = ("_loaded", "_producers", "account", "epoch", "is_loading", "is_over", "machines", "open", "partition")

    def __init__(self, partition: int, epoch: int, memory: Budget, producers: "ProducerEpochs") -> None:
        self.partition = partition
        self.epoch = epoch
        """The coordinator's epoch, which markers carry: the leader epoch of the partition."""
        self.is_loading = True
        self.is_over = False
        self.machines: dict[str, Machine] = {}
        self.open: dict[str, Machine] = {}
        self.account = Account(memory)
        """Memory of the ids."""
        self._producers = producers
        self._loaded: dict[str, Transaction] = {}

    def take(self, batch: "LoadedBatch") -> None:
        """Note what a stored batch says. A record that cannot be read is as if it were not there, but for a line in the log."""
        for record in batch.records:
            try:
                transactional_id = decode_key(record.key)
                if transactional_id is None:
                    _LOG.warning("record of an unknown kind skipped: partition=%s offset=%d", self._name, record.offset)
                else:
                    value = None if record.value is None else decode_value(record.value)
                    before = self._loaded.pop(transactional_id, None)
                    if before is not None:
                        self.account.add(-id_size(transactional_id, len(before.partitions)))
                    if value is not None:
                        self.account.add(id_size(transactional_id, len(value.partitions)))
                        self._loaded[transactional_id] = value
            except PeerError as error:
                _LOG.error("damaged record left out: partition=%s offset=%d reason=%s", self._name, record.offset, error.message)

    def begin(self, surroundings: Surroundings) -> None:
        """All is loaded: serve."""
        self.is_loading = False
        loaded, self._loaded = self._loaded, {}
        for transactional_id, transaction in loaded.items():
            machine = self.machines[transactional_id] = Machine(transaction, surroundings)
            machine.counted_partitions = len(transaction.partitions)
            machine.counted_bytes = id_size(transactional_id, machine.counted_partitions)
            self._producers.note(machine)
            if transaction.state is State.ONGOING:
                self.open[transactional_id] = machine

    def add(self, transactional_id: str, machine: Machine) -> None:
        """A new id."""
        self.machines[transactional_id] = machine
        self.count(transactional_id, machine)

    def forget(self, transactional_id: str) -> None:
        """An id was removed."""
        machine = self.machines.pop(transactional_id, None)
        if machine is not None:
            self._producers.forget(machine)
            self.account.add(-machine.counted_bytes)

    def count(self, transactional_id: str, machine: Machine) -> None:
        """The machine has taken a step: count what it holds now."""
        if self.machines.get(transactional_id) is not machine:
            return
        self._producers.note(machine)
        partitions = machine.partitions_held
        if partitions != machine.counted_partitions:
            size = id_size(transactional_id, partitions)
            self.account.add(size - machine.counted_bytes)
            machine.counted_bytes, machine.counted_partitions = size, partitions

    def close(self) -> None:
        """Look after none of them any more."""
        for machine in self.machines.values():
            self._producers.forget(machine)
        self.account.close()

    @property
    def _name(self) -> str:
        return f"{TRANSACTIONS.name}-{self.partition}"
