"""Blocking work for asyncio, in a thread, that a cancelled task does not leave behind: it is waited for, then the task ends."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

R = TypeVar("R")


async def in_thread(work: Callable[[], R], executor: Executor | None = None) -> R:
    """Do `work` in a thread of `executor` (None: the loop's own), to its end."""
    job = asyncio.get_running_loop().run_in_executor(executor, work)
    try:
        return await asyncio.shield(job)
    except asyncio.CancelledError:
        while not job.done():
            try:
                await asyncio.wait([job])
            except asyncio.CancelledError:
                continue
        job.exception()  # looked at: the task ends by its cancellation
        raise
