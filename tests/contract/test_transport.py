"""The transport port means the same over real sockets, on both event loops, and in memory.

The order of bytes and file ranges is the claim that matters: whatever the socket takes at a time, a peer that reads one byte at a time sees
what one that reads everything sees. The real one is also run with `sendfile` and MSG_MORE hidden, as on systems that lack them.
"""

import asyncio
import os
import select
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from moldau.adapters import outgoing
from moldau.adapters.asyncio_transport import SocketTransport
from moldau.adapters.event_loop import new_event_loop
from moldau.adapters.outgoing import PREAD_MAX, read_short
from moldau.adapters.posix_files import PosixFiles
from moldau.ports.filesystem import File
from moldau.ports.transport import FileRange, Part, Transport, release_parts
from moldau.testing.clock import FakeClock
from moldau.testing.network import MemoryTransport, Peer

STEPS_MAX = 20_000


class Recorder:
    """A receiver that remembers."""

    def __init__(self) -> None:
        self.buffer = memoryview(bytearray(4096))
        self.received = bytearray()
        self.drained = 0
        self.lost: list[Exception | None] = []

    def get_buffer(self, size_hint: int) -> memoryview:
        return self.buffer

    def buffer_updated(self, count: int) -> None:
        self.received += self.buffer[:count]

    def queue_drained(self) -> None:
        self.drained += 1

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.append(error)


class Link(Protocol):
    """A connection with both of its ends."""

    transport: Transport
    receiver: Recorder

    def peer_send(self, data: bytes) -> None: ...
    def peer_read(self, count: int) -> bytes: ...
    def peer_close(self) -> None: ...
    def step(self) -> None: ...
    def close(self) -> None: ...


class MemoryLink:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.receiver = Recorder()
        self.memory = MemoryTransport(lambda callback: self.clock.call_later(0.0, callback), window=1000)
        self.transport: Transport = self.memory
        self.peer = Peer(self.memory, self.receiver)

    def peer_send(self, data: bytes) -> None:
        self.peer.send(data)

    def peer_read(self, count: int) -> bytes:
        return self.memory.take(count)

    def peer_close(self) -> None:
        self.peer.disconnect()

    def step(self) -> None:
        self.clock.settle()
        self.peer.push()

    def close(self) -> None:
        self.memory.abort()


class SocketLink:
    """Buffers are as small as the system allows, so that queues fill soon."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            self.peer = socket.socket()
            self.peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            self.peer.connect(server.getsockname())
            accepted, address = server.accept()
        accepted.setblocking(False)
        self.peer.setblocking(False)
        self.receiver = Recorder()
        self.closed: list[Transport] = []
        self.socket_transport = SocketTransport(loop, accepted, address, accepted.getsockname(), self.closed.append)
        self.transport: Transport = self.socket_transport
        self.socket_transport.start(self.receiver)

    def peer_send(self, data: bytes) -> None:
        self.peer.sendall(data)

    def peer_read(self, count: int) -> bytes:
        try:
            return self.peer.recv(count)
        except BlockingIOError:
            return b""

    def peer_close(self) -> None:
        self.peer.close()

    def step(self) -> None:
        """Let the loop turn once, a moment later if nothing is ready."""
        if self.peer.fileno() >= 0:
            select.select([self.peer], [], [], 0.0005)
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def close(self) -> None:
        self.transport.abort()
        self.step()
        self.peer.close()
        assert len(self.closed) == 1
        self.loop.close()


def memory(_patch: pytest.MonkeyPatch) -> Link:
    return MemoryLink()


def on_asyncio(_patch: pytest.MonkeyPatch) -> Link:
    return SocketLink(new_event_loop("asyncio"))


def on_uvloop(_patch: pytest.MonkeyPatch) -> Link:
    pytest.importorskip("uvloop")
    return SocketLink(new_event_loop("uvloop"))


def without_linux_names(patch: pytest.MonkeyPatch) -> Link:
    patch.setattr(outgoing, "_sendfile", None)
    patch.setattr(outgoing, "_MSG_MORE", 0)
    return SocketLink(new_event_loop("asyncio"))


def with_sendfile_always(patch: pytest.MonkeyPatch) -> Link:
    patch.setattr(outgoing, "PREAD_MAX", 0)
    return SocketLink(new_event_loop("asyncio"))


@pytest.fixture(params=[memory, on_asyncio, on_uvloop, without_linux_names, with_sendfile_always], ids=lambda make: make.__name__)
def link(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Link]:
    made: Link = request.param(monkeypatch)
    yield made
    made.close()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[File]:
    opened = PosixFiles().open(str(tmp_path / "segment"), create=True)
    opened.append([os.urandom(300_000)])
    yield opened
    opened.release()


def until(link: Link, condition: Callable[[], bool]) -> None:
    for _ in range(STEPS_MAX):
        if condition():
            return
        link.step()
    raise AssertionError("it did not happen")


def read_all(link: Link, count: int, piece: int = 1 << 16) -> bytes:
    taken = bytearray()

    def enough() -> bool:
        while len(taken) < count and (data := link.peer_read(min(piece, count - len(taken)))):
            taken.extend(data)
        return len(taken) >= count

    until(link, enough)
    return bytes(taken)


def mixed(file: File) -> tuple[list[Part], bytes]:
    """An answer like those to Fetch: bytes, short and long ranges, bytes after them."""
    parts: list[Part] = []
    expected = bytearray()
    position = 0
    for number, length in enumerate((10, 5_000, 100, 60_000, 1, 20_000, 17_000)):
        header = f"<header {number}>".encode()
        parts += [header, FileRange(file, position, length), bytearray(b"tail"), memoryview(b"--end--")[2:5]]
        expected += header + file.pread(length, position) + b"tailend"
        position += length
    return parts, bytes(expected)


def test_bytes_of_the_peer_come_in_order(link: Link) -> None:
    for number in range(50):
        link.peer_send(f"{number};".encode())
        link.step()
    expected = b"".join(f"{number};".encode() for number in range(50))
    until(link, lambda: bytes(link.receiver.received) == expected)


def test_bytes_and_ranges_go_out_in_order(link: Link, file: File) -> None:
    expected = b""
    for _ in range(3):
        parts, sent = mixed(file)
        link.transport.send(parts)
        expected += sent
    assert read_all(link, len(expected)) == expected


def test_a_peer_that_reads_one_byte_at_a_time_sees_the_same(link: Link, file: File) -> None:
    parts: list[Part] = [b"a", FileRange(file, 0, 3), b"b", FileRange(file, 100, 2_000), b"c" * 500]
    link.transport.send(parts)
    link.transport.send([b"d"])
    expected = b"a" + file.pread(3, 0) + b"b" + file.pread(2_000, 100) + b"c" * 500 + b"d"
    assert read_all(link, len(expected), piece=1) == expected


def test_more_may_be_sent_while_earlier_parts_wait(link: Link, file: File) -> None:
    parts, expected = mixed(file)
    link.transport.send(parts)
    first = read_all(link, 7_000, piece=999)
    link.transport.send([b"later", FileRange(file, 7, 30_000)])
    expected += b"later" + file.pread(30_000, 7)
    assert first + read_all(link, len(expected) - len(first)) == expected


def test_what_waits_is_counted_and_its_end_is_told_once(link: Link, file: File) -> None:
    size = 1 << 20  # more than the system's buffers take
    link.transport.send([b"x" * size])
    waiting = link.transport.queued_bytes()
    assert 0 < waiting < size
    link.transport.send([FileRange(file, 0, 200_000)])
    assert waiting < link.transport.queued_bytes() < waiting + 4096, "a range counts a small sum, not its length"
    assert link.receiver.drained == 0
    read_all(link, size + 200_000)
    until(link, lambda: link.receiver.drained == 1)
    assert link.transport.queued_bytes() == 0


def test_paused_reading_leaves_the_bytes_with_the_peer(link: Link) -> None:
    link.peer_send(b"one")
    until(link, lambda: bytes(link.receiver.received) == b"one")
    link.transport.pause_reading()
    link.transport.pause_reading()
    link.peer_send(b"two")
    for _ in range(5):
        link.step()
    assert bytes(link.receiver.received) == b"one"
    link.transport.resume_reading()
    until(link, lambda: bytes(link.receiver.received) == b"onetwo")


def test_close_sends_what_is_queued_first(link: Link, file: File) -> None:
    size = 1 << 20
    link.transport.send([b"y" * size, FileRange(file, 0, 50_000)])
    link.transport.close()
    link.transport.send([b"not any more", FileRange(file, 0, 10)])
    assert read_all(link, size + 50_000) == b"y" * size + file.pread(50_000, 0)
    until(link, lambda: link.receiver.lost == [None])
    assert link.peer_read(100) == b""


def test_abort_drops_what_is_queued_and_gives_the_file_back(link: Link, file: File) -> None:
    link.transport.send([b"z" * (1 << 20), FileRange(file, 0, 50_000)])
    link.transport.abort()
    link.transport.abort()
    assert link.transport.queued_bytes() == 0
    assert link.receiver.lost == [], "the receiver hears of it later, never inside its own call"
    until(link, lambda: len(link.receiver.lost) == 1)
    file.retain()
    file.release()
    assert file.size() == 300_000, "still open for its other user"


@pytest.mark.parametrize("size", [100, 40_000])
def test_a_range_closes_a_file_that_nobody_else_uses(link: Link, tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    (tmp_path / "gone").write_bytes(data)
    opened = PosixFiles().open(str(tmp_path / "gone"))
    link.transport.send([FileRange(opened, 0, size)])
    opened.release()
    (tmp_path / "gone").unlink()
    assert read_all(link, size) == data
    assert opened.fileno() == -1, "the last user was the transport"


def test_short_ranges_are_read_at_once_and_no_others(tmp_path: Path) -> None:
    opened = PosixFiles().open(str(tmp_path / "short"), create=True)
    opened.append([b"0123456789" * 2_000])
    assert (
        read_short([b"<", FileRange(opened, 8, 4), memoryview(b"|"), FileRange(opened, 0, 0), FileRange(opened, 20, 2), b">"])
        == b"<8901|01>"
    )
    for ranges in ([(0, PREAD_MAX + 1)], [(0, 1), (1, PREAD_MAX)], [(19_999, 2)]):
        parts = [FileRange(opened, position, length) for position, length in ranges]
        assert read_short(parts) is None
        release_parts(parts)
    opened.release()
    assert opened.fileno() == -1, "each range is released once"


def test_the_receiver_hears_once_that_the_peer_is_gone(link: Link) -> None:
    link.peer_close()
    until(link, lambda: len(link.receiver.lost) == 1)
    link.transport.send([b"nobody is there"])
    link.transport.close()
    link.transport.resume_reading()
    for _ in range(5):
        link.step()
    assert len(link.receiver.lost) == 1
