"""`moldau stream`: a file's job runs once as a program, its status is that of the cluster, and mistakes are one line."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from moldau.cli.application import application
from moldau.testing.broker import Broker
from support.stream_jobs import events, in_topic, send

pytestmark = pytest.mark.system

FILE = """from pyspark.sql.functions import udf
from beside import half
from moldau.streams import StreamJob
job = StreamJob("passing", directory={directory!r})
rows = job.topic("passing-in", format="json", schema="at timestamp, airport string, number int", time="at")
rows = rows.filter("number % 2 = 0").select("airport", udf(half, "int")("number").alias("number"))
job.to_topic(rows, "passing-out", key="airport", value=None)
if __name__ == "__main__":
    job.main()
"""


def moldau(*words: str) -> Result:
    return CliRunner().invoke(application, ["stream", *words])


def environment(broker: Broker) -> dict[str, str]:
    return {**os.environ, "MOLDAU_BOOTSTRAP": broker.bootstrap_servers, "PYTHONPATH": os.pathsep.join(sys.path)}


def test_mistakes_are_one_line(broker: Broker, tmp_path: Path) -> None:
    """An error in the file names its line; a file without a job, and a job that has never run, are named."""
    at = ("--bootstrap", broker.bootstrap_servers)
    path = tmp_path / "job.py"
    for text, problem in (
        ("x = 1\n1 / 0\n", f"Error: {path}:2: ZeroDivisionError: division by zero\n"),
        ("import no_such_module\n", f"Error: {path}:1: ModuleNotFoundError: No module named 'no_such_module'\n"),
        ("x =\n", f"Error: {path}: SyntaxError: invalid syntax (job.py, line 1)\n"),
        ("x = 1\n", f"Error: {path}: makes no StreamJob that a variable of the file has\n"),
    ):
        path.write_text(text)
        done = moldau("run", str(path))
        assert (done.exit_code, done.output) == (1, problem)
    for words in (("status", "never"), ("stop", "never")):
        done = moldau(*words, *at)
        assert (done.exit_code, done.output) == (1, f"Error: no process has run a job never at {broker.bootstrap_servers}\n")


@pytest.mark.spark
def test_a_file_runs_once_as_a_program(broker: Broker, tmp_path: Path) -> None:
    """By the command; the rows are in the topic, and the status says so. It finds a module beside it, in Spark's tasks too."""
    for name in ("passing-in", "passing-out"):
        broker.create_topic(name, 2)
    send(broker.bootstrap_servers, "passing-in", events(0, 10))
    path = tmp_path / "passing.py"
    path.write_text(FILE.format(directory=str(tmp_path / "job")))
    (tmp_path / "beside.py").write_text("def half(number):\n    return number // 2\n")
    command = [sys.executable, "-m", "moldau", "stream", "run", str(path), "--once"]
    done = subprocess.run(command, env=environment(broker), capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "job passing: done\n", "")
    assert sorted(row["number"] for row in in_topic(broker.bootstrap_servers, "passing-out")) == [0, 1, 2, 3, 4]
    shown = moldau("status", "passing", "--json", "--bootstrap", broker.bootstrap_servers)
    document = json.loads(shown.output)
    (query,) = document["queries"]
    assert (shown.exit_code, document["state"], query["batch"], query["lag_records"], query["late_rows"]) == (0, "stopped", 0, 0, 0)
    table = moldau("status", "--bootstrap", broker.bootstrap_servers)
    assert table.exit_code == 0
    assert "passing  stopped" in table.output


@pytest.mark.spark
def test_ctrl_c_stops_a_job_at_the_end_of_its_batch(broker: Broker, tmp_path: Path) -> None:
    """Spark, which the file starts, does not take it away: it would interrupt the batch, and the exit code would be 130."""
    for name in ("waiting-in", "waiting-out"):
        broker.create_topic(name, 2)
    send(broker.bootstrap_servers, "waiting-in", events(0, 10))
    path = tmp_path / "waiting.py"
    path.write_text(FILE.replace("passing", "waiting").format(directory=str(tmp_path / "job")))
    (tmp_path / "beside.py").write_text("def half(number):\n    return number // 2\n")
    command = [sys.executable, "-m", "moldau", "stream", "run", str(path)]
    with subprocess.Popen(command, env=environment(broker), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            deadline = time.monotonic() + 300
            while len(in_topic(broker.bootstrap_servers, "waiting-out")) < 5:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.1)
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, output, errors) == (0, "job waiting: stopped\n", "job waiting: runs, waiting-out\n")
