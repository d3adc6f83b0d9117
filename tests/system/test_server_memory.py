"""A client that sends and never reads does not grow the server's memory, whatever it asks for; others are served meanwhile."""

import select
import socket
import time
from collections.abc import Iterator

import pytest

from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.metadata import MetadataRequest
from support.server import ServerProcess
from support.wire import Wire, batch, fetch, produce

pytestmark = pytest.mark.system

CLIENTS = 5
SEND_S = 0.8
GROWTH_MAX_BYTES = 40_000_000
"""Five clients with 4 MB of answers each that they may leave unread, and what the allocator keeps."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("memory") / "data") as running:
        yield running


@pytest.fixture
def address(server: ServerProcess) -> tuple[str, int]:
    host, _, port = server.bootstrap.rpartition(":")
    return host, int(port)


def send_without_reading(sockets: list[socket.socket], stream: bytes) -> int:
    """Push the stream into every socket, again and again, as far as they take it; bytes sent."""
    sent = dict.fromkeys(sockets, 0)
    end = time.monotonic() + SEND_S
    for each in sockets:
        each.setblocking(False)
    while time.monotonic() < end:
        _, writable, _ = select.select([], sockets, [], 0.05)
        for each in writable:
            sent[each] += each.send(memoryview(stream)[sent[each] % len(stream) :])
    return sum(sent.values())


@pytest.mark.parametrize("kind", ["metadata", "fetch", "produce", "versions", "waiting fetch"])
def test_unread_answers_are_bounded(server: ServerProcess, address: tuple[str, int], kind: str) -> None:
    good = Wire(address)
    good.ask(CreateTopicsRequest([CreatableTopic("wide", 500, 1)]), 5)
    good.create("t")
    for _ in range(20):
        good.ask(produce("t", batch(b"x" * 50_000)), 9)
    end = good.ask(fetch("t", 0), 12).responses[0].partitions[0].high_watermark
    clients = [Wire(address, receive_buffer=4096) for _ in range(CLIENTS)]
    maker = Wire(address)
    request, version = {
        "metadata": (MetadataRequest(None), 9),
        "fetch": (fetch("t", 0), 12),
        "produce": (produce("t", batch(b"y" * 100)), 9),
        "versions": (ApiVersionsRequest("test", "1"), 3),
        "waiting fetch": (fetch("t", end, max_wait_ms=60_000), 12),
    }[kind]
    stream = maker.frame(request, version)
    stream *= max(1, 100_000 // len(stream))
    before = server.resident_bytes()
    sent = send_without_reading([client.socket for client in clients], stream)
    assert good.ask(ApiVersionsRequest("test", "1"), 3).error_code == 0
    grown = server.resident_bytes() - before
    print(f"{kind}: {sent / 1e6:.1f} MB sent, {grown / 1e6:.1f} MB grown")
    assert grown < GROWTH_MAX_BYTES
    for wire in (*clients, maker, good):
        wire.close()
