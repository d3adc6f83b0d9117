"""Where the coordination tree is kept, by the broker's settings: in a file of this broker alone, in one that brokers of this host share,
or in ZooKeeper. A start uses all three the same way; what only one of them needs is loaded for that one.
"""

import asyncio
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.adapters.event_loop import LoopClock
from moldau.adapters.sqlite_coordination import SqliteCoordination
from moldau.adapters.threads import LoopBackground
from moldau.model.config.store import BrokerConfig
from moldau.model.errors import CoordinationError

if TYPE_CHECKING:
    from moldau.adapters.zookeeper_coordination import ZookeeperCoordination
    from moldau.ports.coordination import Coordination
    from moldau.ports.filesystem import FileSystem

STORE = "moldau-metadata.sqlite"
"""File of the embedded metadata store, in the first log directory."""
SERVERS = "zookeeper.connect"
SHARED_FILE = "metadata.store.file"


class TreeStore:
    """The store of one broker, from `open` to `close`. All methods run on the loop's thread."""

    def __init__(self, config: BrokerConfig, loop: asyncio.AbstractEventLoop, directory: str, before_threads: Callable[[], object]) -> None:
        """`directory` is the first log directory. `before_threads` is called before a thread is started."""
        self.name = f"{directory}/{STORE}"
        """What errors call it: the file, or the servers."""
        self.coordination: Coordination
        self._config = config
        self._directory = directory
        self._loop = loop
        self._before_threads = before_threads
        self._embedded: SqliteCoordination | None = None
        self._zookeeper: ZookeeperCoordination | None = None
        self._is_new = False
        self._thread: LoopBackground | None = None

    async def open(self, interrupted: "asyncio.Future[None]") -> None:
        """Have a session with it. CoordinationError, and what `interrupted` is ended with; then nothing is left open."""
        servers, shared = self._config.optional_string(SERVERS), self._config.optional_string(SHARED_FILE)
        if servers is not None:
            self.name = servers
            await self._open_zookeeper(interrupted)
        elif shared is not None:
            self.name = os.path.abspath(shared)
            self._open_shared()
        else:
            self._open_embedded()

    def end_earlier_session(self, files: "FileSystem") -> Callable[[bool, Callable[[], object]], object] | None:
        """What ends the session of a killed process; None where sessions end with their processes."""
        if self._zookeeper is None:
            return None
        from moldau.assembly.zookeeper_session import EarlierSession

        return EarlierSession(self._zookeeper, self._loop, files, self._directory).end

    def started(self) -> None:
        """The broker has started: nothing waits for the store on this thread any more."""
        if self._embedded is not None:  # until now it has answered at once, which is faster
            self._embedded.run_on(self._one_thread())

    async def close(self) -> None:
        """End the session."""
        closed: asyncio.Future[None] = self._loop.create_future()
        self.coordination.close(lambda: closed.set_result(None))
        await closed
        if self._thread is not None:
            self._thread.close()

    @property
    def shared_by(self) -> str | None:
        """The setting by which the tree is where other brokers reach it, too; None for that of a broker alone."""
        return next((name for name in (SERVERS, SHARED_FILE) if self._config.optional_string(name) is not None), None)

    @property
    def is_new(self) -> bool:
        """Whether this start has made it, for no other broker."""
        return self._is_new

    def remove(self) -> None:
        """Take back the files that this start has made, and could not use."""
        for suffix in ("", "-wal", "-shm", "-journal"):
            if os.path.exists(self.name + suffix):
                os.remove(self.name + suffix)

    def _open_embedded(self) -> None:
        self._is_new = not os.path.exists(self.name)
        try:
            self.coordination = self._embedded = SqliteCoordination(self.name, LoopClock(self._loop).time_ms)
        except BaseException:
            if self._is_new:
                self.remove()
            raise

    def _open_shared(self) -> None:
        from moldau.adapters.sqlite_shared import SharedSqliteCoordination

        directory = os.path.dirname(self.name)
        if not os.path.isdir(directory):
            raise CoordinationError(f"metadata.store.file: {directory}: no such directory (--metadata)", retriable=False)
        timeout_ms = self._config.int("zookeeper.session.timeout.ms")
        shared = SharedSqliteCoordination(self.name, LoopClock(self._loop), self._loop, timeout_ms)
        shared.run_on(self._one_thread())  # it waits for others' writes
        self.coordination = shared

    async def _open_zookeeper(self, interrupted: "asyncio.Future[None]") -> None:
        from moldau.model.extras import require

        require("zookeeper", "zookeeper.connect (--zookeeper)")
        from moldau.assembly.zookeeper import open_zookeeper, wait_connected

        self._before_threads()
        self.coordination = self._zookeeper = tree = open_zookeeper(self._config, self._loop)
        try:
            await wait_connected(tree, self._config, interrupted)
        except BaseException:
            await self.close()
            raise

    def _one_thread(self) -> LoopBackground:
        self._thread = LoopBackground(self._loop, threads_max=1, before_first=self._before_threads)
        return self._thread
