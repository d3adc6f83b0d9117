"""Rows written to a topic by Spark: our sink beside Spark's own Kafka connector, in one session, to the same broker.

    python benchmarks/spark_write.py [--scale 1.0] [--runs 3] [--only plain,keyed,lz4,stream,micro] [--out FILE]

A million rows (times --scale), two tasks, two partitions, values of 200 bytes, acks=all and idempotent on both sides, `moldau serve` in a
process of its own, Spark on two cores. The sinks take turns, another one first in each round; two rounds warm up. JSON lines: sink, test,
seconds, rates in rows per second. `moldau transactional` is our sink with transactional=true.

plain: values. keyed: with keys of 300 kinds. lz4: plain, compressed. stream: all there is of a topic of 200-byte values in batches of a
quarter, AvailableNow, read by our source for all sinks. micro: batches of 20 rows, the median of each run. The connector's jars come from
Maven Central, as for the tests; without Maven only our own sink is measured.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from measure import Results, load_average, spread
from spark_events import plain_values
from spark_read import MICRO_BATCHES, MICRO_RECORDS, fill
from spark_rows import CONNECTOR
from spark_turns import bench_session, in_turn
from support.server import ServerProcess
from support.spark import connector_jars

ROWS, PARTITIONS = 1_000_000, 2
TRANSACTIONAL = "moldau transactional"
SINKS = ("moldau", TRANSACTIONAL, CONNECTOR)
TESTS = ("plain", "keyed", "lz4", "stream", "micro")


class Bench:
    """What is measured with one sink; each test gives the number of rows that it wrote."""

    def __init__(self, spark: Any, bootstrap: str, sink: str, space: Path, rows: int) -> None:
        self.spark, self.bootstrap, self.sink, self.space, self.rows = spark, bootstrap, sink, space, rows
        self.round = 0

    def topic(self) -> str:
        """That of this run."""
        return f"{self.sink}-{self.round}".replace(" ", "-")

    def new_topic(self) -> str:
        """An empty one for each run."""
        from moldau.client.admin import Admin
        from moldau.client.cluster import Cluster

        self.round += 1
        name = self.topic()
        with Cluster(self.bootstrap) as cluster:
            Admin(cluster).create_topic(name, PARTITIONS)
        return name

    def old_topic(self) -> None:
        """Make room."""
        from moldau.client.admin import Admin
        from moldau.client.cluster import Cluster

        with Cluster(self.bootstrap) as cluster:
            Admin(cluster).delete_topic(self.topic())

    def given(self, writer: Any, topic: str, **options: str) -> Any:
        """A writer of a batch or a stream with its options."""
        options = {"kafka.bootstrap.servers": self.bootstrap, "topic": topic, "kafka.acks": "all", **options}
        if self.sink == TRANSACTIONAL:
            options["transactional"] = "true"
        return writer.format("kafka" if self.sink == CONNECTOR else "moldau").options(**options)

    def batch(self, *columns: str, **options: str) -> float:
        """Seconds."""
        topic = self.new_topic()
        frame = self.spark.range(0, self.rows, 1, PARTITIONS).selectExpr(*columns)
        begun = time.perf_counter()
        self.given(frame.write, topic, **options).mode("append").save()
        return self.checked(topic, time.perf_counter() - begun)

    def checked(self, topic: str, seconds: float) -> float:
        """The rows are all there."""
        from moldau.client.cluster import Cluster
        from moldau.client.partition_requests import LATEST
        from moldau.model.identity import TopicPartition

        with Cluster(self.bootstrap) as cluster:
            ends = cluster.list_offsets({TopicPartition(topic, number): LATEST for number in range(PARTITIONS)})
        there = sum(each.offset for each in ends.values())
        assert self.rows <= there <= self.rows + 64, f"{there} of {self.rows} rows, and a few markers"
        self.old_topic()
        return seconds

    def plain(self) -> float:
        """Values alone."""
        return self.batch(VALUE)

    def keyed(self) -> float:
        """With keys."""
        return self.batch(VALUE, "concat('key-', id % 300) AS key")

    def lz4(self) -> float:
        """Compressed."""
        return self.batch(VALUE, **{"kafka.compression.type": "lz4"})

    def query(self, source: str, topic: str, per_batch: int) -> Any:
        """A stream to its end."""
        reading = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": source, "startingOffsets": "earliest"}
        frame = self.spark.readStream.format("moldau").options(**reading, maxOffsetsPerTrigger=str(per_batch)).load().select("value")
        checkpoint = str(self.space / f"checkpoint-{topic}")
        query = self.given(frame.writeStream, topic, checkpointLocation=checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        return query

    def stream(self) -> float:
        """From a topic to another one."""
        topic = self.new_topic()
        begun = time.perf_counter()
        self.query("plain", topic, self.rows // 4)
        return self.checked(topic, time.perf_counter() - begun)

    def micro(self) -> float:
        """Median seconds of a small batch."""
        query = self.query("micro", self.new_topic(), MICRO_RECORDS)
        self.old_topic()
        batches = [each.durationMs["triggerExecution"] for each in query.recentProgress[5:] if each.numInputRows]
        return float(statistics.median(batches)) / 1000


VALUE = "concat(lpad(string(id), 12, '0'), repeat('x', 188)) AS value"


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the number of rows")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default=",".join(TESTS))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    results, wanted, rows = Results(given.out), given.only.split(","), int(ROWS * given.scale)
    with tempfile.TemporaryDirectory(prefix="moldau-bench-") as name, ServerProcess(Path(name, "data")) as server:
        if "stream" in wanted:
            fill(server.bootstrap, "plain", plain_values(), rows)
        if "micro" in wanted:
            fill(server.bootstrap, "micro", plain_values(), MICRO_BATCHES * MICRO_RECORDS)
        spark = bench_session()
        sinks = SINKS if connector_jars() else SINKS[:-1]
        benches = [Bench(spark, server.bootstrap, sink, Path(name), rows) for sink in sinks]
        for test in TESTS:
            if test in wanted:
                measure(test, benches, given.runs, results)
        spark.stop()


def measure(test: str, benches: list[Bench], runs: int, results: Results) -> None:
    """A line for each sink."""
    load = load_average()
    for bench, seconds in zip(benches, in_turn(benches, lambda bench: float(getattr(bench, test)()), runs), strict=True):
        if test == "micro":
            figures: dict[str, Any] = {"ms": spread([round(1000 * each, 1) for each in seconds])}
        else:
            figures = {"rows": bench.rows, "seconds": spread([round(each, 3) for each in seconds])}
            figures["rate"] = spread([round(bench.rows / each) for each in seconds])
        results.write(system=bench.sink, test=f"spark write {test}", summary=True, runs=runs, load=load, **figures)


if __name__ == "__main__":
    main()
