"""A program that has Spark load the classes which most tests with Spark need, and ends it in order, so that Java writes their archive."""

import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import functions

from moldau.lake.loading.load import load
from moldau.lake.session import start_spark
from moldau.lake.spark_processes import SparkProcesses
from moldau.lake.table import read_table
from moldau.streams import StreamJob
from moldau.testing.broker import Broker
from support import stream_jobs
from support.killed_jobs import JOBS, Topics
from support.load_world import LoadWorld

_END_S = 120.0


def exercise(broker: Broker, spark: Any, directory: Path) -> None:
    """Streams with and without state, a load, and queries over what they wrote."""
    for name in ("counts", "join"):
        _stream(broker, spark, directory, name)
    world = LoadWorld(broker, directory, writers=1)
    world.publish(100)
    load(spark, world.job)
    frame = read_table(spark, world.job.table)
    frame.createOrReplaceTempView("events")
    spark.sql("SELECT text, count(*) AS n, sum(n) AS total FROM events GROUP BY text ORDER BY n DESC").collect()
    frame.alias("a").join(frame.alias("b"), "n").select(functions.udf(len, "int")("a.text").alias("size")).distinct().toPandas()
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "counts-in"}
    rows = spark.read.format("moldau").options(**options).load().selectExpr("CAST(value AS string) AS text", "partition").cache()
    rows.groupBy("partition").agg(functions.max("text")).collect()
    rows.unionAll(rows).write.parquet(str(directory / "rows"))
    spark.read.parquet(str(directory / "rows")).count()


def _stream(broker: Broker, spark: Any, directory: Path, name: str) -> None:
    topics = Topics(f"{name}-in", f"{name}-other", f"{name}-out")
    for each in (topics.source, topics.other, topics.sink):
        broker.create_topic(each, 2)
    for topic, values in zip((topics.source, topics.other), JOBS[name].hour(0), strict=True):
        stream_jobs.send(broker.bootstrap_servers, topic, values)
    job = StreamJob(name, brokers=broker.bootstrap_servers, directory=str(directory / f"job-{name}"), spark=spark)
    rows = JOBS[name].rows(job, topics)
    job.to_topic(rows, topics.sink)
    job.to_table(rows, str(directory / name))
    job.run(once=True)


def _end(spark: Any, wait: Callable[[float], object]) -> None:
    """Java ends amid the call."""
    with suppress(Py4JError, OSError):
        spark._jvm.java.lang.System.exit(0)
    wait(_END_S)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory, Broker(registry=True) as broker:
        processes = SparkProcesses()
        spark = start_spark("exercise", processes.directory, processes=processes)
        exercise(broker, spark, Path(directory))
        _end(spark, spark.sparkContext._gateway.proc.wait)
        processes.end()
