"""Spark's own Kafka connector, which is Java, reads the same rows from our broker as our data source."""

from typing import Any

import pytest
from confluent_kafka import Producer

from moldau.testing.broker import Broker
from support.spark import connector_jars, spark_session

pytestmark = pytest.mark.system


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_same_rows_as_ours(moldau: Broker, codec: str) -> None:
    if connector_jars() is None:
        pytest.skip("Maven is missing, and with it Spark's Kafka connector")
    topic = moldau.create_topic(moldau.unique_topic("jvm"), 3)
    producer = Producer({"bootstrap.servers": moldau.bootstrap_servers, "compression.type": codec, "linger.ms": 50, "log_level": 3})
    for number in range(500):
        headers: list[tuple[str, str | bytes | None]] = [("n", str(number)), ("empty", None)]
        key, value = None if number % 5 == 0 else f"k{number}", None if number % 11 == 0 else f"value {number}" * (number % 20)
        producer.produce(topic, value, key, partition=number % 3, timestamp=1_357_000_000_000 + number, headers=headers[: number % 3])
    assert producer.flush(30) == 0
    spark = spark_session()

    def rows(source: str) -> list[Any]:
        options = {"kafka.bootstrap.servers": moldau.bootstrap_servers, "subscribe": topic, "includeHeaders": "true", "minPartitions": "6"}
        frame = spark.read.format(source).options(**options).load()
        assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
        return sorted(frame.collect(), key=lambda row: (row.partition, row.offset))

    ours, theirs = rows("moldau"), rows("kafka")
    assert len(ours) == 500
    assert ours == theirs
