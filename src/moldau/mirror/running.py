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
from moldau.adapters.event_loop import LoopClock, new_event_loop, run_to_end
from moldau.mirror.following.tier import TierAuditor, keep_tier
from moldau.mirror.process import MirrorProcess
from moldau.mirror.state.reports import OsProcess

if TYPE_CHECKING:
    from moldau.broker.metrics.families import Family
    from moldau.mirror.metrics import MirrorMetrics
    from moldau.mirror.plan.values import MirrorPlan


def run_mirror(
    plan: "MirrorPlan",
    instance: str,
    on_begin: Callable[[], object],
    metrics: "MirrorMetrics | None" = None,
    auditor: "TierAuditor | None" = None,
) -> None:
    """Mirror until SIGTERM or SIGINT, after which the transaction that is open is ended. Errors as of `MirrorProcess.run`.

    `auditor`: counts the target while this process is the first of its mirror.
    """
    loop = new_event_loop()
    run_to_end(loop, _run(loop, plan, instance, on_begin, metrics, auditor))


async def _run(
    loop: asyncio.AbstractEventLoop,
    plan: "MirrorPlan",
    instance: str,
    on_begin: Callable[[], object],
    metrics: "MirrorMetrics | None",
    auditor: "TierAuditor | None",
) -> None:
    clock = LoopClock(loop)
    process = MirrorProcess(plan, instance, AsyncioNetwork(loop), clock, Random(), OsProcess(socket.gethostname(), os.getpid()))
    if metrics is not None:
        from moldau.mirror.metrics import families

        of_auditor: Callable[[], list[Family]] = list if auditor is None else auditor.families
        metrics.serve(loop, lambda: [*families(process, clock.time_ms()), *of_auditor()])
    running = asyncio.ensure_future(process.run())

    def end() -> None:
        """Once: a second signal, as supervisors and `timeout` send it, would cut off the end that the first one began."""
        if not running.cancelling():
            running.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    on_begin()
    counting = None
    if auditor is not None:
        bootstrap = ",".join(f"{host}:{port}" for host, port in plan.target.bootstrap_servers)
        counting = asyncio.ensure_future(keep_tier(auditor, bootstrap, lambda: process.is_first))
    try:
        with suppress(asyncio.CancelledError):  # a signal has come
            await running
    finally:
        if counting is not None:
            counting.cancel()
            await asyncio.gather(counting, return_exceptions=True)
        if metrics is not None:
            metrics.stop()
