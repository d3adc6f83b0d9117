"""Keeps the pauses of Python's garbage collector short, however many objects there are.

A collection of the oldest generation looks at all objects: with 15,000 partitions that takes 280 ms, on the broker's thread. So what a
start has made is frozen (with 1,000 partitions 20 ms of the first collection), and after a collection that took long what has outlived it:
the next looks at what was made since. What is frozen is freed as ever when its last reference goes; only what hangs together in a circle
and is dropped stays. For that everything is looked at again, in a second in which hardly anything is done. If there is no such second for
ten minutes, and most of what was frozen may be garbage, it is done all the same. Requests and connections leave no reference cycles (see
`test_dropped_connections`), so that this can wait.
"""

import gc
import logging
import time
from collections.abc import Callable
from typing import Literal, Protocol

from moldau.ports.clock import Clock, Timer

_LOG = logging.getLogger(__name__)

LONG_S = 0.010
"""A pause after which what has outlived it is frozen."""
LOOK_S = 1.0
"""How often to see whether little is done."""
WHOLE_EVERY_S = 600.0
"""No more often than this everything is looked at."""
QUIET_OBJECTS = 200
"""Objects more or fewer than a second ago, without a collection between: little is done."""
FROZEN_S_MAX = 0.4
"""After pauses that took so long together, or as long as the last look at everything if that took longer, no quiet second is waited for: a
pause takes time for the objects that are frozen after it, 1 us for about three of them. To count them would take as long again.
"""
OLDEST = 2
Phase = Literal["start", "stop"]


class Collector(Protocol):
    """What is needed of the module `gc`."""

    callbacks: list[Callable[[Phase, dict[str, int]], object]]

    def collect(self) -> int:
        """Look at everything that is not frozen."""

    def freeze(self) -> None:
        """Look no more at what there is."""

    def unfreeze(self) -> None:
        """Look at it again."""

    def get_count(self) -> tuple[int, int, int]:
        """Objects made and not freed since the last collection, and collections of the two younger generations since one of the next."""


class GarbagePauses:
    """See the module. `close` ends it."""

    def __init__(self, clock: Clock, collector: Collector = gc, seconds: Callable[[], float] = time.perf_counter) -> None:
        """`seconds` measures a pause, on whatever thread it happens."""
        self._clock = clock
        self._collector = collector
        self._seconds = seconds
        self._began_s = 0.0
        self._looking = False
        self._frozen_s = LONG_S
        """Length of the pauses after which objects were frozen, since everything was looked at; the start counts as the shortest."""
        self._whole_s = 0.0
        """How long that took the last time."""
        self._count = (0, 0, 0)
        self._next_s = clock.monotonic() + WHOLE_EVERY_S
        collector.freeze()
        collector.callbacks.append(self._observe)
        self._timer: Timer = clock.call_later(LOOK_S, self._look)

    def close(self) -> None:
        """Leave the collector to itself, and what was frozen to it."""
        self._timer.cancel()
        self._collector.callbacks.remove(self._observe)
        self._collector.unfreeze()

    def _observe(self, phase: Phase, info: dict[str, int]) -> None:
        if info["generation"] != OLDEST or self._looking:
            return
        if phase == "start":
            self._began_s = self._seconds()
        elif (took_s := self._seconds() - self._began_s) >= LONG_S:
            self._collector.freeze()
            self._frozen_s += took_s

    def _look(self) -> None:
        self._timer = self._clock.call_later(LOOK_S, self._look)
        before, self._count = self._count, self._collector.get_count()
        if not self._frozen_s or self._clock.monotonic() < self._next_s:
            return
        is_quiet = self._count[1:] == before[1:] and abs(self._count[0] - before[0]) <= QUIET_OBJECTS
        too_many = self._frozen_s > max(FROZEN_S_MAX, self._whole_s)
        if too_many or is_quiet:
            self._look_at_everything()

    def _look_at_everything(self) -> None:
        began_s = self._seconds()
        self._looking = True
        try:
            self._collector.unfreeze()
            freed = self._collector.collect()
            self._collector.freeze()
        finally:
            self._looking = False
        self._frozen_s = 0.0
        self._whole_s = self._seconds() - began_s
        self._next_s = self._clock.monotonic() + WHOLE_EVERY_S
        _LOG.info("garbage collected: objects=%d pause_ms=%d", freed, self._whole_s * 1000)
