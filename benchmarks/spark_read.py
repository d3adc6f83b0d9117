"""A topic read by Spark in batch: our data source beside Spark's own Kafka connector, in one session, from the same broker.

    python benchmarks/spark_read.py [--records 1000000] [--runs 3] [--out FILE]

Two partitions of 200-byte values, `moldau serve` in a process of its own, Spark on two cores. Each test is run once to warm up; then
the two sources take turns. JSON lines: source, test, seconds of each run, median rate in records per second. The connector's jars come from
Maven Central, as for the tests; without Maven only our own source is measured.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.server import ServerProcess
from support.spark import connector_jars, spark_session

TOPIC, PARTITIONS, SIZE = "read", 2, 200


def fill(bootstrap: str, records: int) -> None:
    """Make the topic."""
    from confluent_kafka import Producer

    from moldau.client.admin import Admin
    from moldau.client.cluster import Cluster

    with Cluster(bootstrap) as cluster:
        Admin(cluster).create_topic(TOPIC, PARTITIONS)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "queue.buffering.max.messages": 1_000_000, "log_level": 3})
    for number in range(records):
        producer.produce(TOPIC, b"%012d" % number + b"x" * (SIZE - 12), partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0


def tests(spark: Any, bootstrap: str, source: str, space: Path) -> dict[str, Callable[[], int]]:
    """What is measured; each gives the number of records it saw."""
    frame = spark.read.format(source).options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": TOPIC}).load()

    def parquet() -> int:
        target = str(space / f"{source}.parquet")
        frame.select("partition", "offset", "timestamp", "value").write.mode("overwrite").parquet(target)
        return int(spark.read.parquet(target).count())

    return {
        "count": lambda: int(frame.count()),
        "sum of lengths": lambda: int(frame.selectExpr("sum(length(value))").first()[0]) // SIZE,
        "parquet": parquet,
    }


def main() -> None:
    """Fill a topic, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="moldau-bench-") as name, ServerProcess(Path(name, "data")) as server:
        fill(server.bootstrap, given.records)
        spark = spark_session()
        sources = ["moldau", "kafka"] if connector_jars() else ["moldau"]
        work = {source: tests(spark, server.bootstrap, source, Path(name)) for source in sources}
        for test in work["moldau"]:
            seconds: dict[str, list[float]] = {source: [] for source in sources}
            for run in range(given.runs + 1):
                for source in sources:
                    begun = time.perf_counter()
                    seen = work[source][test]()
                    assert seen == given.records, f"{source}: {test} saw {seen} of {given.records} records"
                    if run:
                        seconds[source].append(round(time.perf_counter() - begun, 3))
            for source in sources:
                rate = round(given.records / statistics.median(seconds[source]))
                line = json.dumps({"test": f"spark {test}", "source": source, "seconds": seconds[source], "rate": rate})
                print(line, flush=True)
                if given.out:
                    with Path(given.out).open("a") as file:
                        file.write(line + "\n")
        spark.stop()


if __name__ == "__main__":
    main()
