"""Which partitions of ``__transaction_state`` this broker looks after, and where the machine of an id is."""

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from moldau.broker.transactions.owned import Owned
from moldau.broker.transactions.producer_epochs import ProducerEpochs
from moldau.model.budget import Budget
from moldau.model.errors import ErrorCode, PeerError

if TYPE_CHECKING:
    from moldau.broker.coordinators.state_log import LoadedBatch, StateLog
    from moldau.broker.transactions.machine import Machine

_LOG = logging.getLogger(__name__)


PEAK_FACTOR = 2
"""While partitions are read, all ids may take up to this many times their limit on memory: later records delete some."""


class DoesNotFitError(PeerError):
    """The ids of a partition take more memory than the setting allows."""


class Ownership:
    """See the module. `loaded` is called with a partition that has been read, `given_up` with one that is looked after no longer.

    A partition that does not fit into memory when it is read is not served, until `load_refused` finds room; nothing of it is lost.
    """

    def __init__(
        self, state_log: "StateLog", memory: Budget, loaded: Callable[[Owned], object], given_up: Callable[[Owned], object]
    ) -> None:
        self.memory = memory
        """Bounds what all ids take."""
        self.producers = ProducerEpochs()
        """The epochs of all producers that have an id here."""
        self._too_large: dict[int, tuple[int, str]] = {}
        """By partition: the coordinator's epoch, and what was said."""
        self._state_log = state_log
        self._loaded = loaded
        self._given_up = given_up
        self._owned: dict[int, Owned] = {}

    def begin(self, partition: int, epoch: int) -> None:
        """Read the partition, anew if need be."""
        self.end(partition)
        owned = self._owned[partition] = Owned(partition, epoch, self.memory, self.producers)
        self.memory.reading(True)

        def take(batch: "LoadedBatch") -> None:
            if not owned.is_over:
                self._check_memory(partition, PEAK_FACTOR)
                owned.take(batch)

        def done(error: PeerError | None) -> None:
            if owned.is_over:
                return
            if error is None:
                try:
                    self._check_memory(partition)
                except DoesNotFitError as too_large:
                    error = too_large
                else:
                    self._loaded(owned)
                    self.memory.reading(self.is_loading)
                    return
            _LOG.error("transactions not loaded: partition=__transaction_state-%d reason=%s", partition, error)
            self.end(partition)
            if isinstance(error, DoesNotFitError):
                self._too_large[partition] = epoch, error.message

        self._state_log.load(partition, take, done)

    def end(self, partition: int) -> None:
        """Look after it no longer, if that was so."""
        self._too_large.pop(partition, None)
        owned = self._owned.pop(partition, None)
        if owned is not None:
            self._given_up(owned)
            owned.close()
            self.memory.reading(self.is_loading)

    def load_refused(self) -> None:
        """Read again what did not fit into memory: the setting may have been raised."""
        for partition, (epoch, _) in list(self._too_large.items()):
            self.begin(partition, epoch)

    def end_all(self) -> None:
        """Look after none."""
        for partition in [*self._owned, *self._too_large]:
            self.end(partition)

    def __iter__(self) -> Iterator[Owned]:
        return iter(list(self._owned.values()))

    @property
    def is_loading(self) -> bool:
        """Whether a partition is still being read."""
        return any(owned.is_loading for owned in self._owned.values())

    @property
    def size(self) -> int:
        """How many ids there are."""
        return sum(len(owned.machines) for owned in self._owned.values())

    def serving(self, transactional_id: str) -> Owned:
        """The partition of an id. PeerError INVALID_REQUEST, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS; COORDINATOR_NOT_AVAILABLE for
        a partition that does not fit into memory.
        """
        if not transactional_id:
            raise PeerError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        partition = self._state_log.partition_for(transactional_id)
        owned = self._owned.get(partition)
        if partition in self._too_large:
            raise PeerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, self._too_large[partition][1])
        if owned is None:
            raise PeerError(ErrorCode.NOT_COORDINATOR, f"{transactional_id}: __transaction_state-{partition} is not led here")
        if owned.is_loading:
            raise PeerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{transactional_id}: __transaction_state-{partition} is being read")
        return owned

    def known(self, transactional_id: str) -> "tuple[Owned, Machine]":
        """Also the machine of an id. PeerError INVALID_PRODUCER_ID_MAPPING if it is not known."""
        owned = self.serving(transactional_id)
        machine = owned.machines.get(transactional_id)
        if machine is None:
            raise PeerError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"transactional id {transactional_id!r} is not known")
        return owned, machine

    @property
    def too_large(self) -> int:
        """How many partitions are not served since they do not fit into memory."""
        return len(self._too_large)

    def _check_memory(self, partition: int, factor: int = 1) -> None:
        budget = self.memory
        if budget.is_exceeded(factor):
            raise DoesNotFitError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"__transaction_state-{partition} does not fit into memory: {budget.setting} is {budget.limit} bytes,"
                f" {budget.held} are needed so far; nothing is lost, raise the setting to have the ids served",
            )
