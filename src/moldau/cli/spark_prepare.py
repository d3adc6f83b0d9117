"""``moldau spark prepare``: what each start of Spark on this host uses from then on."""

import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from moldau.cli.output import human_bytes, say

if TYPE_CHECKING:
    from moldau.lake.spark_home import PreparedSpark
    from moldau.lake.spark_processes import SparkProcesses

_LIMIT_S = 600.0
_VARIABLE = "MOLDAU_SPARK_PREPARE"
_OF_CLASS_PATHS = ("SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH", "HADOOP_CONF_DIR", "YARN_CONF_DIR")


@click.command("prepare")
def prepare() -> None:
    """Make an archive of the classes that Spark's Java loads, once for a Java and a pyspark: jobs, loads and the demo start faster with it.

    It takes a minute or two, in which Spark and a broker run on the loopback interface, and 200 MB in MOLDAU_SPARK_CACHE, else
    $XDG_CACHE_HOME/moldau/spark, else ~/.cache/moldau/spark. Where it does not fit any more Spark starts without it: call it again after
    another Java or pyspark was installed. docs/load.md has what it brings.

    \b
      moldau spark prepare
    """
    from moldau.lake.session import SessionError, check_spark
    from moldau.lake.spark_home import cache_directory, prepare_spark, prepared_spark

    try:
        check_spark("1g")
    except SessionError as error:
        raise click.ClickException(str(error)) from error
    if home := os.environ.get("SPARK_HOME"):
        raise click.ClickException(f"Spark is started from SPARK_HOME, {home}, as it is: what would be made here is for starts without it")
    directory = cache_directory()
    if directory is None:
        raise click.ClickException("there is no home directory to keep it in; MOLDAU_SPARK_CACHE names another one")
    if ":" in str(directory):
        raise click.ClickException(f"{directory}: Java has no colons in the names of a class path; MOLDAU_SPARK_CACHE names another one")
    began = time.monotonic()
    try:
        made = prepare_spark(directory, _run, on_wait=partial(say, "another process is making it; waiting", err=True))
        archive = prepared_spark(directory).archive
        size = human_bytes(archive.stat().st_size)
    except OSError as error:
        raise click.ClickException(f"{error.filename or directory}: {(error.strerror or str(error)).lower()}") from error
    say(f"{archive}: made in {time.monotonic() - began:.0f} s, {size}" if made else f"{archive}: it is there already, {size}")


def _run(prepared: "PreparedSpark", archive: Path) -> None:
    """Have a Spark write the archive. click.ClickException if it does not, or if Java cannot use it."""
    from moldau.lake.spark_processes import SparkProcesses

    say("Spark runs once, to find the classes that it loads; that takes a minute or two", err=True)
    processes = SparkProcesses(prefix="moldau-prepare-", variable=_VARIABLE)
    try:
        class_path = _exercise(prepared, archive, processes)
        _check(archive, class_path, processes.directory)
    finally:
        processes.end()


def _exercise(prepared: "PreparedSpark", archive: Path, processes: "SparkProcesses") -> str:
    """The class path that the archive fits."""
    from moldau.lake.class_archive import writing
    from moldau.lake.java_options import OPTIONS_VARIABLE, before_given, java_options
    from moldau.testing.broker import Broker

    directory = Path(processes.directory)
    temporary = directory / "tmp"
    temporary.mkdir()
    options = java_options((*quick_options(), *writing(archive)))
    output, errors = directory / "output", directory / "errors"
    with Broker(directory=directory / "broker") as broker, processes.starting(), output.open("w") as out, errors.open("w") as err:
        environment = {
            **{name: value for name, value in os.environ.items() if name not in _OF_CLASS_PATHS},
            "SPARK_HOME": str(prepared.home),
            OPTIONS_VARIABLE: before_given(options),
            "TMPDIR": str(temporary),
        }
        command = [sys.executable, "-m", "moldau.streams.spark_exercise", broker.bootstrap_servers, str(directory)]
        try:
            done = subprocess.run(command, env=environment, stdout=out, stderr=err, timeout=_LIMIT_S, check=False)
        except subprocess.TimeoutExpired as error:
            processes.keep_directory()
            raise click.ClickException(f"Spark has not ended after {_LIMIT_S:.0f} s; more in {directory}") from error
    if done.returncode != 0:
        processes.keep_directory()
        lines = errors.read_text(errors="replace").split("\n")
        reason = next((line for line in reversed(lines) if line.strip()), "it was killed")
        raise click.ClickException(f"no archive was made: {reason}; more in {directory}")
    return output.read_text().strip()


def quick_options() -> tuple[str, ...]:
    """Without a collector where the environment has one: Java refuses two."""
    from moldau.lake.java_options import SERIAL_COLLECTOR, given_options, names_collector
    from moldau.lake.session import QUICK_COMPILER

    return (QUICK_COMPILER,) if names_collector(given_options()) else (QUICK_COMPILER, SERIAL_COLLECTOR)


def _check(archive: Path, class_path: str, directory: str) -> None:
    """Java can use it: with this option it does not start without one. A full disk leaves a part of an archive."""
    from moldau.lake.class_archive import java_program

    command = [str(java_program()), "-Xshare:on", f"-XX:SharedArchiveFile={archive}", "-cp", class_path, "-version"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not archive.exists():
        reason = next((line for line in (done.stdout + done.stderr).splitlines() if line.strip(" #")), "there is no file")
        raise click.ClickException(f"Java has made no archive that it can use: {reason.strip(' #')}")
