"""A program: one load on a Spark cluster of two workers that starts slow tasks a second time, elsewhere.

Spark speculates on clusters only, and never twice on one host: so the workers, which live in the driver's Java process, say that they are
on two addresses of this machine.
"""

import argparse
import os
import sys

import pyarrow as pa

from moldau.lake.loading import task
from moldau.lake.loading.job import LoadJob
from moldau.lake.loading.load import load
from moldau.lake.session import TaskSession
from moldau.lake.spark_processes import SparkProcesses
from support import straggler

_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.ui.enabled": "false",
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.defaultJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.task.maxFailures": "4",
}


def started(directory: str) -> TaskSession:
    """A cluster, and a session on it."""
    from pyspark import SparkConf, SparkContext

    os.makedirs(directory)
    conf = SparkConf(loadDefaults=False).setAll(list(_SETTINGS.items())).set("spark.local.dir", directory)
    SparkContext._ensure_initialized(conf=conf)
    jvm = SparkContext._jvm
    assert jvm is not None
    theirs = jvm.org.apache.spark.SparkConf(False).set("spark.local.dir", directory)
    master = jvm.org.apache.spark.deploy.master.Master.startRpcEnvAndEndpoint("127.0.0.1", 0, 0, theirs)
    url = master._1().address().toSparkURL()
    masters = SparkContext._gateway.new_array(jvm.java.lang.String, 1)  # type: ignore[union-attr]
    masters[0] = url
    for number, host in enumerate(("127.0.0.1", "127.0.0.2")):
        jvm.org.apache.spark.deploy.worker.Worker.startRpcEnvAndEndpoint(
            host, 0, 0, 1, 600, masters, f"{directory}/worker-{number}", jvm.scala.Some(number), theirs, jvm.scala.Option.empty()
        )
    context = SparkContext(conf=conf.setMaster(url).setAppName("speculation"))
    context.setLogLevel("ERROR")
    return TaskSession(context)


def main() -> int:
    """Load the topic's JSON events, which are numbered in ``n``; the numbers of rows and dead letters to standard output."""
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "topic", "table", "dead_letters"):
        parser.add_argument(name)
    given = parser.parse_args()
    job = LoadJob("test", given.bootstrap, given.topic, given.table, given.dead_letters, pa.schema([("n", pa.int64())]), writers=4)
    task.run_tasks = straggler.run_tasks
    processes = SparkProcesses()
    try:
        with processes.starting():
            session = started(f"{processes.directory}/tmp")
        result = load(session, job)
        print(result.rows, result.dead_letters)
    finally:
        processes.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
