"""One broker, or a cluster, for a suite of clients that works with both."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from moldau.testing.cluster.cluster import Cluster
from support.local_cluster import wait_for
from support.server import ServerProcess


@contextlib.contextmanager
def bootstrap_of(brokers: int, directory: Path, settings: dict[str, str]) -> Iterator[str]:
    """Run so many: their addresses."""
    if brokers == 1:
        with ServerProcess(directory, settings=settings) as server:
            yield server.bootstrap
    else:
        with Cluster(brokers, settings=settings) as cluster:
            yield cluster.bootstrap_servers


def wait_until_led(bootstrap: str, topic: str, partitions: int) -> None:
    """Until each leader serves its partition: a record with acks=0 that comes before is lost."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "log_level": 0})

    def is_led(partition: int) -> bool:
        try:
            return consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=2) is not None
        except KafkaException:
            return False

    try:
        wait_for(lambda: all(map(is_led, range(partitions))))
    finally:
        consumer.close()
