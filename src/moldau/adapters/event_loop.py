"""Which event loop runs the broker: uvloop where it is installed, else asyncio's own. And the real clock: the system's time, and the timers
of that loop.
"""

import asyncio
import importlib.util
import os
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

R = TypeVar("R")


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


def uvloop_installed() -> bool:
    """Whether uvloop can be imported."""
    return importlib.util.find_spec("uvloop") is not None


def new_event_loop(name: str = "") -> asyncio.AbstractEventLoop:
    """A new loop, neither running nor set as the thread's.

    `name` is ``asyncio``, ``uvloop`` or ``auto``; empty takes the variable ``MOLDAU_LOOP``, else ``auto``. ValueError for another name,
    ImportError for uvloop where it is missing.
    """
    name = name or os.environ.get("MOLDAU_LOOP", "auto")
    if name not in ("asyncio", "auto", "uvloop"):
        raise ValueError(f"event loop {name!r}: neither asyncio nor uvloop nor auto")
    if name == "uvloop" or (name == "auto" and uvloop_installed()):
        import uvloop

        loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        return loop
    return asyncio.SelectorEventLoop()


def run_to_end(loop: asyncio.AbstractEventLoop, main: Coroutine[Any, Any, R]) -> R:
    """What `main` returns; then end the tasks that it has left, and close the loop. A task that outlives its loop ends with a traceback."""
    try:
        return loop.run_until_complete(main)
    finally:
        try:
            loop.run_until_complete(_end_tasks())
        finally:
            loop.close()


async def _end_tasks() -> None:
    await asyncio.sleep(0)  # connections that were closed end with the loop's next turn
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
