"""Spark writes to topics by ``format("moldau")``: batches and streams, at least once or, on request, each row once (mission I1).

What is in the topics is read by librdkafka's consumer.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from moldau.lake.writing.points import DIE_AT, DIE_ONCE
from moldau.testing.broker import Broker
from support.spark import connector_jars, spark_session
from support.spark_write import seen

pytestmark = [pytest.mark.system, pytest.mark.spark]

PARTITIONS = 2
ROWS = """SELECT
    CASE WHEN id % 10 = 0 THEN NULL ELSE concat('value-', id) END AS value, encode(concat('key-', id % 17), 'utf-8') AS key,
    CASE WHEN id % 3 = 0 THEN array(named_struct('key', 'n', 'value', encode(string(id), 'utf-8'))) END AS headers,
    CASE WHEN id % 5 = 0 THEN int(1) END AS partition, id AS offset
FROM range(500)"""


@pytest.fixture(scope="module")
def spark() -> Any:
    return spark_session()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def topic(broker: Broker) -> str:
    return broker.create_topic(broker.unique_topic("sink"), PARTITIONS)


def to(frame: Any, broker: Broker, **options: str) -> Any:
    return frame.write.format("moldau").mode("append").options(**{"kafka.bootstrap.servers": broker.bootstrap_servers, **options})


def records(broker: Broker, topic: str) -> list[tuple[Any, ...]]:
    """Partition, key, value and headers of each record."""
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader", "enable.partition.eof": True}
    consumer = Consumer({**settings, "enable.auto.commit": False, "fetch.wait.max.ms": 10})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found: list[Message] = []
    ends = 0
    while ends < PARTITIONS:
        message = consumer.poll(30)
        assert message is not None
        ends, found = (ends + 1, found) if message.error() else (ends, [*found, message])
    consumer.close()
    return sorted((m.partition(), str(m.key()), str(m.value()), str(m.headers())) for m in found)


def publish(broker: Broker, topic: str, count: int) -> list[bytes]:
    values = [b"%05d" % number for number in range(count)]
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 3})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    return values


def stream(spark: Any, broker: Broker, source: str, target: str, checkpoint: Path, **options: str) -> None:
    """Copy all there is, ten records at a time."""
    reading = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": source, "startingOffsets": "earliest"}
    frame = spark.readStream.format("moldau").options(**reading, maxOffsetsPerTrigger="10").load().select("value").repartition(2)
    writing = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": target, "checkpointLocation": str(checkpoint)}
    frame.writeStream.format("moldau").options(**writing, **options).trigger(availableNow=True).start().awaitTermination()


def test_a_frame_becomes_the_records_that_the_connector_makes_of_it(spark: Any, broker: Broker, topic: str) -> None:
    frame = spark.sql(ROWS)
    to(frame, broker, topic=topic, compression="lz4").save()
    ours = records(broker, topic)
    assert len(ours) == 500
    assert sum(value == "None" for _, _, value, _ in ours) == 50, "a null value is a tombstone"
    if connector_jars() is None:
        pytest.skip("Spark's Kafka connector is not there to compare with")
    theirs = broker.create_topic(broker.unique_topic("sink"), PARTITIONS)
    frame.write.format("kafka").options(**{"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": theirs}).save()
    assert records(broker, theirs) == ours, "to the same partitions, too"


def test_rows_go_to_the_topics_that_they_name(spark: Any, broker: Broker, topic: str) -> None:
    other = broker.create_topic(broker.unique_topic("sink"), PARTITIONS)
    frame = spark.range(100).selectExpr("string(id) value", f"CASE WHEN id < 30 THEN '{topic}' ELSE '{other}' END topic")
    to(frame, broker).save()
    assert len(seen(broker.bootstrap_servers, topic, PARTITIONS)) == 30
    assert len(seen(broker.bootstrap_servers, other, PARTITIONS)) == 70


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (["string(id) value"], {"linger": "5"}, "option linger: is not known"),
        (["id value"], {}, "column value is string or binary, not bigint"),
        (["string(id) value", "int(7) partition"], {}, r"row 0 of the task names partition 7 of topic \S+, which has 2 partitions"),
        (["repeat('x', 2000000) value"], {}, r"topic \S+, partition \d: row 0 of the task not written: .*max.message.bytes"),
    ],
    ids=["option", "column", "partition", "too large"],
)
def test_what_cannot_be_written_fails_by_name(
    columns: list[str], options: dict[str, str], message: str, spark: Any, broker: Broker, topic: str
) -> None:
    with pytest.raises(Exception, match=message):
        to(spark.range(1).selectExpr(*columns), broker, topic=topic, **options).save()
    assert seen(broker.bootstrap_servers, topic, PARTITIONS) == []


def test_a_batch_is_seen_whole_or_not_at_all(spark: Any, broker: Broker, topic: str) -> None:
    """One of two tasks fails at its last row."""
    frame = spark.range(0, 40, 1, 2)
    options = {"topic": topic, "transactional": "true", "queryName": topic, "batchId": "1"}
    with pytest.raises(Exception, match="the last row"):
        to(frame.selectExpr("CASE WHEN id = 39 THEN raise_error('the last row') ELSE string(id) END value"), broker, **options).save()
    assert seen(broker.bootstrap_servers, topic, PARTITIONS) == []
    for _ in range(2):  # the second time there is nothing to do
        to(frame.selectExpr("string(id) value"), broker, **options).save()
        assert seen(broker.bootstrap_servers, topic, PARTITIONS) == sorted(b"%d" % number for number in range(40))
    to(frame.limit(1).selectExpr("'once more' value"), broker, topic=topic, transactional="true").save()
    assert len(seen(broker.bootstrap_servers, topic, PARTITIONS)) == 41


def test_a_stream_at_least_once(spark: Any, broker: Broker, topic: str, tmp_path: Path) -> None:
    source = broker.create_topic(broker.unique_topic("source"), PARTITIONS)
    values = publish(broker, source, 25)
    stream(spark, broker, source, topic, tmp_path / "checkpoint")
    assert seen(broker.bootstrap_servers, topic, PARTITIONS) == values


@pytest.mark.parametrize("name", ["flights", None], ids=["by name", "by checkpoint"])
def test_a_batch_that_spark_repeats_is_not_there_twice(name: str | None, spark: Any, broker: Broker, topic: str, tmp_path: Path) -> None:
    """As after a crash between the sink's commit and Spark's own note of it. The same without transactions doubles it."""
    source, checkpoint = broker.create_topic(broker.unique_topic("source"), PARTITIONS), tmp_path / "checkpoint"
    values = publish(broker, source, 12)
    named = {} if name is None else {"queryName": name}
    stream(spark, broker, source, topic, checkpoint, transactional="true", **named)
    last = max(checkpoint.joinpath("commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
    values += publish(broker, source, 5)
    stream(spark, broker, source, topic, checkpoint, transactional="true", **named)
    assert last.exists(), "Spark has repeated the batch"
    assert seen(broker.bootstrap_servers, topic, PARTITIONS) == sorted(values)


_PROGRAM = """
import os, signal, sys
from pathlib import Path
from types import SimpleNamespace
from moldau.lake.session import start_spark
from test_spark_write import stream

bootstrap, source, target, directory = sys.argv[1:]
spark = start_spark("killed", directory + "/spark", task_tries=2)
try:
    stream(spark, SimpleNamespace(bootstrap_servers=bootstrap), source, target, Path(directory, "checkpoint"), transactional="true",
           queryName="killed")
finally:
    os.killpg(0, signal.SIGKILL)
"""


def test_killed_in_the_middle_of_its_commits(spark: Any, broker: Broker, topic: str, tmp_path: Path) -> None:
    """First the process of a task dies, and Spark runs the task again; then the one that commits, and with it all of Spark."""
    source, deaths = broker.create_topic(broker.unique_topic("source"), PARTITIONS), tmp_path / "deaths"
    deaths.mkdir()
    values = publish(broker, source, 15)
    arguments = [broker.bootstrap_servers, source, topic, str(tmp_path)]
    environment = {**os.environ, DIE_AT: "task sent,one committed", DIE_ONCE: str(deaths)}
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).resolve().parents[1])])
    command = [sys.executable, "-c", _PROGRAM, *arguments]
    done = subprocess.run(command, env=environment, start_new_session=True, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert sorted(each.name for each in deaths.iterdir()) == ["one committed", "task sent"], done.stderr
    assert len(seen(broker.bootstrap_servers, topic, PARTITIONS)) < 10, "the first batch is not whole: a transaction of it is open"
    stream(spark, broker, source, topic, tmp_path / "checkpoint", transactional="true", queryName="killed")
    assert seen(broker.bootstrap_servers, topic, PARTITIONS) == values
