"""Log lines about partitions: those that have the same text, and come together, are one line with the partitions in it.

A broker that fails, or a topic that is deleted, fails each of its partitions within a moment.
"""

import logging
from typing import TYPE_CHECKING

from moldau.model.log_throttle import LogThrottle

if TYPE_CHECKING:
    from moldau.model.identity import TopicPartition
    from moldau.ports.clock import Clock, Timer

GATHER_S = 0.2
"""How long a line waits for more partitions."""
LOGGED_EACH_S = 60.0
"""A partition with one text."""
PAIRS_MAX = 10_000
"""Of partitions and texts in that time."""
_NAMED = 5


class GatheredLines:
    """See the module. They are logged by `logger`."""

    def __init__(self, logger: logging.Logger, clock: "Clock") -> None:
        self._logger = logger
        self._clock = clock
        self._throttle = LogThrottle(LOGGED_EACH_S, PAIRS_MAX)
        self._waiting: dict[tuple[int, str, tuple[str, ...]], list[TopicPartition]] = {}
        self._timer: Timer | None = None

    def add(self, partition: "TopicPartition", level: int, message: str, *fields: str) -> None:
        """Log this soon, unless it was logged of this partition lately."""
        if not self._throttle.due((partition, message, fields), self._clock.monotonic()):
            return
        self._waiting.setdefault((level, message, fields), []).append(partition)
        if self._timer is None:
            self._timer = self._clock.call_later(GATHER_S, self.flush)

    def flush(self) -> None:
        """Log what waits now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, {}
        for (level, message, fields), partitions in waiting.items():
            names = ",".join(f"{each.topic}-{each.partition}" for each in sorted(partitions)[:_NAMED])
            if len(partitions) > _NAMED:
                self._logger.log(level, f"{message} partitions=%s and_more=%d", *fields, names, len(partitions) - _NAMED)
            else:
                self._logger.log(level, f"{message} partitions=%s", *fields, names)
