"""Rows of a stream are looked up in a table and in a compacted topic: a batch sees one version, and sees it again when it is repeated."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from deltalake import write_deltalake

from moldau.lake.tables.format import TableError
from moldau.streams import StreamJob, windows
from moldau.streams.errors import BatchError
from moldau.streams.outputs import BatchNumber
from moldau.streams.table_output import TableOutput
from moldau.testing.broker import Broker
from support.spark import spark_session
from support.stream_jobs import SCHEMA, counts_of, event, events, in_table, in_topic, send

pytestmark = [pytest.mark.system, pytest.mark.spark]

CITIES = {"EWR": "Newark", "JFK": "Queens"}


@pytest.fixture(scope="module")
def spark() -> Any:
    return spark_session()


@pytest.fixture
def topics(broker: Broker) -> tuple[str, str]:
    """To read and to write."""
    names = broker.unique_topic("in"), broker.unique_topic("out")
    for name in names:
        broker.create_topic(name, 2)
    return names


def write_cities(path: Path, cities: dict[str, str]) -> None:
    """The next version of the table."""
    rows = pa.table({"code": list(cities), "city": list(cities.values()), "number": pa.array(range(len(cities)), pa.int32())})
    write_deltalake(str(path), rows, mode="overwrite")


def write_keys(broker: Broker, topic: str, values: dict[str, Any]) -> None:
    """The next values of the compacted topic; None deletes."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 3})
    for key, value in values.items():
        producer.produce(topic, None if value is None else value if isinstance(value, bytes) else json.dumps(value), key)
    assert producer.flush(60) == 0


class OnceFailing:
    """The output to a table, whose first batch fails after the topic has its rows, as a driver that dies in between.

    A job's other queries write their tables meanwhile: they note versions of their own, and a failure of theirs would come before or after
    the note of this one.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, table: Path, between: Callable[[], object]) -> None:
        write = TableOutput.write

        def failing(output: TableOutput, rows: Any, batch: BatchNumber) -> None:
            if output.path != str(table):
                write(output, rows, batch)
                return
            monkeypatch.setattr(TableOutput, "write", write)
            rows.count()
            between()
            raise BatchError("the power is cut")

        monkeypatch.setattr(TableOutput, "write", failing)


def test_a_table(broker: Broker, spark: Any, topics: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch reads the newest version, and says which; one that is repeated reads the one it had, whatever came meanwhile."""
    source, sink = topics
    bootstrap, cities, table = broker.bootstrap_servers, tmp_path / "lake" / "cities", tmp_path / "lake" / "out"
    write_cities(cities, CITIES)

    def run() -> None:
        job = StreamJob(source, brokers=bootstrap, directory=str(tmp_path / "job"), spark=spark)
        flights = job.topic(source, format="json", schema=SCHEMA, time="at")
        rows = job.table(str(cities), key="code").join(flights, on="airport")
        job.to_topic(rows, sink)
        job.to_table(rows, str(table))
        job.run(once=True)

    send(bootstrap, source, events(0, 30))
    run()
    assert {(each["city"], each["right_number"], each["_table_version"]) for each in in_topic(bootstrap, sink)} == {
        ("Newark", 0, 0),
        ("Queens", 1, 0),
        (None, None, 0),
    }
    write_cities(cities, CITIES | {"LGA": "East Elmhurst"})
    send(bootstrap, source, events(30, 60))
    OnceFailing(monkeypatch, table, lambda: write_cities(cities, dict.fromkeys(CITIES, "elsewhere")))
    with pytest.raises(BatchError, match="the power is cut"):
        run()
    send(bootstrap, source, events(60, 90))
    run()
    for found in (in_topic(bootstrap, sink), in_table(table)):
        assert len(found) == 90
        for row in found:
            version = row["number"] // 30
            city = ({**CITIES} if version == 0 else CITIES | {"LGA": "East Elmhurst"}).get(row["airport"])
            if version == 2:
                city = "elsewhere" if row["airport"] in CITIES else None
            assert (row["_table_version"], row["city"]) == (version, city), row
    notes = {path.name: json.loads(path.read_text())["version"] for path in (tmp_path / "job" / sink / "versions").iterdir()}
    assert notes == {"0-cities.json": 0, "1-cities.json": 1, "2-cities.json": 2}


def test_a_compacted_topic(broker: Broker, spark: Any, topics: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same of the latest values of a topic; a value that was deleted is not found, and the watermark passes through to windows."""
    source, sink = topics
    bootstrap, table, cities = broker.bootstrap_servers, tmp_path / "lake" / "out", broker.unique_topic("cities")
    broker.create_topic(cities, 3)
    write_keys(broker, cities, {"EWR": {"city": "first"}, "LGA": {"city": "East Elmhurst"}})
    write_keys(broker, cities, {"EWR": {"city": "Newark"}, "JFK": {"city": "Queens"}, "LGA": None})

    def run() -> None:
        job = StreamJob(source, brokers=bootstrap, directory=str(tmp_path / "job"), spark=spark)
        flights = job.topic(source, format="json", schema=SCHEMA, time="at")
        rows = job.compacted(cities, schema="city string").join(flights, on="airport")
        job.to_topic(rows, sink)
        job.to_table(rows, str(table))
        job.to_table(windows.tumbling(rows.withColumn("airport", rows.city), "1 hour", "airport"), str(tmp_path / "lake" / "hours"))
        job.run(once=True)

    send(bootstrap, source, events(0, 30))
    run()
    assert {(each["airport"], each["city"]) for each in in_topic(bootstrap, sink)} == {*CITIES.items(), ("LGA", None)}
    send(bootstrap, source, events(30, 60))
    OnceFailing(monkeypatch, table, lambda: write_keys(broker, cities, {key: {"city": "elsewhere"} for key in ("EWR", "JFK", "LGA")}))
    with pytest.raises(BatchError, match="the power is cut"):
        run()
    run()
    send(bootstrap, source, [*events(60, 90), event(240, "EWR", 90)])
    run()
    by_version: dict[int, set[str]] = {}
    for found in (in_topic(bootstrap, sink), in_table(table)):
        assert len(found) == 91
        for row in found:
            version = row["number"] // 30
            by_version.setdefault(min(version, 2), set()).add(row["_topic_version"])
            city = CITIES.get(row["airport"]) if version < 2 else "elsewhere"
            assert row["city"] == city, row
    versions = [sum(json.loads(each).values()) for number in range(3) for each in by_version[number]]
    assert versions == [5, 5, 8], "one version for each, the same in both outputs and when it was repeated"
    assert sum(counts_of(in_table(tmp_path / "lake" / "hours")).values()) == 90, "in the versions of that query's own batches"


def test_what_is_wrong_with_a_store(broker: Broker, spark: Any, topics: tuple[str, str], tmp_path: Path) -> None:
    """Is named when the job is made; a key with several rows, or a value that is no JSON, when it is looked up."""
    source, sink = topics
    cities = tmp_path / "cities"
    job = StreamJob("stores", brokers=broker.bootstrap_servers, directory=str(tmp_path / "job"), spark=spark)
    flights = job.topic(source, format="json", schema=SCHEMA, time="at")
    with pytest.raises(TableError, match="there is no table"):
        job.table(str(cities), key="code")
    write_cities(cities, CITIES)
    with pytest.raises(ValueError, match="the table has no column town; it has code, city, number"):
        job.table(str(cities), key="code", columns=["town"])
    with pytest.raises(ValueError, match="its key column number is int, and the rows' column airport is string: cast it"):
        job.table(str(cities), key="number").join(flights, on="airport")
    with pytest.raises(ValueError, match=r"the rows have no column city; they have at, airport, number"):
        job.table(str(cities), key="code").join(flights, on="city")
    with pytest.raises(ValueError, match="give the version another name with version_column="):
        job.table(str(cities), key="code").join(flights, on="airport", version_column="number")
    with pytest.raises(ValueError, match="format json needs the schema of its objects"):
        job.compacted(source)
    write_deltalake(
        str(cities), pa.table({"code": ["EWR", "EWR"], "city": ["a", "b"], "number": pa.array([2, 1], pa.int32())}), mode="append"
    )
    rows = spark.createDataFrame([("EWR",), ("JFK",), (None,)], "airport string")
    with pytest.raises(Exception, match="version 1: the key 'EWR' has several rows"):
        job.table(str(cities), key="code").join(rows, on="airport").collect()
    latest = job.table(str(cities), key="code", columns=["city"], latest="number")
    assert {tuple(row) for row in latest.join(rows, on="airport").collect()} == {("EWR", "a", 1), ("JFK", "Queens", 1), (None, None, 1)}
    named = job.table(str(cities), key=["code", "number"], columns=["city"], version=0)
    pairs = spark.createDataFrame([("EWR", 0), ("EWR", 2)], "airport string, number int")
    assert [tuple(row) for row in named.join(pairs, on=["airport", "number"], how="inner").collect()] == [("EWR", 0, "Newark", 0)]
    write_keys(broker, sink, {"EWR": b"no object"})
    with pytest.raises(Exception, match=r"the value of a key is no JSON object of the store's schema; .*no object"):
        job.compacted(sink, schema="city string").join(rows, on="airport").collect()
    skipped = job.compacted(sink, schema="city string", undecodable="skip").join(rows, on="airport").collect()
    assert {row.city for row in skipped} == {None}
