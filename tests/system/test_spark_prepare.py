"""``moldau spark prepare`` makes what a start of Spark uses from then on, and leaves nothing else."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.lake.spark_processes import processes_with

pytestmark = [pytest.mark.system, pytest.mark.spark]

COMMAND = [sys.executable, "-m", "moldau", "spark", "prepare"]
LOAD = """
import os, sys
from moldau.lake.session import start_tasks
spark = start_tasks("load", sys.argv[1], memory="2g")
java = spark.sparkContext._gateway.jvm.java.lang.ProcessHandle.current().pid()
print(any(os.environ["MOLDAU_SPARK_CACHE"] in line for line in open(f"/proc/{java}/maps")))
print(sum(spark.sparkContext.parallelize(range(4), 2).map(lambda n: n * n).collect()))
"""
"""As a load starts it, with another heap, collector and compiler than those with which the archive was made."""
MINE = "MOLDAU_TEST_PREPARE"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A cache and a directory for temporary files of our own; and Java options without those of tests."""
    directory = tmp_path_factory.mktemp("prepare")
    (directory / "tmp").mkdir()
    own = {"MOLDAU_SPARK_CACHE": str(directory / "the cache"), "TMPDIR": str(directory / "tmp"), MINE: f"{os.getpid()}"}
    return {**{name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "SPARK_SUBMIT_OPTS")}, **own}


@pytest.fixture(autouse=True)
def nothing_left(environment: dict[str, str]) -> Iterator[None]:
    yield
    limit = time.monotonic() + 30
    while (found := processes_with(f"{MINE}={environment[MINE]}")) and time.monotonic() < limit:
        time.sleep(0.05)
    assert not found
    assert os.listdir(environment["TMPDIR"]) == []


def prepare(environment: dict[str, str]) -> str:
    """Where Java has options of the user's own, one of which is a collector."""
    options = {"SPARK_SUBMIT_OPTS": "-XX:+UseParallelGC"}
    done = subprocess.run(COMMAND, env={**environment, **options}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded(environment: dict[str, str], directory: Path) -> tuple[str, ...]:
    """Whether its Java has mapped the archive, and what the tasks have computed."""
    done = subprocess.run([sys.executable, "-c", LOAD, str(directory)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return tuple(done.stdout.split())


def test_one_that_is_stopped_leaves_nothing(environment: dict[str, str]) -> None:
    """Neither an archive that is none, nor processes of Spark."""
    process = subprocess.Popen(COMMAND, env=environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    limit = time.monotonic() + 120
    while len(processes_with(f"{MINE}={environment[MINE]}")) < 5 and time.monotonic() < limit:  # Java is among them
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.stderr.read().splitlines()[-1] == "interrupted"
    assert process.wait() == 130
    process.stderr.close()
    assert not list(Path(environment["MOLDAU_SPARK_CACHE"]).glob("*.*"))


@pytest.mark.long
def test_what_is_made_is_used(environment: dict[str, str], tmp_path: Path) -> None:
    """By starts of other sizes too; while it is not whole, by none."""
    said = prepare(environment)
    (archive,) = Path(environment["MOLDAU_SPARK_CACHE"]).glob("*.jsa")
    assert re.fullmatch(re.escape(str(archive)) + r": made in \d+ s, \d+\.\d MiB\n", said)
    assert prepare(environment).startswith(f"{archive}: it is there already, ")
    assert loaded(environment, tmp_path / "first") == ("True", "14")
    os.truncate(archive, archive.stat().st_size // 2)
    assert loaded(environment, tmp_path / "second") == ("False", "14")
