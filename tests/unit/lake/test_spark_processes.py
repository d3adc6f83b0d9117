"""Nothing that was started for a Spark outlives its owner, at whatever moment and however that ends; nor does its temporary directory."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moldau.adapters.temporary_directory import remove_left_behind
from moldau.lake.session import LazySpark
from moldau.lake.spark_processes import TOKEN, SparkProcesses, processes_with

pytestmark = pytest.mark.system

OWNER = """
import os, subprocess, sys, time
from moldau.lake.spark_processes import SparkProcesses
found = SparkProcesses(prefix="moldau-test-left-")
with found.starting():
    subprocess.Popen(["sh", "-c", "sleep 600 & setsid sleep 600 & nohup sleep 600"], start_new_session=True)
print(os.environ.get("MOLDAU_SPARK_OWNER"), found._token, found.directory, flush=True)
time.sleep(600)
"""
"""Starts what hides as well as it can: children of children, in sessions of their own."""


def until(done: Callable[[], bool], seconds: float = 30.0) -> bool:
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        if done():
            return True
        time.sleep(0.02)
    return done()


@pytest.fixture
def owner() -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """The process, the token of its children, and its directory."""
    process = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    outside, token, directory = process.stdout.readline().split()
    assert (outside, os.path.isdir(directory)) == ("None", True), "what is started otherwise has no token"
    assert until(lambda: len(processes_with(token)) == 4)
    yield process, token, directory
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_whatever_ends_the_owner(owner: tuple[subprocess.Popen[str], str, str], number: int) -> None:
    process, token, directory = owner
    process.send_signal(number)
    process.wait()
    assert until(lambda: not processes_with(token) and not os.path.exists(directory))


def test_in_good_order_everything_is_gone_when_it_returns() -> None:
    """A process can be started for a moment before Linux shows its environment: it has closed what exec closes and has no stack yet."""
    found = SparkProcesses(prefix="moldau-test-order-")
    try:
        with found.starting():
            sleeping = subprocess.Popen(["sleep", "600"])
            assert tempfile.gettempdir() == os.path.join(found.directory, "tmp")
        assert TOKEN not in os.environ
        assert until(lambda: found.alive() == [sleeping.pid])
    finally:
        found.end()
    assert (sleeping.wait(), found.alive(), os.path.exists(found.directory)) == (-9, [], False)


def test_a_directory_that_was_given_or_is_to_be_looked_into_stays(tmp_path: Path) -> None:
    given = SparkProcesses(str(tmp_path / "work"))
    given.end()
    kept = SparkProcesses(prefix="moldau-test-kept-")
    kept.keep_directory()
    kept.end()
    assert os.path.isdir(kept.directory)
    remove_left_behind("moldau-test-kept-")
    assert os.path.isdir(kept.directory)
    os.rmdir(kept.directory)


def test_the_next_start_removes_what_the_dead_have_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut takes the watchdog too. An id that is another process's by now is no owner; one without a name was made just now."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    alive = SparkProcesses(prefix="x-")
    here = os.readlink("/proc/self/ns/pid")
    for name, owner_ in (("x-dead", f"999999999 1 {here}"), ("x-other", f"{os.getpid()} 1 {here}"), ("x-new", None)):
        (tmp_path / name / "tmp").mkdir(parents=True)
        if owner_ is not None:
            (tmp_path / name / "owner").write_text(owner_)
    SparkProcesses(prefix="x-").end()
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(["x-new", Path(alive.directory).name])
    alive.end()


def test_a_spark_within_a_task_of_another_one_has_a_watchdog_that_outlives_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one's watchdog kills all that has its token; this one's has to be there to end what has another."""
    outer = SparkProcesses(prefix="moldau-test-outer-")
    monkeypatch.setenv(*outer._token.split("="))
    inner = SparkProcesses(prefix="moldau-test-inner-")
    assert outer.alive() == []
    for each in (inner, outer):
        each.end()


def test_the_second_signal_may_come_while_all_is_ended() -> None:
    found = SparkProcesses(prefix="moldau-test-twice-")
    found.end()
    found.end()


class TestLazySpark:
    def test_is_started_by_the_first_use_and_never_without(self) -> None:
        started: list[SparkProcesses] = []

        class Session:
            answer = 7

            def stop(self) -> None:
                started.clear()

        def start(processes: SparkProcesses) -> Session:
            started.append(processes)
            return Session()

        unused = LazySpark(start)
        unused.close()
        assert not started
        spark = LazySpark(start)
        assert (spark.answer, spark.answer, len(started), spark.is_running) == (7, 7, 1, True)
        directory = started[0].directory
        spark.close()
        assert (started, os.path.exists(directory)) == ([], False)

    def test_that_fails_fails_each_use_and_keeps_its_directory(self) -> None:
        directories = []

        def start(processes: SparkProcesses) -> None:
            directories.append(processes.directory)
            raise ValueError("no room for a heap")

        spark = LazySpark(start, prefix="moldau-test-failed-")
        for _ in range(2):
            with pytest.raises(ValueError, match="no room"):
                _ = spark.answer
        spark.close()
        assert os.path.isdir(directories[0])
        os.rmdir(directories[0])

    def test_that_is_ended_while_it_starts_leaves_nothing(self) -> None:
        """The signal comes before anything runs: what is started after it is killed all the same."""
        directories = []

        def start(processes: SparkProcesses) -> None:
            directories.append(processes.directory)
            with processes.starting():
                code = subprocess.Popen(["sleep", "600"]).wait()
            raise RuntimeError(f"Java ended: {code}")

        spark = LazySpark(start, prefix="moldau-test-ended-")
        spark.end_soon()
        with pytest.raises(RuntimeError, match="-9"):
            _ = spark.answer
        spark.close()
        assert not os.path.exists(directories[0])
