"""A topic read by Spark: our data source beside Spark's own Kafka connector, in one session, from the same broker.

    python benchmarks/spark_read.py [--records 1000000] [--runs 3] [--only count,parquet,stream,avro,avro-list,micro] [--out FILE]

Two partitions of 200-byte values, `moldau serve` in a process of its own, Spark on two cores. The sources take turns; two rounds of each
test are to warm up. JSON lines: source, test, seconds of each run, median rate in records per second.

count, sum, parquet: a batch. stream: all there is with Trigger.AvailableNow to Parquet, in batches of a quarter. avro: events of 16
fields to typed columns, beside ``from_avro``. avro-list: the same with an array, which fastavro has to decode row by row. micro:
batches of 20 records, milliseconds each. The connector's jars come from Maven Central, as for the tests; without Maven only our
own source is measured. Of the streams there is also a source `floor`, that makes as many rows of nothing in Python: what Spark itself
takes for a source of that kind.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from spark_turns import bench_session, in_turn
from support.registry import running_registry
from support.server import ServerProcess
from support.spark import connector_jars

PARTITIONS, SIZE = 2, 200
MICRO_BATCHES, MICRO_RECORDS = 25, 20
HEADER = {
    "type": "record",
    "name": "EventHeader",
    "fields": [
        {"name": "time", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "service", "type": "string"},
        {"name": "host", "type": "string"},
        {"name": "datacenter", "type": "string"},
        {"name": "guid", "type": {"type": "fixed", "name": "Guid", "size": 16}},
    ],
}
FIELDS = [
    {"name": "header", "type": HEADER},
    {"name": "carrier", "type": "string"},
    {"name": "flight", "type": "int"},
    {"name": "tailnum", "type": ["null", "string"]},
    {"name": "origin", "type": {"type": "enum", "name": "Origin", "symbols": ["EWR", "JFK", "LGA"]}},
    {"name": "dest", "type": "string"},
    {"name": "dep_delay", "type": ["null", "double"]},
    {"name": "arr_delay", "type": ["null", "double"]},
    {"name": "distance", "type": "long"},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "cancelled", "type": "boolean"},
    {"name": "remark", "type": "string"},
]
SCHEMA = json.dumps({"type": "record", "name": "Flight", "fields": FIELDS})
LIST_SCHEMA = json.dumps(
    {"type": "record", "name": "Flight", "fields": [*FIELDS, {"name": "stops", "type": {"type": "array", "items": "string"}}]}
)


def plain_values() -> list[bytes]:
    """Values without a meaning."""
    return [b"%012d" % number + b"x" * (SIZE - 12) for number in range(1000)]


def avro_values(schema: str, schema_id: int) -> list[bytes]:
    """Events of about SIZE bytes."""
    from moldau.registry.wire import frame
    from support.avro_registry import encoded

    parsed, values = json.loads(schema), []
    for number in range(1000):
        header = {
            "time": 1_357_000_000_000 + number * 1000,
            "service": "departures",
            "host": "jfk-1",
            "datacenter": "nyc",
            "guid": bytes(16),
        }
        event = {
            "header": header, "carrier": "UA", "flight": number * 7, "tailnum": None if number % 50 == 0 else f"N{number:05}",
            "origin": ("EWR", "JFK", "LGA")[number % 3], "dest": "IAH", "dep_delay": None if number % 40 == 0 else float(number % 60),
            "arr_delay": number / 7, "distance": number * 3, "day": 15_706, "cancelled": number % 9 == 0, "remark": "r" * 95,
            "stops": ["ORD", "DEN"],
        }  # fmt: skip
        values.append(frame(schema_id, encoded(parsed, event)))
    return values


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
        self.spark, self.bootstrap, self.registry, self.source, self.space, self.records = (
            spark,
            bootstrap,
            registry,
            source,
            space,
            records,
        )
        self.round = 0

    def options(self, topic: str, **more: str) -> dict[str, str]:
        """Of both sources."""
        return {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic, **more}

    def batch(self, topic: str, **more: str) -> Any:
        """A frame."""
        return self.spark.read.format(self.source).options(**self.options(topic, **more)).load()

    def count(self) -> int:
        """Nothing but the number of rows."""
        return int(self.batch("plain").count())

    def sum(self) -> int:
        """All values looked at."""
        return int(self.batch("plain").selectExpr("sum(length(value))").first()[0]) // SIZE

    def parquet(self) -> int:
        """Written to files."""
        target = str(self.space / f"{self.source}.parquet")
        self.batch("plain").select("partition", "offset", "timestamp", "value").write.mode("overwrite").parquet(target)
        return int(self.spark.read.parquet(target).count())

    def stream(self) -> int:
        """Written to files by a stream that stops at the end."""
        self.round += 1
        target, checkpoint = (str(self.space / f"{self.source}-{what}-{self.round}") for what in ("stream", "checkpoint"))
        frame = self.streamed("plain", self.records, self.records // 4)
        writer = frame.select("partition", "offset", "timestamp", "value").writeStream.format("parquet")
        writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start(target).awaitTermination()
        return int(self.spark.read.parquet(target).count())

    def streamed(self, topic: str, total: int, each: int) -> Any:
        """A stream of all there is, in batches."""
        options = self.options(topic, startingOffsets="earliest", maxOffsetsPerTrigger=str(each))
        if self.source == "floor":
            options["total"] = str(total)
        return self.spark.readStream.format(self.source).options(**options).load()

    def decoded(self, topic: str, schema: str) -> Any:
        """Events as columns."""
        if self.source == "moldau":
            return self.batch(topic, format="avro", registry=self.registry)
        from pyspark.sql.avro.functions import from_avro

        bodies = self.batch(topic).selectExpr("substring(value, 6) AS body")
        return bodies.select(from_avro("body", schema).alias("event")).select("event.*")

    def avro(self) -> int:
        """All columns made, and dropped."""
        self.decoded("avro", SCHEMA).write.format("noop").mode("overwrite").save()
        return self.records

    def avro_list(self) -> int:
        """The same with an array among them."""
        self.decoded("avro-list", LIST_SCHEMA).write.format("noop").mode("overwrite").save()
        return self.records // 4

    def micro(self) -> Iterator[float]:
        """Seconds of each small batch."""
        self.round += 1
        frame = self.streamed("micro", MICRO_BATCHES * MICRO_RECORDS, MICRO_RECORDS)
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(self.space / f"{self.source}-micro-{self.round}"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        for progress in query.recentProgress[5:]:
            if progress.numInputRows:
                yield progress.durationMs["triggerExecution"] / 1000


TESTS = ("count", "sum", "parquet", "stream", "avro", "avro-list", "micro")
STREAMED = ("stream", "micro")


def main() -> None:
    """Fill topics, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default=",".join(TESTS))
    parser.add_argument("--out")
    given = parser.parse_args()
    wanted = given.only.split(",")
    with (
        tempfile.TemporaryDirectory(prefix="moldau-bench-") as name,
        ServerProcess(Path(name, "data")) as server,
        running_registry(server.bootstrap) as registry,
    ):
        fill_topics(server.bootstrap, registry.url, given.records, wanted)
        spark = bench_session()
        spark.dataSource.register(Floor)
        sources = ["moldau", *(["kafka"] if connector_jars() else []), "floor"]
        every = [Bench(spark, server.bootstrap, registry.url, source, Path(name), given.records) for source in sources]
        for test in TESTS:
            if test in wanted:
                benches = [bench for bench in every if bench.source != "floor" or test in STREAMED]
                for line in micro(benches, given.runs) if test == "micro" else measure(test, benches, given.runs):
                    print(line, flush=True)
                    if given.out:
                        with Path(given.out).open("a") as file:
                            file.write(line + "\n")
        spark.stop()


def fill_topics(bootstrap: str, registry: str, records: int, wanted: list[str]) -> None:
    """Those that the tests need."""
    from moldau.registry.client import RegistryClient

    client = RegistryClient(registry)  # its connection ends with the process
    if {"count", "sum", "parquet", "stream"} & set(wanted):
        fill(bootstrap, "plain", plain_values(), records)
    if "avro" in wanted:
        fill(bootstrap, "avro", avro_values(SCHEMA, client.register("avro-value", SCHEMA)), records)
    if "avro-list" in wanted:
        fill(bootstrap, "avro-list", avro_values(LIST_SCHEMA, client.register("avro-list-value", LIST_SCHEMA)), records // 4)
    if "micro" in wanted:
        fill(bootstrap, "micro", plain_values(), MICRO_BATCHES * MICRO_RECORDS)


def measure(test: str, benches: list[Bench], runs: int) -> Iterator[str]:
    """A JSON line for each source."""

    def run(bench: Bench) -> tuple[float, int]:
        work: Callable[[], int] = getattr(bench, test.replace("-", "_"))
        begun = time.perf_counter()
        seen = work()
        elapsed = round(time.perf_counter() - begun, 3)
        assert seen in (bench.records, bench.records // 4), f"{bench.source}: {test} saw {seen} of {bench.records} records"
        return elapsed, seen

    for bench, results in zip(benches, in_turn(benches, run, runs), strict=True):
        seconds = [elapsed for elapsed, _ in results]
        rate = round(results[0][1] / statistics.median(seconds))
        yield json.dumps({"test": f"spark {test}", "source": bench.source, "seconds": seconds, "rate": rate})


def micro(benches: list[Bench], runs: int) -> Iterator[str]:
    """A JSON line for each source: the median of the small batches of all runs."""
    for bench, results in zip(benches, in_turn(benches, lambda each: list(each.micro()), runs), strict=True):
        each = [elapsed for batches in results for elapsed in batches]
        ms = round(1000 * statistics.median(each), 1)
        yield json.dumps({"test": "spark micro", "source": bench.source, "batches": len(each), "ms": ms})


if __name__ == "__main__":
    main()
