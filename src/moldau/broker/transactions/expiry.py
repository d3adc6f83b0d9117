"""What becomes due with time, as sweeps: late open transactions are aborted, unused ids are removed.

Late transactions are looked for among those that are open, unused ids among all.
"""

import logging
from typing import TYPE_CHECKING

from moldau.broker.transactions.events import Late, Unused
from moldau.model.errors import PeerError
from moldau.model.steps import Steps
from moldau.ports.probe import reached

if TYPE_CHECKING:
    from moldau.broker.coordinators.partition_coordinator import PartitionCoordinator
    from moldau.broker.coordinators.runtime import CoordinatorRuntime
    from moldau.broker.transactions.partition import TransactionPartition
    from moldau.model.config.store import BrokerConfig

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
                    partition.runner.take((transactional_id, machine), Late())
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
                partition.runner.take((transactional_id, machine), Unused())
            yield None
