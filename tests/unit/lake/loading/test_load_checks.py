"""What can be known without Spark is said before it is started, each as one line (missions F3, I2)."""

import errno
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pyarrow as pa
import pytest
from click.testing import CliRunner

from moldau.cli import load
from moldau.cli.load import load_command
from moldau.client import Producer
from moldau.client.cluster import Cluster
from moldau.demo.options import sole_user
from moldau.lake import session
from moldau.lake.loading import checks
from moldau.lake.loading.checks import check_directory, check_jobs, check_registry, check_work_directory
from moldau.lake.loading.errors import LoadError
from moldau.lake.loading.job import LoadJobs
from moldau.lake.session import SessionError, check_spark
from moldau.lake.tables.committing import application_id, commit
from moldau.lake.tables.data_files import DAY, TIME_FIELDS
from moldau.lake.tables.format import TableChange, TableError
from moldau.lake.tables.opening import FORMATS, format_named, open_or_create
from moldau.model.errors import StorageError
from moldau.registry.client import RegistryUnavailableError
from moldau.testing.broker import Broker


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """Claim: before Spark is started; with the reason and the option that chooses another one, and nothing is left behind."""
    check_directory(str(tmp_path / "new" / "lake"))
    check_work_directory(str(tmp_path / "new" / "spark"))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    reason = "a part of the path is no directory; move it away, or choose another directory with"
    with pytest.raises(LoadError, match=f"file/lake: cannot be used as a directory of tables: {reason} --to"):
        check_directory(str(tmp_path / "file" / "lake"))
    with pytest.raises(LoadError, match=f"file/spark: cannot be used as a directory for Spark's own files: {reason} --work-dir"):
        check_work_directory(str(tmp_path / "file" / "spark"))


def test_a_full_disk_is_told_before_anything_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def reserve(_descriptor: int, _offset: int, _size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", reserve)
    with pytest.raises(
        LoadError, match=r"no space left on the disk; a directory of tables takes 256 KB at least: make room, or choose .* --to"
    ):
        check_directory(str(tmp_path))
    with pytest.raises(StorageError, match=r"no space left on the disk; a directory of the demonstration .* --dir"), sole_user(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("gs://bucket/lake", "gs://bucket/lake: tables lie in directories of this machine or at s3://BUCKET/PREFIX"),
        ("file:///tmp/lake", "file:///tmp/lake: tables lie in directories"),
        ("orders/_delta_log/lake", "orders/_delta_log/lake: inside _delta_log, where the versions of another table lie"),
    ],
)
def test_what_is_no_place_for_tables_is_refused_and_nothing_made(
    place: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory of the name ``s3:`` would take the rows, and nobody would miss them: their counts are told to the audit."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LoadError, match=message):
        check_directory(place)
    for name in FORMATS:
        with pytest.raises(TableError, match=message):
            open_or_create(format_named(name), place, pa.schema([("n", pa.int64())]), [], "")
    assert list(tmp_path.iterdir()) == []


def test_a_registry_that_does_not_answer_is_named(closed_port: int) -> None:
    with pytest.raises(RegistryUnavailableError, match=str(closed_port)):
        check_registry(f"http://127.0.0.1:{closed_port}")
    with pytest.raises(LoadError, match="registry ftp://r: 'ftp://r' is not a registry's URL"):
        check_registry("ftp://r")


def test_a_job_is_held_against_brokers_and_registry(tmp_path: Path) -> None:
    with Broker(registry=True) as broker:
        broker.create_topic("there", 1)

        def job(**changes: Any) -> LoadJobs:
            return LoadJobs("j", broker.bootstrap_servers, str(tmp_path), **{"registry": broker.registry_url, **changes})

        assert [each.topic for each in check_jobs(job(topics=("there",)))] == ["there"]
        assert [each.topic for each in check_jobs(job(pattern="t.*"))] == ["there"]
        assert check_jobs(job(pattern="zzz")) == []
        with pytest.raises(LoadError, match=r"there are no topics 'a', 'b' at 127\.0\.0\.1:"):
            check_jobs(job(topics=("a", "there", "b")))
        with pytest.raises(LoadError, match="there is no topic 'a'"):
            check_jobs(job(topics=("a",)))


@pytest.mark.parametrize("memory", ["1q", "", "m", "0g", "-1g", "1.5g", "1g 2g", "1024"])
def test_an_amount_of_memory_that_is_none(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_check_java", lambda: None)
    with pytest.raises(SessionError, match="is no amount of memory for Spark: a whole number with k, m or g, 512m or 2g"):
        check_spark(memory)


def test_an_amount_of_memory_that_is_too_little_for_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_check_java", lambda: None)
    for memory in ("512m", "1g", "2G", "1gb", "600000k"):
        check_spark(memory)
    with pytest.raises(SessionError, match="at least 512m of memory, not 64m"):
        check_spark("64m")


@pytest.mark.parametrize("start", ["start_spark", "start_tasks"])
def test_the_first_error_of_java_says_why_spark_did_not_start(start: str, tmp_path: Path) -> None:
    """The last line says only that the program ends. Here a script stands for Java; its log stays where the message says."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho WARNING: old >&2\necho Error: no room for a heap >&2\necho Error: A fatal exception >&2\nexit 1\n")
    java.chmod(0o755)
    program = f"import sys; from moldau.lake import session; session.{start}('none', sys.argv[1])"
    command = [sys.executable, "-c", program, str(tmp_path / "spark")]
    done = subprocess.run(command, env={**os.environ, "JAVA_HOME": str(tmp_path)}, capture_output=True, text=True, check=False)
    log = tmp_path / "spark" / "spark.log"
    assert f"SessionError: Spark did not start: Error: no room for a heap; more in {log}\n" in done.stderr
    assert "A fatal exception" in log.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--once", "--follow"], "--once, --follow and --every exclude each other"),
        (["--once", "--every", "5m"], "--once, --follow and --every exclude each other"),
        (["--follow", "--every", "5m"], "--once, --follow and --every exclude each other"),
        ([], "'name' is missing: give --name, or"),
        (["--name", "j", "--memory", "5"], "--memory: '5' is no amount of memory for Spark: a whole number with k, m or g, 512m or 2g"),
        (["--name", "j", "--memory", "64m"], "--memory: Spark needs at least 512m of memory, not 64m"),
    ],
)
def test_options_that_exclude_each_other_or_are_missing_or_mean_nothing(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(load_command, ["--to", "x", "--topics", "t", "--registry", "http://r", *arguments])
    assert (done.exit_code, message in done.output) == (2, True), done.output


def test_a_job_file_at_fault_is_a_fault_of_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text('name = "x"\nto = "y"\nnonsense = 1\n')
    done = CliRunner().invoke(load_command, [str(file)])
    assert (done.exit_code, "job.toml: 'nonsense' is not known" in done.output) == (2, True), done.output


def test_nothing_is_started_for_a_job_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refused(_: LoadJobs) -> None:
        raise LoadError("there is no topic 't'")

    monkeypatch.setattr(session, "check_spark", lambda _: None)
    monkeypatch.setattr(session, "start_tasks", lambda *_, **__: pytest.fail("Spark was started"))
    monkeypatch.setattr(checks, "check_jobs", refused)
    done = CliRunner().invoke(load_command, ["--to", str(tmp_path), "--name", "j", "--topics", "t", "--registry", "http://r"])
    assert (done.exit_code, done.output) == (1, "Error: there is no topic 't'\n")


@pytest.mark.parametrize(
    ("how", "code", "message"),
    [
        ("--once", 1, "Error: no topic matches 'zzz', so there was nothing to load\n"),
        ("--follow", 0, "no topic matches 'zzz' yet: waiting for one\n"),
        ("--every=5m", 0, "no topic matches 'zzz' yet: waiting for one\n"),
    ],
)
def test_a_pattern_that_nothing_matches_is_told(how: str, code: int, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Mostly it is misspelt. Who follows may well have been before the first topic, and waits for it, without a Spark."""
    spark = MagicMock()
    monkeypatch.setattr(session, "check_spark", lambda _: None)
    monkeypatch.setattr(session, "start_tasks", spark)
    monkeypatch.setattr(load, "_rounds", lambda *_: 0)
    monkeypatch.setattr(checks, "check_jobs", lambda _: [])
    done = CliRunner().invoke(load_command, ["--to", str(tmp_path), "--name", "j", "--pattern", "zzz", "--registry", "http://r", how])
    assert (done.exit_code, done.output, spark.call_count) == (code, message, 0)


def test_at_a_terminal_it_is_said_what_is_to_come(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three records were loaded of five in one topic, none of two in the other. Elsewhere nobody looks on, and nothing is said."""
    with Broker() as broker:
        for topic, count in (("a", 5), ("b", 2)):
            broker.create_topic(topic, 1)
            with Producer(broker.bootstrap_servers) as producer:
                for _ in range(count):
                    producer.send(topic, "x")
        jobs = LoadJobs("j", broker.bootstrap_servers, str(tmp_path), topics=("a", "b"), registry="http://r")
        found = [jobs.job(topic) for topic in jobs.topics]
        with Cluster(broker.bootstrap_servers) as cluster:
            loaded = application_id("j", cluster.topic("a").id.hex(), 0)
        tables = format_named("delta")
        open_or_create(tables, found[0].table, pa.schema([("n", pa.int64()), *TIME_FIELDS]), [DAY], "")
        commit(tables, found[0].table, TableChange("LOAD", offsets={loaded: 3}))
        load._print_waiting(jobs, found, once=True)
        assert capsys.readouterr() == ("", "")
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        load._print_waiting(jobs, found, once=False)
        load._print_waiting(jobs, found, once=True)
        assert capsys.readouterr() == ("", "2 topics, 4 records to load\n")
