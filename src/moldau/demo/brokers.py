"""The brokers of the demonstration and its schema registry, as children on free ports of the loopback interface."""

import signal
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Self

from moldau.adapters.process_identity import send_signal
from moldau.assembly.local_cluster.state import existing_state, request_restart
from moldau.demo.children import Child, started

_LISTEN = "127.0.0.1:0"
_KEEP_OFFSETS = ("--set", "offsets.retention.minutes=52560000")
"""A demonstration that is run again after a month still knows what its load has read."""


class Servers(ABC):
    """Brokers and a registry. They stop in the reverse order of their start."""

    def __init__(self) -> None:
        self.bootstrap = ""
        self.registry = ""
        self._children: list[Child] = []

    @abstractmethod
    def start(self) -> Self:
        """Wait until all take requests. ChildError."""

    def stop(self) -> None:
        """Stop them by SIGTERM."""
        while self._children:
            self._children.pop().stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


class BrokerProcess(Servers):
    """`moldau serve --registry` with its data in `data`; what it prints goes to `log`."""

    def __init__(self, data: Path, log: Path) -> None:
        super().__init__()
        self._data = data
        self._log = log

    def start(self) -> Self:
        """Wait until all take requests. ChildError."""
        words = ["serve", "--listen", _LISTEN, "--registry", _LISTEN, "--data", str(self._data), *_KEEP_OFFSETS]
        child, addresses = started(words, self._log, "registry listening on ")
        self._children.append(child)
        self.bootstrap, self.registry = addresses[0], addresses[-1]
        return self


class ClusterProcesses(Servers):
    """`moldau cluster up` over `directory`, and `moldau registry`; what they print goes to `log`."""

    def __init__(self, directory: Path, log: Path, count: int) -> None:
        super().__init__()
        self._directory = str(directory)
        self._log = log
        self._count = count

    def start(self) -> Self:
        """Wait until all take requests. ChildError."""
        try:
            words = ["cluster", "up", "--data", self._directory, "--brokers", str(self._count), "--port", "0", *_KEEP_OFFSETS]
            self.bootstrap = self._start(words)
            self.registry = self._start(["registry", "--listen", _LISTEN, "--bootstrap", self.bootstrap])
        except BaseException:
            self.stop()
            raise
        return self

    def kill(self, broker_id: int) -> None:
        """SIGKILL for one broker. LocalClusterError for one that is dead."""
        send_signal(existing_state(self._directory).broker(broker_id).process, signal.SIGKILL)

    def restart(self, broker_id: int) -> None:
        """Have it started again; it is not waited for. LocalClusterError if the cluster has ended."""
        request_restart(self._directory, broker_id)

    def _start(self, words: list[str]) -> str:
        child, addresses = started(words, self._log, "listening on ")
        self._children.append(child)
        return addresses[0]
