"""A topic read by Spark: our data source beside Spark's own Kafka connector, in one session, from the same broker.

    python benchmarks/spark_read.py [--scale 1.0] [--runs 3] [--only count,parquet,stream,avro,avro-list,avro-union,micro] [--out FILE]

A million records (times --scale) of 200 bytes in two partitions, `moldau serve` in a process of its own, Spark on two cores. The sources
take turns, another one first in each round; two rounds of each test are to warm up. JSON lines: source, test, seconds, rates in records
per second.

count, sum, parquet: a batch. available-now: a stream of all there is to Parquet, in one batch; stream: in batches of a quarter. avro:
events of 16 fields to typed columns, beside ``from_avro``. avro-list and avro-union: a quarter of the records, with one field more: an
array of two strings, or a union of two types, which is left to fastavro. micro: batches of 20 records, the median of each run. The
connector's jars come from Maven Central, as for the tests; without Maven only our own source is measured. Of the streams there is also a
source `floor`, that makes as many rows of nothing in Python: what Spark itself takes for a source of that kind.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from measure import Results, load_average, spread
from spark_events import LIST_SCHEMA, SCHEMA, SIZE, UNION_SCHEMA, avro_values, plain_values
from spark_rows import CONNECTOR, FLOOR
from spark_turns import bench_session, in_turn
from support.registry import running_registry
from support.server import ServerProcess
from support.spark import connector_jars

RECORDS, PARTITIONS = 1_000_000, 2
MICRO_BATCHES, MICRO_RECORDS = 25, 20
QUARTERS = ("avro-list", "avro-union")
"""Tests of a quarter of the records."""


def fill(bootstrap: str, topic: str, values: list[bytes], records: int) -> None:
    """Make the topic."""
    from confluent_kafka import Producer

    from moldau.client.admin import Admin
    from moldau.client.cluster import Cluster

    with Cluster(bootstrap) as cluster:
        Admin(cluster).create_topic(topic, PARTITIONS)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "queue.buffering.max.messages": 1_000_000, "log_level": 3})
    for number in range(records):
        producer.produce(topic, values[number % len(values)], partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0


class Floor(DataSource):
    """Rows that are all the same, of the columns of a topic."""

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return "floor"

    def schema(self) -> str:
        """Those of a topic."""
        return "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"

    def streamReader(self, schema: StructType) -> "FloorReader":  # noqa: N802  # Spark's names, here and below
        """Of `total` rows, `maxOffsetsPerTrigger` in a batch."""
        return FloorReader(int(self.options["maxOffsetsPerTrigger"]), int(self.options["total"]))


class FloorReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """As many tasks and Arrow batches as `moldau` makes, and no other work."""

    def __init__(self, rows: int, total: int) -> None:
        self.rows = rows
        self.total = total

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """None yet."""
        return {"at": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """One batch more."""
        return {"at": min(start["at"] + self.rows, self.total)}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """A batch."""
        return ReadMaxRows(self.rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The end is known."""

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """A task for few rows, two for many."""
        rows = end["at"] - start["at"]
        return [InputPartition(rows)] if rows < 5_000 else [InputPartition(rows // 2), InputPartition(rows - rows // 2)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The same batch again and again."""
        import pyarrow as pa

        left = partition.value
        count = min(left, 10_000)
        columns = {
            "key": pa.nulls(count, pa.binary()),
            "value": pa.array([b"x" * SIZE] * count, pa.binary()),
            "topic": pa.array(["plain"] * count),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.array([0] * count, pa.timestamp("us", tz="UTC")),
            "timestampType": pa.array([0] * count, pa.int32()),
        }
        batch = pa.record_batch(columns)
        while left > 0:
            yield batch.slice(0, min(left, count))
            left -= count


class Bench:
    """What is measured with one source; each test gives the number of records it saw."""

    def __init__(self, spark: Any, bootstrap: str, registry: str, source: str, space: Path, records: int) -> None:
        self.spark, self.bootstrap, self.registry = spark, bootstrap, registry
        self.source, self.space, self.records = source, space, records
        self.format = "kafka" if source == CONNECTOR else source
        self.round = 0

    def options(self, topic: str, **more: str) -> dict[str, str]:
        """Of both sources."""
        return {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic, **more}

    def batch(self, topic: str, **more: str) -> Any:
        """A frame."""
        return self.spark.read.format(self.format).options(**self.options(topic, **more)).load()

    def count(self) -> int:
        """Nothing but the number of rows."""
        return int(self.batch("plain").count())

    def sum(self) -> int:
        """All values looked at."""
        return int(self.batch("plain").selectExpr("sum(length(value))").first()[0]) // SIZE

    def parquet(self) -> int:
        """Written to files."""
        target = str(self.space / f"{self.format}.parquet")
        self.batch("plain").select("partition", "offset", "timestamp", "value").write.mode("overwrite").parquet(target)
        return int(self.spark.read.parquet(target).count())

    def available_now(self) -> int:
        """Written to files by a stream that stops at the end, in one batch."""
        return self.to_files(self.records)

    def stream(self) -> int:
        """The same in four batches."""
        return self.to_files(self.records // 4)

    def to_files(self, each: int) -> int:
        """A stream in batches of so many records to its end; how many are in the files."""
        self.round += 1
        target, checkpoint = (str(self.space / f"{self.format}-{what}-{self.round}") for what in ("stream", "checkpoint"))
        frame = self.streamed("plain", self.records, each)
        writer = frame.select("partition", "offset", "timestamp", "value").writeStream.format("parquet")
        writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start(target).awaitTermination()
        return int(self.spark.read.parquet(target).count())

    def streamed(self, topic: str, total: int, each: int) -> Any:
        """A stream of all there is, in batches."""
        options = self.options(topic, startingOffsets="earliest", maxOffsetsPerTrigger=str(each))
        if self.source == FLOOR:
            options["total"] = str(total)
        return self.spark.readStream.format(self.format).options(**options).load()

    def decoded(self, topic: str, schema: str) -> Any:
        """Events as columns."""
        if self.source != CONNECTOR:
            return self.batch(topic, format="avro", registry=self.registry)
        from pyspark.sql.avro.functions import from_avro

        bodies = self.batch(topic).selectExpr("substring(value, 6) AS body")
        return bodies.select(from_avro("body", schema).alias("event")).select("event.*")

    def avro(self) -> int:
        """All columns made, counted, and dropped."""
        return self.dropped(self.decoded("avro", SCHEMA))

    def avro_list(self) -> int:
        """The same with an array among them."""
        return self.dropped(self.decoded("avro-list", LIST_SCHEMA))

    def avro_union(self) -> int:
        """The same with a union of two types instead, which fastavro decodes."""
        return self.dropped(self.decoded("avro-union", UNION_SCHEMA))

    def dropped(self, frame: Any) -> int:
        """The number of rows, whose columns have all been made."""
        from pyspark.sql import Observation, functions

        seen = Observation()
        frame.observe(seen, functions.count(functions.lit(1)).alias("rows")).write.format("noop").mode("overwrite").save()
        return int(seen.get["rows"])

    def micro(self) -> float:
        """Median seconds of a small batch, behind the first five."""
        self.round += 1
        frame = self.streamed("micro", MICRO_BATCHES * MICRO_RECORDS, MICRO_RECORDS)
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(self.space / f"{self.format}-micro-{self.round}"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        seen = sum(each.numInputRows for each in query.recentProgress)
        assert seen == MICRO_BATCHES * MICRO_RECORDS, f"{self.source}: {seen} records in small batches"
        batches = [each.durationMs["triggerExecution"] for each in query.recentProgress[5:] if each.numInputRows]
        return float(statistics.median(batches)) / 1000


TESTS = ("count", "sum", "parquet", "available-now", "stream", "avro", "avro-list", "avro-union", "micro")
STREAMED = ("available-now", "stream", "micro")


def main() -> None:
    """Fill topics, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the number of records")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default=",".join(TESTS))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    results, wanted, records = Results(given.out), given.only.split(","), int(RECORDS * given.scale)
    with (
        tempfile.TemporaryDirectory(prefix="moldau-bench-") as name,
        ServerProcess(Path(name, "data")) as server,
        running_registry(server.bootstrap) as registry,
    ):
        fill_topics(server.bootstrap, registry.url, records, wanted)
        spark = bench_session()
        spark.dataSource.register(Floor)
        sources = ["moldau", *([CONNECTOR] if connector_jars() else []), FLOOR]
        every = [Bench(spark, server.bootstrap, registry.url, source, Path(name), records) for source in sources]
        for test in TESTS:
            if test in wanted:
                measure(test, [bench for bench in every if bench.source != FLOOR or test in STREAMED], given.runs, results)
        spark.stop()


def fill_topics(bootstrap: str, registry: str, records: int, wanted: list[str]) -> None:
    """Those that the tests need."""
    from moldau.registry.client import RegistryClient

    client = RegistryClient(registry)  # its connection ends with the process
    if {"count", "sum", "parquet", "available-now", "stream"} & set(wanted):
        fill(bootstrap, "plain", plain_values(), records)
    if "avro" in wanted:
        fill(bootstrap, "avro", avro_values(SCHEMA, client.register("avro-value", SCHEMA)), records)
    for test, schema in zip(QUARTERS, (LIST_SCHEMA, UNION_SCHEMA), strict=True):
        if test in wanted:
            fill(bootstrap, test, avro_values(schema, client.register(f"{test}-value", schema)), records // 4)
    if "micro" in wanted:
        fill(bootstrap, "micro", plain_values(), MICRO_BATCHES * MICRO_RECORDS)


def measure(test: str, benches: list[Bench], runs: int, results: Results) -> None:
    """A line for each source."""
    load = load_average()
    records = benches[0].records // (4 if test in QUARTERS else 1)
    for bench, seconds in zip(benches, in_turn(benches, lambda bench: timed(bench, test, records), runs), strict=True):
        if test == "micro":
            figures: dict[str, Any] = {"ms": spread([round(1000 * each, 1) for each in seconds])}
        else:
            figures = {"records": records, "seconds": spread([round(each, 3) for each in seconds])}
            figures["rate"] = spread([round(records / each) for each in seconds])
        results.write(system=bench.source, test=f"spark read {test}", summary=True, runs=runs, load=load, **figures)


def timed(bench: Bench, test: str, records: int) -> float:
    """Seconds of one run, which has to see all records; of `micro` what it says itself."""
    if test == "micro":
        return bench.micro()
    begun = time.perf_counter()
    seen = getattr(bench, test.replace("-", "_"))()
    elapsed = time.perf_counter() - begun
    assert seen == records, f"{bench.source}: {test} saw {seen} of {records} records"
    return elapsed


if __name__ == "__main__":
    main()
