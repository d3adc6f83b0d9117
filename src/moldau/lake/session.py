"""A small Spark session on this machine: quiet, on the loopback interface, in UTC."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def start_spark(name: str, directory: str, *, cores: int = 2, memory: str = "1g", settings: dict[str, str] | None = None) -> Any:
    """Start Spark in this process's own Java process; whatever it writes and prints goes below `directory`.

    The Python tasks run with this interpreter, so that they find what it finds.
    """
    from pyspark.sql import SparkSession

    os.makedirs(os.path.join(directory, "tmp"), exist_ok=True)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(f"local[{cores}]").appName(name)
    for key, value in {**_settings(directory, cores, memory), **(settings or {})}.items():
        builder = builder.config(key, value)
    with _errors_to(os.path.join(directory, "spark.log")):
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
    return spark


def _settings(directory: str, cores: int, memory: str) -> dict[str, str]:
    return {
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.session.timeZone": "UTC",
        "spark.local.dir": os.path.join(directory, "tmp"),
        "spark.sql.warehouse.dir": os.path.join(directory, "warehouse"),
    }


@contextmanager
def _errors_to(path: str) -> Iterator[None]:
    """Standard error of processes started meanwhile goes to a file: Java's warnings, and those of the Python tasks it starts."""
    sys.stderr.flush()
    saved = os.dup(2)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(log, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(log)
