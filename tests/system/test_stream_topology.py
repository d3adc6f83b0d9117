"""A topology of jobs: supervised, stopped in order, run once in the order of feeding; on Spark its results are those of a model."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from moldau.cli.application import application
from moldau.streams.errors import StreamError
from moldau.streams.topology_file import StreamTopology, parse_stream_topology, read_stream_topology
from moldau.streams.topology_loading import load_topology
from moldau.streams.topology_run import TopologyRun
from moldau.testing.broker import Broker
from support.local_cluster import wait_for
from support.spark import spark_session
from support.stream_jobs import events, in_topic, send
from support.stream_topologies import BUSY, HOURS, SOURCE, busy_hours, write_topology

pytestmark = [pytest.mark.system, pytest.mark.torture]

_END_S = 600

STAND_IN = """import os, threading, time
from moldau.streams import StreamJob

class Job(StreamJob):
    "Runs without Spark: until it is stopped, or once; a line in the file `lines` for each start and end."
    ended = threading.Event()
    def run(self, *, once=False, fresh=False, savepoint=None, tell=None):
        self.say("once" if once else "runs")
        if os.path.exists(f"{self.name}.fails"):
            raise ValueError("it is to fail")
        if not once:
            self.ended.wait()
        self.say("ends")
    def stop(self):
        self.ended.set()
    def say(self, what):
        with open("lines", "a") as file:
            file.write(f"{self.name} {what} {os.getpid()}\\n")

first, second = (Job(name, directory=name) for name in ("first", "second"))
"""


class StandIns:
    """A topology of two jobs that need no Spark, in a directory that is the current one."""

    def __init__(self, directory: Path) -> None:
        (directory / "jobs.py").write_text(STAND_IN)
        self.reported: list[str] = []
        self._directory = directory

    @property
    def topology(self) -> StreamTopology:
        text = 'name = "two"\nbootstrap = "127.0.0.1:1"\n[jobs.first]\nfile = "jobs.py"\n[jobs.second]\nfile = "jobs.py"\n'
        return parse_stream_topology(text, "two.toml")

    def run(self, *, once: bool = False) -> TopologyRun:
        return TopologyRun(self.topology, [["first"], ["second"]], "data", self.reported.append, once=once)

    def lines(self) -> list[list[str]]:
        """What the jobs have done, in order."""
        path = self._directory / "lines"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def pid(self, job: str) -> int:
        """Of the job's newest process."""
        return next(int(line[2]) for line in reversed(self.lines()) if line[:2] == [job, "runs"])

    def has(self, *words: str, times: int = 1) -> Callable[[], bool]:
        return lambda: sum(line[:2] == list(words) for line in self.lines()) >= times


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIns:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(each for each in sys.path if each))
    return StandIns(tmp_path)


def test_what_fails_is_started_again_and_what_is_stopped_is_not(stand_ins: StandIns) -> None:
    """A job that was killed is started again, which is reported; when all were stopped by orders, the run ends."""
    run = stand_ins.run()
    thread = threading.Thread(target=run.run)
    thread.start()
    try:
        wait_for(stand_ins.has("first", "runs"))
        wait_for(stand_ins.has("second", "runs"))
        os.kill(stand_ins.pid("first"), signal.SIGKILL)
        wait_for(stand_ins.has("first", "runs", times=2))
        for job in ("first", "second"):
            os.kill(stand_ins.pid(job), signal.SIGTERM)  # as an order, it ends the job without an error
        thread.join(_END_S)
        assert not thread.is_alive()
    finally:
        run.kill()
    told = [line.partition("; its log")[0] for line in stand_ins.reported if " as process " not in line]
    assert told[0] == "job first: ended by SIGKILL; it is started again in 0.5 s"
    assert sorted(told[1:]) == [f"job {job}: stopped by an order; it is not started again" for job in ("first", "second")]


def test_jobs_are_stopped_in_the_order_of_feeding(stand_ins: StandIns) -> None:
    """The second one is stopped when the first has ended; a second process of the same topology is refused meanwhile."""
    run = stand_ins.run()
    try:
        for job in run._jobs:
            job.start()
        wait_for(stand_ins.has("first", "runs"))
        wait_for(stand_ins.has("second", "runs"))
        with pytest.raises(StreamError, match=r"runs a topology here; --data names another directory"):
            stand_ins.run()
        run.stop()
    finally:
        run.kill()
    assert [line[0] for line in stand_ins.lines() if line[1] == "ends"] == ["first", "second"]


def test_once_is_one_after_the_other_and_ends_with_the_first_that_fails(stand_ins: StandIns) -> None:
    run = stand_ins.run(once=True)
    run.run_once()
    run.kill()
    done = [line[:2] for line in stand_ins.lines()]
    assert done == [["first", "once"], ["first", "ends"], ["second", "once"], ["second", "ends"]]
    Path("first.fails").touch()
    run = stand_ins.run(once=True)
    with pytest.raises(
        StreamError, match=r"job first ended with exit code 1: job first: it is to fail; its log is .*first.log; not run: second"
    ):
        run.run_once()
    run.kill()


def moldau(*words: str) -> Result:
    return CliRunner().invoke(application, ["stream", *words])


@pytest.mark.spark
def test_mistakes_are_found_with_their_lines(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a file, of a job, and between jobs; nothing is made. Of a single file those of its job."""
    spark_session()
    topology = wrong_topology(broker, tmp_path, "checked")
    at = broker.bootstrap_servers
    assert [str(each) for each in load_topology(read_stream_topology(topology)).findings] == [
        f"{topology}:3: error: job one: there is no topic checked-no at {at}: moldau topic create checked-no makes it",
        f"{topology}:5: error: job two reads topic checked-none, which does not exist, and no job writes it",
        f"{topology}:8: error: job three: {tmp_path / 'three.py'}:2: ZeroDivisionError: division by zero",
    ]
    assert not (tmp_path / "one").exists()
    monkeypatch.setenv("MOLDAU_BOOTSTRAP", at)
    checked = moldau("check", str(tmp_path / "one.py"))
    assert (checked.exit_code, checked.output.splitlines()[-1]) == (
        1,
        f"Error: there is no topic checked-no at {at}: moldau topic create checked-no makes it",
    )
    broker.create_topic("checked-no", 1)
    checked = moldau("check", str(tmp_path / "one.py"))
    assert (checked.exit_code, checked.output) == (0, f"{tmp_path / 'one.py'}: job one: nothing found\n")


def wrong_topology(broker: Broker, directory: Path, topics: str) -> Path:
    """An output that does not exist, an input that does not exist, a file that fails; of topics that begin with `topics`."""
    broker.create_topic(f"{topics}-in", 1)
    job = (
        "from moldau.streams import StreamJob\njob = StreamJob({name!r}, directory={directory!r})\n"
        'job.to_topic(job.topic({source!r}).select("value"), {sink!r}, value="value")\n'
    )
    for name, source, sink in (("one", f"{topics}-in", f"{topics}-no"), ("two", f"{topics}-none", f"{topics}-in")):
        (directory / f"{name}.py").write_text(job.format(name=name, directory=str(directory / name), source=source, sink=sink))
    (directory / "three.py").write_text("x = 1\n1 / 0\n")
    file = directory / "wrong.toml"
    tables = "".join(f'[jobs.{name}]\nfile = "{name}.py"\n' for name in ("one", "two", "three"))
    file.write_text(f'name = "wrong"\nbootstrap = "{broker.bootstrap_servers}"\n{tables}')
    return file


@pytest.mark.long
@pytest.mark.spark
def test_a_topology_on_spark(broker: Broker, tmp_path: Path) -> None:
    """Run once, the second job has what the first one has just made of the events; status and stop know the jobs."""
    for name in (SOURCE, HOURS, BUSY):
        broker.create_topic(name, 2)
    sent = events(0, 130)
    send(broker.bootstrap_servers, SOURCE, sent)
    file = write_topology(tmp_path, broker.bootstrap_servers)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
    command = [sys.executable, "-m", "moldau", "stream", "run", str(file), "--once"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=_END_S, check=False)
    assert (done.returncode, done.stdout) == (0, "topology flights: done\n"), done.stderr
    assert done.stderr == "job hours: done\njob busy: done\n"
    assert sorted((row["start"][:13], row["airport"]) for row in in_topic(broker.bootstrap_servers, BUSY)) == busy_hours(sent)
    shown = moldau("status", str(file), "--json")
    documents = json.loads(shown.output)
    assert [(each["job"], each["state"], each["queries"][0]["lag_records"]) for each in documents] == [
        ("busy", "stopped", 0),
        ("hours", "stopped", 0),
    ]
    stopped = moldau("stop", str(file))
    assert (stopped.exit_code, stopped.output.count(": stopped at ")) == (0, 2)


@pytest.mark.long
@pytest.mark.spark
def test_mistakes_are_found_before_anything_runs(broker: Broker, tmp_path: Path) -> None:
    """`run` prints them, and starts nothing."""
    file = wrong_topology(broker, tmp_path, "unstarted")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
    command = [sys.executable, "-m", "moldau", "stream", "run", str(file)]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=_END_S, check=False)
    assert done.returncode == 1
    *errors, last = done.stderr.splitlines()
    assert [line.split(": error: job ")[1].split()[0].rstrip(":") for line in errors] == ["one", "two", "three"]
    assert last == f"Error: {file}: 3 errors; nothing was started"
    assert not (tmp_path / "moldau-stream").exists()
