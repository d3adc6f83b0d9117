"""Rows written to a topic by Spark: our sink beside Spark's own Kafka connector, in one session, to the same broker.

    python benchmarks/spark_write.py [--records 1000000] [--runs 3] [--only plain,keyed,lz4,stream,micro] [--out FILE]

Two tasks, two partitions, values of 200 bytes, acks=all and idempotent on both sides, `moldau serve` in a process of its own, Spark on two
cores. Each test is run once to warm up; then the sinks take turns. JSON lines: sink, test, seconds of each run, median rate in rows per
second. `transactional` is our sink with transactional=true.

plain: values. keyed: with keys of 300 kinds. lz4: plain, compressed. stream: all there is of a topic of 200-byte values in batches of a
quarter, AvailableNow. micro: batches of 20 rows, milliseconds each. The connector's jars come from Maven Central, as for the tests;
without Maven only our own sink is measured.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from spark_read import MICRO_BATCHES, MICRO_RECORDS, fill, plain_values
from support.server import ServerProcess
from support.spark import connector_jars, spark_session

PARTITIONS = 2
SINKS = ("moldau", "transactional", "kafka")
TESTS = ("plain", "keyed", "lz4", "stream", "micro")


class Bench:
    """What is measured with one sink; each test gives the number of rows that it wrote."""

    def __init__(self, spark: Any, bootstrap: str, sink: str, space: Path, rows: int) -> None:
        self.spark, self.bootstrap, self.sink, self.space, self.rows = spark, bootstrap, sink, space, rows
        self.round = 0

    def new_topic(self) -> str:
        """An empty one for each run."""
        from moldau.client.admin import Admin
        from moldau.client.cluster import Cluster

        self.round += 1
        name = f"{self.sink}-{self.round}"
        with Cluster(self.bootstrap) as cluster:
            Admin(cluster).create_topic(name, PARTITIONS)
        return name

    def old_topic(self) -> None:
        """Make room."""
        from moldau.client.admin import Admin
        from moldau.client.cluster import Cluster

        with Cluster(self.bootstrap) as cluster:
            Admin(cluster).delete_topic(f"{self.sink}-{self.round}")

    def given(self, writer: Any, topic: str, **options: str) -> Any:
        """A writer of a batch or a stream with its options."""
        options = {"kafka.bootstrap.servers": self.bootstrap, "topic": topic, "kafka.acks": "all", **options}
        if self.sink == "transactional":
            options["transactional"] = "true"
        return writer.format("kafka" if self.sink == "kafka" else "moldau").options(**options)

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
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default=",".join(TESTS))
    parser.add_argument("--out")
    given = parser.parse_args()
    wanted = given.only.split(",")
    with tempfile.TemporaryDirectory(prefix="moldau-bench-") as name, ServerProcess(Path(name, "data")) as server:
        if "stream" in wanted:
            fill(server.bootstrap, "plain", plain_values(), given.records)
        if "micro" in wanted:
            fill(server.bootstrap, "micro", plain_values(), MICRO_BATCHES * MICRO_RECORDS)
        spark = spark_session()
        sinks = SINKS if connector_jars() else SINKS[:-1]
        benches = [Bench(spark, server.bootstrap, sink, Path(name), given.records) for sink in sinks]
        for test in TESTS:
            for line in measure(test, benches, given.runs) if test in wanted else ():
                print(line, flush=True)
                if given.out:
                    with Path(given.out).open("a") as file:
                        file.write(line + "\n")
        spark.stop()


def measure(test: str, benches: list[Bench], runs: int) -> Iterator[str]:
    """A JSON line for each sink."""
    seconds: dict[str, list[float]] = {bench.sink: [] for bench in benches}
    for run in range(runs + 1):
        for bench in benches:
            elapsed = round(getattr(bench, test)(), 3)
            if run:
                seconds[bench.sink].append(elapsed)
    for bench in benches:
        each = seconds[bench.sink]
        middle = statistics.median(each)
        result = {"ms": round(1000 * middle, 1)} if test == "micro" else {"rate": round(bench.rows / middle)}
        yield json.dumps({"test": f"spark write {test}", "sink": bench.sink, "seconds": each, **result})


if __name__ == "__main__":
    main()
