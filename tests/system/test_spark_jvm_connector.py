"""Spark's own Kafka connector, which is Java, reads the same rows from our broker as our data source."""

from typing import Any

import pytest
from confluent_kafka import Producer

from moldau.testing.broker import Broker
from support.spark import connector_jars, spark_session

pytestmark = pytest.mark.system


CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = 300


def produce(moldau: Broker, topic: str, codec: str) -> None:
    producer = Producer({"bootstrap.servers": moldau.bootstrap_servers, "compression.type": codec, "linger.ms": 50, "log_level": 3})
    for number in range(RECORDS):
        headers: list[tuple[str, str | bytes | None]] = [("n", str(number)), ("empty", None)]
        key, value = None if number % 5 == 0 else f"k{number}", None if number % 11 == 0 else f"value {number}" * (number % 20)
        producer.produce(topic, value, key, partition=number % 3, timestamp=1_357_000_000_000 + number, headers=headers[: number % 3])
    assert producer.flush(30) == 0


def test_same_rows_as_ours(moldau: Broker) -> None:
    if connector_jars() is None:
        pytest.skip("Maven is missing, and with it Spark's Kafka connector")
    topic = moldau.create_topic(moldau.unique_topic("jvm"), 3)
    for codec in CODECS:
        produce(moldau, topic, codec)
    spark = spark_session()

    def rows(source: str) -> list[Any]:
        options = {"kafka.bootstrap.servers": moldau.bootstrap_servers, "subscribe": topic, "includeHeaders": "true", "minPartitions": "6"}
        frame = spark.read.format(source).options(**options).load()
        assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
        return sorted(frame.collect(), key=lambda row: (row.partition, row.offset))

    ours, theirs = rows("moldau"), rows("kafka")
    assert len(ours) == RECORDS * len(CODECS)
    assert ours == theirs
