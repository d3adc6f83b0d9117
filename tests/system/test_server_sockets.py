"""The server over real sockets, on both loops: order under slow readers, bounds, refusals, a stop that finishes what is in flight."""

import logging
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moldau.assembly.thread import BrokerThread
from moldau.model.config.static import read_static
from moldau.model.config.store import BrokerConfig
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from moldau.protocol.messages.metadata import MetadataRequest
from support.wire import LIMIT_S, Wire, batch, fetch, produce

pytestmark = pytest.mark.system

Start = Callable[..., BrokerThread]


@pytest.fixture(params=["asyncio", "uvloop"])
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Start]:
    """Starts servers with settings, underscores for dots, and stops them."""
    started: list[BrokerThread] = []

    def begin(listen: str = "127.0.0.1:0", **settings: object) -> BrokerThread:
        texts = [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]
        texts += [f"listeners=PLAINTEXT://{listen}", f"log.dirs={tmp_path}/data-{len(started)}"]
        thread = BrokerThread(BrokerConfig(read_static(settings=texts)), loop_name=request.param)
        thread.start()
        started.append(thread)
        return thread

    if request.param == "uvloop":
        pytest.importorskip("uvloop")
    yield begin
    for thread in started:
        thread.stop()


@pytest.fixture
def wire(start: Start) -> Iterator[Wire]:
    made = Wire(start().address)
    made.create("t")
    yield made
    made.close()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


@pytest.mark.parametrize("piece", [1, 1000])
def test_a_slow_reader_of_mixed_answers_sees_them_whole_and_in_order(start: Start, piece: int) -> None:
    """Long fetches go by sendfile, short answers by send, and the socket is full at every byte."""
    address = start(socket_send_buffer_bytes=4096).address
    wire = Wire(address, receive_buffer=2048)
    wire.create("t")
    value = os.urandom(30_000)
    rounds = 2 if piece == 1 else 30
    stream = b"".join(
        wire.frame(produce("t", batch(value)), 9)
        + wire.frame(fetch("t", number), 12)
        + wire.frame(ApiVersionsRequest("test", "1"), 3)
        + wire.frame(fetch("t", number, max_bytes=100), 11)
        for number in range(rounds)
    )
    sender = threading.Thread(target=wire.socket.sendall, args=(stream,))
    sender.start()
    for number in range(rounds):
        assert wire.answer(piece).responses[0].partition_responses[0].base_offset == number
        first = wire.answer(piece).responses[0].partitions[0]
        assert (first.error_code, first.high_watermark) == (0, number + 1)
        assert value in bytes(first.records)
        assert wire.answer(piece).api_keys
        assert value in bytes(wire.answer(piece).responses[0].partitions[0].records)
    sender.join()
    wire.close()


def test_a_fetch_waits_and_is_completed_by_another_connection(wire: Wire) -> None:
    other = Wire(wire.socket.getpeername())
    wire.socket.sendall(wire.frame(fetch("t", 0, max_wait_ms=10_000), 12))
    assert not select.select([wire.socket], [], [], 0.05)[0]
    other.ask(produce("t", batch(b"now")), 9)
    assert b"now" in bytes(wire.answer().responses[0].partitions[0].records)
    other.close()


def test_a_fetch_ends_with_its_time(wire: Wire) -> None:
    begun = time.monotonic()
    assert wire.ask(fetch("t", 0, max_wait_ms=100), 12).responses[0].partitions[0].error_code == 0
    assert 0.09 < time.monotonic() - begun < 2.0


NONSENSE = {
    "garbage": os.urandom(1000)[:0] + b"\xde\xad\xbe\xef" * 50,
    "two gibibytes": b"\x7f\xff\xff\xff",
    "tls": bytes.fromhex("16030100c8010000c40303") + b"\0" * 100,
    "http": b"GET / HTTP/1.1\r\nHost: example\r\n\r\n",
    "unknown api": struct.pack(">ihhih", 10, 999, 0, 1, -1),
    "unknown version": struct.pack(">ihhih", 10, 3, 99, 1, -1),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_is_cut_off_and_others_notice_nothing(wire: Wire, name: str, caplog: pytest.LogCaptureFixture) -> None:
    bad = Wire(wire.socket.getpeername())
    bad.socket.sendall(NONSENSE[name])
    assert bad.is_closed
    assert len([record for record in caplog.records if record.getMessage().startswith("connection cut")]) == 1
    assert wire.ask(produce("t", batch(b"x")), 9).responses[0].partition_responses[0].error_code == 0
    bad.close()


def test_half_a_frame_and_silence_is_closed_when_idle(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    address = start(connections_max_idle_ms=300).address
    half, good = Wire(address), Wire(address)
    half.socket.sendall(struct.pack(">i", 1_000_000) + b"half")
    end = time.monotonic() + LIMIT_S
    half.socket.setblocking(False)
    while True:
        assert good.ask(ApiVersionsRequest("test", "1"), 3).error_code == 0
        assert time.monotonic() < end
        try:
            assert half.socket.recv(1) == b""
            break
        except BlockingIOError:
            time.sleep(0.02)
    assert any("idle" in record.getMessage() for record in caplog.records)
    half.close()
    good.close()


def test_connections_are_bounded(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    address = start(max_connections=5).address
    wires = [Wire(address) for _ in range(5)]
    for wire in wires:
        assert wire.ask(ApiVersionsRequest("test", "1"), 3).error_code == 0
    for _ in range(10):
        refused = Wire(address)
        assert refused.is_closed
        refused.close()
    lines = [record.getMessage() for record in caplog.records if "connection refused" in record.getMessage()]
    assert 1 <= len(lines) <= 3, "at most one a second"
    assert "max.connections" in lines[0]
    wires.pop().close()

    def admitted() -> bool:
        wire = Wire(address)
        try:
            return bool(wire.ask(ApiVersionsRequest("test", "1"), 3).api_keys)
        except (AssertionError, ConnectionError):
            return False
        finally:
            wire.close()

    until(admitted)
    for wire in wires:
        wire.close()


def test_connections_of_one_address_are_bounded(start: Start) -> None:
    address = start(max_connections_per_ip=2).address
    first, second = Wire(address), Wire(address)
    assert first.ask(ApiVersionsRequest("test", "1"), 3).error_code == 0
    assert second.ask(ApiVersionsRequest("test", "1"), 3).error_code == 0
    third = Wire(address)
    assert third.is_closed
    for wire in (first, second, third):
        wire.close()
    address = start(max_connections_per_ip=2, max_connections_per_ip_overrides="127.0.0.1:4").address
    wires = [Wire(address) for _ in range(4)]
    assert all(wire.ask(ApiVersionsRequest("test", "1"), 3).error_code == 0 for wire in wires)
    for wire in wires:
        wire.close()


def test_localhost_is_both_families_on_one_port(start: Start) -> None:
    thread = start("localhost:0")
    port = thread.address[1]
    for host in ("127.0.0.1", "::1"):
        try:
            wire = Wire((host, port))
        except OSError:
            if host == "::1" and not _has_ipv6():
                continue
            raise
        (broker,) = wire.ask(MetadataRequest([]), 9).brokers
        assert (broker.host, broker.port) == (host, port), "each client is told what it connected to"
        wire.close()


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def test_an_advertised_address_is_what_all_are_told(start: Start) -> None:
    thread = start(advertised_listeners="PLAINTEXT://broker.example:19092")
    wire = Wire(thread.address)
    (broker,) = wire.ask(MetadataRequest([]), 9).brokers
    assert (broker.host, broker.port) == ("broker.example", 19092)
    wire.close()


def test_bound_to_every_interface_the_address_connected_to_is_told(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    wire = Wire(start("0.0.0.0:0").address)
    (broker,) = wire.ask(MetadataRequest([]), 9).brokers
    assert (broker.host, broker.port) == wire.socket.getpeername()
    assert any("advertised address" in record.getMessage() for record in caplog.records)
    wire.close()


def test_a_taken_port_is_told_at_start(start: Start) -> None:
    thread = start()
    with pytest.raises(OSError, match="in use"):
        start(f"127.0.0.1:{thread.address[1]}")


def test_stopping_finishes_what_is_in_flight(start: Start) -> None:
    thread = start()
    waiting, idle, good = Wire(thread.address), Wire(thread.address), Wire(thread.address)
    good.create("t")
    assert good.ask(produce("t", batch(b"kept")), 9).responses[0].partition_responses[0].error_code == 0
    waiting.socket.sendall(waiting.frame(fetch("t", 1, max_wait_ms=60_000), 12))
    assert not select.select([waiting.socket], [], [], 0.05)[0]
    begun = time.monotonic()
    thread.stop()
    assert time.monotonic() - begun < 5.0
    assert waiting.answer().responses[0].partitions[0].error_code == 0
    for wire in (waiting, idle, good):
        assert wire.is_closed
        wire.close()
    with pytest.raises(OSError, match="refused"):
        Wire(thread.address)


def test_a_client_that_does_not_take_its_answer_cannot_hold_up_a_stop(start: Start) -> None:
    thread = start(shutdown_timeout_ms=300, socket_send_buffer_bytes=4096)
    wire = Wire(thread.address, receive_buffer=2048)
    wire.create("t")
    for _ in range(20):
        wire.ask(produce("t", batch(b"x" * 500_000)), 9)
    wire.socket.sendall(wire.frame(fetch("t", 0, max_bytes=1 << 24), 12))
    assert select.select([wire.socket], [], [], LIMIT_S)[0]
    begun = time.monotonic()
    thread.stop()
    assert time.monotonic() - begun < 5.0
    wire.close()


def test_many_that_never_read_are_cut_soon_after_a_stop_began(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """The limit of the stop, a minute here, is for those that take what they get."""
    never, asked = 293, 100
    thread = start(shutdown_timeout_ms=60_000, socket_send_buffer_bytes=4096, max_connections=never + 10)
    reader = Wire(thread.address, receive_buffer=2048)
    reader.create("t")
    wires = [Wire(thread.address, receive_buffer=2048) for _ in range(never)]
    for wire in wires:
        wire.socket.sendall(b"".join(wire.frame(DescribeConfigsRequest([DescribeConfigsResource(2, "t", None)]), 4) for _ in range(asked)))
    reader.ask(ApiVersionsRequest(), 3)
    begun = time.monotonic()
    thread.stop()
    assert time.monotonic() - begun < 20
    assert any("the peer does not read" in record.getMessage() for record in caplog.records)
    for wire in (reader, *wires):
        wire.close()


def test_what_was_acknowledged_is_there_after_a_restart(start: Start, tmp_path: Path) -> None:
    thread = start()
    wire = Wire(thread.address)
    wire.create("t")
    for number in range(10):
        assert wire.ask(produce("t", batch(b"%d" % number)), 9).responses[0].partition_responses[0].base_offset == number
    thread.stop()
    assert (tmp_path / "data-0" / ".kafka_cleanshutdown").exists()
    wire.close()
    again = BrokerThread(BrokerConfig(read_static(settings=["listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={tmp_path}/data-0"])))
    again.start()
    wire = Wire(again.address)
    fetched = wire.ask(fetch("t", 0), 12).responses[0].partitions[0]
    assert fetched.high_watermark == 10
    assert wire.ask(produce("t", batch(b"next")), 9).responses[0].partition_responses[0].base_offset == 10
    wire.close()
    again.stop()
