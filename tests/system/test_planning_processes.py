"""Spark's Python processes that make data sources and plan reads are ended when they have done their work."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from moldau.lake.planning_processes import end_planning_processes
from moldau.testing.broker import Broker
from support import stream_jobs
from support.paper import wait_until
from support.spark import commands_below, java_of, spark_session
from support.stream_jobs import events, in_topic, send

pytestmark = [pytest.mark.system, pytest.mark.spark]

LIMIT_S = 300.0


def planning(process: int) -> set[str]:
    return {each for each in commands_below(process) if "pyspark.sql.worker" in each}


def test_those_that_are_idle_are_ended_and_started_again_when_needed() -> None:
    spark: Any = spark_session().newSession()
    java = java_of(spark)

    def count() -> int:
        rows = spark.read.format("moldau").options(**options).load().select("value")
        found: int = rows.mapInArrow(lambda batches: batches, "value binary").count()
        return found

    with Broker() as broker:
        broker.create_topic("planned", 1)
        options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "planned"}
        assert count() == 0
        assert len(planning(java)) >= 2, "one makes the source, one plans the read"
        assert end_planning_processes(spark) >= 2
        wait_until(lambda: not planning(java), "they end", LIMIT_S)
        assert end_planning_processes(spark) == 0
        assert count() == 0
        assert len(planning(java)) == 2


def test_a_job_that_runs_has_none(broker: Broker, tmp_path: Path) -> None:
    """And its batches come as before."""
    source, sink = (broker.create_topic(broker.unique_topic(name), 2) for name in ("planned", "counted"))
    send(broker.bootstrap_servers, source, events(0, 60))
    job = subprocess.Popen(
        [sys.executable, stream_jobs.__file__, broker.bootstrap_servers, str(tmp_path), source, sink], stderr=subprocess.PIPE
    )
    try:
        wait_until(lambda: bool(planning(job.pid)), "they plan", LIMIT_S)
        wait_until(lambda: not planning(job.pid), "they end", LIMIT_S)
        before = len(in_topic(broker.bootstrap_servers, sink))
        assert job.poll() is None
        assert before > 0
        send(broker.bootstrap_servers, source, events(60, 120))
        wait_until(lambda: len(in_topic(broker.bootstrap_servers, sink)) > before, "the next batch is written", LIMIT_S)
        assert not planning(job.pid)
    finally:
        job.terminate()
        errors = job.communicate()[1]
    assert job.returncode == 0, errors
