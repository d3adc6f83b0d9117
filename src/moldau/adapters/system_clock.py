"""The real clock: the system's time, and the timers of an event loop."""

import asyncio
import time
from collections.abc import Callable


class LoopClock:
    """A :class:`moldau.ports.clock.Clock` whose calls run on the thread of `loop`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.monotonic: Callable[[], float] = time.monotonic

    def time_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        """Run `callback` on the loop after `delay_s` seconds."""
        return self._loop.call_later(delay_s, callback)
