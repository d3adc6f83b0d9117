"""Values of a job in Avro and Protobuf, by the registry, and JSON that cannot be decoded in dead letters."""

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from google.protobuf.message_factory import GetMessageClass
from pyarrow import parquet

from moldau.registry.client import RegistryClient
from moldau.registry.schemas.protobuf.messages import message_at, schema_file
from moldau.registry.wire import frame
from moldau.streams import StreamJob, windows
from moldau.streams.errors import BatchError, StreamError
from moldau.streams.operator import StreamOperator
from moldau.testing.broker import Broker
from support.spark import spark_session
from support.stream_jobs import SCHEMA, counted, counts_of, event, events, in_table, in_topic, send, switched_to

pytestmark = [pytest.mark.system, pytest.mark.spark]

PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Flight { google.protobuf.Timestamp at = 1; string airport = 2; int32 number = 3; repeated string stops = 4; }
"""


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


def sizes(broker: Broker, topic: str) -> int:
    """Records of a topic that anyone can see."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "r"})
    count = sum(consumer.get_watermark_offsets(TopicPartition(topic, number))[1] for number in range(2))
    consumer.close()
    return count


def test_windows_in_avro_are_read_by_another_job(
    broker: Broker, spark: Any, topics: tuple[str, str], tmp_path: Path, moldau_registry_url: str
) -> None:
    """With the schema of their columns, which is registered with the first batch; then by one that the registry has."""
    source, sink = topics
    send(broker.bootstrap_servers, source, [*events(0, 60), event(240)])

    def job(name: str) -> StreamJob:
        directory = str(tmp_path / name)
        return StreamJob(
            f"{source}-{name}", brokers=broker.bootstrap_servers, registry=moldau_registry_url, directory=directory, spark=spark
        )

    first = job("first")
    flights = first.topic(source, format="json", schema=SCHEMA, time="at")
    first.to_topic(windows.tumbling(flights, "1 hour", "airport"), sink, key="airport", format="avro")
    first.run(once=True)
    second = job("second")
    second.to_table(second.topic(sink, format="avro", time="window.start"), str(tmp_path / "table"))
    second.run(once=True)
    assert counts_of(in_table(tmp_path / "table")) == counted(events(0, 60))

    before = sizes(broker, sink)
    other = {"type": "record", "name": "Other", "fields": [{"name": "airport", "type": "string"}, {"name": "seats", "type": "int"}]}
    for schema, problem in (
        ("latest", f"subject {sink}-value: the schema has no field at, number; it has window, airport, count"),
        (json.dumps(other), f"subject {sink}-value: the schema of the rows is not compatible: "),
    ):
        third = job("third")
        rows = third.topic(source, format="json", schema=SCHEMA, time="at").select("at", "airport", "number")
        third.to_topic(rows, sink, format="avro", schema=schema)
        with pytest.raises(StreamError, match=problem):
            third.run(once=True)
    with RegistryClient(moldau_registry_url) as registry:
        assert registry.versions(f"{sink}-value") == [1]
    assert sizes(broker, sink) == before


def test_protobuf(broker: Broker, spark: Any, topics: tuple[str, str], tmp_path: Path, moldau_registry_url: str) -> None:
    """The columns of the latest schema; what is no such message is put aside, stops the job, or is left out and counted."""
    source, sink = topics
    with RegistryClient(moldau_registry_url) as registry:
        number = registry.register(f"{source}-value", PROTO, type="PROTOBUF")
        kind: Any = GetMessageClass(message_at(schema_file(registry.schema(number), registry), [0]))
    values = []
    for minute in range(6):
        flight = kind(airport="EWR", number=minute, stops=["ORD"])
        flight.at.FromSeconds(1357000000 + 60 * minute)
        values.append(frame(number, b"\x00" + flight.SerializeToString()))
    send(broker.bootstrap_servers, source, [*values, b"no frame"])

    def job(name: str, **given: Any) -> StreamJob:
        made = StreamJob(
            f"{source}-{name}", brokers=broker.bootstrap_servers, registry=moldau_registry_url, directory=str(tmp_path / name), spark=spark
        )
        rows = made.topic(source, format="protobuf", time="at", **given)
        made.to_topic(rows.select("event_time", "airport", "number", "stops"), sink)
        return made

    with pytest.raises(BatchError, match=rf"{source}-0: offset 3: the first byte is 0x6e, not 0x00"):
        job("stop").run(once=True)
    assert in_topic(broker.bootstrap_servers, sink) == []
    job("aside", undecodable="dead-letters").run(once=True)
    found = in_topic(broker.bootstrap_servers, sink)
    assert sorted((row["number"], row["event_time"], row["airport"], *row["stops"]) for row in found) == [
        (minute, f"2013-01-01T00:2{6 + minute}:40.000Z" if minute < 4 else f"2013-01-01T00:3{minute - 4}:40.000Z", "EWR", "ORD")
        for minute in range(6)
    ]
    (file,) = (tmp_path / "aside" / "dead-letters" / source).glob("*.parquet")
    assert parquet.read_table(file).column("value").to_pylist() == [b"no frame"]
    switched_to(broker.bootstrap_servers, f"{source}-aside", 2)
    broker.create_topic(f"{sink}.v2", 2)
    job("aside", undecodable="dead-letters").run(once=True)
    (again,) = (tmp_path / "aside" / "dead-letters" / f"{source}@2").glob("*.parquet")
    assert parquet.read_table(again).column("value").to_pylist() == [b"no frame"], "what another generation reads it puts aside itself"
    job("skip", undecodable="skip").run(once=True)
    operator = StreamOperator(broker.bootstrap_servers)
    (query,) = operator.status(f"{source}-skip")["queries"]
    operator.close()
    assert query["inputs"][source]["undecodable"] == 1


def test_late_rows_of_protobuf_have_the_columns_of_the_stream(
    broker: Broker, spark: Any, topics: tuple[str, str], tmp_path: Path, moldau_registry_url: str
) -> None:
    """Those of the version that was the latest when the job was made, though another one came before the batch was read again."""
    source, sink = topics
    registry = RegistryClient(moldau_registry_url)

    def register(text: str) -> tuple[int, Any]:
        number = registry.register(f"{source}-value", text, type="PROTOBUF")
        return number, GetMessageClass(message_at(schema_file(registry.schema(number), registry), [0]))

    def sent(schema: tuple[int, Any], *minutes: int, **fields: str) -> None:
        values = []
        for minute in minutes:
            flight = schema[1](number=minute, **fields)
            flight.at.FromSeconds(1357000000 + 60 * minute)
            values.append(frame(schema[0], b"\x00" + flight.SerializeToString()))
        send(broker.bootstrap_servers, source, values)

    def job() -> StreamJob:
        made = StreamJob(source, brokers=broker.bootstrap_servers, registry=moldau_registry_url, directory=str(tmp_path), spark=spark)
        rows = made.topic(source, format="protobuf", time="at")
        counts = windows.tumbling(rows, "1 hour", "airport")
        made.to_table(counts, str(tmp_path / "hours"))
        made.late_to_topic(counts, sink)
        return made

    first = register(PROTO)
    sent(first, 500, 501, airport="EWR")
    job().run(once=True)
    running = job()
    second = register(PROTO.replace("airport = 2;", "origin = 2; string tail = 5;"))
    sent(second, 100, origin="JFK", tail="N1")
    running.run(once=True)
    registry.close()
    (late,) = in_topic(broker.bootstrap_servers, sink)
    assert (late["number"], late["airport"]) == (100, "JFK")
    assert not {"origin", "tail"} & late.keys()


def test_json_in_dead_letters(broker: Broker, spark: Any, topics: tuple[str, str], tmp_path: Path) -> None:
    """As the source puts them aside for Avro: once, also when the batch is repeated; the others come with their watermark."""
    source, sink = topics
    send(broker.bootstrap_servers, source, [*events(0, 4), b"no object", b'{"number": "seven"}', b""])
    folder = tmp_path / "job" / "dead-letters" / source

    def run(key: str, **given: Any) -> None:
        job = StreamJob(source, brokers=broker.bootstrap_servers, directory=str(tmp_path / "job"), spark=spark)
        rows = job.topic(source, format="json", schema=SCHEMA, time="at", undecodable="dead-letters")
        job.to_topic(rows, sink, key=key)
        job.run(once=True, **given)

    broker.create_topic(f"{sink}.v2", 2)
    for generation in (1, 1, 2):
        if generation == 2:
            had = sorted(folder.iterdir())
            switched_to(broker.bootstrap_servers, source, 2)
            folder = folder.with_name(f"{source}@2")
        run("airport", fresh=True)
        letters = [row for file in sorted(folder.glob("*.parquet")) for row in parquet.read_table(file).to_pylist()]
        assert sorted((row["partition"], row["offset"], row["value"]) for row in letters) == [
            (0, 2, b"no object"),
            (0, 3, b""),
            (1, 2, b'{"number": "seven"}'),
        ]
        assert {(row["topic"], row["error"]) for row in letters} == {(source, "the value is no JSON object of the input's schema")}
    assert sorted(row["number"] for row in in_topic(broker.bootstrap_servers, sink)) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert not list(folder.glob(".*"))
    assert sorted(folder.with_name(source).iterdir()) == had, "each generation has a directory of its own"
    operator = StreamOperator(broker.bootstrap_servers)
    (query,) = operator.status(source)["queries"]
    operator.close()
    assert query["inputs"][source]["undecodable"] == 3
