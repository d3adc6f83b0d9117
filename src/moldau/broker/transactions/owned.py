"""A partition of ``__transaction_state`` that this broker looks after: the machines of its transactional ids."""

import logging
from typing import TYPE_CHECKING

from moldau.broker.transactions.machine import Machine, Surroundings
from moldau.broker.transactions.records import decode_key, decode_value
from moldau.broker.transactions.states import State
from moldau.model.errors import PeerError

if TYPE_CHECKING:
    from moldau.broker.state_log import LoadedBatch
    from moldau.broker.transactions.transaction import Transaction

_LOG = logging.getLogger(__name__)


class Owned:
    """One partition, from the moment that this broker becomes its coordinator until it resigns; then `is_over`.

    Invariant: `open` holds those of `machines` whose transaction is open, except while one of them is taking a step.
    """

    __slots__ = ("_loaded", "epoch", "is_loading", "is_over", "machines", "open", "partition")

    def __init__(self, partition: int, epoch: int) -> None:
        self.partition = partition
        self.epoch = epoch
        """The coordinator's epoch, which markers carry: the leader epoch of the partition."""
        self.is_loading = True
        self.is_over = False
        self.machines: dict[str, Machine] = {}
        self.open: dict[str, Machine] = {}
        self._loaded: dict[str, Transaction] = {}

    def take(self, batch: "LoadedBatch") -> None:
        """Note what a stored batch says. A record that cannot be read is as if it were not there, but for a line in the log."""
        for record in batch.records:
            try:
                transactional_id = decode_key(record.key)
                if transactional_id is None:
                    _LOG.warning("record of an unknown kind passed over: %s", self._at(record.offset))
                elif record.value is None:
                    self._loaded.pop(transactional_id, None)
                else:
                    self._loaded[transactional_id] = decode_value(record.value)
            except PeerError as error:
                _LOG.error("damaged record left out: %s reason=%s", self._at(record.offset), error.message)

    def begin(self, surroundings: Surroundings) -> None:
        """All is loaded: serve."""
        self.is_loading = False
        loaded, self._loaded = self._loaded, {}
        for transactional_id, transaction in loaded.items():
            machine = self.machines[transactional_id] = Machine(transaction, surroundings)
            if transaction.state is State.ONGOING:
                self.open[transactional_id] = machine

    def _at(self, offset: int) -> str:
        return f"partition=__transaction_state-{self.partition} offset={offset}"
