"""A client that sends and never reads does not grow the server's memory, whatever it asks for; nor does one that sends much to decode."""

import contextlib
import select
import socket
import struct
import time
from collections.abc import Iterator

import pytest

from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.varint import uvarint
from support.server import ServerProcess
from support.wire import LIMIT_S, Wire, batch, fetch, produce

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


def refused(server: ServerProcess, address: tuple[str, int], payload: bytes) -> int:
    """Send a frame that the server cuts off; by how much its memory grew at the most meanwhile."""
    sender = Wire(address)
    before = server.peak_bytes(forget=True)
    with contextlib.suppress(ConnectionError):
        sender.socket.sendall(struct.pack(">i", len(payload)) + payload)
    assert sender.is_closed
    sender.close()
    return server.peak_bytes() - before


def says(server: ServerProcess, text: str) -> bool:
    """Whether a line with this text comes within the limit."""
    deadline = time.monotonic() + LIMIT_S
    while not any(text in line for line in server.output):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_a_long_request_that_would_have_to_be_decoded_is_cut_off(server: ServerProcess, address: tuple[str, int]) -> None:
    """50 MB of Metadata for topics without a name: decoding takes 1.5 GB. It ends its connection before the most of it is received."""
    topics = 25_000_000
    payload = struct.pack(">hhihB", 3, 9, 1, -1, 0) + uvarint(topics + 1) + b"\1\0" * topics + b"\0\0\0\0"
    grown = refused(server, address, payload)
    print(f"metadata: {grown / 1e6:.1f} MB grown")
    assert grown < 2_000_000
    refusal = f"METADATA (key 3) version 9: request of {len(payload)} bytes refused, at most 4194304 are taken (request.decoded.max.bytes)"
    assert says(server, refusal)


def test_a_produce_request_of_nothing_but_partitions_is_cut_off(server: ServerProcess, address: tuple[str, int]) -> None:
    """50 MB of Produce for eight million partitions without records: decoding and answering takes 7 GB. The frame itself is received."""
    partitions = 8_000_000
    payload = (
        struct.pack(">hhihBBhi", 0, 9, 1, -1, 0, 0, 1, 1000) + b"\2\2t" + uvarint(partitions + 1) + b"\0\0\0\1\0\0" * partitions + b"\0\0"
    )
    grown = refused(server, address, payload)
    print(f"produce: {grown / 1e6:.1f} MB grown")
    assert grown < 1.5 * len(payload)
    refusal = f"PRODUCE (key 0) version 9: request of {len(payload)} bytes refused, at most 4194304 beside records are taken"
    assert says(server, refusal)
