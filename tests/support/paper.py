"""Short words for the dialogues of ``tests/paper``: send and receive as an application does, publish and pull with the bytes in sight."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
import pytest

from moldau.broker.handlers.fetch.handler import FetchHandler
from moldau.client.cluster import Cluster
from moldau.client.connection import BrokerConnection
from moldau.client.partition_requests import EARLIEST, LATEST, FetchLimits
from moldau.model.identity import TopicPartition
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.fast.fetch import decode_fetch
from moldau.protocol.headers import decode_request_header
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.records.batch import RecordBatchBuilder, batches, iterate, iterate_log
from moldau.testing.broker import Broker

LIMIT_S = 20.0
FIRST_MS = 1_300_000_000_000
"""A time in March 2011, for messages that carry one of their own."""


class Published(NamedTuple):
    """What the broker answered for one partition."""

    error: int
    offset: int


# As an application does: confluent-kafka


def send(broker: Broker, topic: str, values: Iterable[bytes], *, partition: int = 0, **settings: Any) -> list[Any]:
    """Send values to a partition and wait; the delivered messages in the order of their reports. Settings with underscores for dots."""
    delivered: list[Any] = []

    def on_delivery(error: object, message: Any) -> None:
        assert error is None, error
        delivered.append(message)

    producer = producer_for(broker, **settings)
    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=on_delivery)
    assert producer.flush(LIMIT_S) == 0
    return delivered


def producer_for(broker: Broker, **settings: Any) -> Any:
    """A producer with these settings, underscores for dots."""
    return confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, **_dotted(settings)})


def producer_in_large_batches(broker: Broker, topic: str, **settings: Any) -> Any:
    """A producer whose batches end where they are full, or at a flush, however slow the machine is.

    It knows the topic: what is produced before is moved to the partition one by one, and a flush sends what has been moved by then.
    """
    producer = producer_for(broker, linger_ms=int(1000 * LIMIT_S), **settings)
    assert topic in producer.list_topics(topic, LIMIT_S).topics
    return producer


def consumer_for(broker: Broker, **settings: Any) -> Any:
    """A consumer, to be assigned partitions and closed."""
    own = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "unused", "enable.auto.commit": False, "fetch.wait.max.ms": 20}
    return confluent_kafka.Consumer({**own, **_dotted(settings)})


def receive(broker: Broker, topic: str, count: int, *, partition: int = 0, offset: int = 0) -> list[Any]:
    """So many messages of a partition from an offset on."""
    consumer = consumer_for(broker)
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, offset)])
        return take(consumer, count)
    finally:
        consumer.close()


def take(consumer: Any, count: int) -> list[Any]:
    """The next messages of a consumer."""
    found: list[Any] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), LIMIT_S)
        assert messages, f"nothing more after {len(found)} of {count}"
        for message in messages:
            assert message.error() is None, message.error()
        found += messages
    return found


def _dotted(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in settings.items()}


# With the bytes in sight: our own connection


def connect(broker: Broker) -> BrokerConnection:
    """One connection, for requests made by hand."""
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return BrokerConnection(host, int(port))


def message_set(values: Iterable[bytes], timestamp_ms: int = FIRST_MS, **producer: Any) -> bytes:
    """A batch of messages that all have this time; an idempotent producer also says its id, epoch and sequence."""
    builder = RecordBatchBuilder(**producer)
    for value in values:
        builder.append(timestamp_ms, None, value)
    return builder.build()


def publish_sets(connection: BrokerConnection, topic: str, sets: Mapping[int, bytes], acks: int = 1) -> dict[int, Published]:
    """One request with a set for each of these partitions; what was answered for each."""
    data = [PartitionProduceData(partition, records) for partition, records in sets.items()]
    request = ProduceRequest(None, acks, 30_000, [TopicProduceData(topic, partition_data=data)])
    (answer,) = connection.request(ApiKey.PRODUCE, request, version=9).responses
    return {each.index: Published(each.error_code, each.base_offset) for each in answer.partition_responses}


def publish(connection: BrokerConnection, topic: str, records: bytes, acks: int = 1) -> Published:
    """One set for partition 0."""
    return publish_sets(connection, topic, {0: records}, acks)[0]


def pull(broker: Broker, topic: str, offset: int, max_bytes: int = 1 << 20, *, partition: int = 0, wait_ms: int = 0) -> bytes:
    """The bytes that one fetch brings."""
    limits = FetchLimits(max_wait_ms=wait_ms, partition_max_bytes=max_bytes)
    with Cluster(broker.bootstrap_servers) as cluster:
        return bytes(cluster.fetch(topic, partition, offset, limits).records)


def note_fetches(monkeypatch: pytest.MonkeyPatch, broker: Broker, topic: str) -> list[tuple[int, int]]:
    """Offset and most bytes of each fetch of a topic, which the broker, in this process, handles from now on."""
    noted: list[tuple[int, int]] = []
    with Cluster(broker.bootstrap_servers) as cluster:
        names = {topic.encode(), cluster.topic(topic).id}

    usual = FetchHandler.handle

    def handle(handler: FetchHandler, source: Any, frame: memoryview, version: int, *rest: Any) -> Any:
        for name, partitions in decode_fetch(frame, decode_request_header(frame).body_position, version).topics:
            noted.extend((each.fetch_offset, each.max_bytes) for each in partitions if bytes(name) in names)
        return usual(handler, source, frame, version, *rest)

    monkeypatch.setattr(FetchHandler, "handle", handle)
    return noted


def values_in(records: bytes) -> list[bytes | None]:
    """The payloads in what a fetch brought."""
    return [record.value for record in iterate_log(memoryview(records), max_decompressed_bytes=1 << 24)]


def read_through(broker: Broker, topic: str) -> Iterator[tuple[int, tuple[bytes | None, bytes | None]]]:
    """Offset, key and value of every record, by one connection's way through the whole partition in small fetches.

    The way ends where the log does by then: what compaction takes out before the reader comes by has its newer value there.
    """
    where, limits = TopicPartition(topic, 0), FetchLimits(max_wait_ms=0, partition_max_bytes=2000)
    with Cluster(broker.bootstrap_servers) as cluster:
        offset: int = cluster.list_offsets({where: EARLIEST})[where].offset
        while offset < cluster.list_offsets({where: LATEST})[where].offset:
            asked = offset
            for header, batch in batches(cluster.fetch(topic, 0, asked, limits).records):
                offset = max(offset, header.last_offset + 1)
                for record in iterate(batch, max_decompressed_bytes=1 << 20):
                    if record.offset >= asked:
                        yield record.offset, (record.key, record.value)


def look_up(broker: Broker, topic: str, timestamp: int, partition: int = 0) -> int:
    """The offset at a time, or EARLIEST, or LATEST."""
    with Cluster(broker.bootstrap_servers) as cluster:
        where = TopicPartition(topic, partition)
        return cluster.list_offsets({where: timestamp})[where].offset


# On disk


def segment_files(directory: Path, topic: str, partition: int = 0) -> list[Path]:
    """The segments of a partition, oldest first."""
    return sorted((directory / f"{topic}-{partition}").glob("*.log"))


def first_offsets(segments: Sequence[Path]) -> list[int]:
    """The first offset in each segment, which is its name."""
    return [int(each.stem) for each in segments]


def wait_until(condition: Callable[[], bool], what: object, limit_s: float = LIMIT_S, pause_s: float = 0.005) -> None:
    """Wait for something that others do by themselves; it is asked for after each pause."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {limit_s} s: {what}"
        time.sleep(pause_s)
