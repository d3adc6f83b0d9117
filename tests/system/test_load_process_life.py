"""`moldau load` as a process: stopped at any moment it leaves no process and no temporary folder, and nothing new costs no Spark."""

import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from moldau.lake.spark_processes import TOKEN
from moldau.testing.broker import Broker
from support.load_world import LoadWorld
from support.pace import slowness

pytestmark = pytest.mark.system

LIMIT_S = 300.0


def started_for_spark(temporary: Path) -> list[str]:
    """The commands of all processes that were started for a Spark below a process with this folder for temporary files."""
    found, inherited = [], f"TMPDIR={temporary}".encode()
    for name in os.listdir("/proc"):
        try:
            environment = Path("/proc", name, "environ").read_bytes().split(b"\0") if name.isdigit() else []
            if inherited in environment and any(each.startswith(f"{TOKEN}=".encode()) for each in environment):
                found.append(Path("/proc", name, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


def until(done: Callable[[], bool], seconds: float = LIMIT_S) -> bool:
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        if done():
            return True
        time.sleep(0.02)
    return done()


@dataclass
class Load:
    """The command, with a folder of its own for temporary ones."""

    world: LoadWorld
    directory: Path

    @property
    def temporary(self) -> Path:
        return self.directory / "temporary"

    def start(self, *how: str) -> subprocess.Popen[str]:
        self.temporary.mkdir(exist_ok=True)
        job = self.world.job
        words = ["load", "--bootstrap", job.bootstrap_servers, "--registry", str(job.registry), "--topics", job.topic, "--name", job.name]
        command = [sys.executable, "-m", "moldau.cli.main", *words, "--to", str(self.directory), "--memory", "512m", *how]
        environment = {**os.environ, "TMPDIR": str(self.temporary)}
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def left(self) -> list[str]:
        """What it has left in the folder for temporary files, and its processes."""
        return [each.name for each in self.temporary.iterdir()] + self.alive()

    def alive(self) -> list[str]:
        """The processes of its Spark; that of another run on the machine is none of them."""
        return started_for_spark(self.temporary)


@pytest.fixture
def load(broker: Broker, tmp_path: Path) -> Load:
    world = LoadWorld(broker, tmp_path)
    world.publish(20)
    return Load(world, tmp_path)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("moment", ["no Java yet", "Java starts", "Spark starts"])
def test_ended_while_spark_starts_it_leaves_nothing(load: Load, number: signal.Signals, moment: str) -> None:
    process = load.start("--once")
    if moment != "no Java yet":
        assert until(lambda: bool(load.alive()) or process.poll() is not None)
    if moment == "Spark starts":
        assert until(lambda: any("SparkSubmit" in each for each in load.alive()) or process.poll() is not None)
    process.send_signal(number)
    out, err = process.communicate(timeout=LIMIT_S)
    assert until(lambda: not load.left(), 15.0), load.left()
    assert tempfile.gettempdir() != str(load.temporary)
    if number != signal.SIGKILL and moment != "no Java yet":
        assert (process.returncode, out, err) == (130, "", "interrupted\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
def test_a_signal_when_all_is_loaded_interrupts_nothing(load: Load, number: signal.Signals) -> None:
    """While watermarks are set and Spark is ended."""
    process = load.start("--once", "--max-dead-letters", "100%")
    assert process.stdout is not None
    assert f"{load.world.topic}: 18 rows" in process.stdout.readline()
    process.send_signal(number)
    assert process.communicate(timeout=LIMIT_S) == ("", "")
    assert (process.returncode, until(lambda: not load.left(), 15.0)) == (0, True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("pause_s", [0.02, 0.3])
def test_a_second_signal_ends_it_as_the_first_would(load: Load, number: signal.Signals, pause_s: float) -> None:
    """Whether it comes before the first has had its effect or after."""
    process = load.start("--once")
    assert until(lambda: any("SparkSubmit" in each for each in load.alive()) or process.poll() is not None)
    process.send_signal(number)
    time.sleep(pause_s)
    process.send_signal(number)
    assert process.communicate(timeout=LIMIT_S) == ("", "interrupted\n")
    assert (process.returncode, until(lambda: not load.left(), 15.0)) == (130, True)


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
def test_who_follows_ends_with_0_at_any_moment(load: Load, number: signal.Signals) -> None:
    """While Spark starts, which a line says, and after the first round, which has its own."""
    process = load.start("--follow")
    assert until(lambda: bool(load.alive()) or process.poll() is not None)
    process.send_signal(number)
    assert process.communicate(timeout=LIMIT_S) == ("", "stopped before anything was loaded\n")
    assert (process.returncode, until(lambda: not load.left(), 15.0)) == (0, True)
    process = load.start("--follow")
    assert process.stdout is not None
    assert f"{load.world.topic}: 18 rows" in process.stdout.readline()
    process.send_signal(number)
    assert "stopped" not in process.communicate(timeout=LIMIT_S)[1]
    assert (process.returncode, until(lambda: not load.left(), 15.0)) == (0, True)


def test_nothing_new_is_found_out_without_spark(load: Load) -> None:
    """In less than a second of a usual processor's time, imports and all; the audit hears that all is counted."""
    first = load.start("--once", "--max-dead-letters", "100%")
    begun = time.monotonic()
    out, err = first.communicate(timeout=LIMIT_S)
    took_s = time.monotonic() - begun
    assert (first.returncode, err) == (0, "")
    shown_s = float(out.partition(" in ")[2].partition(" s;")[0])
    assert 0.5 * took_s < shown_s <= took_s, "the time that is shown is the time it took, with the start of Spark"
    slow = slowness()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.monotonic()
    process = load.start("--once")
    seen: list[str] = []
    while process.poll() is None:
        seen += load.alive()
        time.sleep(0.02)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"nothing new: {time.monotonic() - begun:.2f} s, {spent_s:.2f} s of processor time")
    assert (process.communicate()[0], process.returncode, seen) == (f"{load.world.topic}: nothing new\n", 0, [])
    assert spent_s < 1.0 * slow
    assert load.left() == []


ENDED_SPARK = """
import threading, time
from moldau.lake.session import start_tasks
from moldau.lake.spark_processes import SparkProcesses

processes = SparkProcesses()
context = start_tasks("ended", processes.directory, memory="512m", processes=processes).sparkContext
counter = context.accumulator(0)
context.parallelize(range(2), 2).foreach(lambda each: counter.add(each))
threading.Timer(0.5, processes.end_soon).start()
try:
    context.parallelize(range(2), 2).foreach(lambda _: time.sleep(60))
except Exception:
    print("ended")
processes.end()
time.sleep(0.5)
"""


def test_a_spark_that_is_ended_while_tasks_run_prints_no_traceback() -> None:
    """Ctrl-C while a load is at work."""
    done = subprocess.run([sys.executable, "-c", ENDED_SPARK], capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert (done.stdout, done.stderr) == ("ended\n", "")
