"""A program that has Spark's Java load the classes which jobs and loads need, and ends it in order, so that Java writes their archive.

``python -m moldau.streams.spark_exercise BOOTSTRAP DIRECTORY``: the brokers have no topics, and the directory is a temporary one. Java's
options come from the environment. It prints the class path that the archive fits. A class that is not in it is read from its jar, as ever.
"""

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from moldau.client import Producer
from moldau.client.admin import Admin
from moldau.client.cluster import Cluster
from moldau.lake.loading.job import LoadJob
from moldau.lake.loading.load import load
from moldau.lake.session import start_spark
from moldau.lake.spark_processes import SparkProcesses
from moldau.lake.table import read_table
from moldau.streams.job import StreamJob
from moldau.streams.windows import distinct, join, tumbling

_END_S: Final = 120.0
_SCHEMA: Final = "at timestamp, airport string, number int"
_BEGIN: Final = datetime(2013, 1, 1, tzinfo=UTC)
_EVENTS: Final = 120
_PARTITIONS: Final = 2
_IN, _OTHER, _LOADED = "exercise-in", "exercise-other", "exercise-loaded"
_QUERIES: Final = ("plain", "counts", "distinct", "join")


def exercise(spark: Any, bootstrap: str, directory: Path) -> None:
    """Streams with and without state into topics and tables, a load, and queries over what they wrote."""
    with Cluster(bootstrap) as cluster:
        for topic in (_IN, _OTHER, _LOADED, *_QUERIES):
            Admin(cluster).create_topic(topic, _PARTITIONS)
    with Producer(bootstrap, linger_ms=1) as producer:
        for number in range(_EVENTS):
            at = (_BEGIN + timedelta(minutes=number)).isoformat()
            event = json.dumps({"at": at, "airport": ("EWR", "JFK", "LGA")[number % 3], "number": number})
            for topic in (_IN, _OTHER, _LOADED):
                producer.send(topic, event, key=str(number), partition=number % _PARTITIONS)
    _streams(spark, bootstrap, directory)
    _load(spark, bootstrap, directory)
    _queries(spark, bootstrap, directory)


def _streams(spark: Any, bootstrap: str, directory: Path) -> None:
    """A query for each kind; one of them reads two topics."""
    job = StreamJob("exercise", brokers=bootstrap, directory=str(directory / "job"), spark=spark)
    left, right = (job.topic(topic, format="json", schema=_SCHEMA, time="at") for topic in (_IN, _OTHER))
    rows_of = (
        left.filter("number % 2 = 0").select("airport", "number", "event_time"),
        tumbling(left, "1 hour", "airport"),
        distinct(left, "12 hours", "number").select("number", "event_time"),
        join(left, right, "number", before="1 minute", after="10 minutes").select("number", "event_time", "right_event_time"),
    )
    for name, rows in zip(_QUERIES, rows_of, strict=True):
        job.to_topic(rows, name, query=name)
        job.to_table(rows, str(directory / name))
    job.run(once=True)


def _load(spark: Any, bootstrap: str, directory: Path) -> None:
    import pyarrow as pa

    columns = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("airport", pa.string()), ("number", pa.int32())])
    table, dead_letters = (str(directory / name) for name in ("loaded", "dead-letters"))
    load(spark, LoadJob("exercise", bootstrap, _LOADED, table, dead_letters, columns=columns, time="at", writers=1))


def _queries(spark: Any, bootstrap: str, directory: Path) -> None:
    from pyspark.sql import functions

    frame = read_table(spark, str(directory / "loaded"))
    frame.createOrReplaceTempView("events")
    spark.sql("SELECT airport, count(*) AS n, sum(number) AS total FROM events GROUP BY airport ORDER BY n DESC").collect()
    frame.alias("a").join(frame.alias("b"), "number").select(functions.udf(len, "int")("a.airport").alias("size")).distinct().toPandas()
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": _IN}
    rows = spark.read.format("moldau").options(**options).load().selectExpr("CAST(value AS string) AS text", "partition").cache()
    rows.groupBy("partition").agg(functions.max("text")).collect()
    rows.unionAll(rows).write.parquet(str(directory / "rows"))
    spark.read.parquet(str(directory / "rows")).count()


def _end(spark: Any, wait: Callable[[float], object]) -> None:
    """Java ends amid the call."""
    from py4j.protocol import Py4JError

    with suppress(Py4JError, OSError):
        spark._jvm.java.lang.System.exit(0)
    wait(_END_S)


def main(bootstrap: str, directory: Path) -> None:
    """Start Spark, exercise it, and end it."""
    processes = SparkProcesses(str(directory / "spark"))
    try:
        spark = start_spark("moldau spark prepare", processes.directory, processes=processes)
        print(spark._jvm.java.lang.System.getProperty("java.class.path"), flush=True)  # noqa: T201
        exercise(spark, bootstrap, directory)
        _end(spark, spark.sparkContext._gateway.proc.wait)
    finally:
        processes.end()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
