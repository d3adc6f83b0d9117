"""Finds out where partitions start of which nothing was mirrored, each by itself: one whose leader is away holds up no other."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from moldau.model.errors import PeerError, WorldError
from moldau.model.log_throttle import LogThrottle

if TYPE_CHECKING:
    from moldau.mirror.partitions import Position, SourcePartition
    from moldau.mirror.plan.values import Limits
    from moldau.mirror.retries import Retries
    from moldau.ports.clock import Clock

_LOG = logging.getLogger(__name__)
_LOGGED_EACH_S = 60.0
_REASONS_LOGGED_MAX = 100


class StartFinder:
    """See the module. `begun` is called with each partition and its start."""

    def __init__(
        self, begun: "Callable[[SourcePartition, Position], object]", retries: "Retries", clock: "Clock", limits: "Limits"
    ) -> None:
        self._begun = begun
        self._retries = retries
        self._clock = clock
        self._limits = limits
        self._tasks: dict[SourcePartition, asyncio.Task[None]] = {}
        self._throttle = LogThrottle(_LOGGED_EACH_S, _REASONS_LOGGED_MAX)

    def find(self, partition: "SourcePartition", start: "Callable[[], Awaitable[Position]]") -> None:
        """Ask for the start of a partition until it is known."""
        self.forget(partition)
        self._tasks[partition] = asyncio.ensure_future(self._find(partition, start))

    def forget(self, partition: "SourcePartition") -> None:
        """Ask no more; `begun` is not called any more."""
        task = self._tasks.pop(partition, None)
        if task is not None:
            task.cancel()
            self._retries.over(partition)

    async def close(self) -> None:
        """Ask for nothing any more."""
        tasks = list(self._tasks.values())
        for partition in list(self._tasks):
            self.forget(partition)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _find(self, partition: "SourcePartition", start: "Callable[[], Awaitable[Position]]") -> None:
        failures = 0
        while True:
            try:
                position = await start()
            except (PeerError, WorldError) as error:
                self._retries.failed(partition, error)
                if self._throttle.due((partition, str(error)), self._clock.monotonic()):
                    _LOG.warning("start of a partition not found, trying again: partition=%s reason=%s", partition, error)
            except Exception:
                self._retries.failed(partition, "a bug, of which the log has more")
                _LOG.exception("start of a partition not found because of a bug: partition=%s", partition)
            else:
                break
            await asyncio.sleep(self._limits.backoff_s(failures))
            failures += 1
        del self._tasks[partition]
        self._retries.over(partition)
        self._begun(partition, position)
