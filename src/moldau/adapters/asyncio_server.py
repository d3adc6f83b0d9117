"""Listening sockets and the connections that come of them.

Bounds: what the quota admits (`broker.admission.admission`), and the process's limit of open files. At a bound a new connection is
accepted and closed at once, so that the peer gets an error instead of waiting, and that is logged once a second. A quarter of the open
files is kept from connections (`FILES_KEPT_MIN` at least, unless that is more than half, and `FILES_KEPT_MAX` at most), or peers could take
the logs' files away. Descriptors are given out from the lowest free number on, so the number of an accepted socket shows how many are in
use. Should none be free at all, one held in reserve is closed for the moment of the refusal; where that is used up too, nothing is accepted
for a while.

A connection without a byte in either direction for `idle_max_ms` is closed. It is found by a walk over all connections a few times in that
span; reading and writing only set a flag.
"""

import asyncio
import errno
import logging
import os
import resource
import socket
from collections.abc import Callable, Iterable

from moldau.adapters.asyncio_transport import SocketTransport
from moldau.broker.admission.admission import ConnectionQuota
from moldau.model.value import Value
from moldau.ports.transport import Receiver, Transport


class LogLimit:
    """Lets one event in `interval_s` seconds through to the log."""

    def __init__(self, logger: logging.Logger, interval_s: float = 1.0) -> None:
        self._logger = logger
        self._interval_s = interval_s
        self._next = float("-inf")
        self._left_out = 0

    def warning(self, now: float, event: str, *fields: object) -> None:
        """Log `event` with its `fields`, if the last line is long enough ago; `now` in seconds of any clock that never goes back."""
        if now < self._next:
            self._left_out += 1
            return
        self._next = now + self._interval_s
        self._logger.warning(event + " left_out=%d", *fields, self._left_out)
        self._left_out = 0


_LOG = logging.getLogger(__name__)

FILES_KEPT_MIN = 128
FILES_KEPT_MAX = 10_000
ACCEPTS_PER_TURN = 64
"""Connections accepted before those that are there get their turn."""
ACCEPT_PAUSE_S = 0.1
"""How long to wait when there is no descriptor even for a refusal."""
IDLE_LOOK_S_MIN, IDLE_LOOK_S_MAX = 0.05, 30.0
_OUT_OF_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

Accept = Callable[[Transport, str], Receiver]
"""Takes a connection and the name of the listener that it came in by."""


class ServerLimits(Value):
    """Bounds of a server; replaced as a whole while it runs."""

    idle_max_ms: int = 600_000
    """Negative: idle connections stay."""
    send_buffer_bytes: int = -1
    """SO_SNDBUF of a connection; -1 leaves it to the system."""
    receive_buffer_bytes: int = -1
    """SO_RCVBUF of a connection; -1 leaves it to the system."""


def files_kept(files_max: int) -> int:
    """Of so many files that may be open, those that are not for connections."""
    return min(max(files_max // 4, min(FILES_KEPT_MIN, files_max // 2)), FILES_KEPT_MAX)


class Server:
    """Accepts connections on the loop's thread and hands each to `accept`, which gives back its receiver."""

    def __init__(self, loop: asyncio.AbstractEventLoop, accept: Accept, limits: ServerLimits, quota: ConnectionQuota) -> None:
        self.limits = limits
        self._quota = quota
        self.accepted = 0
        self.refused = 0
        self._loop = loop
        self._accept = accept
        self._listening: dict[socket.socket, str] = {}
        self._transports: set[SocketTransport] = set()
        self._refusals = LogLimit(_LOG)
        self._reserve = -1
        self._idle_timer: asyncio.TimerHandle | None = None

    def serve(self, listening: Iterable[tuple[str, socket.socket]]) -> None:
        """Begin to accept on bound sockets (see `bind`), each with its listener's name; they belong to the server from now on."""
        self._listening = {bound: listener for listener, bound in listening}
        self._reserve = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        for bound, listener in self._listening.items():
            self._loop.add_reader(bound.fileno(), self._acceptable, bound, listener)
        self._watch_idle()

    @property
    def connections(self) -> int:
        """Connections open."""
        return len(self._transports)

    def stop_listening(self) -> None:
        """Accept no more."""
        for listening in self._listening:
            self._loop.remove_reader(listening.fileno())
            listening.close()
        self._listening.clear()
        if self._reserve >= 0:
            os.close(self._reserve)
            self._reserve = -1

    def close(self) -> None:
        """Accept no more and close every connection; what is queued is sent as far as the sockets take it."""
        self.stop_listening()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        for transport in list(self._transports):
            transport.close()

    def abort(self) -> None:
        """As `close`, but what is queued is dropped."""
        self.close()
        for transport in list(self._transports):
            transport.abort()

    def abort_unread(self) -> None:
        """Abort connections with bytes queued whose peer has taken none since the last call, or since the last look for idle ones."""
        aborted = 0
        for transport in list(self._transports):
            if transport.queued_bytes() and not transport.active:
                transport.abort()
                aborted += 1
            transport.active = False
        if aborted:
            _LOG.warning("connections closed at shutdown: number=%d reason=the peer does not read", aborted)

    def _acceptable(self, listening: socket.socket, listener: str) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                connected, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _OUT_OF_FILES:
                    raise
                if not self._refuse_without_files(listening, error):
                    self._pause(listening)
                    return
                continue
            files_max = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            if files_max != resource.RLIM_INFINITY and connected.fileno() >= files_max - files_kept(files_max):
                self._refuse(connected, address[0], "open files", files_max)
            else:
                self._admit(connected, address[:2], listener)

    def _admit(self, connected: socket.socket, peer: tuple[str, int], listener: str) -> None:
        limits = self.limits
        ip = peer[0]
        refusal = self._quota.admit(ip)
        if refusal is not None:
            self._refuse(connected, ip, *refusal)
            return
        connected.setblocking(False)
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if limits.send_buffer_bytes > 0:
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.send_buffer_bytes)
            if limits.receive_buffer_bytes > 0:
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.receive_buffer_bytes)
            local = connected.getsockname()[:2]
        except OSError:  # gone before it was ours
            connected.close()
            self._quota.release(ip)
            return
        self.accepted += 1
        transport = SocketTransport(self._loop, connected, peer, local, self._closed)
        transport.idle_since = self._loop.time()
        self._transports.add(transport)
        transport.start(self._accept(transport, listener))

    def _refuse(self, connected: socket.socket, ip: str, bound: str, value: int) -> None:
        connected.close()
        self.refused += 1
        self._refusals.warning(self._loop.time(), "connection refused: peer=%s bound=%s value=%d", ip, bound, value)

    def _refuse_without_files(self, listening: socket.socket, error: OSError) -> bool:
        """Accept one connection with the descriptor in reserve and close it; whether there was one."""
        self.refused += 1
        self._refusals.warning(self._loop.time(), "connection refused: bound=open files error=%s connections=%d", error, self.connections)
        if self._reserve >= 0:
            os.close(self._reserve)
            self._reserve = -1
        try:
            listening.accept()[0].close()
        except OSError:
            return False
        finally:
            try:
                self._reserve = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:  # taken by a file meanwhile: the next refusal tries without
                self._reserve = -1
        return True

    def _pause(self, listening: socket.socket) -> None:
        """Leave who wants to connect waiting: the loop would call again and again, and nothing could be done."""
        self._loop.remove_reader(listening.fileno())
        self._loop.call_later(ACCEPT_PAUSE_S, self._listen_again, listening)

    def _listen_again(self, listening: socket.socket) -> None:
        listener = self._listening.get(listening)
        if listener is not None:
            self._loop.add_reader(listening.fileno(), self._acceptable, listening, listener)

    def _closed(self, transport: SocketTransport) -> None:
        self._transports.discard(transport)
        self._quota.release(transport.peer[0])

    def _watch_idle(self) -> None:
        now = self._loop.time()
        idle_max_s = self.limits.idle_max_ms / 1000
        if self.limits.idle_max_ms >= 0:
            for transport in list(self._transports):
                if transport.active:
                    transport.active = False
                    transport.idle_since = now
                elif now - transport.idle_since >= idle_max_s:
                    _LOG.info("connection closed: peer=%s:%d reason=idle for %d ms", *transport.peer, self.limits.idle_max_ms)
                    transport.abort()
        interval_s = IDLE_LOOK_S_MAX if idle_max_s < 0 else min(max(idle_max_s / 8, IDLE_LOOK_S_MIN), IDLE_LOOK_S_MAX)
        self._idle_timer = self._loop.call_later(interval_s, self._watch_idle)
