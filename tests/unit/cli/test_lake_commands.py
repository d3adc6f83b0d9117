"""`moldau lake`: exit codes and output of the wait and the doctor; neither starts Spark or asks a broker."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from moldau.cli.application import application
from moldau.lake.table import set_watermark
from moldau.lake.tables.opening import FORMATS
from support.number_table import NumberTable

NOON_MS = 1_372_680_000_000


@pytest.fixture(params=FORMATS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> NumberTable:
    return NumberTable(request.param, tmp_path / "table")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(application, ["lake", *arguments])


def test_a_complete_table_ends_the_wait(table: NumberTable) -> None:
    set_watermark(table.tables, table.path, NOON_MS)
    done = run("wait", table.path, "--until", "2013-07-01T12:00")
    assert (done.exit_code, done.stdout) == (0, f"{table.path}: complete up to 2013-07-01T12:00:00.000Z\n")
    done = run("wait", table.path, "--until", "2013-07-01T11:00", "--json")
    assert json.loads(done.stdout) == {
        "table": table.path,
        "until": "2013-07-01T11:00:00.000Z",
        "complete": True,
        "watermark": "2013-07-01T12:00:00.000Z",
    }


def test_a_table_that_is_not_complete_in_time_has_an_exit_code_of_its_own(table: NumberTable) -> None:
    set_watermark(table.tables, table.path, NOON_MS)
    done = run("wait", table.path, "--until", "2013-07-02", "--timeout", "0.1", "--json")
    assert done.exit_code == 3
    assert "not complete up to 2013-07-02T00:00:00+00:00 after 0.1 s; it is complete up to 2013-07-01T12:00:00+00:00" in done.stderr
    assert json.loads(done.stdout)["complete"] is False


def test_a_table_that_does_not_exist_yet_is_waited_for(tmp_path: Path) -> None:
    done = run("wait", str(tmp_path / "none"), "--until", "1h", "--timeout", "0.1")
    assert (done.exit_code, done.stdout) == (3, "")
    assert f"{tmp_path}/none: there is no table yet: waiting for one" in done.stderr
    assert "it has no completion watermark yet" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["wait", "gs://bucket/table", "--until", "1h"], 1, "tables lie in directories of this machine"),
        (["wait", "lake", "--until", "noon"], 2, "'noon' is not a time"),
        (["wait", "lake"], 2, "Missing option '--until'"),
        (["doctor", "nowhere"], 1, "Error: nowhere: there is no table"),
        (["doctor", "t", "--retention", "soon"], 2, "'soon' is not a duration such as 12h, 7d, 4w"),
        (["doctor", "t", "--retention", "5m"], 2, "the retention of files must be an hour at least"),
        (["doctor", "t", "--log-retention", "5h"], 2, "the retention of versions must be a day at least"),
        (["doctr", "t"], 2, "Did you mean 'doctor'?"),
    ],
)
def test_what_cannot_be_done_is_one_line(arguments: list[str], code: int, words: str) -> None:
    done = run(*arguments)
    assert done.exit_code == code
    assert words in done.stderr


def test_a_damaged_table_is_one_line(tmp_path: Path) -> None:
    table = NumberTable("parquet", tmp_path / "table")
    (tmp_path / "table" / "_manifests" / "00000000000000000001.json").write_text("{")
    for command in (["wait", table.path, "--until", "1h"], ["doctor", table.path]):
        done = run(*command)
        assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
        assert "no manifest" in done.stderr


def test_a_table_that_is_well_has_exit_code_0(table: NumberTable) -> None:
    table.load(1)
    done = run("doctor", table.path)
    first, second = done.stdout.splitlines()
    assert first.startswith(f"{table.path}: {table.tables.name}, version 1; 1 file, ")
    assert (done.exit_code, second) == (0, "nothing found")


def test_findings_have_exit_code_1_until_they_are_repaired(table: NumberTable) -> None:
    for number in range(3):
        table.load(number)
    (old,) = table.write([9])
    os.utime(Path(table.path, old.path), (0, 0))
    done = run("doctor", table.path, "--small-files", "3")
    lines = done.stdout.splitlines()
    assert done.exit_code == 1
    assert lines[1].startswith("warning: small files: 3 small files in 1 partition that is over")
    assert lines[2:4] == ["  cost: a query opens each of them, and the log has an entry of each; 1 would do", "  repair: compaction"]
    assert lines[4].startswith("warning: unneeded files: 1 data file that no version of the last 7 days names")
    assert table.now().version == 3, "without --repair nothing is changed"
    done = run("doctor", table.path, "--small-files", "3", "--repair")
    assert done.exit_code == 0, done.output
    assert "repaired: small files: 3 files of 1 partition became 1; version 4" in done.stdout
    assert "repaired: unneeded files: 1 data file deleted" in done.stdout
    assert table.numbers() == [0, 1, 2]
    assert run("doctor", table.path, "--small-files", "3").stdout.splitlines()[1] == "nothing found"


def test_what_cannot_be_repaired_keeps_exit_code_1(table: NumberTable) -> None:
    table.load(1)
    table.file().unlink()
    done = run("doctor", table.path, "--repair")
    assert done.exit_code == 1
    assert "  what helps: restore them from a backup" in done.stdout
    assert done.stdout.splitlines()[-2:] == ["nothing to repair", "1 finding left: missing files"]


def test_the_document_has_figures_findings_and_repairs(table: NumberTable) -> None:
    for number in range(2):
        table.load(number)
    done = run("doctor", table.path, "--small-files", "2", "--repair", "--json")
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.exit_code == 0
    assert (found["table"], found["format"], found["version"], found["files"], found["rows"]) == (table.path, table.tables.name, 2, 2, 2)
    assert [(each["check"], each["severity"], each["count"]) for each in found["findings"]] == [("small files", "warning", 2)]
    assert found["repairs"] == [{"check": "small files", "done": True, "text": "2 files of 1 partition became 1; version 3"}]
    assert found["left"] == []


def test_neither_spark_nor_a_client_is_loaded(table: NumberTable) -> None:
    set_watermark(table.tables, table.path, NOON_MS)
    program = (
        "import sys; from moldau.cli.application import application\n"
        f"application(['lake', 'wait', {table.path!r}, '--until', '2013-07-01T12:00'], standalone_mode=False)\n"
        "print([name for name in ('pyspark', 'py4j', 'confluent_kafka', 'pandas', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout.splitlines()[-1], done.stderr) == ("[]", "")
