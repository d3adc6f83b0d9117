"""Fills a real Kafka with a bit of everything that its log directories can hold, and says what it holds."""

import time
from dataclasses import dataclass

from confluent_kafka import Consumer, Message, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SEGMENT_BYTES = 1_048_576  # the least that Kafka 4 takes
LIMIT_S = 60.0


@dataclass(frozen=True)
class Seen:
    """A record as a client sees it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass
class Contents:
    """What a Kafka holds: ids by topic, and records by topic and partition."""

    topic_ids: dict[str, bytes]
    records: dict[tuple[str, int], list[Seen]]


TOPICS = {
    "codecs": (len(CODECS), {}),
    "rolled": (1, {"segment.bytes": str(SEGMENT_BYTES)}),
    "stamped": (1, {"message.timestamp.type": "LogAppendTime"}),
    "transactions": (1, {}),
    "compacted": (
        1,
        {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01", "max.compaction.lag.ms": "1000"},
    ),
    "empty-topic.with_long.name": (2, {}),
}


def fill(bootstrap: str) -> Contents:
    """Create topics and write to them; returns once everything is there."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(name, count, 1, config=config) for name, (count, config) in TOPICS.items()]).values():
        created.result(LIMIT_S)
    for partition, codec in enumerate(CODECS):
        _produce(bootstrap, "codecs", 50, partition, {"compression.type": codec})
    _produce(bootstrap, "rolled", 1600, 0, {"enable.idempotence": True}, size=2000)
    _produce(bootstrap, "stamped", 50, 0, {})
    _transact(bootstrap)
    _compact(bootstrap)
    _commit(bootstrap)
    return Contents(
        topic_ids(admin),
        {(topic, partition): read(bootstrap, topic, partition) for topic, (count, _) in TOPICS.items() for partition in range(count)},
    )


def topic_ids(admin: AdminClient) -> dict[str, bytes]:
    """The ids of all topics, internal ones too."""
    found = admin.describe_topics(TopicCollection(list(admin.list_topics(timeout=LIMIT_S).topics)))
    ids: dict[str, bytes] = {}
    for name, future in found.items():
        topic_id = future.result(LIMIT_S).topic_id
        high, low = topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits()
        ids[name] = (high % 2**64).to_bytes(8, "big") + (low % 2**64).to_bytes(8, "big")
    return ids


def _produce(
    bootstrap: str, topic: str, count: int, partition: int, settings: dict[str, object], *, size: int = 20, keys: int = 1000
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.num.messages": 20, **settings})
    _send(producer, topic, count, partition, size, keys)
    assert producer.flush(LIMIT_S) == 0


def _send(producer: Producer, topic: str, count: int, partition: int = 0, size: int = 20, keys: int = 1000) -> None:
    for number in range(count):
        value = b"%d " % number + b"x" * (size * (1 + number % 2) // 2)
        headers: list[tuple[str, str | bytes | None]] = [("number", b"%d" % number), ("nothing", None)] if number % 5 == 0 else []
        producer.produce(topic, value, b"key-%d" % (number % keys), partition, headers=headers)
        producer.poll(0)


def _transact(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "filler", "linger.ms": 5})
    producer.init_transactions(LIMIT_S)
    for end in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        _send(producer, "transactions", 30)
        end(LIMIT_S)


def _compact(bootstrap: str) -> None:
    """Write few keys again and again until the cleaner has made holes."""
    deadline = time.monotonic() + LIMIT_S
    written = 0
    while True:
        _produce(bootstrap, "compacted", 100, 0, {}, keys=7)
        written += 100
        if len(read(bootstrap, "compacted", 0)) < written - 100:
            return
        assert time.monotonic() < deadline, "the cleaner did not clean"
        time.sleep(1.1)  # segment.ms: the next record rolls the segment, only then it can be cleaned


def _commit(bootstrap: str) -> None:
    """Have a group's offsets committed, so that there is the topic for them."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "filler", "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("codecs", 0, 5)], asynchronous=False)
    consumer.close()


def read(bootstrap: str, topic: str, partition: int) -> list[Seen]:
    """All records of a partition, those of aborted transactions too."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({**settings, "isolation.level": "read_uncommitted", "auto.offset.reset": "earliest", "check.crcs": True})
    consumer.assign([TopicPartition(topic, partition, 0)])
    seen: list[Seen] = []
    deadline = time.monotonic() + LIMIT_S
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                assert error.code() == -191, error  # the end of the partition
                return seen
            seen.append(_seen(message))
    finally:
        consumer.close()
    raise AssertionError(f"{topic}-{partition}: no end after {LIMIT_S} s")


def _seen(message: Message) -> Seen:
    headers: list[tuple[str, bytes | None]] = []
    for name, value in list(message.headers() or []):
        assert isinstance(name, str)
        assert not isinstance(value, str)
        headers.append((name, value))
    offset, key, value = message.offset(), message.key(), message.value()
    assert offset is not None
    assert not isinstance(key, str)
    assert not isinstance(value, str)
    return Seen(offset, message.timestamp()[1], key, value, tuple(headers))
