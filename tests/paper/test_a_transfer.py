"""Efficient transfer, P 3.1: pulls, the page cache, `sendfile`; and the consumer's freedom to go back, P 3.1."""

import ctypes
import mmap
from pathlib import Path

import confluent_kafka
import pytest

from moldau.adapters import outgoing
from moldau.adapters.posix_files import PosixFile
from moldau.client.connection import BrokerConnection
from moldau.client.partition_requests import EARLIEST, LATEST
from moldau.testing.broker import Broker
from support.paper import (
    FIRST_MS,
    LIMIT_S,
    consumer_for,
    look_up,
    message_set,
    note_fetches,
    publish,
    pull,
    receive,
    segment_files,
    send,
    take,
    values_in,
    wait_until,
)
from support.server import ServerProcess
from support.wire import Wire, fetch, produce


def test_a07_a_pull_names_an_offset_and_an_acceptable_number_of_bytes(broker: Broker, topic: str, connection: BrokerConnection) -> None:
    """Each pull request contains the offset from which consumption begins and an acceptable number of bytes to fetch. P 3.1."""
    messages = message_set([b"x" * 10_000])
    for _ in range(50):
        publish(connection, topic, messages)
    brought = pull(broker, topic, 7, 200_000)
    assert 200_000 - len(messages) < len(brought) <= 200_000
    assert len(values_in(brought)) == 19
    assert pull(broker, topic, 7, 200_000)[:8] == (7).to_bytes(8, "big"), "the first byte is that of message 7"
    assert len(pull(broker, topic, 7, 1)) == len(messages), "never less than one message, however large: a consumer must not be stuck"


def test_a07_a_consumer_prefetches_hundreds_of_kilobytes_while_the_application_works(
    broker: Broker, topic: str, connection: BrokerConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The consumer has a buffer of data ready by asynchronous pull requests, typically of hundreds of kilobytes each. P 3.1."""
    for _ in range(4):
        publish(connection, topic, message_set([b"x" * 5_000] * 100))
    pulls = note_fetches(monkeypatch, broker, topic)
    consumer = consumer_for(broker, fetch_message_max_bytes=300_000)
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        take(consumer, 1)
        wait_until(lambda: any(offset == 400 for offset, _ in pulls), "it pulls everything, while one message was taken")
        take(consumer, 399)
    finally:
        consumer.close()
    offsets = sorted({offset for offset, _ in pulls})
    assert offsets[0] == 0
    assert 4 <= len(offsets) <= 12, "about 2 MB, 300 KB at a time"
    assert {size for _, size in pulls} == {300_000}


def share_in_page_cache(path: Path) -> float:
    """How much of a file is in memory, as the kernel says (mincore)."""
    size = path.stat().st_size
    pages = -(-size // mmap.PAGESIZE)
    present = (ctypes.c_ubyte * pages)()
    with path.open("rb") as file, mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY) as mapped:
        start = ctypes.c_char.from_buffer(mapped)
        result = ctypes.CDLL(None, use_errno=True).mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(size), present)
        del start
    assert result == 0
    return sum(each & 1 for each in present) / pages


@pytest.mark.system
def test_a08_the_page_cache_is_the_only_cache_and_outlives_the_process(tmp_path: Path) -> None:
    """Messages are not cached in the process; the file system's page cache does it, and stays warm when the broker restarts. P 3.1."""
    stored = 0
    with ServerProcess(tmp_path / "data") as server:
        host, _, port = server.bootstrap.rpartition(":")
        wire = Wire((host, int(port)))
        wire.create("a08")
        messages = message_set([b"x" * 1000] * 900)
        before = server.peak_bytes(forget=True)
        for _ in range(60):
            wire.ask(produce("a08", messages), 9)
            stored += len(messages)
        position = 0
        while position < 60 * 900:
            (answer,) = wire.ask(fetch("a08", position), 12).responses[0].partitions
            position += 900 * (len(answer.records) // len(messages))
        grown = server.peak_bytes() - before
        print(f"{stored / 1e6:.1f} MB in and out, {grown / 1e6:.1f} MB grown")
        assert grown < stored / 10, f"{stored} bytes went in and out"
        wire.close()
        server.stop()
        (segment,) = segment_files(tmp_path / "data", "a08")
        assert segment.stat().st_size == stored
        assert share_in_page_cache(segment) > 0.9, "the process is gone, its cache is not"
        server.start()
        wire = Wire((host, int(port)))
        (answer,) = wire.ask(fetch("a08", 0), 12).responses[0].partitions
        assert bytes(answer.records[61:]) == messages[61:]
        wire.close()


def test_a09_what_is_sent_goes_from_the_file_to_the_socket_without_passing_through_the_process(
    broker: Broker, topic: str, connection: BrokerConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker sends bytes from a segment file to the socket by `sendfile`, which saves copies and system calls. P 3.1.

    Of what a consumer gets, the bytes of the segment come by `sendfile`, and the process reads next to nothing of the file: the last few
    kilobytes at most, where the socket took all but them.
    """
    messages = message_set([b"x" * 1000] * 100)
    for _ in range(10):
        publish(connection, topic, messages)
    sent: list[int] = []
    read: list[int] = []
    sendfile, pread = outgoing._sendfile, PosixFile.pread
    if sendfile is None:
        pytest.skip("this system has no sendfile")

    def counted_sendfile(target: int, source: int, offset: int, count: int) -> int:
        sent.append(sendfile(target, source, offset, count))
        return sent[-1]

    def counted_pread(file: PosixFile, length: int, position: int) -> bytes:
        data = pread(file, length, position)
        if topic in file.path:
            read.append(len(data))
        return data

    monkeypatch.setattr(outgoing, "_sendfile", counted_sendfile)
    monkeypatch.setattr(PosixFile, "pread", counted_pread)
    brought = pull(broker, topic, 0, 10 << 20)
    assert values_in(brought) == [b"x" * 1000] * 1000
    assert len(brought) > 1_000_000
    rest = len(brought) - sum(sent)
    assert 0 <= rest <= outgoing.PREAD_MAX
    assert rest <= sum(read) < rest + 1000


def test_a12_a_consumer_may_rewind(broker: Broker, topic: str) -> None:
    """A consumer can deliberately rewind to an old offset and consume again. P 3.1. The broker keeps no mark that would stop it."""
    send(broker, topic, [b"%d" % number for number in range(10)])
    consumer = consumer_for(broker)
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        assert [message.offset() for message in take(consumer, 10)] == list(range(10))
        consumer.seek(confluent_kafka.TopicPartition(topic, 0, 4))
        assert [message.value() for message in take(consumer, 6)] == [b"4", b"5", b"6", b"7", b"8", b"9"]
    finally:
        consumer.close()


def test_a12_offsets_are_looked_up_smallest_largest_and_by_time(broker: Broker, topic: str, connection: BrokerConnection) -> None:
    """A consumer may start at the smallest or the largest offset (P 3.1), or at that of a time (N)."""
    for hour in range(5):
        publish(connection, topic, message_set([b"on the hour", b"as well"], FIRST_MS + hour * 3_600_000))
    assert look_up(broker, topic, EARLIEST) == 0
    assert look_up(broker, topic, LATEST) == 10
    assert look_up(broker, topic, FIRST_MS + 2 * 3_600_000) == 4
    assert look_up(broker, topic, FIRST_MS + 2 * 3_600_000 + 1) == 6
    assert look_up(broker, topic, FIRST_MS + 5 * 3_600_000) == -1, "nothing is that young"
    consumer = consumer_for(broker)
    try:
        partition = confluent_kafka.TopicPartition(topic, 0)
        assert consumer.get_watermark_offsets(partition, LIMIT_S) == (0, 10)
        (found,) = consumer.offsets_for_times([confluent_kafka.TopicPartition(topic, 0, FIRST_MS + 3_600_000)], LIMIT_S)
        assert found.offset == 2
    finally:
        consumer.close()
    assert receive(broker, topic, 1, offset=4)[0].timestamp()[1] == FIRST_MS + 2 * 3_600_000
