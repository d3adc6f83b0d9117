"""What Spark reads through our data source is what was produced: every record of the range, every column, whatever the codec."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException

from moldau.client.cluster import Cluster
from moldau.client.partition_requests import delete_records_request, read_delete_records
from moldau.model.identity import TopicPartition
from moldau.protocol.api_keys import ApiKey
from moldau.testing.broker import Broker
from support.spark import spark_session

pytestmark = [pytest.mark.system, pytest.mark.spark]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BASE_MS = 1_357_000_000_123
PARTITIONS = 3
PER_CODEC = 40
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Produced = dict[tuple[int, int], dict[str, Any]]


@pytest.fixture(scope="module")
def spark() -> Any:
    return spark_session()


@pytest.fixture(scope="module")
def topic(moldau: Broker) -> str:
    return moldau.create_topic(moldau.unique_topic("source"), PARTITIONS, {"retention.ms": -1})  # its records are of 2013


@pytest.fixture(scope="module")
def produced(moldau: Broker, topic: str) -> Produced:
    """Records in every codec, with null keys, null values and headers among them, by partition and offset."""
    records: Produced = {}
    number = 0
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": moldau.bootstrap_servers, "compression.type": codec, "linger.ms": 50, "log_level": 3})
        for _ in range(PER_CODEC):
            partition = number % PARTITIONS
            row: dict[str, Any] = {
                "key": None if number % 4 == 0 else f"k{number}".encode(),
                "value": None if number % 7 == 0 else f"v{number}".encode() * (number % 50),
                "timestamp": BASE_MS + 1000 * number,
                "headers": [("n", str(number).encode()), ("empty", None), ("ä", b"\xff")][: number % 4],
            }
            producer.produce(topic, row["value"], row["key"], partition, timestamp=row["timestamp"], headers=row["headers"])
            records[partition, number // PARTITIONS] = row
            number += 1
        assert producer.flush(30) == 0
    return records


def read(spark: Any, moldau: Broker, **options: str) -> Any:
    return spark.read.format("moldau").option("kafka.bootstrap.servers", moldau.bootstrap_servers).options(**options).load()


def places(frame: Any) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())


def test_rows_are_what_was_produced(spark: Any, moldau: Broker, topic: str, produced: Produced) -> None:
    frame = read(spark, moldau, subscribe=topic, includeHeaders="true")
    types = "key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int"
    assert frame.schema.simpleString() == f"struct<{types},headers:array<struct<key:string,value:binary>>>"
    rows = frame.collect()
    assert len(rows) == len(produced)
    for row in rows:
        expected = produced[row.partition, row.offset]
        assert row.topic == topic
        assert row.key == expected["key"]
        assert row.value == expected["value"]
        assert row.timestampType == 0
        assert row.timestamp.astimezone(UTC) == EPOCH + timedelta(milliseconds=expected["timestamp"])
        got_headers = None if row.headers is None else [(h.key, h.value) for h in row.headers]
        assert got_headers == (expected["headers"] or None)


def test_exactly_the_range_in_as_many_tasks_as_asked_for(spark: Any, moldau: Broker, topic: str, produced: Produced) -> None:
    starts, ends = {"0": 5, "1": -2, "2": 60}, {"0": 17, "1": 1, "2": -1}
    frame = read(
        spark,
        moldau,
        subscribe=topic,
        startingOffsets=json.dumps({topic: starts}),
        endingOffsets=json.dumps({topic: ends}),
        minPartitions="9",
    )
    last = max(offset for partition, offset in produced if partition == 2)
    assert places(frame) == [(0, n) for n in range(5, 17)] + [(1, 0)] + [(2, n) for n in range(60, last + 1)]
    assert frame.rdd.getNumPartitions() >= 9


def test_by_time(spark: Any, moldau: Broker, topic: str, produced: Produced) -> None:
    frame = read(spark, moldau, subscribe=topic, startingTimestamp=str(BASE_MS + 30_000), endingTimestamp=str(BASE_MS + 60_000))
    assert places(frame) == sorted(where for where, row in produced.items() if 30_000 <= row["timestamp"] - BASE_MS < 60_000)


def test_named_columns_are_all_that_is_read(spark: Any, moldau: Broker, topic: str, produced: Produced) -> None:
    options = {"kafka.bootstrap.servers": moldau.bootstrap_servers, "assign": json.dumps({topic: [1]})}
    frame = spark.read.format("moldau").schema("offset bigint, value binary").options(**options).load()
    assert frame.columns == ["offset", "value"]
    assert sorted((row.offset, row.value) for row in frame.collect()) == sorted(
        (offset, row["value"]) for (partition, offset), row in produced.items() if partition == 1
    )


@pytest.mark.usefixtures("produced")
def test_many_topics_and_patterns(spark: Any, moldau: Broker, topic: str) -> None:
    other = moldau.create_topic(moldau.unique_topic("source"), 1)
    producer = Producer({"bootstrap.servers": moldau.bootstrap_servers, "log_level": 3})
    producer.produce(other, b"x")
    assert producer.flush(30) == 0
    both = read(spark, moldau, subscribe=f"{topic},{other}").groupBy("topic").count().collect()
    assert {row.topic: row["count"] for row in both} == {topic: PER_CODEC * len(CODECS), other: 1}
    assert read(spark, moldau, subscribePattern=f"{other[:-1]}[{other[-1]}]").count() == 1


def test_a_topic_without_records_gives_no_rows(spark: Any, moldau: Broker) -> None:
    assert read(spark, moldau, subscribe=moldau.create_topic(moldau.unique_topic("empty"), 2)).collect() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endingOffset": "latest"}, "option endingoffset: is not known; is endingOffsets meant?"),
        ({"startingOffsets": "latest"}, "option startingOffsets: 'latest' would leave nothing to read"),
        ({"startingOffsets": '{"TOPIC":{"0":0,"1":0,"2":9999}}'}, "TOPIC-2: offset 9999 is beyond the end of the log"),
        ({"subscribe": "none-such"}, "option subscribe: there is no topic 'none-such'"),
    ],
)
@pytest.mark.usefixtures("produced")
def test_what_cannot_be_read_is_said(spark: Any, moldau: Broker, topic: str, options: dict[str, str], message: str) -> None:
    given = {"subscribe": topic, **{name: value.replace("TOPIC", topic) for name, value in options.items()}}
    with pytest.raises(PySparkException) as refused:
        read(spark, moldau, **given).count()
    assert message.replace("TOPIC", topic) in str(refused.value)


def test_records_that_retention_took_fail_the_read_or_are_left_out(spark: Any, moldau: Broker) -> None:
    name = moldau.create_topic(moldau.unique_topic("lost"), 1)
    producer = Producer({"bootstrap.servers": moldau.bootstrap_servers, "log_level": 3})
    for number in range(10):
        producer.produce(name, str(number))
    assert producer.flush(30) == 0
    where = TopicPartition(name, 0)
    with Cluster(moldau.bootstrap_servers) as cluster:
        answers = cluster.at_leaders(
            ApiKey.DELETE_RECORDS,
            [where],
            lambda _: delete_records_request({where: 4}, 10_000),
            lambda answer, _: read_delete_records(answer),
        )
    assert answers == {where: 4}
    start = {"subscribe": name, "startingOffsets": json.dumps({name: {"0": 2}})}
    with pytest.raises(PySparkException, match=f"{name}-0: offset 2 is no longer in the log, which starts at 4"):
        read(spark, moldau, **start).count()
    assert places(read(spark, moldau, failOnDataLoss="false", **start)) == [(0, n) for n in range(4, 10)]
