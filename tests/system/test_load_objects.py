"""Loads into tables of an object store: wherever the driver or a task dies, each event is there once (missions I1, I2)."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from moldau.cli.application import application
from moldau.lake.dataset import scan
from moldau.lake.loading.checks import check_directory
from moldau.lake.loading.errors import LoadError, TaskError
from moldau.lake.loading.load import load
from moldau.lake.points import DIE_AT, DIE_ONCE, DRIVER_POINTS, TASK_POINTS, on_point
from moldau.lake.table import read_table, remove_orphans
from moldau.lake.tables.committing import LoadConflictError
from moldau.lake.tables.opening import opened
from moldau.streams import StreamJob
from moldau.testing.broker import Broker
from support.load_world import Killed, LoadWorld
from support.s3 import S3Server, objects
from support.sizes import TORTURE
from support.spark import spark_session
from support.stream_jobs import SCHEMA, events, send

pytestmark = [pytest.mark.system, pytest.mark.spark]

COMMITTED = DRIVER_POINTS.index("driver: table committed")
_DRIVER = DRIVER_POINTS if TORTURE else ("driver: files written", "driver: table committed")
_TASK = TASK_POINTS if TORTURE else ("task: files written",)


@pytest.mark.parametrize("point", _DRIVER)
def test_the_driver_dies(point: str, broker: Broker, s3: S3Server) -> None:
    spark, number = spark_session(), DRIVER_POINTS.index(point)
    world = LoadWorld(broker, s3.bucket(), table_format="parquet" if number % 2 else "delta", writers=1)
    world.publish(40)

    def die(reached: str) -> None:
        if reached == point:
            raise Killed(point)

    with on_point(die), pytest.raises(Killed):
        load(spark, world.job)
    assert len(world.rows(columns=["n"])) == (world.published if number >= COMMITTED else 0), "all of a load is seen, or nothing"
    world.publish(20)
    load(spark, world.job)
    assert world.state() == world.complete()


@pytest.mark.parametrize("point", _TASK)
def test_a_task_dies(point: str, broker: Broker, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spark, world = spark_session(), LoadWorld(broker, s3.bucket(), partition="hour", writers=2)
    world.publish(40)
    with monkeypatch.context() as patched:
        patched.setenv(DIE_AT, point)
        patched.setenv(DIE_ONCE, str(tmp_path / "it is done"))
        with pytest.raises(TaskError, match="a Python process of Spark died in the middle of a task"):
            load(spark, world.job)
    assert world.rows(columns=["n"]) == []
    load(spark, world.job)
    assert world.state() == world.complete()
    for path in (world.job.table, world.job.dead_letters):
        remove_orphans(path, 0)
        assert objects(path) == {each.path for each in opened(path).files()}


def test_of_two_loads_at_once_one_has_the_records(broker: Broker, s3: S3Server) -> None:
    """Both have planned the same offsets and written their files when the first one commits."""
    spark, world = spark_session(), LoadWorld(broker, s3.bucket(), writers=1)
    world.publish(40)
    load(spark, world.job)
    world.publish(20)
    both, outcomes = threading.Barrier(2, timeout=60), list[Any]()

    def meet(point: str) -> None:
        if point == "driver: files written":
            both.wait()

    def run() -> None:
        try:
            outcomes.append(load(spark, world.job).rows)
        except LoadConflictError as error:
            outcomes.append(error)

    with on_point(meet):
        threads = [threading.Thread(target=run) for _ in range(2)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert sorted(type(each).__name__ for each in outcomes) in (["LoadConflictError", "int"], ["LoadFencedError", "int"])
    assert world.state() == world.complete()
    assert objects(world.job.table) == {each.path for each in opened(world.job.table).files()}, "the other one has removed its files"


def test_a_command_loads_and_spark_reads(broker: Broker, s3: S3Server) -> None:
    """Settings of the command reach its tasks, and no line of output has them."""
    bucket = s3.bucket()
    world = LoadWorld(broker, bucket, writers=1)
    world.publish(40)
    where = ["--bootstrap", world.job.bootstrap_servers, "--registry", broker.registry_url, "--name", world.job.name]
    what = ["--topics", world.topic, "--to", bucket, "--memory", "512m", "--max-dead-letters", "100%"]
    wrong = {"AWS_SECRET_ACCESS_KEY": "wrong"}
    refused = CliRunner().invoke(application, ["load", *where, *what], env=wrong)
    assert refused.exit_code == 1
    assert "no table can be made there: " in refused.stderr
    assert "SignatureDoesNotMatch" in refused.stderr
    unknown = CliRunner().invoke(application, ["load", *where, *what, "--storage-option", "secret_acess_key=hidden"])
    assert unknown.exit_code == 2
    assert "'secret_acess_key' is no setting of object stores" in unknown.stderr
    assert "hidden" not in unknown.stderr
    secret = s3.variables["AWS_SECRET_ACCESS_KEY"]
    command = [sys.executable, "-m", "moldau.cli.main", "load", *where, *what, "--storage-option", f"secret_access_key={secret}"]
    done = subprocess.run(command, env={**os.environ, **wrong}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert secret not in done.stdout + done.stderr
    assert world.state() == world.complete()
    frame = read_table(spark_session(), world.job.table)
    assert frame.count() == world.published
    assert frame.where("n < 5").selectExpr("n", "event_day").orderBy("n").toPandas()["n"].tolist() == [0, 1, 2, 3, 4]


def test_a_bucket_that_is_not_there_is_one_line(s3: S3Server) -> None:
    with pytest.raises(LoadError, match=r"^s3://no-such-bucket/lake: no table can be made there: .*: NoSuchBucket: "):
        check_directory("s3://no-such-bucket/lake")


def test_a_stream_job_writes_a_table_over_two_starts(broker: Broker, s3: S3Server, tmp_path: Path) -> None:
    source = broker.create_topic(broker.unique_topic("in"), 2)
    table, flights = f"{s3.bucket()}/flights", events(0, 40)
    for some in (flights[:25], flights[25:]):
        send(broker.bootstrap_servers, source, some)
        job = StreamJob(source, brokers=broker.bootstrap_servers, directory=str(tmp_path / "job"), spark=spark_session())
        job.to_table(job.topic(source, format="json", schema=SCHEMA, time="at"), table, time="at")
        job.run(once=True)
    assert sorted(scan(table).to_table(columns=["number"])["number"].to_pylist()) == list(range(40))
