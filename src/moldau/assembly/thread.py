"""A broker in a thread of this process: for tests and scripts."""

import asyncio
import contextlib
import threading

from moldau.adapters.event_loop import new_event_loop
from moldau.assembly.running import RunningBroker
from moldau.model.config.store import BrokerConfig


class BrokerThread:
    """A broker that serves until `stop`, or until its last log directory is lost."""

    def __init__(self, config: BrokerConfig, *, adopt: bool = False, loop_name: str = "") -> None:
        self._config = config
        self._adopt = adopt
        self._loop = new_event_loop(loop_name)
        self._asked: asyncio.Event
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="moldau-broker", daemon=True)
        self._running: RunningBroker

    def start(self) -> None:
        """Start it and wait until it listens. OSError and WorldError as `assembly.process.serve` raises them."""
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the first listener, for a client on this machine."""
        return self.addresses[0]

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """The same of every listener, in their order."""
        here = ("", "0.0.0.0", "*", "localhost")
        return [("127.0.0.1" if host in here else host, port) for host, port in self._running.addresses]

    @property
    def serving(self) -> bool:
        """Whether it has not ended."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Stop in order and wait for the end; harmless when it has stopped."""
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # it has just closed its loop
                self._loop.call_soon_threadsafe(self._asked.set)
            self._thread.join()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:
            self._failure = error
        finally:
            self._loop.close()
            self._started.set()

    async def _serve(self) -> None:
        self._asked = asyncio.Event()
        self._running = RunningBroker(self._loop, self._config, lambda _failure: self._asked.set())
        await self._running.start(adopt=self._adopt)
        self._started.set()
        await self._asked.wait()
        await self._running.stop()
