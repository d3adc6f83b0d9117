"""Tasks make only the columns that a batch reads: whatever a query does with its rows, it sees the values of all that it names."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas
import pytest
from confluent_kafka import Producer
from pyarrow import parquet
from pyspark.sql import functions

from moldau.registry.client import RegistryClient
from moldau.registry.wire import frame
from moldau.streams import StreamJob
from moldau.streams.operator import StreamOperator
from moldau.testing.broker import Broker
from support.avro_registry import encoded
from support.spark import spark_session
from support.stream_jobs import BEGIN, in_table

pytestmark = [pytest.mark.system, pytest.mark.spark]

FIELDS = [
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "number", "type": "long"},
    {"name": "airport", "type": "string"},
    {"name": "remark", "type": ["null", "string"]},
]
SCHEMA = {"type": "record", "name": "Departure", "fields": FIELDS}
ROWS = 40


def remark(number: int) -> str | None:
    return None if number % 5 == 0 else f"remark {number % 7}"


@pytest.fixture
def topic(broker: Broker, moldau_registry_url: str) -> str:
    """Departures, each number twice."""
    name = broker.unique_topic("departures")
    broker.create_topic(name, 2)
    with RegistryClient(moldau_registry_url) as registry:
        schema = registry.register(f"{name}-value", json.dumps(SCHEMA))
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 3})
    for place in range(ROWS):
        number = place // 2
        value = {"at": BEGIN, "number": number, "airport": f"A{number % 3}", "remark": remark(number)}
        producer.produce(name, frame(schema, encoded(SCHEMA, value)), partition=place % 2)
    assert producer.flush(30) == 0
    return name


def lengths(frames: Iterator[pandas.DataFrame]) -> Iterator[pandas.DataFrame]:
    """What a Python function sees of whole rows."""
    for each in frames:
        yield pandas.DataFrame({"number": each["number"], "length": each["remark"].fillna("").str.len().astype("int64"), "at": each["at"]})


def test_queries_see_what_they_name(broker: Broker, moldau_registry_url: str, topic: str, tmp_path: Path) -> None:
    """Whole rows, rows without duplicates, rows of two inputs, filters over columns that are not in the result, names in other
    letters than the schema's, functions in Python.

    All are counted, however few of their columns are read.
    """
    spark = spark_session()
    job = StreamJob(topic, brokers=broker.bootstrap_servers, registry=moldau_registry_url, directory=str(tmp_path / "job"), spark=spark)
    departures, again = (job.topic(topic, format="avro", time="at") for _ in range(2))
    numbers = list(range(ROWS // 2))
    both = departures.select("at", functions.col("remark").alias("text")).unionByName(
        again.select("at", functions.col("airport").alias("text"))
    )
    queries: dict[str, tuple[Any, list[tuple[Any, ...]], tuple[str, ...]]] = {
        "whole": (departures, [(each, f"A{each % 3}", remark(each)) for each in numbers for _ in "ab"], ("number", "airport", "remark")),
        "once": (
            departures.dropDuplicatesWithinWatermark(["number"]),
            [(each, f"A{each % 3}", remark(each)) for each in numbers],
            ("number", "airport", "remark"),
        ),
        "both": (both, [(text,) for each in numbers for text in (remark(each), f"A{each % 3}") for _ in "ab"], ("text",)),
        "filtered": (
            departures.filter("remark = 'remark 3' AND _offset >= 0").select("at", "number"),
            [(each,) for each in numbers if remark(each) == "remark 3" for _ in "ab"],
            ("number",),
        ),
        "cased": (
            departures.filter("NUMBER >= 0").select(functions.col("AT").alias("at"), functions.col("Remark").alias("text")),
            [(remark(each),) for each in numbers for _ in "ab"],
            ("text",),
        ),
        "pandas": (
            departures.mapInPandas(lengths, "number long, length long, at timestamp"),
            [(each, len(remark(each) or "")) for each in numbers for _ in "ab"],
            ("number", "length"),
        ),
    }
    for name, (rows, _, _) in queries.items():
        job.to_table(rows, str(tmp_path / name), time="at", query=name)
    job.run(once=True)
    for name, (_, expected, columns) in queries.items():
        found = [tuple(row[column] for column in columns) for row in in_table(tmp_path / name)]
        assert sorted(found, key=str) == sorted(expected, key=str), name
    operator = StreamOperator(broker.bootstrap_servers)
    inputs = {query["query"]: query["inputs"] for query in operator.status(topic)["queries"]}
    operator.close()
    assert {name: {each["rows"] for each in found.values()} for name, found in inputs.items()} == {name: {ROWS} for name in queries}
    assert sorted(inputs["both"]) == [topic, f"{topic} (2)"]


def test_what_is_put_aside_is_the_same_for_all_queries(broker: Broker, moldau_registry_url: str, tmp_path: Path) -> None:
    """A query that does not read the bad field puts the record aside too: it would take away the file of one that does."""
    name = broker.unique_topic("departures")
    broker.create_topic(name, 1)
    with RegistryClient(moldau_registry_url) as registry:
        schema = registry.register(f"{name}-value", json.dumps(SCHEMA))
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 3})
    good = frame(schema, encoded(SCHEMA, {"at": BEGIN, "number": 1, "airport": "EWR", "remark": None}))
    for value in (good, good.replace(b"EWR", b"E\xffR")):
        producer.produce(name, value)
    assert producer.flush(30) == 0
    job = StreamJob(
        name, brokers=broker.bootstrap_servers, registry=moldau_registry_url, directory=str(tmp_path / "job"), spark=spark_session()
    )
    departures = job.topic(name, format="avro", time="at", undecodable="dead-letters")
    job.to_table(departures.select("at", "airport"), str(tmp_path / "airports"), time="at", query="airports")
    job.run(once=True)
    job.to_table(departures.select("at", "number"), str(tmp_path / "numbers"), time="at", query="numbers")
    job.run(once=True)
    assert [len(in_table(tmp_path / each)) for each in ("airports", "numbers")] == [1, 1]
    (file,) = (tmp_path / "job" / "dead-letters").rglob("*.parquet")
    assert parquet.read_table(file).num_rows == 1
