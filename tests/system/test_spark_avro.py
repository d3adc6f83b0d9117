"""Events of a topic as typed columns: through the registry, across versions of the schema, and what becomes of those that are broken."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException

from moldau.registry.client import RegistryClient
from moldau.registry.wire import frame
from moldau.testing.broker import Broker
from support.avro_registry import encoded
from support.spark import connector_jars, spark_session

pytestmark = [pytest.mark.system, pytest.mark.spark]

FIELDS: list[dict[str, Any]] = [
    {"name": "carrier", "type": "string"},
    {"name": "delay", "type": ["null", "int"]},
    {"name": "time", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
    {"name": "origin", "type": {"type": "enum", "name": "Origin", "symbols": ["EWR", "JFK"]}},
    {"name": "plane", "type": {"type": "record", "name": "Plane", "fields": [{"name": "seats", "type": "int"}]}},
    {"name": "stops", "type": {"type": "array", "items": "string"}},
    {"name": "notes", "type": {"type": "map", "values": "double"}},
]
OLD: dict[str, Any] = {"type": "record", "name": "Flight", "fields": FIELDS}
WIDER = [{"name": "delay", "type": ["null", "long"]} if each["name"] == "delay" else each for each in FIELDS]
NEW: dict[str, Any] = {**OLD, "fields": [*WIDER, {"name": "gate", "type": "string", "default": "?"}]}
EVENT: dict[str, Any] = {
    "carrier": "UA", "delay": 5, "time": 1_357_000_000_123, "day": 15_706, "price": b"\x04\xd2", "origin": "JFK", "plane": {"seats": 120},
    "stops": ["ORD"], "notes": {"x": 0.5},
}  # fmt: skip


@pytest.fixture(scope="module")
def spark() -> Any:
    return spark_session()


def publish(moldau: Broker, topic: str, *values: bytes | None) -> None:
    producer = Producer({"bootstrap.servers": moldau.bootstrap_servers, "log_level": 3})
    for value in values:
        producer.produce(topic, value, b"key", partition=0)
    assert producer.flush(30) == 0


def register(url: str, topic: str, schema: dict[str, Any]) -> int:
    with RegistryClient(url) as registry:
        return registry.register(f"{topic}-value", json.dumps(schema))


def read(spark: Any, moldau: Broker, url: str, topic: str, **options: str) -> Any:
    given = {"kafka.bootstrap.servers": moldau.bootstrap_servers, "subscribe": topic, "format": "avro", "registry": url, **options}
    return spark.read.format("moldau").options(**given).load()


def test_columns_are_those_of_from_avro_and_grow_with_the_schema(spark: Any, moldau: Broker, moldau_registry_url: str) -> None:
    topic = moldau.create_topic(moldau.unique_topic("flights"))
    old = register(moldau_registry_url, topic, OLD)
    publish(moldau, topic, *(frame(old, encoded(OLD, {**EVENT, "delay": delay})) for delay in (5, None)))
    frame_of_old = read(spark, moldau, moldau_registry_url, topic)
    if connector_jars() is not None:
        from pyspark.sql.avro.functions import from_avro

        given = {"kafka.bootstrap.servers": moldau.bootstrap_servers, "subscribe": topic}
        bodies = spark.read.format("kafka").options(**given).load().selectExpr("substring(value, 6) AS body")
        theirs = bodies.select(from_avro("body", json.dumps(OLD)).alias("event")).select("event.*")
        assert frame_of_old.dtypes == theirs.dtypes
        assert frame_of_old.collect() == theirs.collect()
    new = register(moldau_registry_url, topic, NEW)
    publish(moldau, topic, frame(new, encoded(NEW, {**EVENT, "delay": 1 << 40, "gate": "B7"})))
    rows = read(spark, moldau, moldau_registry_url, topic, kafkaColumns="offset,key").orderBy("_offset").collect()
    assert [(row.delay, row.gate, row._offset, bytes(row._key)) for row in rows] == [
        (5, "?", 0, b"key"), (None, "?", 1, b"key"), (1 << 40, "B7", 2, b"key"),
    ]  # fmt: skip
    assert rows[2].time.astimezone(UTC) == datetime(2013, 1, 1, 0, 26, 40, 123_000, UTC)
    as_before = read(spark, moldau, moldau_registry_url, topic, readerSchema=json.dumps({**NEW, "fields": [OLD["fields"][0]]}))
    assert [tuple(row) for row in as_before.collect()] == [("UA",)] * 3
    named = (
        spark.read.format("moldau")
        .schema("gate string, delay bigint")
        .options(
            **{"kafka.bootstrap.servers": moldau.bootstrap_servers, "subscribe": topic, "format": "avro", "registry": moldau_registry_url}
        )
    )
    assert [tuple(row) for row in named.load().collect()] == [("?", 5), ("?", None), ("B7", 1 << 40)]


@pytest.fixture(scope="module")
def broken(moldau: Broker, moldau_registry_url: str) -> tuple[str, int]:
    """A topic with a good event, a tombstone, three broken values, and a good event; the schema's id."""
    topic = moldau.create_topic(moldau.unique_topic("broken"))
    number = register(moldau_registry_url, topic, OLD)
    good = frame(number, encoded(OLD, EVENT))
    publish(moldau, topic, good, None, good[:-3], frame(987_654, good[5:]), b"{}", good)
    return topic, number


def reasons(number: int) -> dict[int, str]:
    return {
        2: f"schema id {number}: the value ends in the middle of the event",
        3: "schema id 987654 is not known to the registry",
        4: "a value of 2 bytes has no room for the schema id: 5 bytes are needed",
    }


def test_the_first_broken_value_fails_a_read(spark: Any, moldau: Broker, moldau_registry_url: str, broken: tuple[str, int]) -> None:
    topic, number = broken
    with pytest.raises(PySparkException) as failed:
        read(spark, moldau, moldau_registry_url, topic).count()
    assert f"{topic}-0: offset 2: {reasons(number)[2]}" in str(failed.value)


def test_broken_values_are_nulls_with_their_error(spark: Any, moldau: Broker, moldau_registry_url: str, broken: tuple[str, int]) -> None:
    topic, number = broken
    rows = read(spark, moldau, moldau_registry_url, topic, mode="PERMISSIVE", kafkaColumns="true").orderBy("_offset").collect()
    assert {row._offset: row._error for row in rows if row._error} == reasons(number)
    assert [row.carrier for row in rows] == ["UA", None, None, None, None, "UA"]
    assert rows[1]._error is None, "a tombstone is no event, and no error"


def test_broken_values_are_put_aside_by_a_stream(
    spark: Any, moldau: Broker, moldau_registry_url: str, broken: tuple[str, int], tmp_path: Path
) -> None:
    """One file for each range that has some; a batch that is run again writes the same one again."""
    topic, number = broken
    options = {
        "kafka.bootstrap.servers": moldau.bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest", "format": "avro",
        "registry": moldau_registry_url, "kafkaColumns": "offset", "deadLetterPath": str(tmp_path / "dead"),
    }  # fmt: skip
    rows: list[Any] = []

    def run() -> None:
        frame = spark.readStream.format("moldau").options(**options).load()
        writer = frame.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start().awaitTermination()

    run()
    for name in ("0", ".0.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    run()
    assert sorted((row._offset, row.carrier) for row in rows if row.carrier) == [(0, "UA"), (0, "UA"), (5, "UA"), (5, "UA")]
    dead = spark.read.parquet(str(tmp_path / "dead")).orderBy("offset").collect()
    assert {row.offset: row.error for row in dead} == reasons(number)
    assert len(dead) == 3
    assert [(row.topic, row.partition, bytes(row.key)) for row in dead] == [(topic, 0, b"key")] * 3
    assert bytes(dead[2].value) == b"{}"


def test_a_registry_that_is_not_there_is_said(spark: Any, moldau: Broker) -> None:
    topic = moldau.create_topic(moldau.unique_topic("nobody"))
    with pytest.raises(PySparkException, match=r"RegistryUnavailableError.*127\.0\.0\.1:9"):
        read(spark, moldau, "http://127.0.0.1:9", topic)
