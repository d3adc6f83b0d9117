"""A broker inside the process, for tests and scripts: on a free port, with a data directory of its own that goes with it.

    with Broker() as broker:
        broker.create_topic("orders", partitions=3)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

With `registry` a schema registry runs beside it: ``Broker(registry=True).registry_url``.

It is the real broker, in a thread: files, sockets and all. A process forked while it runs (by multiprocessing, by a test runner) does not
own it: there `stop` and the end of the ``with`` do nothing.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from moldau.adapters.event_loop import new_event_loop
from moldau.adapters.temporary_directory import make_temporary
from moldau.assembly.thread import BrokerThread
from moldau.broker.api.catalog import served_api
from moldau.model.config.static import read_static
from moldau.model.config.store import BrokerConfig
from moldau.model.extras import require
from moldau.protocol.api_keys import ApiKey
from moldau.testing.topics import Topics, setting_text

if TYPE_CHECKING:
    from moldau.registry.server import RegistryServer

PREFIX = "moldau-test-"
"""Of the directories that are removed with the broker."""

new_event_loop().close()  # imports the loop's library now, so that starting a broker does not pay for it
served_api(ApiKey.API_VERSIONS)  # and what every client asks first


class Broker(Topics):
    """A broker to test against; starts at ``with``, or by `start`.

    `settings` are Kafka's: ``Broker(settings={"num.partitions": 3})``. `directory` keeps the data in a directory of the caller's, which is
    not removed; without it the data is in a temporary one, which the next broker removes if this process is killed. With `registry` a
    schema registry starts and stops with it. InvalidConfigError for a setting that is not allowed, MissingExtraError for a registry without
    the packages that it needs.
    """

    def __init__(
        self,
        *,
        settings: Mapping[str, object] | None = None,
        directory: str | Path | None = None,
        port: int = 0,
        registry: bool = False,
    ) -> None:
        if registry:
            require("registry", "a schema registry")
        super().__init__()
        self.directory = Path(make_temporary(PREFIX) if directory is None else directory)
        self._owns_directory = directory is None
        self._settings = [f"{name}={setting_text(value)}" for name, value in (settings or {}).items()]
        self._port = port
        self._thread: BrokerThread | None = None
        self._wants_registry = registry
        self._registry: RegistryServer | None = None
        self._registry_port = 0
        self._pid = os.getpid()

    @property
    def bootstrap_servers(self) -> str:
        """``127.0.0.1:PORT``, for a client's ``bootstrap.servers``. The same after `restart`."""
        if not self._port:
            raise RuntimeError("the broker has not been started")
        return f"127.0.0.1:{self._port}"

    @property
    def registry_url(self) -> str:
        """``http://127.0.0.1:PORT`` of the schema registry. The same after `restart`."""
        if not self._registry_port:
            raise RuntimeError("no schema registry has been started: Broker(registry=True), or start_registry()")
        return f"http://127.0.0.1:{self._registry_port}"

    @property
    def running(self) -> bool:
        """Whether it serves."""
        return self._thread is not None and self._thread.serving

    def start(self) -> None:
        """Start it, and wait until it takes requests. OSError for a port that cannot be had, WorldError for the directory."""
        if self.running:
            return
        own = [f"listeners=PLAINTEXT://127.0.0.1:{self._port}", f"log.dirs={self.directory}"]
        thread = BrokerThread(BrokerConfig(read_static(settings=[*self._settings, *own])))
        thread.start()
        self._port = thread.address[1]
        self._thread = thread
        if self._wants_registry:
            self.start_registry()

    def start_registry(self) -> str:
        """Start a schema registry beside it, if that was not done yet: `registry_url`, which answers from then on.

        It stops and restarts with the broker, and forwards no changes. MissingExtraError.
        """
        if self._registry is None:
            require("registry", "a schema registry")
            from moldau.registry.server import RegistryServer

            self._wants_registry = True
            registry = RegistryServer(self.bootstrap_servers, f"127.0.0.1:{self._registry_port}", alone=True)
            try:
                self._registry_port = int(registry.start().rpartition(":")[2])
            except BaseException:
                self.stop()
                raise
            self._registry = registry
        return self.registry_url

    def stop(self) -> None:
        """Stop it cleanly; the data stays until `close`."""
        if self._thread is not None and os.getpid() == self._pid:
            if self._registry is not None:
                self._registry.stop()
                self._registry = None
            self._thread.stop()
            self._thread = None

    def restart(self) -> None:
        """Stop it, and start it on the same port with the same data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop it and remove the data, unless the directory is the caller's."""
        self.stop()
        if self._owns_directory and os.getpid() == self._pid:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
