"""What is wrong with a job is said where it is declared; and the job that a file makes is found. Spark is not started."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from moldau.streams.errors import StreamError, cause_of
from moldau.streams.files import JobFileError, load_job
from moldau.streams.inputs import TopicInput
from moldau.streams.job import StreamJob


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"format": "xml"}, "format is bytes, json, avro, protobuf or tracked, not 'xml'"),
        ({"format": "json"}, "format json needs the schema of its objects"),
        ({"schema": "a int"}, "format bytes has no schema: decode the column value"),
        ({"format": "avro"}, "format avro needs a schema registry"),
        ({"undecodable": "ignore"}, "undecodable is stop, skip or dead-letters, not 'ignore'"),
        ({"undecodable": "dead-letters"}, "records of format bytes are not decoded: there are no dead letters"),
        ({"delay": "ten minutes"}, "delay is a time such as '10 minutes' or '1 hour', not 'ten minutes'"),
        ({"future": "1 month"}, "future is a time such as"),
        ({"records_max": 0}, "a batch reads at least one record, not 0"),
    ],
)
def test_an_input_that_cannot_be(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match="topic flights: ") as caught:
        TopicInput("flights", **given)
    assert problem in str(caught.value)


@pytest.mark.parametrize("name", ["", "a b", "-a", "a/b", "a" * 101])
def test_a_name_that_no_job_can_have(name: str) -> None:
    with pytest.raises(ValueError, match="a job's name has up to 100"):
        StreamJob(name, directory="/data")


def test_brokers_and_registry_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOLDAU_BOOTSTRAP", "host-3:9092")
    monkeypatch.setenv("MOLDAU_REGISTRY", "http://host-3:8081")
    job = StreamJob("flights", directory="/data")
    assert (job.brokers, job.registry, job.group) == ("host-3:9092", "http://host-3:8081", "moldau-stream-flights")
    assert StreamJob("flights", directory="/data", brokers="host-4:9092").brokers == "host-4:9092"


def test_a_table_has_one_name_in_all_generations() -> None:
    """A slash at the end of its address is no part of it: readers find its places by the name."""
    job = StreamJob("flights", directory="/data", brokers="host-3:9092")
    job.to_table(Mock(isStreaming=True, columns=["event_time"], dtypes=[]), "s3://lake/hours/")
    (query,) = job.queries()
    assert [query.of_generation(number).outputs[0].place for number in (1, 2)] == ["table s3://lake/hours", "table s3://lake/hours.v2"]


FILE = """from moldau.streams import StreamJob
jobs = {names}
for number, name in enumerate(jobs):
    globals()[f"job{{number}}"] = StreamJob(name, directory="/data")
if __name__ == "__main__":
    raise SystemExit("it is not run")
"""


def test_the_job_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "jobs.py"
    path.write_text(FILE.format(names=["one"]))
    assert load_job(str(path)).name == "one"
    with pytest.raises(StreamError, match=r"jobs.py: makes no StreamJob of the name other"):
        load_job(str(path), "other")
    path.write_text(FILE.format(names=["one", "two"]))
    assert load_job(str(path), "two").name == "two"
    with pytest.raises(StreamError, match=r"jobs.py: makes the jobs one, two: name one with --job"):
        load_job(str(path))
    path.write_text(FILE.format(names=[]))
    with pytest.raises(StreamError, match=r"jobs.py: makes no StreamJob that a variable of the file has"):
        load_job(str(path))


@pytest.mark.parametrize(
    ("text", "shown"), [("\\n[PARSE_SYNTAX_ERROR] near 'airport'.\\n", "[PARSE_SYNTAX_ERROR] near 'airport'."), ("", "")]
)
def test_the_error_of_a_file_has_the_first_line_with_text(tmp_path: Path, text: str, shown: str) -> None:
    path = tmp_path / "jobs.py"
    path.write_text(f'raise RuntimeError("{text}")')
    with pytest.raises(JobFileError) as raised:
        load_job(str(path))
    assert str(raised.value) == f"{path}:1: RuntimeError: {shown}"


def test_the_reason_in_what_spark_makes_of_an_error() -> None:
    text = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted.
\tat org.apache.spark.sql.Thing.run(Thing.scala:1)
Traceback (most recent call last):
  File "worker.py", line 3, in main
    process()
moldau.lake.reading.offsets.DataLossError: flights-0: offset 3 is no longer in the log; with failOnDataLoss=false what is left would be read
\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1)"""
    assert cause_of(RuntimeError(text)).startswith("DataLossError: flights-0: offset 3 is no longer in the log")
    assert cause_of(RuntimeError("plain")) == "plain"
    assert cause_of(RuntimeError("")) == "RuntimeError('')"
