"""Thousands of connections, some of them hostile, leave nothing behind, and a good client is served throughout.

A round opens 10,000 connections one after another and 1,000 at once (a tenth unless MOLDAU_TORTURE=1); one in twenty sends hostile bytes.
After a first round to warm up, the memory after each of the next four differs from the others by at most ten per cent. Meanwhile a good
client produces and fetches, and each of its requests is answered within a second or two. At the limit of open files new connections are
refused, with a line in the log at most once a second, and those that are open go on.
"""

import contextlib
import os
import random
import resource
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.protocol.codec import encode
from moldau.protocol.headers import request_header
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from support.server import ServerProcess
from support.sizes import TORTURE
from support.wire import Wire, batch, fetch, produce

pytestmark = [pytest.mark.system, pytest.mark.torture]

ONE_BY_ONE = 10_000 if TORTURE else 1_000
AT_ONCE = 1_000 if TORTURE else 200
ROUNDS = 5
HOSTILE_SHARE = 0.05
ANSWER_LIMIT_S = 2.0


def versions_request() -> bytes:
    payload = request_header(18, 3, 1, "one of many") + encode(ApiVersionsRequest("test", "1"), 3)
    return struct.pack(">i", len(payload)) + payload


GOOD = versions_request()


def hostile(choice: random.Random) -> bytes:
    """Bytes that nobody should send."""
    return choice.choice(
        [
            choice.randbytes(choice.randint(1, 2000)),
            b"\x7f\xff\xff\xff" + bytes(100),
            struct.pack(">i", 50_000_000) + bytes(1000),
            struct.pack(">i", -1),
            bytes.fromhex("16030100c8010000c40303") + bytes(100),
            b"GET / HTTP/1.1\r\n\r\n",
            GOOD[:-3],
            GOOD[:4] + choice.randbytes(len(GOOD) - 4),
            struct.pack(">ihhih", 100, choice.randrange(80), choice.randrange(15), 1, -1) + choice.randbytes(90),
        ]
    )


def visit(address: tuple[str, int], choice: random.Random) -> socket.socket:
    """Connect and send something, mostly good; a good one waits for its answer."""
    connected = socket.create_connection(address, timeout=30)
    if choice.random() < HOSTILE_SHARE:
        with contextlib.suppress(OSError):
            connected.sendall(hostile(choice))
        return connected
    connected.sendall(GOOD)
    assert len(connected.recv(1 << 16)) > 100
    return connected


class GoodClient(threading.Thread):
    """Produces and fetches without pause; remembers the longest wait."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(daemon=True)
        self.wire = Wire(address)
        self.wire.create("good")
        self.served = 0
        self.longest_s = 0.0
        self.problem: BaseException | None = None
        self.stopping = threading.Event()

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                begun = time.monotonic()
                produced = self.wire.ask(produce("good", batch(b"x" * 100)), 9).responses[0].partition_responses[0]
                assert (produced.error_code, produced.base_offset) == (0, self.served)
                fetched = self.wire.ask(fetch("good", self.served), 12).responses[0].partitions[0]
                assert (fetched.error_code, fetched.high_watermark) == (0, self.served + 1)
                self.longest_s = max(self.longest_s, time.monotonic() - begun)
                self.served += 1
                time.sleep(0.005)
        except BaseException as problem:
            self.problem = problem
        finally:
            self.wire.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    raised = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (raised[1], raised[1]))
    with ServerProcess(tmp_path / "data") as running:
        yield running
    resource.setrlimit(resource.RLIMIT_NOFILE, raised)


def address_of(server: ServerProcess) -> tuple[str, int]:
    host, _, port = server.bootstrap.rpartition(":")
    return host, int(port)


def open_files(server: ServerProcess) -> int:
    return len(os.listdir(f"/proc/{server.pid}/fd"))


def settled(server: ServerProcess, files: int) -> int:
    """Resident memory once every visitor's connection is gone and no more than `files` are open."""
    deadline = time.monotonic() + 30
    while open_files(server) > files:
        assert time.monotonic() < deadline, "connections stay open"
        time.sleep(0.05)
    return server.resident_bytes()


@pytest.mark.alone
def test_rounds_of_connections_leave_memory_as_it_was(server: ServerProcess) -> None:
    seed = int(os.environ.get("MOLDAU_SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"seed {seed}")
    choice = random.Random(seed)
    address = address_of(server)
    good = GoodClient(address)
    good.start()
    while good.served == 0:
        assert good.problem is None, good.problem
        time.sleep(0.01)
    files = open_files(server)
    memory: list[int] = []
    for _ in range(ROUNDS):
        for _ in range(ONE_BY_ONE):
            visit(address, choice).close()
        crowd = [visit(address, choice) for _ in range(AT_ONCE)]
        for connected in crowd:
            connected.close()
        memory.append(settled(server, files))
        assert good.problem is None, good.problem
    good.stopping.set()
    good.join(10)
    megabytes = [round(size / 1e6, 1) for size in memory]
    print(f"memory after each round: {megabytes} MB; good client: {good.served} rounds, longest {good.longest_s * 1000:.0f} ms")
    assert good.problem is None, good.problem
    assert max(memory[1:]) <= min(memory[1:]) * 1.1, megabytes
    assert good.served > 10
    assert good.longest_s < ANSWER_LIMIT_S


def test_the_soft_limit_of_open_files_is_raised(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 1024:
        pytest.skip("the hard limit is too low")
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    try:
        with ServerProcess(tmp_path / "data") as running:
            assert resource.prlimit(running.pid, resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_at_the_limit_of_open_files_new_connections_are_refused(server: ServerProcess) -> None:
    address = address_of(server)
    first = Wire(address)
    first.create("good")
    limit = 2 * open_files(server) + 20  # half of so small a limit is kept from connections: what the server itself has open, and ten more
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    begun = time.monotonic()
    crowd: list[socket.socket] = []
    refused = 0
    while time.monotonic() - begun < 2.5:
        connected = socket.create_connection(address, timeout=30)
        crowd.append(connected)
        if len(crowd) > 15:
            connected.sendall(GOOD)
            with contextlib.suppress(ConnectionError):
                if connected.recv(1 << 16):
                    continue
            refused += 1
            crowd.pop().close()
            time.sleep(0.001)
    assert refused > 50
    assert first.ask(produce("good", batch(b"x")), 9).responses[0].partition_responses[0].error_code == 0
    lines = [line for line in server.output if "connection refused" in line]
    assert 1 <= len(lines) <= 4, lines
    for connected in crowd:
        connected.close()

    def admitted() -> bool:
        with contextlib.closing(socket.create_connection(address, timeout=30)) as again:
            again.sendall(GOOD)
            with contextlib.suppress(ConnectionError):
                return bool(again.recv(1 << 16))
        return False

    deadline = time.monotonic() + 10
    while not admitted():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    first.close()
