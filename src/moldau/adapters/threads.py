"""Threads for work that would hold up the broker: a few, started when first needed.

Not `concurrent.futures`: no thread waits for a result here, so a queue and a callback on the loop are enough.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypeVar

T = TypeVar("T")
_Job = Callable[[], Callable[[], object]]
_LOG = logging.getLogger(__name__)

CUT_OFF_S = 0.2
"""How long a stop waits for a job without a caller."""


class LoopBackground:
    """A :class:`moldau.ports.background.Background`: `work` runs on one of `threads_max` threads, `done` on the thread of `loop`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads_max: int = 4, before_first: Callable[[], object] = lambda: None) -> None:
        """`before_first` is called, on the loop's thread, before the first thread is started."""
        self._loop = loop
        self._before_first = before_first
        self._threads_max = threads_max
        self._threads: list[threading.Thread] = []
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._running = 0
        """Jobs given and not yet answered; touched by the loop's thread only."""

    def run(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], object]) -> None:
        """Run `work` elsewhere, then `done` here with its result or its error."""

        def job() -> Callable[[], object]:
            return partial(done, *_attempt(work))

        self._running += 1
        self._jobs.put(job)
        if self._running > len(self._threads) < self._threads_max:
            if not self._threads:
                self._before_first()
            thread = threading.Thread(target=self._serve, name=f"moldau-background-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    @property
    def running(self) -> int:
        """Jobs whose `done` has not been called yet."""
        return self._running

    def close(self) -> None:
        """Let the threads end what they have, and wait for them. Answers that come after the loop has stopped are dropped."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def cut_off(self) -> None:
        """Drop what has not begun, and wait a moment for what has: it has nothing to lose, and ends with the process."""
        with suppress(Empty):
            while True:
                self._jobs.get_nowait()
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(CUT_OFF_S)
        self._threads.clear()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                self._loop.call_soon_threadsafe(self._answer, job())
            except RuntimeError:  # the loop is closed
                _LOG.debug("background answer dropped: loop closed")
            del job  # and what it holds, while the thread waits for the next

    def _answer(self, answer: Callable[[], object]) -> None:
        self._running -= 1
        answer()


def _attempt(work: Callable[[], T]) -> tuple[T | None, BaseException | None]:
    """The result, or the error.

    An error holds the frames that it passed, and those hold the frames that called them: none of these may name the error, or all
    of it, with what the work had in its hands, stays until the collector comes by.
    """
    try:
        return work(), None
    except BaseException as error:
        return None, error
