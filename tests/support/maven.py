"""Jars from Maven Central, fetched once into a cache and used offline afterwards.

The cache is ``$MOLDAU_CACHE``, else ``moldau`` in the user's cache directory. Where Maven is missing the test is skipped, unless the
environment has ``CI``: there it must not pass by not running.
"""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

_LOG4J = "2.25.4"
_POM = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>moldau</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
</project>
"""
_DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"


def cache_directory() -> Path:
    """Where fetched things are kept between runs."""
    if chosen := os.environ.get("MOLDAU_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "moldau"


def jars(name: str, *coordinates: str) -> Path:
    """A directory with the jars of these ``group:artifact:version`` and of all they need; `name` names it in the cache."""
    directory = cache_directory() / "jars" / name
    if not directory.exists():
        _fetch(directory, coordinates)
    return directory


def kafka_libraries(version: str) -> Path:
    """Apache Kafka's server, tools and clients of one version."""
    coordinates = [f"org.apache.kafka:kafka_2.13:{version}", f"org.apache.kafka:kafka-tools:{version}"]
    if not version.startswith("3."):  # those bring a logger of their own
        coordinates.append(f"org.apache.logging.log4j:log4j-slf4j-impl:{_LOG4J}")
    return jars(f"kafka-{version}", *coordinates)


def connect_libraries(version: str) -> Path:
    """Apache Kafka's Connect with its file connectors, MirrorMaker 2 and Streams, of Kafka 4."""
    parts = ("connect-mirror", "connect-runtime", "connect-file", "kafka-streams")
    logger = f"org.apache.logging.log4j:log4j-slf4j-impl:{_LOG4J}"
    return jars(f"kafka-connect-{version}", *(f"org.apache.kafka:{each}:{version}" for each in parts), logger)


def _fetch(directory: Path, coordinates: tuple[str, ...]) -> None:
    for program in ("mvn", "java"):
        if shutil.which(program) is None:
            message = f"{program} is missing, and with it {', '.join(coordinates)}"
            if os.environ.get("CI"):
                pytest.fail(message)
            pytest.skip(message)
    copy_dependencies(directory, _POM.format(dependencies="".join(_DEPENDENCY.format(*each.split(":")) for each in coordinates)))


def copy_dependencies(directory: Path, project: str) -> None:
    """Fetch the jars that a project asks for: into a directory beside, then rename; one that was cut off leaves nothing that looks whole.

    One at a time: test runs side by side share Maven's repository.
    """
    cache_directory().mkdir(parents=True, exist_ok=True)
    with (cache_directory() / "maven.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if directory.exists():
            return
        partial = directory.with_name(f"{directory.name}.{os.getpid()}.partial")
        partial.mkdir(parents=True)
        try:
            pom = partial / "pom.xml"
            pom.write_text(project)
            command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={partial}"]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}"
            partial.rename(directory)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
