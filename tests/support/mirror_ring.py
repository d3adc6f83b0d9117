"""Clusters of one broker each inside this process, with mirrors between them that run in a thread."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from types import TracebackType
from typing import Self

from moldau.adapters.asyncio_network import AsyncioNetwork
from moldau.adapters.event_loop import LoopClock, new_event_loop
from moldau.mirror.plan.file import parse_plan
from moldau.mirror.process import MirrorProcess
from moldau.testing import Broker

LIMIT_S = 60.0
FILE = """
name = "{name}"
mode = "merge"
naming = "topic"
partitioning = "{partitioning}"

[target]
bootstrap.servers = "{target}"

[topics]
include = ["orders"]
"""
SOURCE = """
[sources.{name}]
bootstrap.servers = "{servers}"
"""


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
        self.processes = [MirrorProcess(plan, "1", network, clock, Random(7)) for plan in self._plans]
        self._task = asyncio.ensure_future(self._all())
        with suppress(asyncio.CancelledError):
            await self._task

    async def _all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for each in self.processes:
                group.create_task(each.run())


class Ring:
    """Clusters by name, and mirrors from each to the next, one topic with the same name in all of them."""

    def __init__(self, names: Sequence[str], *, both_ways: bool = False, partitioning: str = "same", partitions: int = 2) -> None:
        self.brokers = {name: Broker(settings={"log.cleaner.enable": "true"}) for name in names}
        self._links = [(name, names[(index + 1) % len(names)]) for index, name in enumerate(names)]
        if both_ways and len(names) > 2:
            self._links += [(target, source) for source, target in self._links]
        self._partitioning = partitioning
        self._partitions = partitions

    def __enter__(self) -> Self:
        for broker in self.brokers.values():
            broker.start()
            broker.create_topic("orders", partitions=self._partitions)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for broker in self.brokers.values():
            broker.close()

    @property
    def files(self) -> list[str]:
        """One mirror for each cluster, with all its sources."""
        servers = {name: broker.bootstrap_servers for name, broker in self.brokers.items()}
        files = []
        for target in self.brokers:
            sources = [source for source, other in self._links if other == target]
            text = FILE.format(name=f"to-{target}", target=servers[target], partitioning=self._partitioning)
            files.append(text + "".join(SOURCE.format(name=name, servers=servers[name]) for name in sources))
        return files


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait until it holds."""
    limit = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < limit, what
        time.sleep(0.1)
