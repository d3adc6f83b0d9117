"""Opens connections over real sockets, on the loop of the broker.

The addresses of a name are tried one after the other; a resolver that hangs occupies a thread of the loop's executor, never the loop.
"""

import asyncio
import os
import socket
from collections.abc import Callable

from moldau.adapters.asyncio_transport import SocketTransport
from moldau.model.host_port import for_resolver
from moldau.ports.transport import ConnectError, Receiver, Transport


class AsyncioNetwork:
    """A :class:`moldau.ports.transport.Network`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def connect(
        self, host: str, port: int, accept: Callable[[Transport], Receiver], failed: Callable[[ConnectError], object]
    ) -> "AsyncioConnectAttempt":
        """Begin to connect."""
        return AsyncioConnectAttempt(self._loop, (host, port), accept, failed)


class AsyncioConnectAttempt:
    """A connection that is being opened."""

    __slots__ = ("_accept", "_address", "_failed", "_is_over", "_loop", "_task")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        address: tuple[str, int],
        accept: Callable[[Transport], Receiver],
        failed: Callable[[ConnectError], object],
    ) -> None:
        self._loop = loop
        self._address = address
        self._accept = accept
        self._failed = failed
        self._is_over = False
        self._task = loop.create_task(_connect(loop, *address))
        self._task.add_done_callback(self._done)

    def cancel(self) -> None:
        """Give up."""
        self._is_over = True
        self._task.cancel()

    def _done(self, task: "asyncio.Task[socket.socket]") -> None:
        if task.cancelled():
            return
        error = task.exception()
        if self._is_over:  # cancelled in the turn in which it came about
            if error is None:
                task.result().close()
        elif isinstance(error, OSError):
            self._is_over = True
            self._failed(ConnectError(*self._address, _reason(error), is_refused=isinstance(error, ConnectionRefusedError)))
        elif error is not None:
            raise error
        else:
            self._is_over = True
            self._begin(task.result())

    def _begin(self, connected: socket.socket) -> None:
        try:
            peer, local = connected.getpeername()[:2], connected.getsockname()[:2]
        except OSError as error:  # the peer has disconnected already
            connected.close()
            self._failed(ConnectError(*self._address, _reason(error)))
            return
        transport = SocketTransport(self._loop, connected, peer, local, _nothing)
        transport.start(self._accept(transport))


def _nothing(_: SocketTransport) -> None:
    """The caller that opened the connection has its receiver, which is notified of the end."""


def _reason(error: OSError) -> str:
    """In the system's words: the loops put the address into theirs, which the caller has."""
    if error.errno is None or isinstance(error, socket.gaierror):
        return (error.strerror or str(error)).lower()
    return os.strerror(error.errno).lower()


async def _connect(loop: asyncio.AbstractEventLoop, host: str, port: int) -> socket.socket:
    """A connected socket, of the first address that takes the connection. OSError of the last address if none does."""
    try:
        found = await loop.getaddrinfo(for_resolver(host), port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(f"not a host name: {error}") from error
    trouble: OSError | None = None
    for family, kind, protocol, _, address in found:
        try:
            return await _connect_to(loop, socket.socket(family, kind, protocol), address)
        except OSError as error:
            trouble = error
    raise trouble or OSError("the name has no address")


async def _connect_to(loop: asyncio.AbstractEventLoop, connecting: socket.socket, address: tuple[object, ...]) -> socket.socket:
    try:
        connecting.setblocking(False)
        connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connecting.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        await loop.sock_connect(connecting, address)
    except BaseException:
        connecting.close()
        raise
    return connecting
