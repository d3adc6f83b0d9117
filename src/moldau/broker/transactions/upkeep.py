"""What becomes due with time: open transactions that are late are aborted, ids that nobody uses are forgotten.

Two timers for all ids together, and none while there is nothing to look at. Late transactions are looked for among those that are open;
unused ids among all, in slices between which requests are served.
"""

import logging
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from moldau.broker.transactions.events import Late, Unused
from moldau.model.errors import PeerError

if TYPE_CHECKING:
    from moldau.broker.transactions.machine import Machine
    from moldau.broker.transactions.owned import Owned
    from moldau.broker.transactions.runner import Runner
    from moldau.model.config.store import BrokerConfig
    from moldau.ports.clock import Clock, Timer

_LOG = logging.getLogger(__name__)

SLICE = 200
"""Ids that are forgotten at a time."""


class Upkeep:
    """See the module."""

    def __init__(self, runner: "Runner", clock: "Clock", config: "BrokerConfig", owned: "Iterable[Owned]") -> None:
        self._runner = runner
        self._clock = clock
        self._config = config
        self._owned = owned
        self._late: Timer | None = None
        self._unused: Timer | None = None

    def opened(self) -> None:
        """There may be a transaction that is open."""
        if self._late is None:
            interval_ms = self._config.int("transaction.abort.timed.out.transaction.cleanup.interval.ms")
            self._late = self._clock.call_later(interval_ms / 1000, self._abort_late)

    def known(self) -> None:
        """There may be an id."""
        if self._unused is None:
            interval_ms = self._config.int("transaction.remove.expired.transaction.cleanup.interval.ms")
            self._unused = self._clock.call_later(interval_ms / 1000, self._look_for_unused)

    def stop(self) -> None:
        """End, for good."""
        for timer in (self._late, self._unused):
            if timer is not None:
                timer.cancel()

    def _abort_late(self) -> None:
        self._late = None
        now_ms = self._clock.time_ms()
        for owned in list(self._owned):
            for transactional_id, machine in list(owned.open.items()):
                if machine.is_busy or not machine.current.is_late(now_ms):
                    continue
                try:
                    self._runner.step(owned, transactional_id, machine, Late())
                except PeerError as error:
                    _LOG.error("late transaction not aborted yet: transactional_id=%s reason=%s", transactional_id, error)
                else:
                    _LOG.info(
                        "late transaction aborted: transactional_id=%s producer_id=%d timeout_ms=%d",
                        transactional_id,
                        machine.current.producer_id,
                        machine.current.timeout_ms,
                    )
        if any(owned.open for owned in self._owned):
            self.opened()

    def _look_for_unused(self) -> None:
        before_ms = self._clock.time_ms() - self._config.int("transactional.id.expiration.ms")
        self._forget(self._idle_since(before_ms))

    def _forget(self, idle: "Iterator[tuple[Owned, str, Machine]]") -> None:
        """Forget the next few."""
        some = list(islice(idle, SLICE))
        for owned, transactional_id, machine in some:
            self._runner.step(owned, transactional_id, machine, Unused())
        if some:
            self._unused = self._clock.call_later(0.0, lambda: self._forget(idle))
            return
        self._unused = None
        if any(owned.machines for owned in self._owned):
            self.known()

    def _idle_since(self, before_ms: int) -> "Iterator[tuple[Owned, str, Machine]]":
        """Ids at rest that have not changed since; each is looked at when it is asked for."""
        for owned in list(self._owned):
            for transactional_id, machine in list(owned.machines.items()):
                if owned.is_over:
                    break
                if machine.current.state.is_at_rest and machine.current.updated_ms <= before_ms:
                    yield owned, transactional_id, machine
