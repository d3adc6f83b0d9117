"""Sessions with a coordination tree for a client: in ZooKeeper, or in a file that brokers of this host share."""

import asyncio
import os
from collections.abc import Callable
from typing import Any

from moldau.adapters.event_loop import LoopClock
from moldau.model.errors import CoordinationError
from moldau.model.extras import require
from moldau.model.zookeeper_connect import parse_connect
from moldau.ports.coordination import Coordination

OpenTree = Callable[[asyncio.AbstractEventLoop], Coordination]


def in_zookeeper(connect: str, session_timeout_ms: int) -> OpenTree:
    """In the ensemble of ``HOST:PORT,HOST:PORT/CHROOT``. ValueError for text that is not that, MissingExtraError without kazoo."""
    servers = parse_connect(connect)
    require("zookeeper", "zookeeper_connect")

    def open_(loop: asyncio.AbstractEventLoop) -> Coordination:
        from moldau.adapters.zookeeper_coordination import ZookeeperCoordination

        return ZookeeperCoordination(servers, loop, session_timeout_ms=session_timeout_ms)

    return open_


def in_shared_file(path: str, session_timeout_ms: int) -> OpenTree:
    """In the file `metadata.store.file` of brokers of this host. CoordinationError if it does not exist."""
    path = os.path.abspath(path)
    if not os.path.exists(path):
        raise CoordinationError(f"metadata_store_file: {path}: no such file; a broker creates it (metadata.store.file)", retriable=False)

    def open_(loop: asyncio.AbstractEventLoop) -> Coordination:
        from moldau.adapters.sqlite_shared import SharedSqliteCoordination

        return SharedSqliteCoordination(path, LoopClock(loop), loop, session_timeout_ms)

    return open_


class TreeLoop:
    """A tree on an event loop of its own, which runs only within `turn`, in the thread that calls it."""

    def __init__(self, open_: OpenTree) -> None:
        self._loop = asyncio.SelectorEventLoop()
        self._loop.set_exception_handler(self._failed)
        self._failure: BaseException | None = None
        """Raised by a call that the loop made, which would log it and continue."""
        self.clock = LoopClock(self._loop)
        try:
            self.tree = open_(self._loop)
        except BaseException:
            self._loop.close()
            raise

    def turn(self, timeout_s: float) -> None:
        """Call what is due; then wait so long for more, or until `wake`. Raises what a call has raised."""
        if timeout_s > 0:
            timer = self._loop.call_later(timeout_s, self._loop.stop)
            self._loop.run_forever()
            timer.cancel()
        else:
            self._loop.call_soon(self._loop.stop)
            self._loop.run_forever()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _failed(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._failure = context.get("exception") or RuntimeError(context["message"])
        self.wake()

    def wake(self) -> None:
        """End a `turn`, from within it."""
        self._loop.stop()

    def wait(self, begin: Callable[[Callable[..., object]], object], timeout_s: float) -> tuple[Any, ...] | None:
        """Call `begin` with a function, and turn until that is called: its arguments; None if it is not within `timeout_s` seconds."""
        calls: list[tuple[Any, ...]] = []

        def done(*results: Any) -> None:
            calls.append(results)
            self.wake()

        begin(done)
        end = self._loop.time() + timeout_s
        while not calls and (left_s := end - self._loop.time()) > 0:
            self.turn(left_s)
        return calls[0] if calls else None

    def close(self) -> None:
        """End the loop. The session has been closed."""
        self._loop.close()
