"""A process of a mirror on the real network, until a signal ends it."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

from moldau.adapters.asyncio_network import AsyncioNetwork
from moldau.adapters.event_loop import LoopClock, new_event_loop
from moldau.mirror.process import MirrorProcess
from moldau.mirror.state.reports import OsProcess

if TYPE_CHECKING:
    from moldau.mirror.metrics import MirrorMetrics
    from moldau.mirror.plan.values import MirrorPlan


def run_mirror(plan: "MirrorPlan", instance: str, on_begin: Callable[[], object], metrics: "MirrorMetrics | None" = None) -> None:
    """Mirror until SIGTERM or SIGINT, after which the transaction that is open is ended. Errors as of `MirrorProcess.run`."""
    loop = new_event_loop()
    try:
        loop.run_until_complete(_run(loop, plan, instance, on_begin, metrics))
    finally:
        if metrics is not None:
            metrics.stop()
        loop.close()


async def _run(
    loop: asyncio.AbstractEventLoop,
    plan: "MirrorPlan",
    instance: str,
    on_begin: Callable[[], object],
    metrics: "MirrorMetrics | None",
) -> None:
    clock = LoopClock(loop)
    process = MirrorProcess(plan, instance, AsyncioNetwork(loop), clock, Random(), OsProcess(socket.gethostname(), os.getpid()))
    if metrics is not None:
        from moldau.mirror.metrics import families

        metrics.serve(loop, lambda: families(process, clock.time_ms()))
    running = asyncio.ensure_future(process.run())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, running.cancel)
    on_begin()
    with suppress(asyncio.CancelledError):  # a signal has come
        await running
