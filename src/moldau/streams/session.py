"""The Spark of a job: the one of spark-submit, or one of this process, as loads start it, whose tasks may run on a cluster."""

import atexit
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from moldau.lake.session import start_spark
from moldau.lake.spark_processes import SparkProcesses

_STREAMING = {
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.adaptive.streaming.stateless.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
}
"""State in RocksDB, of which a batch stores only the changes; times in UTC. An adaptive plan would read a batch before its sink is called,
which is when its tasks get its watermark and the order to count. Spark's usual manager of checkpoint files starts a process
(`readlink`) for each of them in a local directory, several in a batch."""


MASTER_VARIABLE = "MOLDAU_SPARK_MASTER"
"""In the environment: the Spark cluster, where `moldau stream run` is given one."""


def is_submitted() -> bool:
    """Whether spark-submit has started this process, and Spark with it."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def is_shared() -> bool:
    """Whether the Spark that `session` gives may have queries of others: it was there before."""
    from pyspark import SparkContext

    return is_submitted() or SparkContext._active_spark_context is not None


def session(name: str, *, cores: int, memory: str, settings: Mapping[str, str], task_tries: int) -> Any:
    """A session with the settings of streams, and those given: the active one if there is one. SessionError."""
    from pyspark.sql import SparkSession

    wanted = {**_STREAMING, **settings}
    if is_submitted():
        return configured(SparkSession.builder.appName(f"moldau stream {name}").getOrCreate(), wanted)
    active = SparkSession.getActiveSession()
    if active is not None:
        return configured(active, wanted)
    processes = SparkProcesses(prefix="moldau-stream-")
    atexit.register(processes.end)
    return start_spark(
        f"moldau stream {name}",
        processes.directory,
        master=os.environ.get(MASTER_VARIABLE) or None,
        cores=cores,
        memory=memory,
        settings=wanted,
        task_tries=task_tries,
        processes=processes,
    )


def configured(spark: Any, wanted: Mapping[str, str] | None = None) -> Any:
    """The session, with the settings of streams that can be set in one that runs; without a default of Spark only what is missing."""
    from pyspark.errors import AnalysisException

    for key, value in (_STREAMING if wanted is None else wanted).items():
        if spark.conf.isModifiable(key) or spark.conf.get(key, None) is None:  # of the second kind are RocksDB's and the files' manager
            with suppress(AnalysisException):  # it has to be there when Spark starts
                spark.conf.set(key, value)
    return spark
