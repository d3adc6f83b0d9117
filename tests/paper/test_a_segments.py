"""The log and its storage, P 3.1: what a partition is on disk, when its messages are on disk, how they are found, how they go."""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from moldau.adapters.posix_files import PosixFile
from moldau.client.admin import Admin, AdminResource, AdminResourceType, ConfigUpdate
from moldau.client.cluster import Cluster
from moldau.client.connection import BrokerConnection
from moldau.client.partition_requests import EARLIEST, LATEST
from moldau.model.errors import ErrorCode
from moldau.testing.broker import Broker
from support.crash import copy_as_after_a_crash
from support.paper import (
    FIRST_MS,
    LIMIT_S,
    Published,
    connect,
    first_offsets,
    look_up,
    message_set,
    producer_in_large_batches,
    publish,
    pull,
    receive,
    segment_files,
    send,
    values_in,
    wait_until,
)

SMALL_SEGMENTS = {"index.interval.bytes": 0, "segment.index.bytes": 24}
"""An index of two entries is full after a few batches, and the log goes on in a new segment."""


def default_of(broker: Broker, topic: str, name: str) -> str | None:
    with Cluster(broker.bootstrap_servers) as cluster:
        entries = Admin(cluster).describe_configs(AdminResource(AdminResourceType.TOPIC, topic))
    return next(entry.value for entry in entries if entry.name == name)


def test_a03_segments_of_about_equal_size_and_publishing_appends_to_the_last(broker: Broker, connection: BrokerConnection) -> None:
    """A partition is a log in segment files of about the same size (1 GB unless set); a publish appends to the last one. P 3.1."""
    segment_bytes, set_bytes = 1 << 20, 100_000
    topic = broker.create_topic("a03", config={"segment.bytes": segment_bytes})
    messages = message_set([b"x" * (set_bytes - 100)])
    for _ in range(45):
        publish(connection, topic, messages)
    *closed, last = segment_files(broker.directory, topic)
    assert len(closed) == 4
    assert all(segment_bytes - set_bytes < each.stat().st_size <= segment_bytes for each in closed)
    before = [each.stat().st_size for each in (*closed, last)]
    publish(connection, topic, message_set([b"one more"]))
    after = [each.stat().st_size for each in segment_files(broker.directory, topic)]
    assert after[:-1] == before[:-1]
    assert after[-1] == before[-1] + len(message_set([b"one more"]))
    assert default_of(broker, broker.create_topic("a03-default"), "segment.bytes") == str(1 << 30)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that the broker brings to disk, in order."""
    paths: list[str] = []
    sync = PosixFile.sync

    def noted(file: PosixFile) -> None:
        sync(file)
        paths.append(file.path)

    monkeypatch.setattr(PosixFile, "sync", noted)
    return paths


def test_a04_flushed_after_so_many_messages_and_shown_only_then(broker: Broker, connection: BrokerConnection, synced: list[str]) -> None:
    """Segments are flushed after a number of messages; a message is exposed to consumers only after it is flushed. P 3.1.

    `flush.messages` is the number; the rule of 2011 is `visibility=flushed`.
    """
    topic = broker.create_topic("a04-count", config={"flush.messages": 3, "visibility": "flushed"})
    (segment,) = segment_files(broker.directory, topic)
    assert publish(connection, topic, message_set([b"first", b"second"])) == Published(0, 0)
    assert (pull(broker, topic, 0), synced.count(str(segment))) == (b"", 0)
    assert publish(connection, topic, message_set([b"third"])) == Published(0, 2)
    assert synced.count(str(segment)) == 1
    assert values_in(pull(broker, topic, 0)) == [b"first", b"second", b"third"]


def test_a04_flushed_after_some_time(broker: Broker, connection: BrokerConnection, synced: list[str]) -> None:
    """The same by time: `flush.ms`. A consumer that waits gets the message when it is on disk."""
    topic = broker.create_topic("a04-time", config={"flush.ms": 20, "visibility": "flushed"})
    publish(connection, topic, message_set([b"patience"]))
    assert values_in(pull(broker, topic, 0, wait_ms=20_000)) == [b"patience"]
    assert str(segment_files(broker.directory, topic)[0]) in synced


def test_a04_by_default_shown_once_all_in_sync_replicas_have_it(broker: Broker, connection: BrokerConnection, synced: list[str]) -> None:
    """With replication a message is exposed when all in-sync replicas have it (R 2), flushed or not. That is the default.

    One broker is all in-sync replicas.
    """
    topic = broker.create_topic("a04-default")
    assert publish(connection, topic, message_set([b"at once"]), acks=-1).error == 0
    assert values_in(pull(broker, topic, 0)) == [b"at once"]
    assert not [path for path in synced if f"/{topic}-0/" in path]


class CountingOffset(int):
    """An offset that counts how often it is compared."""

    comparisons = 0

    def __lt__(self, other: int) -> bool:
        self.comparisons += 1
        return int(self) < other


def test_a06_segment_found_by_binary_search_in_a_sorted_list_of_first_offsets(
    broker: Broker, connection: BrokerConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker keeps a sorted list of offsets in memory, the first of every segment, and finds the segment by searching it. P 3.1."""
    topic = broker.create_topic("a06", config=SMALL_SEGMENTS)
    firsts: list[int] = []
    for number in count():
        publish(connection, topic, message_set([b"%d" % number, b"and"]))
        firsts = first_offsets(segment_files(broker.directory, topic))
        if number >= 150 and len(firsts) > 50:  # a hundred a second are begun before they are full
            break
    searches: list[tuple[list[int], int, int]] = []

    def search(bases: list[int], offset: int) -> int:
        counting = CountingOffset(offset)
        found = bisect_right(bases, counting)
        searches.append((list(bases), offset, counting.comparisons))
        return found

    monkeypatch.setattr("moldau.log.segments.bisect_right", search)
    for offset in (1, 77, 149, 201, 299):
        searches.clear()
        assert values_in(pull(broker, topic, offset, 1)) == [b"%d" % (offset // 2), b"and"]
        bases, _, comparisons = next(each for each in searches if each[1] == offset)
        assert bases == firsts
        assert comparisons <= len(firsts).bit_length(), "a walk over the list would take up to 75"


@pytest.fixture(scope="module")
def tidy() -> Iterator[Broker]:
    """A broker that looks for what to delete all the time."""
    with Broker(settings={"log.retention.check.interval.ms": 20}) as running:
        yield running


def alter(broker: Broker, topic: str, name: str, value: int) -> None:
    with Cluster(broker.bootstrap_servers) as cluster:
        Admin(cluster).alter_configs(AdminResource(AdminResourceType.TOPIC, topic), ConfigUpdate({name: str(value)}))


def test_a11_retention_by_time(tidy: Broker) -> None:
    """A message is deleted when it has been kept for a time, 7 days unless set. P 3.1. Whole segments go, by their newest message."""
    week_ms = 7 * 24 * 3600 * 1000
    topic = tidy.create_topic("a11-time", config={**SMALL_SEGMENTS, "retention.ms": -1})
    with connect(tidy) as connection:
        for number in range(20):
            publish(connection, topic, message_set([b"2011"], FIRST_MS + number))
    send(tidy, topic, [b"today"] * 3)
    old = [each for each in segment_files(tidy.directory, topic) if b"today" not in each.read_bytes()]
    assert len(old) > 5
    assert look_up(tidy, topic, EARLIEST) == 0
    alter(tidy, topic, "retention.ms", week_ms)
    wait_until(lambda: look_up(tidy, topic, EARLIEST) >= 18, "what is older than a week goes")
    assert not set(old) & set(segment_files(tidy.directory, topic))
    assert [message.value() for message in receive(tidy, topic, 3, offset=20)] == [b"today"] * 3
    assert default_of(tidy, tidy.create_topic("a11-default"), "retention.ms") == str(week_ms)


def test_a11_retention_by_size(tidy: Broker) -> None:
    """The oldest messages are deleted when the partition outgrows a size. S."""
    topic = tidy.create_topic("a11-size", config=SMALL_SEGMENTS)
    for number in range(60):
        send(tidy, topic, [b"%d" % number * 500])
    sizes = [each.stat().st_size for each in segment_files(tidy.directory, topic)]
    keep = sum(sizes) // 3
    alter(tidy, topic, "retention.bytes", keep)
    wait_until(lambda: look_up(tidy, topic, EARLIEST) > 0, "the oldest go")
    left = sum(each.stat().st_size for each in segment_files(tidy.directory, topic))
    assert keep <= left < keep + max(sizes), "whole segments go, as long as what is left is enough"
    assert receive(tidy, topic, 1, offset=59)[0].value() == b"59" * 500


def test_a13_a_message_damaged_on_its_way_is_refused(broker: Broker, topic: str, connection: BrokerConnection) -> None:
    """A CRC with every message, today with every batch, also checks for errors of the network. P 3.1."""
    messages = bytearray(message_set([b"as it was sent"]))
    messages[-3] ^= 1
    assert publish(connection, topic, bytes(messages)) == Published(ErrorCode.CORRUPT_MESSAGE, -1)
    messages[-3] ^= 1
    assert publish(connection, topic, bytes(messages)) == Published(0, 0)


def test_a13_recovery_removes_what_does_not_match(broker: Broker, topic: str, connection: BrokerConnection, tmp_path: Path) -> None:
    """After a crash, recovery removes from the log the messages whose CRC does not match. P 3.1."""
    for value in (b"whole", b"whole too", b"damaged"):
        publish(connection, topic, message_set([value]))
    crashed = copy_as_after_a_crash(broker.directory, tmp_path / "crashed")
    (segment,) = segment_files(crashed, topic)
    content = bytearray(segment.read_bytes())
    content[-3] ^= 1
    segment.write_bytes(content)
    with Broker(directory=crashed) as recovered:
        assert values_in(pull(recovered, topic, 0)) == [b"whole", b"whole too"]
        assert look_up(recovered, topic, LATEST) == 2
        assert segment.stat().st_size == len(message_set([b"whole"])) + len(message_set([b"whole too"]))
        assert [message.offset() for message in send(recovered, topic, [b"next"])] == [2]
    assert values_in(pull(broker, topic, 0)) == [b"whole", b"whole too", b"damaged"], "the copy alone was damaged"


def test_a14_storage_overhead_of_about_nine_bytes_a_message(broker: Broker, topic: str) -> None:
    """A message of 200 bytes takes about 9 bytes more on disk. P 5, where a header of that size goes with each message.

    In the current format a message in a large batch takes 10, the batch's own header included.
    """
    count = 20_000
    producer = producer_in_large_batches(broker, topic, batch_size=1_000_000)
    for _ in range(count):
        producer.produce(topic, b"x" * 200, partition=0, timestamp=FIRST_MS)
    assert producer.flush(LIMIT_S) == 0
    stored = sum(each.stat().st_size for each in segment_files(broker.directory, topic))
    assert 9 <= (stored - 200 * count) / count <= 10.1
