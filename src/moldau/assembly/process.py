"""A broker in a process of its own: until SIGTERM, Ctrl-C or the loss of its last data directory."""

import asyncio
import logging
import sys
from collections.abc import Callable

from moldau.adapters.event_loop import new_event_loop
from moldau.adapters.system_clock import LoopClock
from moldau.assembly.garbage import GarbagePauses
from moldau.assembly.open_files import raise_open_files_limit
from moldau.assembly.running import RunningBroker
from moldau.assembly.termination import TerminationWatch
from moldau.model.config.store import BrokerConfig

_LOG = logging.getLogger(__name__)

SWITCH_INTERVAL_S = 0.0005
"""How long a thread that computes may keep the interpreter's lock from the broker's thread, which asks for it after each system call, a few
times in a request. With Python's 5 ms every round trip took 5.4 ms while searches by time ran, with this 1.4.
"""


def serve(
    config: BrokerConfig,
    *,
    adopt: bool = False,
    loop_name: str = "",
    on_listening: Callable[[list[tuple[str, int]]], object] = lambda _addresses: None,
    on_stopping: Callable[[], object] | None = None,
) -> None:
    """Run a broker until a signal asks to stop; a second signal does not wait for connections. See `termination` for what hangs.

    `on_listening` gets the addresses, with real ports, once requests are taken; `on_stopping` runs in a thread before the broker stops, for
    what depends on it. Everything else comes from `config`: ``listeners``,
    ``advertised.listeners``, ``log.dirs``. OSError for a port that cannot be had, WorldError for a data directory that cannot be used;
    AllDirectoriesFailedError, after an orderly stop, when the last data directory was lost while serving.
    """
    raise_open_files_limit()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    loop = new_event_loop(loop_name)
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(_serve(loop, config, adopt, on_listening, on_stopping))
    finally:
        asyncio.set_event_loop(None)
        loop.close()


async def _serve(
    loop: asyncio.AbstractEventLoop,
    config: BrokerConfig,
    adopt: bool,
    on_listening: Callable[[list[tuple[str, int]]], object],
    on_stopping: Callable[[], object] | None,
) -> None:
    asked: asyncio.Event = asyncio.Event()
    running = RunningBroker(loop, config, lambda _failure: asked.set())

    def signalled() -> None:
        """On the loop's thread: the first signal asks to stop, a further one not to wait."""
        if asked.is_set():
            running.hurry()
        asked.set()

    watch = TerminationWatch(lambda: loop.call_soon_threadsafe(signalled), lambda: _limit_s(config))
    watch.start()
    garbage: GarbagePauses | None = None
    try:
        running.start(adopt=adopt)
        on_listening(running.addresses)
        garbage = GarbagePauses(LoopClock(loop))
        await asked.wait()
        _LOG.info("stopping")
        stopping_since = loop.time()
        if on_stopping is not None:
            await loop.run_in_executor(None, on_stopping)
        await running.stop(since=stopping_since)
    finally:
        watch.close()
        if garbage is not None:
            garbage.close()
        if running.failure is not None:
            raise running.failure
    _LOG.info("stopped")


def _limit_s(config: BrokerConfig) -> float:
    return (config.int("shutdown.timeout.ms") + config.int("shutdown.forced.after.ms")) / 1000
