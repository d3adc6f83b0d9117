"""Processes of mirrors in a thread of this process, for tests that kill nothing."""

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from random import Random
from types import TracebackType
from typing import Self

from moldau.adapters.asyncio_network import AsyncioNetwork
from moldau.adapters.event_loop import LoopClock, new_event_loop
from moldau.mirror.plan.file import parse_plan
from moldau.mirror.process import MirrorProcess
from moldau.mirror.state.reports import OsProcess
from support.paper import wait_until

LIMIT_S = 60.0


class MirrorThread:
    """Processes of mirrors, all in one thread."""

    def __init__(self, files: Sequence[str]) -> None:
        self._plans = [parse_plan(text, "mirror.toml") for text in files]
        self.processes: list[MirrorProcess] = []
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._run)
        self._task: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """End all of them, in order."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(lambda: self._task is not None and self._task.cancel())
            self._thread.join(LIMIT_S)
            assert not self._thread.is_alive(), "a mirror does not end"
        assert self._failure is None, self._failure

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._main())
        except BaseException as error:
            self._failure = error
        finally:
            self._loop.close()

    async def _main(self) -> None:
        network, clock = AsyncioNetwork(self._loop), LoopClock(self._loop)
        self.processes = [MirrorProcess(plan, "1", network, clock, Random(7), OsProcess("host", 1)) for plan in self._plans]
        self._task = asyncio.ensure_future(self._all())
        with suppress(asyncio.CancelledError):
            await self._task

    async def _all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for each in self.processes:
                group.create_task(each.run())


wait_for = partial(wait_until, limit_s=LIMIT_S, pause_s=0.1)
