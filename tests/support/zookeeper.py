"""A real ZooKeeper server for tests, and a proxy before it that holds, cuts and loses what goes through."""

import asyncio
import atexit
import shutil
import tempfile
import time
from collections import deque
from functools import cache

from kazoo.client import KazooClient

from moldau.adapters.zookeeper_server import ZookeeperServer
from support.ports import free_ports

HOST = "127.0.0.1"
START_LIMIT_S = 180.0
POLL_S = 0.02
EXISTS = (3).to_bytes(4)
"""Type of the request by which a test finds out that those before it were answered: its answer is never lost."""


def has_java() -> bool:
    return shutil.which("java") is not None


def answers(port: int) -> bool:
    """Whether a server serves there."""
    return ZookeeperServer("", HOST, port).is_serving()


def wait_serving(server: ZookeeperServer, limit_s: float = START_LIMIT_S) -> None:
    end = time.monotonic() + limit_s
    while not server.is_serving():
        assert server.exit_code is None, f"the server ended: {server.exit_code}"
        assert time.monotonic() < end, "the server does not serve"
        time.sleep(POLL_S)


@cache
def shared_server() -> ZookeeperServer:
    """One for all tests of this process, without syncs of its log: each test takes a chroot of its own."""
    directory = tempfile.mkdtemp(prefix="moldau-zookeeper-")
    server = ZookeeperServer(directory, HOST, free_ports(1)[0], settings={"forceSync": "no", "snapCount": "100000"})
    server.start()

    def end() -> None:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)

    atexit.register(end)
    wait_serving(server)
    return server


def wait_gone(connect: str, path: str, limit_s: float = START_LIMIT_S) -> None:
    """Until there is no such node; an ephemeral one lasts until its session expires."""
    client = KazooClient(connect, timeout=10)
    client.start()
    try:
        end = time.monotonic() + limit_s
        while client.exists(path) is not None:
            assert time.monotonic() < end, f"{path} stays"
            time.sleep(POLL_S)
    finally:
        client.stop()
        client.close()


def end_session(server: ZookeeperServer, session: tuple[int, bytes]) -> None:
    """Have a session expire, so to say: a second connection with its id and password closes it."""
    client = KazooClient(hosts=f"{HOST}:{server.port}", client_id=session, timeout=10)
    client.start()
    assert client.client_id is not None
    assert client.client_id[0] == session[0]
    client.stop()
    client.close()


class Proxy:
    """Between one client and the server, on a loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, target: tuple[str, int]) -> None:
        self._loop = loop
        self._target = target
        self._pairs: list[_Pair] = []
        self.is_cut = False
        self.is_holding = False
        self.lose_in = 0
        self._server = loop.run_until_complete(loop.create_server(lambda: _Pair(self, target), HOST, 0))
        self.port: int = self._server.sockets[0].getsockname()[1]

    @property
    def held(self) -> int:
        """Requests that wait here."""
        return sum(len(each.held) for each in self._pairs)

    def add(self, pair: "_Pair") -> None:
        self._pairs.append(pair)

    def remove(self, pair: "_Pair") -> None:
        if pair in self._pairs:
            self._pairs.remove(pair)

    def cut(self) -> None:
        """End the connection with what is held, and take no other until `mend`."""
        self.is_cut = True
        for each in self._pairs[:]:
            each.abort()

    def mend(self) -> None:
        self.is_cut = False

    def hold(self) -> None:
        """Keep requests from now on."""
        self.is_holding = True

    def release(self) -> None:
        self.is_holding = False
        for each in self._pairs:
            while each.held:
                each.upstream.send(each.held.popleft())

    def close(self) -> None:
        self.cut()
        self._server.close()


class _Frames:
    """Cuts a stream into ZooKeeper's frames."""

    def __init__(self) -> None:
        self._buffer = b""

    def take(self, data: bytes) -> list[bytes]:
        self._buffer += data
        frames = []
        while len(self._buffer) >= 4:
            length = 4 + int.from_bytes(self._buffer[:4])
            if len(self._buffer) < length:
                break
            frames.append(self._buffer[:length])
            self._buffer = self._buffer[length:]
        return frames


class _Pair(asyncio.Protocol):
    """The client's connection."""

    def __init__(self, proxy: Proxy, target: tuple[str, int]) -> None:
        self._proxy = proxy
        self._target = target
        self._frames = _Frames()
        self.held: deque[bytes] = deque()
        self.probes: deque[bytes] = deque()
        self.upstream = _Upstream(proxy, self)
        self._transport: asyncio.Transport | None = None
        self._tasks: list[asyncio.Task[object]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._proxy.is_cut:
            transport.abort()
            return
        self._proxy.add(self)
        loop = asyncio.get_running_loop()
        self._tasks.append(loop.create_task(loop.create_connection(lambda: self.upstream, *self._target)))

    def data_received(self, data: bytes) -> None:
        for frame in self._frames.take(data):
            if frame[8:12] == EXISTS:
                self.probes.append(frame[4:8])
            if self._proxy.is_holding:
                self.held.append(frame)
            else:
                self.upstream.send(frame)

    def send(self, frame: bytes) -> None:
        if self._transport is not None:
            self._transport.write(frame)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._proxy.remove(self)
        self.upstream.abort()

    def abort(self) -> None:
        self.held.clear()
        self.upstream.abort()
        if self._transport is not None:
            self._transport.abort()


class _Upstream(asyncio.Protocol):
    """The connection to the server."""

    def __init__(self, proxy: Proxy, pair: _Pair) -> None:
        self._proxy = proxy
        self._pair = pair
        self._frames = _Frames()
        self._is_first = True
        self._early: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._is_over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._is_over:
            transport.abort()
        for each in self._early:
            transport.write(each)

    def send(self, frame: bytes) -> None:
        if self._transport is None:
            self._early.append(frame)
        else:
            self._transport.write(frame)

    def data_received(self, data: bytes) -> None:
        for frame in self._frames.take(data):
            is_answer = not self._is_first and int.from_bytes(frame[4:8], signed=True) > 0
            self._is_first = False
            if is_answer and self._pair.probes and self._pair.probes[0] == frame[4:8]:
                self._pair.probes.popleft()
            elif is_answer and self._proxy.lose_in:
                self._proxy.lose_in -= 1
                if not self._proxy.lose_in:
                    self._proxy.cut()
                    return
            self._pair.send(frame)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._is_over:
            self._pair.abort()

    def abort(self) -> None:
        self._is_over = True
        if self._transport is not None:
            self._transport.abort()
