"""What is looked for from time to time in all partitions of a coordinator: late transactions, expired offsets.

A sweep goes through the active partitions one after the other, in steps between which requests are served. Its timer runs only while
there is something to look for.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic

from moldau.broker.coordinators.partition_coordinator import S
from moldau.model.steps import Steps

if TYPE_CHECKING:
    from moldau.broker.coordinators.partition_coordinator import PartitionCoordinator
    from moldau.broker.coordinators.runtime import CoordinatorRuntime
    from moldau.ports.clock import Timer

_LOG = logging.getLogger(__name__)


class Sweep(Generic[S]):
    """A sweep over the partitions of a runtime; :meth:`moldau.broker.coordinators.runtime.CoordinatorRuntime.add_sweep` makes it."""

    __slots__ = ("_interval_ms", "_is_closed", "_reloads", "_runtime", "_steps_of", "_timer", "_wanted", "name")

    def __init__(
        self,
        runtime: "CoordinatorRuntime[S]",
        name: str,
        interval_ms: Callable[[], int],
        wanted: Callable[[], bool],
        steps_of: "Callable[[PartitionCoordinator[S]], Steps]",
        *,
        reloads: bool,
    ) -> None:
        """`wanted`: whether there may be something to find, so that another sweep is due an interval after the one before. `reloads`: at
        its end partitions that were refused or failed are loaded again, since it may have made room; while there are such it is wanted.
        """
        self.name = name
        self._runtime = runtime
        self._interval_ms = interval_ms
        self._wanted = wanted
        self._steps_of = steps_of
        self._reloads = reloads
        self._timer: Timer | None = None
        self._is_closed = False

    def wake(self) -> None:
        """There is something to look for, or may be soon: the next sweep comes after an interval at most."""
        if self._timer is None and not self._is_closed:
            self._timer = self._runtime.clock.call_later(self._interval_ms() / 1000, self._begin)

    def close(self) -> None:
        """No more sweeps."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def wake_to_reload(self) -> None:
        """A partition was refused or has failed."""
        if self._reloads:
            self.wake()

    def _begin(self) -> None:
        # The timer stays until the end, so that sweeps of one kind do not overlap.
        self._runtime.run_steps(self._steps(), self._end, droppable=True)

    def _steps(self) -> Steps:
        for coordinator in self._runtime.active():
            if not coordinator.is_over:
                yield from coordinator.while_serving(self._steps_of(coordinator))
            yield None

    def _end(self, bug: Exception | None) -> None:
        self._timer = None
        if self._is_closed:
            return
        if bug is not None:
            _LOG.error("sweep ended by a bug: topic=%s sweep=%s", self._runtime.topic, self.name, exc_info=bug)
        if self._reloads:
            self._runtime.reload()
        if self._wanted() or (self._reloads and self._runtime.unserved):
            self.wake()
