"""A listener on 127.0.0.1, at a free port, with a thread for each connection: for peers that a test has made up."""

import contextlib
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable


class ThreadedServer(ABC):
    """See the module. It takes connections from `listen` until `close`."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        """What `close` has to end."""
        self._threads: list[threading.Thread] = []

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.port}"

    def listen(self) -> None:
        """Take connections from now on."""
        self._run(self._accept)

    def close(self) -> None:
        """End all connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)

    @abstractmethod
    def _serve(self, client: socket.socket) -> None:
        """Have the dialogue of one connection, in a thread of its own, and close it."""

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(client)
            self._run(self._serve, client)

    def _run(self, act: Callable[..., None], *arguments: object) -> None:
        self._threads.append(threading.Thread(target=act, args=arguments, daemon=True))
        self._threads[-1].start()
