"""A broker in a process of its own: until SIGTERM, Ctrl-C or the loss of its last data directory."""

import asyncio
import logging
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.adapters.event_loop import LoopClock, new_event_loop
from moldau.assembly.interpreter import SWITCH_INTERVAL_S, GarbagePauses, HeapTrimmer, use_one_heap
from moldau.assembly.open_files import raise_open_files_limit
from moldau.assembly.running import RunningBroker, StartInterruptedError
from moldau.assembly.termination import TerminationWatch
from moldau.model.config.store import BrokerConfig

if TYPE_CHECKING:
    from moldau.assembly.metrics import MetricsEndpoint

_LOG = logging.getLogger(__name__)


def serve(
    config: BrokerConfig,
    *,
    adopt: bool = False,
    loop_name: str = "",
    on_bound: Callable[[], object] = lambda: None,
    on_listening: Callable[[list[tuple[str, int]]], object] = lambda _addresses: None,
    on_stopping: Callable[[], object] | None = None,
    metrics: "MetricsEndpoint | None" = None,
) -> bool:
    """Run a broker until a signal asks to stop; a second signal waits neither for connections nor for `on_stopping`. See `termination` for
    what hangs. Whether `on_stopping` has ended.

    `on_bound` is called when the broker has its ports, before anything is made in its directories; what it raises ends the start.
    `on_listening` gets the addresses, with real ports, once requests are taken; `on_stopping` runs in a thread before the broker stops,
    for what depends on it. `metrics`, bound by `on_bound`, answers until the broker has stopped. Everything else comes from `config`:
    ``listeners``, ``advertised.listeners``, ``log.dirs``. OSError for a port that cannot be had, WorldError for a data directory that
    cannot be used; AllDirectoriesFailedError, after an orderly stop, when the last data directory was lost while serving.
    """
    if on_stopping is not None or metrics is not None:  # what depends on the broker has threads of its own
        use_one_heap()
    raise_open_files_limit()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    loop = new_event_loop(loop_name)
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(_serve(loop, config, adopt, on_bound, on_listening, on_stopping, metrics))
    finally:
        asyncio.set_event_loop(None)
        loop.close()


async def _serve(
    loop: asyncio.AbstractEventLoop,
    config: BrokerConfig,
    adopt: bool,
    on_bound: Callable[[], object],
    on_listening: Callable[[list[tuple[str, int]]], object],
    on_stopping: Callable[[], object] | None,
    metrics: "MetricsEndpoint | None",
) -> bool:
    asked: asyncio.Event = asyncio.Event()
    hurried: asyncio.Event = asyncio.Event()
    running = RunningBroker(loop, config, lambda _failure: asked.set(), before_threads=use_one_heap)

    def signalled() -> None:
        """On the loop's thread: the first signal asks to stop, a further one not to wait."""
        if asked.is_set():
            hurried.set()
            running.hurry()
        asked.set()
        running.interrupt_start()

    def bound() -> None:
        on_bound()
        if metrics is not None:
            metrics.start()

    watch = TerminationWatch(lambda: loop.call_soon_threadsafe(signalled), lambda: _limit_s(config))
    watch.start()
    upkeep: list[GarbagePauses | HeapTrimmer] = []
    ended = True
    try:
        try:
            await running.start(adopt=adopt, on_bound=bound)
        except StartInterruptedError:
            _LOG.info("stopped while starting")
            return ended
        if metrics is not None:
            metrics.serve(loop, running.broker)
        on_listening(running.addresses)
        upkeep += [GarbagePauses(LoopClock(loop)), HeapTrimmer(LoopClock(loop), on_large=use_one_heap)]
        await asked.wait()
        _LOG.info("stopping")
        stopping_since = loop.time()
        if metrics is not None:
            metrics.stopping()
        if on_stopping is not None:
            ended = await _ends(loop.run_in_executor(None, on_stopping), hurried)
        await running.stop(since=stopping_since)
    finally:
        if metrics is not None:
            metrics.stop()
        watch.close()
        for each in upkeep:
            each.close()
        if running.failure is not None:
            raise running.failure
    _LOG.info("stopped")
    return ended


async def _ends(stopping: asyncio.Future[object], hurried: asyncio.Event) -> bool:
    """Wait for it, but no longer than until `hurried`; whether it has ended. Raises what it raised."""
    waiting = asyncio.ensure_future(hurried.wait())
    await asyncio.wait((stopping, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not stopping.done():
        return False
    stopping.result()
    return True


def _limit_s(config: BrokerConfig) -> float:
    return (config.int("shutdown.timeout.ms") + config.int("shutdown.forced.after.ms")) / 1000
