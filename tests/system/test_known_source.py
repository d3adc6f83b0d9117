"""A Spark of ours knows the format ``moldau`` when it starts, and starts no process to find it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from moldau.testing.broker import Broker
from support.spark import commands_below, java_of, spark_session

pytestmark = [pytest.mark.system, pytest.mark.spark]

AGAIN = """
import sys
from pyspark.sql import SparkSession
from moldau.lake.session import start_spark
start_spark("first", sys.argv[1]).stop()
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
options = {"kafka.bootstrap.servers": sys.argv[2], "subscribe": "known"}
print(spark.read.format("moldau").options(**options).load().count())
"""
"""A session of the user's own, in the Java of one of ours that was stopped."""


def test_the_format_is_known_without_a_search() -> None:
    """Also in a session beside the first."""
    spark: Any = spark_session().newSession()
    with Broker() as broker:
        broker.create_topic("known", 1)
        options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "known"}
        rows = spark.read.format("moldau").options(**options).load().select("value")
        assert rows.mapInArrow(lambda batches: batches, "value binary").count() == 0
    commands = commands_below(java_of(spark))
    assert any("create_data_source" in each for each in commands), "Spark has asked Python for the format's columns"
    assert not any("lookup_data_sources" in each for each in commands)


def test_a_session_of_the_users_own_after_one_of_ours(tmp_path: Path) -> None:
    with Broker() as broker:
        broker.create_topic("known", 1)
        command = [sys.executable, "-c", AGAIN, str(tmp_path), broker.bootstrap_servers]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
