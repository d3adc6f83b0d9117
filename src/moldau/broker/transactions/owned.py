"""A partition of ``__transaction_state`` that this broker looks after: the machines of its transactional ids."""

import logging
from sys import getsizeof
from typing import TYPE_CHECKING

from moldau.broker.transactions.machine import Machine, Surroundings
from moldau.broker.transactions.records import decode_key, decode_value
from moldau.broker.transactions.states import State
from moldau.model.budget import Account, Budget
from moldau.model.errors import PeerError

if TYPE_CHECKING:
    from moldau.broker.state_log import LoadedBatch
    from moldau.broker.transactions.transaction import Transaction

_LOG = logging.getLogger(__name__)


ID_COST = 1300
"""Bytes that an id takes with `PARTITIONS_INCLUDED`, so that a small transaction of an id that is there needs no room."""
PARTITIONS_INCLUDED = 4
PARTITION_COST = 220
"""Bytes that each further partition of a transaction takes."""


def id_size(transactional_id: str, partitions: int) -> int:
    """Bytes that an id with a transaction of so many partitions takes."""
    return ID_COST + getsizeof(transactional_id) + PARTITION_COST * max(partitions - PARTITIONS_INCLUDED, 0)


class Owned:
    """One partition, from the moment that this broker becomes its coordinator until it resigns; then `is_over`.

    Invariant: `open` holds those of `machines` whose transaction is open, except while one of them is taking a step.
    """

    __slots__ = ("_loaded", "account", "epoch", "is_loading", "is_over", "machines", "open", "partition")

    def __init__(self, partition: int, epoch: int, memory: Budget) -> None:
        self.partition = partition
        self.epoch = epoch
        """The coordinator's epoch, which markers carry: the leader epoch of the partition."""
        self.is_loading = True
        self.is_over = False
        self.machines: dict[str, Machine] = {}
        self.open: dict[str, Machine] = {}
        self.account = Account(memory)
        """Memory of the ids."""
        self._loaded: dict[str, Transaction] = {}

    def take(self, batch: "LoadedBatch") -> None:
        """Note what a stored batch says. A record that cannot be read is as if it were not there, but for a line in the log."""
        for record in batch.records:
            try:
                transactional_id = decode_key(record.key)
                if transactional_id is None:
                    _LOG.warning("record of an unknown kind passed over: %s", self._at(record.offset))
                else:
                    value = None if record.value is None else decode_value(record.value)
                    before = self._loaded.pop(transactional_id, None)
                    if before is not None:
                        self.account.add(-id_size(transactional_id, len(before.partitions)))
                    if value is not None:
                        self.account.add(id_size(transactional_id, len(value.partitions)))
                        self._loaded[transactional_id] = value
            except PeerError as error:
                _LOG.error("damaged record left out: %s reason=%s", self._at(record.offset), error.message)

    def begin(self, surroundings: Surroundings) -> None:
        """All is loaded: serve."""
        self.is_loading = False
        loaded, self._loaded = self._loaded, {}
        for transactional_id, transaction in loaded.items():
            machine = self.machines[transactional_id] = Machine(transaction, surroundings)
            machine.counted_bytes = id_size(transactional_id, len(transaction.partitions))
            if transaction.state is State.ONGOING:
                self.open[transactional_id] = machine

    def add(self, transactional_id: str, machine: Machine) -> None:
        """A new id."""
        self.machines[transactional_id] = machine
        self.count(transactional_id, machine)

    def forget(self, transactional_id: str) -> None:
        """An id is gone."""
        machine = self.machines.pop(transactional_id, None)
        if machine is not None:
            self.account.add(-machine.counted_bytes)

    def count(self, transactional_id: str, machine: Machine) -> None:
        """The machine has taken a step: count what it holds now."""
        size = id_size(transactional_id, machine.partitions_held)
        if size != machine.counted_bytes and self.machines.get(transactional_id) is machine:
            self.account.add(size - machine.counted_bytes)
            machine.counted_bytes = size

    def _at(self, offset: int) -> str:
        return f"partition=__transaction_state-{self.partition} offset={offset}"
