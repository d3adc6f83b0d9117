"""What a reader of committed records gets of a topic."""

import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

LIMIT_S = 120.0


def committed_values(bootstrap: str, topic: str, partitions: int = 1) -> list[list[bytes]]:
    """All values up to the last stable offset, per partition."""
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": "check", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.partition.eof": True})
    found: list[list[bytes]] = [[] for _ in range(partitions)]
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        open_partitions = set(range(partitions))
        deadline = time.monotonic() + LIMIT_S
        while open_partitions:
            assert time.monotonic() < deadline, f"no end of partitions {open_partitions} of {topic}"
            for message in consumer.consume(5000, 0.2):
                error = message.error()
                if error is None:
                    found[message.partition() or 0].append(message.value() or b"")
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    open_partitions.discard(message.partition() or 0)
    finally:
        consumer.close()
    return found
