"""A stream reads each record once, however it is triggered, cut into batches, stopped and started; its group shows how far it is."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException

from moldau.client.admin import Admin
from moldau.client.cluster import Cluster
from moldau.client.groups import Groups
from moldau.model.identity import TopicPartition
from moldau.testing.broker import Broker
from support.spark import spark_session

pytestmark = [pytest.mark.system, pytest.mark.spark]

Rows = list[tuple[str, int, int]]


@pytest.fixture(scope="module")
def spark() -> Any:
    return spark_session()


def produce(moldau: Broker, topic: str, count: int, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": moldau.bootstrap_servers, "log_level": 3})
    for number in range(count):
        producer.produce(topic, str(number), partition=number % partitions)
    assert producer.flush(30) == 0


class Sink:
    """A query that keeps what each batch gave it; its checkpoint is the test's."""

    def __init__(self, spark: Any, moldau: Broker, checkpoint: Path, **options: str) -> None:
        self.batches: dict[int, Rows] = {}
        self._given = {"kafka.bootstrap.servers": moldau.bootstrap_servers, "startingOffsets": "earliest", **options}
        self._spark = spark
        self._checkpoint = checkpoint

    def start(self, **trigger: Any) -> Any:
        frame = self._spark.readStream.format("moldau").options(**self._given).load().select("topic", "partition", "offset")
        return frame.writeStream.foreachBatch(self._keep).option("checkpointLocation", str(self._checkpoint)).trigger(**trigger).start()

    def run(self) -> None:
        """All there is now."""
        self.start(availableNow=True).awaitTermination()

    def _keep(self, batch: Any, number: int) -> None:
        self.batches[number] = sorted((row.topic, row.partition, row.offset) for row in batch.collect())

    @property
    def rows(self) -> Rows:
        return sorted(row for batch in self.batches.values() for row in batch)


def range_of(topic: str, *ends: int) -> Rows:
    return [(topic, partition, offset) for partition, end in enumerate(ends) for offset in range(end)]


def committed(moldau: Broker, group: str) -> dict[TopicPartition, int]:
    with Cluster(moldau.bootstrap_servers) as cluster:
        return {where: found.offset for where, found in Groups(cluster).committed(group).items()}


def test_available_now_in_batches_and_again_after_more_has_come(spark: Any, moldau: Broker, tmp_path: Path) -> None:
    """Batches of the size that was asked for; the group knows of the last one, which Spark never tells a source; no row twice."""
    topic, group = moldau.create_topic(moldau.unique_topic("stream"), 2), moldau.unique_topic("group")
    produce(moldau, topic, 50, 2)
    sink = Sink(spark, moldau, tmp_path, subscribe=topic, maxOffsetsPerTrigger="20", groupId=group, minPartitions="4")
    sink.run()
    assert [len(batch) for batch in sink.batches.values()] == [20, 20, 10]
    assert sink.rows == range_of(topic, 25, 25)
    assert committed(moldau, group) == {TopicPartition(topic, 0): 25, TopicPartition(topic, 1): 25}
    with Cluster(moldau.bootstrap_servers) as cluster:
        Admin(cluster).create_partitions(topic, 3)
    produce(moldau, topic, 9, 3)
    sink.run()
    assert sink.rows == range_of(topic, 28, 28, 3)
    assert committed(moldau, group)[TopicPartition(topic, 2)] == 3
    before = dict(sink.batches)
    sink.run()
    assert sink.batches == before, "nothing new, no batch"


def test_a_batch_whose_commit_is_missing_is_run_again_with_the_same_rows(spark: Any, moldau: Broker, tmp_path: Path) -> None:
    """A driver that dies between the sink and the commit log leaves a batch that was planned; what came since waits for the next."""
    topic = moldau.create_topic(moldau.unique_topic("again"), 2)
    produce(moldau, topic, 30, 2)
    sink = Sink(spark, moldau, tmp_path, subscribe=topic)
    sink.run()
    first = sink.batches.pop(0)
    for name in ("0", ".0.crc"):
        (tmp_path / "commits" / name).unlink()
    produce(moldau, topic, 10, 2)
    sink.run()
    assert sink.batches[0] == first
    assert sink.rows == range_of(topic, 20, 20)


def test_a_running_query_finds_new_topics(spark: Any, moldau: Broker, tmp_path: Path) -> None:
    hint = moldau.unique_topic("found")
    topics = [moldau.create_topic(f"{hint}-a")]
    sink = Sink(spark, moldau, tmp_path, subscribePattern=f"{hint}-.*")
    produce(moldau, topics[0], 5, 1)
    query = sink.start(processingTime="0 seconds")
    try:
        query.processAllAvailable()
        assert sink.rows == range_of(topics[0], 5)
        topics.append(moldau.create_topic(f"{hint}-b"))
        produce(moldau, topics[1], 3, 1)
        query.processAllAvailable()
        assert sink.rows == range_of(topics[0], 5) + range_of(topics[1], 3)
    finally:
        query.stop()


def test_a_batch_waits_for_the_least_number_of_offsets(spark: Any, moldau: Broker, tmp_path: Path) -> None:
    topic = moldau.create_topic(moldau.unique_topic("least"))
    produce(moldau, topic, 2, 1)
    sink = Sink(spark, moldau, tmp_path, subscribe=topic, minOffsetsPerTrigger="10", maxTriggerDelay="1h")
    came = threading.Condition()
    keep = sink._keep

    def notice(batch: Any, number: int) -> None:
        with came:
            keep(batch, number)
            came.notify()

    sink._keep = notice  # type: ignore[method-assign]
    query = sink.start(processingTime="50 milliseconds")
    try:
        with came:
            assert came.wait_for(lambda: len(sink.rows) == 2, 60), "the first batch does not wait"
            produce(moldau, topic, 4, 1)
            assert not came.wait_for(lambda: len(sink.rows) > 2, 1)
            produce(moldau, topic, 6, 1)
            assert came.wait_for(lambda: len(sink.rows) == 12, 60)
    finally:
        query.stop()
    assert [len(batch) for batch in sink.batches.values()] == [2, 10]


def made_anew(moldau: Broker, topic: str) -> None:
    moldau.delete_topic(topic)
    moldau.create_topic(topic, 2)
    produce(moldau, topic, 4, 2)


def truncated(moldau: Broker, topic: str) -> None:
    produce(moldau, topic, 20, 2)
    with Cluster(moldau.bootstrap_servers) as cluster:
        Admin(cluster).delete_records({TopicPartition(topic, 0): 12})


@pytest.mark.parametrize(
    ("happens", "message", "left"),
    [
        (
            made_anew,
            "topic {} was deleted and recreated; the query had reached {}-0 at offset 5, {}-1 at offset 5",
            [(0, 0), (0, 1), (1, 0), (1, 1)],
        ),
        (Broker.delete_topic, "topic {} was deleted, or is read no longer; the query had reached {}-0 at offset 5, {}-1 at offset 5", []),
        (
            truncated,
            "{}-0: offset 5 of [5, 15): the log holds [12, 15)",
            [(0, 12), (0, 13), (0, 14), *((1, offset) for offset in range(5, 15))],
        ),
    ],
)
def test_what_is_lost_between_two_runs(
    spark: Any, moldau: Broker, tmp_path: Path, happens: Callable[[Broker, str], None], message: str, left: list[tuple[int, int]]
) -> None:
    """Fails naming partitions and offsets; with failOnDataLoss=false what is left is read."""
    topic = moldau.create_topic(moldau.unique_topic("lost"), 2)
    produce(moldau, topic, 10, 2)
    sink = Sink(spark, moldau, tmp_path, subscribe=topic)
    sink.run()
    happens(moldau, topic)
    with pytest.raises(StreamingQueryException) as failed:
        sink.run()
    assert message.replace("{}", topic) in str(failed.value)
    careless = Sink(spark, moldau, tmp_path, subscribe=topic, failOnDataLoss="false")
    careless.run()
    assert careless.rows == [(topic, partition, offset) for partition, offset in left]


def test_headers_committed_records_and_a_start_by_time(spark: Any, moldau: Broker, tmp_path: Path) -> None:
    topic = moldau.create_topic(moldau.unique_topic("committed"))
    producer = Producer({"bootstrap.servers": moldau.bootstrap_servers, "transactional.id": topic, "log_level": 3})
    producer.init_transactions(30)
    for number, end in enumerate((producer.commit_transaction, producer.abort_transaction, producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, str(number), timestamp=1_357_000_000_000 + number, headers={"n": str(number)})
        end(30)
    options = {
        "kafka.bootstrap.servers": moldau.bootstrap_servers, "assign": json.dumps({topic: [0]}), "isolationLevel": "read_committed",
        "includeHeaders": "true", "startingTimestamp": "1357000000001",
    }  # fmt: skip
    frame = (
        spark.readStream.format("moldau").schema("value binary, headers array<struct<key:string,value:binary>>").options(**options).load()
    )
    rows: list[Any] = []
    writer = frame.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect())).option("checkpointLocation", str(tmp_path))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert [(bytes(row.value), [(h.key, bytes(h.value)) for h in row.headers]) for row in rows] == [(b"2", [("n", b"2")])]


def test_an_option_of_a_batch_is_refused(spark: Any, moldau: Broker, tmp_path: Path) -> None:
    topic = moldau.create_topic(moldau.unique_topic("refused"))
    with pytest.raises(StreamingQueryException, match="option endingOffsets: has no meaning for a stream: it has no end"):
        Sink(spark, moldau, tmp_path, subscribe=topic, endingOffsets="latest").run()
