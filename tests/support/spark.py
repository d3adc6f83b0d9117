"""One Spark for all tests of a run: starting one takes seconds. With the jars of its Kafka connector and Avro where Maven can be had."""

import atexit
import os
import shutil
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from moldau.lake.session import start_spark
from support.maven import cache_directory, copy_dependencies

_CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.12.0",
    "org.apache.spark:spark-avro_2.13:4.1.1",
)
"""The newest connector in Maven Central, which works in PySpark 4.3.0, and ``from_avro``. What else these jars ask for PySpark brings."""
_POM = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>moldau</groupId><artifactId>spark-connector</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>{}</dependencies>
</project>
"""
_DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>"
)


_FILES = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    )
}
"""Spark's usual one starts a process for each file of a checkpoint."""


@cache
def spark_session() -> Any:
    """A session on two cores, quiet; ends with the process."""
    directory = tempfile.mkdtemp(prefix="moldau-spark-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    jars = connector_jars()
    settings = dict(_FILES)
    if jars:
        settings["spark.jars"] = ",".join(map(str, sorted(jars.glob("*.jar"))))
    return start_spark("tests", directory, settings=settings)


@cache
def connector_jars() -> Path | None:
    """The directory of the connector's jars, fetched once; None without Maven, unless the environment has ``CI``: there it must be."""
    directory = cache_directory() / "jars" / "spark-connector-4.2.0-avro"
    if directory.exists():
        return directory
    if shutil.which("mvn") is None:
        assert not os.environ.get("CI"), "mvn is missing, and with it Spark's Kafka connector"
        return None
    copy_dependencies(directory, _POM.format("".join(_DEPENDENCY.format(*each.split(":")) for each in _CONNECTOR)))
    return directory


def java_of(spark: Any) -> int:
    """The process of its Java."""
    pid: int = spark.sparkContext._gateway.jvm.java.lang.ProcessHandle.current().pid()
    return pid


def commands_below(process: int) -> set[str]:
    """What the processes that a process has started, and those that they have started, were called with, as far as they run now."""
    started: dict[int, list[Path]] = {}
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            started.setdefault(int((each / "stat").read_text().rpartition(")")[2].split()[1]), []).append(each)
    found, left = set(), started.get(process, [])
    while left:
        each = left.pop()
        left += started.get(int(each.name), [])
        with suppress(OSError):
            found.add((each / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found
