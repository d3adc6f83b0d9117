"""Spark's own Kafka connector, which is Java, reads the same rows from our broker as our data source, whatever the options."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer

from moldau.client.admin import Admin
from moldau.client.cluster import Cluster
from moldau.model.identity import TopicPartition
from moldau.testing.broker import Broker
from support.spark import connector_jars, spark_session

pytestmark = [pytest.mark.system, pytest.mark.spark]


CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PER_CODEC = 60
PARTITIONS = 3
BASE_MS = 1_357_000_000_000
KEPT = {"retention.ms": -1}
"""The records are of 2013."""


class Topics(NamedTuple):
    """`first` has records in all codecs and of an aborted transaction, `second` a few; both begin with the same letters."""

    first: str
    second: str
    pattern: str


@pytest.fixture(scope="module")
def topics(moldau: Broker) -> Topics:
    hint = moldau.unique_topic("jvm")
    found = Topics(moldau.create_topic(f"{hint}-a", PARTITIONS, KEPT), moldau.create_topic(f"{hint}-b", config=KEPT), f"{hint}-.*")
    number = 0
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": moldau.bootstrap_servers, "compression.type": codec, "linger.ms": 50, "log_level": 3})
        for _ in range(PER_CODEC):
            headers: list[tuple[str, str | bytes | None]] = [("n", str(number)), ("empty", None)]
            key, value = None if number % 5 == 0 else f"k{number}", None if number % 11 == 0 else f"value {number}" * (number % 20)
            partition = number % PARTITIONS
            producer.produce(found.first, value, key, partition=partition, timestamp=BASE_MS + number, headers=headers[: number % 3])
            number += 1
        assert producer.flush(30) == 0
    transactional = Producer({"bootstrap.servers": moldau.bootstrap_servers, "transactional.id": hint, "log_level": 3})
    transactional.init_transactions(30)
    for end in (transactional.abort_transaction, transactional.commit_transaction):
        transactional.begin_transaction()
        for each in range(10):
            transactional.produce(found.second, str(each), timestamp=BASE_MS + each)
        end(30)
    with Cluster(moldau.bootstrap_servers) as cluster:
        Admin(cluster).delete_records({TopicPartition(found.first, 1): 7})
    return found


BATCHES: dict[str, dict[str, str]] = {
    "subscribe": {"subscribe": "FIRST"},
    "two topics": {"subscribe": "FIRST,SECOND"},
    "subscribePattern": {"subscribePattern": "PATTERN"},
    "assign": {"assign": '{"FIRST": [0, 2]}'},
    "starting and ending offsets": {
        "subscribe": "FIRST",
        "startingOffsets": '{"FIRST": {"0": 5, "1": -2, "2": 20}}',
        "endingOffsets": '{"FIRST": {"0": 9, "1": 50, "2": -1}}',
    },
    "starting and ending timestamp": {"subscribe": "FIRST", "startingTimestamp": str(BASE_MS + 50), "endingTimestamp": str(BASE_MS + 200)},
    "by timestamp, or latest": {
        "subscribe": "FIRST",
        "startingOffsetsByTimestamp": json.dumps({"FIRST": {"0": BASE_MS + 100, "1": BASE_MS + 10**9, "2": 0}}),
        "startingOffsetsByTimestampStrategy": "latest",
        "endingOffsetsByTimestamp": json.dumps({"FIRST": {"0": BASE_MS + 10**9, "1": BASE_MS + 10**9, "2": BASE_MS + 90}}),
    },
    "headers": {"subscribe": "FIRST", "includeHeaders": "true"},
    "minPartitions": {"subscribe": "FIRST", "minPartitions": "8"},
    "maxRecordsPerPartition": {"subscribe": "FIRST", "maxRecordsPerPartition": "30"},
    "read_committed": {"subscribe": "SECOND", "kafka.isolation.level": "read_committed"},
    "read_uncommitted": {"subscribe": "SECOND", "kafka.isolation.level": "read_uncommitted"},
    "failOnDataLoss=false": {"subscribe": "FIRST", "startingOffsets": '{"FIRST": {"0": 0, "1": 3, "2": 0}}', "failOnDataLoss": "false"},
}
STREAMS: dict[str, dict[str, str]] = {
    "AvailableNow in batches": {"subscribe": "FIRST", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "120"},
    "AvailableNow by pattern, committed, with headers": {
        "subscribePattern": "PATTERN",
        "startingTimestamp": str(BASE_MS + 3),
        "includeHeaders": "true",
        "kafka.isolation.level": "read_committed",
        "minPartitions": "6",
    },
}


def written(options: dict[str, str], topics: Topics, moldau: Broker) -> dict[str, str]:
    """The options with the names of this run's topics."""
    names = {"FIRST": topics.first, "SECOND": topics.second, "PATTERN": topics.pattern}
    for word, name in names.items():
        options = {option: text.replace(word, name) for option, text in options.items()}
    return {"kafka.bootstrap.servers": moldau.bootstrap_servers, **options}


def in_order(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=lambda row: (row.topic, row.partition, row.offset))


@pytest.fixture(scope="module")
def spark() -> Any:
    if connector_jars() is None:
        pytest.skip("Maven is missing, and with it Spark's Kafka connector")
    return spark_session()


@pytest.mark.parametrize("case", BATCHES)
def test_a_batch_gives_the_same_rows(spark: Any, moldau: Broker, topics: Topics, case: str) -> None:
    options = written(BATCHES[case], topics, moldau)
    ours, theirs = (spark.read.format(source).options(**options).load() for source in ("moldau", "kafka"))
    assert ours.columns == theirs.columns
    rows = in_order(ours.collect())
    assert rows == in_order(theirs.collect())
    assert rows, "no rows are no test"


@pytest.mark.parametrize("case", STREAMS)
def test_a_stream_gives_the_same_rows(spark: Any, moldau: Broker, topics: Topics, tmp_path: Path, case: str) -> None:
    options = written(STREAMS[case], topics, moldau)
    found: dict[str, list[Any]] = {}
    for source in ("moldau", "kafka"):
        frame = spark.readStream.format(source).options(**options).load()
        rows = found.setdefault(source, [])
        writer = frame.writeStream.foreachBatch(lambda batch, _, rows=rows: rows.extend(batch.collect()))
        writer.option("checkpointLocation", str(tmp_path / source)).trigger(availableNow=True).start().awaitTermination()
    assert in_order(found["moldau"]) == in_order(found["kafka"])
    assert found["moldau"]
