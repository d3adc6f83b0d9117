"""A DataFrame that the driver's own process writes to a topic, as stream jobs do: each batch once and whole, whatever its tasks do."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext

from moldau.client.cluster import Cluster
from moldau.lake.writing.decisions import driver_id, ids_of
from moldau.lake.writing.driver import DriverFencedError
from moldau.lake.writing.frames import steps_of, write_frame
from moldau.lake.writing.points import DIE_AT, DIE_ONCE
from moldau.lake.writing.transactions import TransactionRequests
from moldau.streams import StreamJob
from moldau.streams.errors import BatchError, StreamError
from moldau.streams.outputs import TopicOutput
from moldau.testing.broker import Broker
from support.spark import spark_session
from support.spark_write import seen
from support.stream_jobs import SCHEMA, events, in_topic, send

pytestmark = [pytest.mark.system, pytest.mark.spark]

PARTITIONS = 2


@pytest.fixture(scope="module")
def spark() -> Any:
    return spark_session()


@pytest.fixture
def topic(broker: Broker) -> str:
    return broker.create_topic(broker.unique_topic("sink"), PARTITIONS)


def write(rows: Any, bootstrap: str, topic: str, batch: int) -> None:
    """By a query named as the topic."""
    given = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "transactional": "true", "queryname": topic, "batchid": str(batch)}
    write_frame(rows, steps_of(rows.schema, given))


def still_open(bootstrap: str, query: str) -> list[str]:
    """The transactions of its tasks."""
    with Cluster(bootstrap) as cluster:
        return ids_of(query, TransactionRequests(cluster).open_ones())


def values(count: int) -> list[bytes]:
    return sorted(b"%d" % number for number in range(count))


def test_a_batch_that_is_decided_is_not_written_again_but_computed(spark: Any, broker: Broker, topic: str, tmp_path: Path) -> None:
    """The query below may have state, which has to come to the end of the batch."""
    bootstrap = broker.bootstrap_servers

    def noted(batches: Iterator[Any]) -> Iterator[Any]:
        for each in batches:
            tmp_path.joinpath(f"{uuid.uuid4()}.{each.num_rows}").touch()
            yield each

    for times in (1, 2):
        write(spark.range(0, 40, 1, 3).selectExpr("string(id) value").mapInArrow(noted, "value string"), bootstrap, topic, 0)
        assert sum(int(each.suffix[1:]) for each in tmp_path.iterdir()) == 40 * times
        assert seen(bootstrap, topic, PARTITIONS, isolation_level="read_uncommitted") == values(40)
    write(spark.range(40, 50).selectExpr("string(id) value"), bootstrap, topic, 1)
    assert seen(bootstrap, topic, PARTITIONS) == values(50)


@pytest.mark.parametrize("partitions", [0, 3])
def test_a_batch_without_rows_counts_too(partitions: int, spark: Any, broker: Broker, topic: str) -> None:
    rows = spark.range(0, 0, 1, 3).selectExpr("string(id) value") if partitions else spark.createDataFrame([], "value string")
    write(rows, broker.bootstrap_servers, topic, 0)
    for batch in range(2):
        write(spark.range(5).selectExpr("string(id) value"), broker.bootstrap_servers, topic, batch)
        assert seen(broker.bootstrap_servers, topic, PARTITIONS) == (values(5) if batch else [])


def test_of_a_batch_whose_task_fails_nothing_is_left(spark: Any, broker: Broker, topic: str) -> None:
    """One of two tasks fails when the other may have written all that it has."""
    bootstrap, frame = broker.bootstrap_servers, spark.range(0, 40, 1, 2)
    with pytest.raises(Exception, match="the last row"):
        write(frame.selectExpr("CASE WHEN id = 39 THEN raise_error('the last row') ELSE string(id) END value"), bootstrap, topic, 0)
    with pytest.raises(Exception, match=r"row 0 of the task names partition 7 of topic \S+, which has 2 partitions"):
        write(frame.selectExpr("string(id) value", "int(CASE WHEN id < 20 THEN 0 ELSE 7 END) partition"), bootstrap, topic, 0)
    assert seen(bootstrap, topic, PARTITIONS) == []
    write(frame.selectExpr("string(id) value"), bootstrap, topic, 0)
    assert seen(bootstrap, topic, PARTITIONS) == values(40)
    assert still_open(bootstrap, topic) == []


def test_a_driver_that_was_replaced_learns_it_by_name(spark: Any, broker: Broker, topic: str) -> None:
    """While its tasks write."""
    bootstrap = broker.bootstrap_servers

    def replaced(batches: Iterator[Any]) -> Iterator[Any]:
        with Cluster(bootstrap) as cluster:
            TransactionRequests(cluster).take_over(driver_id(topic), 10_000)
        yield from batches

    with pytest.raises(DriverFencedError, match=f"query {topic}: another driver has taken it over"):
        write(spark.range(0, 9, 1, 1).selectExpr("string(id) value").mapInArrow(replaced, "value string"), bootstrap, topic, 0)
    assert seen(bootstrap, topic, PARTITIONS, isolation_level="read_uncommitted") == values(9), "its tasks have written"
    write(spark.range(4).selectExpr("string(id) value"), bootstrap, topic, 0)
    assert seen(bootstrap, topic, PARTITIONS) == values(4)


_PROGRAM = """
import json, subprocess, sys
from moldau.lake.session import start_spark
from test_spark_write_frames import write

bootstrap, topic, directory = sys.argv[1:]
spark = start_spark("attempts", directory + "/spark", task_tries=2)
write(spark.range(0, 40, 1, 2).selectExpr("string(id) value"), bootstrap, topic, 0)
commands = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
print(json.dumps([line.split(None, 2) for line in commands.splitlines()]))
"""


def descendants(parent: str, processes: list[tuple[str, str, str]]) -> list[str]:
    """Their commands; of each process number, parent and command are given."""
    children = [(pid, line) for pid, above, line in processes if above == parent]
    return [each for pid, line in children for each in (line, *descendants(pid, processes))]


def write_and_die(broker: Broker, topic: str, tmp_path: Path, point: str) -> tuple[int, int, str, str]:
    """Write a batch of 40 rows in a process of its own; what reaches the point first is killed. Number and exit code of the process, and
    what it printed."""
    deaths = tmp_path / "deaths"
    deaths.mkdir()
    environment = {**os.environ, DIE_AT: point, DIE_ONCE: str(deaths)}
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    command = [sys.executable, "-c", _PROGRAM, broker.bootstrap_servers, topic, str(tmp_path)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        output, errors = process.communicate(timeout=300)
    assert [each.name for each in deaths.iterdir()] == [point], errors
    return process.pid, process.returncode, output, errors


def test_an_attempt_that_does_not_count_is_not_seen(broker: Broker, topic: str, tmp_path: Path) -> None:
    """The Python process of a task dies when it has written all, and Spark runs the task again. No process of Spark's is there to ask
    a writer or to commit."""
    bootstrap = broker.bootstrap_servers
    program, code, output, errors = write_and_die(broker, topic, tmp_path, "task written")
    assert code == 0, errors
    assert seen(bootstrap, topic, PARTITIONS) == values(40)
    assert len(seen(bootstrap, topic, PARTITIONS, isolation_level="read_uncommitted")) == 60, "one attempt more of a task with 20 rows"
    assert still_open(bootstrap, topic) == []
    found = descendants(str(program), json.loads(output))
    assert any("moldau.lake.python_daemon" in line for line in found)
    assert [line for line in found if "data_source" in line] == []


def test_a_driver_that_dies_in_the_middle_of_its_commits(spark: Any, broker: Broker, topic: str, tmp_path: Path) -> None:
    """It is the process that has the DataFrame. The next one commits the rest, and does not write the batch again."""
    bootstrap = broker.bootstrap_servers
    _, code, _, errors = write_and_die(broker, topic, tmp_path, "one committed")
    assert code == -signal.SIGKILL, errors
    assert len(seen(bootstrap, topic, PARTITIONS)) < 40, "the other transaction is open"
    assert len(still_open(bootstrap, topic)) == 1
    write(spark.range(0, 40, 1, 2).selectExpr("string(id) value"), bootstrap, topic, 0)
    assert seen(bootstrap, topic, PARTITIONS, isolation_level="read_uncommitted") == seen(bootstrap, topic, PARTITIONS) == values(40)


def test_a_query_with_two_topics(spark: Any, broker: Broker, tmp_path: Path) -> None:
    """Both have each row once, over two runs and a run without events; each batch is computed once, so that a number is not new for one
    of them only."""
    bootstrap, name = broker.bootstrap_servers, broker.unique_topic("in")
    source, first, second = (broker.create_topic(topic, 2) for topic in (name, f"{name}-first", f"{name}-second"))

    def run() -> None:
        job = StreamJob(name, brokers=bootstrap, directory=str(tmp_path / "job"), spark=spark)
        rows = job.topic(source, format="json", schema=SCHEMA, time="at").dropDuplicates(["number"])
        job.to_topic(rows, first, key="airport")
        job.to_topic(rows, second, options={"KAFKA.batch.size": "100", "compression": "gzip"})
        job.run(once=True)

    for hours in (1, 2, 2):
        send(bootstrap, source, events(60 * (hours - 1), 60 * hours))
        run()
        for topic in (first, second):
            assert sorted(row["number"] for row in in_topic(bootstrap, topic)) == list(range(60 * hours))


def test_an_option_that_the_sink_does_not_have_is_refused_before_anything_is_written(
    spark: Any, broker: Broker, topic: str, tmp_path: Path
) -> None:
    source = broker.create_topic(broker.unique_topic("in"), 2)
    job = StreamJob(topic, brokers=broker.bootstrap_servers, directory=str(tmp_path), spark=spark)
    job.to_topic(job.topic(source, format="json", schema=SCHEMA, time="at"), topic, options={"linger": "5"})
    with pytest.raises(StreamError, match=f"topic {topic}: option linger: is not known") as refused:
        job.run(once=True)
    assert not isinstance(refused.value, BatchError)
    rows = spark.createDataFrame([("a", 1)], "text string, number int")
    with pytest.raises(StreamError, match=r"column headers is array<struct<key:string,value:binary>>, not int"):
        TopicOutput(topic, broker.bootstrap_servers, (), "text", "number").check(rows)


def test_a_batch_that_is_interrupted_leaves_nothing_open(
    spark: Any, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two tasks takes longer than a job that is stopped waits, the other has written; the next start has each row once."""
    bootstrap, name = broker.bootstrap_servers, broker.unique_topic("in")
    source, output = (broker.create_topic(topic, 2) for topic in (name, f"{name}-out"))
    send(bootstrap, source, events(0, 60))
    go = tmp_path / "go"

    def slow(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches
        while TaskContext.get().partitionId() and not go.exists():  # type: ignore[union-attr]
            time.sleep(0.1)

    def job() -> StreamJob:
        made = StreamJob(name, brokers=bootstrap, directory=str(tmp_path / "job"), spark=spark)
        rows = made.topic(source, format="json", schema=SCHEMA, time="at")
        made.to_topic(rows.repartition(2).mapInArrow(slow, rows.schema), output)
        return made

    monkeypatch.setattr("moldau.streams.runner.BATCH_END_S", 1.0)
    first, until = job(), time.monotonic() + 300
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(first.run)
        try:
            while not still_open(bootstrap, f"{name}/{output}/{output}"):
                assert not running.done(), running.result()
                assert time.monotonic() < until
                time.sleep(0.1)
        finally:
            first.stop()
        running.result(300)
    assert still_open(bootstrap, f"{name}/{output}/{output}") == []
    assert in_topic(bootstrap, output) == []
    go.touch()
    job().run(once=True)
    assert sorted(row["number"] for row in in_topic(bootstrap, output)) == list(range(60))


@pytest.mark.parametrize("name", ["batchId", "QUERYNAME", "queryRun", "topic", "transactional"])
def test_an_option_by_which_batches_are_known_is_the_job_s_own(name: str, spark: Any, broker: Broker, topic: str) -> None:
    """With a `batchId` from outside every batch after the first would be taken for written, and its rows be lost."""
    output = TopicOutput(topic, broker.bootstrap_servers, value="value", options=((name, "true" if name == "transactional" else "0"),))
    with pytest.raises(StreamError, match=f"topic {topic}: option {name}: is the job's own"):
        output.check(spark.range(1).selectExpr("string(id) value"))


def test_a_batch_that_fails_names_its_query_and_the_reason(spark: Any, broker: Broker, topic: str, tmp_path: Path) -> None:
    """A record that brokers refuse."""
    source = broker.create_topic(broker.unique_topic("in"), 2)
    send(broker.bootstrap_servers, source, events(0, 2))
    job = StreamJob(topic, brokers=broker.bootstrap_servers, directory=str(tmp_path), spark=spark)
    rows = job.topic(source, format="json", schema=SCHEMA, time="at").selectExpr("repeat('x', 2000000) AS text")
    job.to_topic(rows, topic, value="text")
    with pytest.raises(BatchError, match=rf"job {topic}, query {topic}, failed: DeliveryError: topic {topic}, partition \d: row 0 of the"):
        job.run(once=True)
    assert seen(broker.bootstrap_servers, topic, PARTITIONS) == []
