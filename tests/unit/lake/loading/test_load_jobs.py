"""A job of many topics, from options or a file, says what it cannot mean; and which errors let a running service go on."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest

from moldau.lake.loading.errors import NoSchemaError, SchemaChangeError, TaskError, task_failure
from moldau.lake.loading.job import NAME_BYTES_MAX, JobFileError, LoadJob, LoadJobs, load_jobs, read_job_file
from moldau.lake.loading.service import passing
from moldau.lake.reading.offsets import DataLossError
from moldau.lake.tables.committing import LoadConflictError, LoadFencedError, OtherJobError
from moldau.lake.tables.data_files import PartitionWriter
from moldau.model.errors import ErrorCode, PeerError, WorldError

BASE: dict[str, Any] = {"name": "j", "bootstrap": "b:1", "to": "/lake", "registry": "http://r"}
FILE = """
name = "warehouse"
bootstrap = "127.0.0.1:9092"
registry = "http://127.0.0.1:8081"
to = "/lake"
topics = ["departures", "clicks"]
partition = "hour"

[topic.clicks]
columns = { member = "long", page = "string", at = "timestamp" }
headers = { line = "integer" }
partition = "day"
"""


def test_a_file_describes_topics_and_what_is_special_about_some(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(FILE)
    jobs = read_job_file(file, {"tier": "warehouse", "partition": None})
    departures, clicks = jobs.jobs(["departures", "clicks", "others"])
    assert (departures.table, departures.dead_letters) == ("/lake/departures", "/lake/dead-letters/departures")
    assert (departures.partition, departures.registry, departures.columns, departures.tier) == ("hour", jobs.registry, None, "warehouse")
    assert (clicks.partition, clicks.registry, dict(clicks.headers)) == ("day", None, {"line": pa.int32()})
    assert clicks.columns == pa.schema([("member", pa.int64()), ("page", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])
    assert {departures.group_id, clicks.group_id} == {"moldau-load-warehouse"}


def test_a_pattern_finds_topics_as_they_come() -> None:
    jobs = load_jobs({**BASE, "pattern": "web-.*"})
    assert [job.topic for job in jobs.jobs(["web-a", "x-web-b", "dead-letters"])] == ["web-a"]
    assert [job.topic for job in jobs.jobs(["web-b", "web-a"])] == ["web-a", "web-b"]


def test_a_topic_that_is_not_there_is_named(tmp_path: Path) -> None:
    jobs = load_jobs({**BASE, "to": str(tmp_path), "topics": ["a", "b"]})
    assert jobs.missing(["a"]) == ["b"]
    (tmp_path / "b").mkdir()
    assert jobs.missing(["a"]) == [], "a table is there: the topic was deleted, which the load itself judges"
    assert len(jobs.jobs(["a"])) == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": None}, "'name' is missing: give --name, or a job file with name = "),
        (
            {"name": "n" * 183, "pattern": "a"},
            "a job's name has at most 182 bytes: its data files begin with it; this one has 183: nnn",
        ),
        ({"name": "ä" * 100, "topics": ["a"]}, "at most 182 bytes: its data files begin with it; this one has 200: äää"),
        ({"to": ""}, "'to' is missing"),
        ({"topics": ["a"], "pattern": "b"}, "'topics' and 'pattern' exclude each other"),
        ({}, "give topics or a pattern"),
        ({"pattern": "("}, "is not a regular expression"),
        ({"pattern": "web-.*", "registry": None}, "a pattern needs a registry"),
        ({"topics": ["a"], "partitions": "day"}, "'partitions' is not known"),
        ({"topics": "a"}, "'topics' is no list"),
        ({"topics": ["a"], "records_max": "many"}, "'records_max' is no number"),
        ({"topics": ["a"], "partition": "week"}, "partitioned by day or by hour, not by 'week'"),
        ({"topics": ["a"], "table_format": "iceberg"}, "tables are delta or parquet, not 'iceberg'"),
        ({"topics": ["a"], "on_incompatible": "pray"}, "stop the load or are dead letters, not 'pray'"),
        ({"topics": ["a"], "isolation_level": "serializable"}, "read_committed or read_uncommitted"),
        ({"topics": ["a"], "records_max": 0}, "at least one record, not 0"),
        ({"topics": ["a"], "registry": None}, r"give a registry for Avro events \(--registry\), or columns"),
        ({"topics": ["a", "b", "a"]}, "load j: topic a is named twice"),
        ({"topics": ["dead-letters"]}, "dead letters lie there"),
        ({"topics": ["a"], "topic": {"b": {}}}, "settings for topic b, which is not loaded"),
        ({"topics": ["a"], "topic": {"a": {"name": "x"}}}, "topic a cannot have a setting 'name'"),
        ({"topics": ["a"], "topic": {"a": {"columns": {"x": "money"}}}}, "topic a: column [a-z]+: a column of type money is not known"),
        ({"topics": ["a"], "topic": {"a": {"columns": {"event_day": "date"}}}}, "which is the name of a column of the table itself"),
        ({"topics": ["a"], "topic": {"a": 1}}, "topic a: settings are a table, not 1"),
    ],
)
def test_what_cannot_be_meant_is_said(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_jobs({**BASE, **changes})


def test_the_longest_name_has_data_files(tmp_path: Path) -> None:
    """A file system takes 255 bytes; without the limit every load would write nothing and say `file name too long`."""
    jobs = load_jobs({**BASE, "name": "n" * NAME_BYTES_MAX, "topics": ["a"]})
    writer = PartitionWriter(str(tmp_path), jobs.name, load=uuid4().hex)
    writer.add(pa.table({"n": [1]}), np.zeros(1, np.int64))
    (file,) = writer.finish()
    assert len(Path(file.path).name) == NAME_BYTES_MAX + 73


def test_a_file_at_fault_is_named(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    with pytest.raises(JobFileError, match=r"job\.toml: No such file"):
        read_job_file(file, {})
    file.write_text("name = ")
    with pytest.raises(JobFileError, match=r"job\.toml: Invalid value"):
        read_job_file(file, {})
    file.write_text('name = "x"')
    with pytest.raises(JobFileError, match=r"job\.toml: 'bootstrap' is missing"):
        read_job_file(file, {})


def test_the_job_of_one_topic_takes_what_the_job_of_many_says() -> None:
    jobs = LoadJobs("j", "b:1", "/lake", ("a",), registry="http://r", writers=3, tier=None, on_incompatible="dead-letters", group_id="g")
    job = jobs.job("a")
    assert (job.writers, job.tier, job.on_incompatible, job.group_id, job.subject_name) == (3, None, "dead-letters", "g", "a-value")
    with pytest.raises(ValueError, match="a job needs a name"):
        LoadJob("", "b:1", "a", "t", "d", registry="http://r")


@pytest.mark.parametrize(
    ("error", "goes_on"),
    [
        (TaskError("killed"), True),
        (LoadConflictError("faster"), True),
        (NoSchemaError("not yet"), True),
        (PeerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, ""), True),
        (PeerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, ""), False),
        (WorldError("no broker answers", retriable=True), True),
        (WorldError("no such address", retriable=False), False),
        (LoadFencedError("taken over"), False),
        (OtherJobError("job other has loaded it"), False),
        (DataLossError("gone"), False),
        (SchemaChangeError("int to string"), False),
        (OSError("disk"), False),
    ],
)
def test_what_lets_a_service_go_on(error: Exception, goes_on: bool) -> None:
    assert passing(error) is goes_on


def test_the_error_of_a_task_is_found_in_what_spark_makes_of_it() -> None:
    page = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "x.py", line 1, in y
moldau.lake.tables.data_files.FileError: /lake/a.parquet: cannot be written: no space left on device

SQLSTATE: 38000
JVM stacktrace: org.apache.spark.SparkException: Job aborted"""
    found = task_failure("t", RuntimeError(page))
    assert (type(found), str(found)) == (TaskError, "topic t: /lake/a.parquet: cannot be written: no space left on device")
    lost = task_failure("t", RuntimeError("  moldau.lake.reading.offsets.DataLossError: t-0: offset 3 of [3, 9): the log holds [5, 9)"))
    assert (type(lost), str(lost)) == (DataLossError, "t-0: offset 3 of [3, 9): the log holds [5, 9)")
    assert "died in the middle of a task" in str(task_failure("t", RuntimeError("Python worker exited unexpectedly (crashed).")))
    assert str(task_failure("t", RuntimeError("\nOut of memory\n"))) == "topic t: Spark failed: Out of memory"
