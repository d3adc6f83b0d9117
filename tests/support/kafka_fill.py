"""Fills a real Kafka with a bit of everything that its log directories can hold, and says what it holds."""

import time
from collections.abc import Iterable
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


Committed = dict[tuple[str, int], tuple[int, str]]
"""Offset and metadata by topic and partition."""


@dataclass
class Contents:
    """What a Kafka holds: ids by topic, records by topic and partition, what groups have committed."""

    topic_ids: dict[str, bytes]
    records: dict[tuple[str, int], list[Seen]]
    groups: dict[str, Committed]


TOPICS = {
    "codecs": (len(CODECS), {}),
    "rolled": (1, {"segment.bytes": str(SEGMENT_BYTES)}),
    "stamped": (1, {"message.timestamp.type": "LogAppendTime"}),
    "transactions": (1, {}),
    "hanging": (1, {}),
    "compacted": (
        1,
        {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01", "max.compaction.lag.ms": "1000"},
    ),
    "empty-topic.with_long.name": (2, {}),
}


def fill(bootstrap: str, *, newer_groups: bool) -> Contents:
    """Create topics and write to them; returns once everything is there. `newer_groups`: of the protocol of KIP-848 too."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(name, count, 1, config=config) for name, (count, config) in TOPICS.items()]).values():
        created.result(LIMIT_S)
    for partition, codec in enumerate(CODECS):
        _produce(bootstrap, "codecs", 50, partition, {"compression.type": codec})
    _produce(bootstrap, "rolled", 1600, 0, {"enable.idempotence": True}, size=2000)
    _produce(bootstrap, "stamped", 50, 0, {})
    _transact(bootstrap)
    _compact(bootstrap)
    groups = _commit(bootstrap, newer_groups=newer_groups)
    return Contents(
        topic_ids(admin),
        {(topic, partition): read(bootstrap, topic, partition) for topic, (count, _) in TOPICS.items() for partition in range(count)},
        groups,
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
        assert producer.flush(LIMIT_S) == 0  # else an abort would take back what was not sent yet
        end(LIMIT_S)
    hanging = Producer({"bootstrap.servers": bootstrap, "transactional.id": "hanging", "transaction.timeout.ms": 900_000})
    hanging.init_transactions(LIMIT_S)
    hanging.begin_transaction()
    _send(hanging, "hanging", 5)
    assert hanging.flush(LIMIT_S) == 0


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


def _commit(bootstrap: str, *, newer_groups: bool) -> dict[str, Committed]:
    """Have groups of every kind commit."""
    simple = Consumer({"bootstrap.servers": bootstrap, "group.id": "filler", "enable.auto.commit": False})
    offsets = [TopicPartition("codecs", index, 5 + index, f"where {index}") for index in range(3)]
    simple.commit(offsets=offsets, asynchronous=False)
    _commit_as_member(bootstrap, "members", {})
    if newer_groups:
        _commit_as_member(bootstrap, "newer", {"group.protocol": "consumer"})
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "committer"})
    producer.init_transactions(LIMIT_S)
    for end, offset in ((producer.commit_transaction, 7), (producer.abort_transaction, 8)):
        producer.begin_transaction()
        producer.send_offsets_to_transaction([TopicPartition("rolled", 0, offset)], simple.consumer_group_metadata(), LIMIT_S)
        end(LIMIT_S)
    simple.close()
    committed: Committed = {("codecs", index): (5 + index, f"where {index}") for index in range(3)}
    member: Committed = {("codecs", 0): (9, "")}
    groups = {"filler": {**committed, ("rolled", 0): (7, "")}, "members": member}
    return {**groups, "newer": member} if newer_groups else groups


def _commit_as_member(bootstrap: str, group: str, settings: dict[str, str]) -> None:
    """Join, commit, and leave."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, **settings})
    consumer.subscribe(["codecs"])
    deadline = time.monotonic() + LIMIT_S
    while not consumer.assignment():
        consumer.poll(0.1)
        assert time.monotonic() < deadline, f"group {group} assigns nothing"
    consumer.commit(offsets=[TopicPartition("codecs", 0, 9)], asynchronous=False)
    consumer.close()


def committed(bootstrap: str, group: str, places: Iterable[tuple[str, int]]) -> Committed:
    """What a group has committed in these partitions."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    found = consumer.committed([TopicPartition(*place) for place in places], LIMIT_S)
    consumer.close()
    return {(each.topic, each.partition): (each.offset, each.metadata or "") for each in found}


def first_offset(bootstrap: str, group: str, topic: str) -> int:
    """Where a new member of the group begins in partition 0 of a topic, of which it is given all."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.subscribe([topic])
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.partition() == 0:
            offset = message.offset()
            consumer.close()
            assert offset is not None, message.error()
            return offset
    raise AssertionError(f"group {group} gets nothing")


def read(bootstrap: str, topic: str, partition: int) -> list[Seen]:
    """All records of a partition, those of aborted transactions too."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False, "enable.partition.eof": True}
    settings["fetch.wait.max.ms"] = 10  # the end is told by a fetch that finds nothing
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
