"""On a real Spark cluster a stream job and a load have each row once, also when a worker is killed while they run."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moldau.cli.application import application
from moldau.testing.broker import Broker
from support import stream_jobs
from support.spark_cluster import SparkCluster
from support.stream_jobs import Counts, counted, events, in_table, in_topic, send, updates_of
from support.stream_topologies import BUSY, HOURS, SOURCE, busy_hours, write_topology

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.torture]

_END_S = 600
_PER_BATCH = 60


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("spark")) as found:
        yield found


def end(process: "subprocess.Popen[str]") -> str:
    """What it printed; it has to end without an error."""
    output, errors = process.communicate(timeout=_END_S)
    assert process.returncode == 0, errors[-5000:]
    return output


def kill_a_worker(cluster: SparkCluster, process: "subprocess.Popen[str]", begun: Callable[[], object]) -> None:
    """One that runs tasks, when the program has begun to write; another worker takes its place, as another host would."""
    limit = time.monotonic() + _END_S
    while not begun():
        assert process.poll() is None, end(process)
        assert time.monotonic() < limit
        time.sleep(0.05)
    number = next(number for number in (1, 0) if cluster.has_executor(number))
    cluster.kill_worker(number)
    assert process.poll() is None, "it runs on"
    cluster.start_worker(number)


@pytest.mark.long
def test_a_submitted_job_survives_the_end_of_a_worker(cluster: SparkCluster, broker: Broker, tmp_path: Path) -> None:
    """`spark-submit` of the file that `moldau stream run` takes: the counts in topic and table are those of all events."""
    batches = 20
    source, sink = (broker.create_topic(broker.unique_topic(name), 2) for name in ("in", "out"))
    sent, table = events(0, batches * _PER_BATCH), tmp_path / "lake" / sink
    send(broker.bootstrap_servers, source, sent)
    driver = cluster.submit(stream_jobs.__file__, broker.bootstrap_servers, str(tmp_path), source, sink, "--once")
    for _ in range(3):
        had = len(in_table(table))
        kill_a_worker(cluster, driver, lambda had=had: len(in_table(table)) > had)  # type: ignore[misc]
    end(driver)
    of_topic, of_table = updates_of(in_topic(broker.bootstrap_servers, sink)), updates_of(in_table(table))
    assert of_topic == of_table
    greatest: Counts = {}
    for start, airport, count in of_topic:
        greatest[start, airport] = max(count, greatest.get((start, airport), 0))
    assert greatest == counted(sent)


def test_a_load_survives_the_end_of_a_worker(cluster: SparkCluster, broker: Broker, tmp_path: Path) -> None:
    """`moldau load --master`: each event is in the table once."""
    topic = broker.create_topic(broker.unique_topic("loaded"), 2)
    send(broker.bootstrap_servers, topic, ({"n": number} for number in range(6000)))
    job = tmp_path / "job.toml"
    job.write_text(
        f'name = "cluster"\nbootstrap = "{broker.bootstrap_servers}"\nto = {json.dumps(str(tmp_path / "lake"))}\ntopics = ["{topic}"]\n'
        f'records_max = 500\n[topic.{topic}]\ncolumns = {{ n = "long" }}\n'
    )
    command = [sys.executable, "-m", "moldau", "load", str(job), "--master", cluster.url, "--memory", "512m"]
    program = subprocess.Popen(command, env=cluster.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    kill_a_worker(cluster, program, lambda: in_table(tmp_path / "lake" / topic))
    end(program)
    assert sorted(row["n"] for row in in_table(tmp_path / "lake" / topic)) == list(range(6000))


@pytest.mark.long
def test_a_topology_survives_the_end_of_a_worker(cluster: SparkCluster, broker: Broker, tmp_path: Path) -> None:
    """Each job is an application of the cluster; an hour is busy once, whatever ends meanwhile."""
    for name in (SOURCE, HOURS, BUSY):
        broker.create_topic(name, 2)
    send(broker.bootstrap_servers, SOURCE, events(0, 120))
    file = write_topology(tmp_path, broker.bootstrap_servers, cluster.url)
    command = [sys.executable, "-m", "moldau", "stream", "run", str(file)]
    run = subprocess.Popen(command, env=cluster.environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def busy() -> list[tuple[str, str]]:
        return sorted((row["start"][:13], row["airport"]) for row in in_topic(broker.bootstrap_servers, BUSY))

    kill_a_worker(cluster, run, busy)
    send(broker.bootstrap_servers, SOURCE, events(120, 360))
    limit = time.monotonic() + _END_S
    while len(busy()) < len(busy_hours(events(0, 360))):
        assert run.poll() is None, end(run)
        assert time.monotonic() < limit, busy()
        time.sleep(1)
    stopped = subprocess.run(
        [*command[:4], "stop", str(file)], env=cluster.environment, cwd=tmp_path, check=False, capture_output=True, text=True
    )
    assert stopped.returncode == 0, stopped.stderr
    assert end(run) == "topology flights: stopped\n"
    assert busy() == busy_hours(events(0, 360))


def test_a_cluster_that_is_none(broker: Broker, tmp_path: Path) -> None:
    """A wrong address, and one where nothing listens, are one line; nothing is made."""
    from click.testing import CliRunner

    topic = broker.create_topic(broker.unique_topic("loaded"), 1)
    send(broker.bootstrap_servers, topic, [{"n": 1}], partitions=1)
    job = tmp_path / "job.toml"
    job.write_text(
        f'name = "cluster"\nbootstrap = "{broker.bootstrap_servers}"\nto = {json.dumps(str(tmp_path / "lake"))}\ntopics = ["{topic}"]\n'
        f'[topic.{topic}]\ncolumns = {{ n = "long" }}\n'
    )
    done = CliRunner().invoke(application, ["load", str(job), "--master", "yarn"])
    assert done.exit_code == 2
    assert "Error: --master: 'yarn' is no Spark cluster, spark://HOST:PORT: it does not begin with spark://" in done.output
    done = CliRunner().invoke(application, ["load", str(job), "--master", "spark://127.0.0.1:1"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "Error: no master of spark://127.0.0.1:1 answers: 127.0.0.1:1: connection refused\n"
    assert in_table(tmp_path / "lake" / topic) == []
