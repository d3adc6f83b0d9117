"""`moldau spark prepare`: what keeps it from its work is one line, before Spark starts."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from moldau.cli import spark_prepare
from moldau.cli.application import application
from moldau.lake.spark_home import PreparedSpark, prepare_spark


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_prepared: PreparedSpark, _archive: Path) -> None:
        pytest.fail("Spark starts")

    monkeypatch.setattr(spark_prepare, "_run", run)
    monkeypatch.delenv("SPARK_HOME", raising=False)


def prepare(directory: Path | str, **variables: str | None) -> tuple[int, str]:
    result = CliRunner(env={"MOLDAU_SPARK_CACHE": str(directory), **variables}).invoke(application, ["spark", "prepare"])
    return result.exit_code, result.output


def test_what_is_there_is_named(tmp_path: Path) -> None:
    prepare_spark(tmp_path, lambda _, archive: archive.write_bytes(bytes(3 * 1024 * 1024)))
    (archive,) = tmp_path.glob("*.jsa")
    assert prepare(tmp_path) == (0, f"{archive}: it is there already, 3.0 MiB\n")


def test_no_java(tmp_path: Path) -> None:
    code, said = prepare(tmp_path, JAVA_HOME="/nowhere")
    assert (code, said) == (1, "Error: there is no Java at JAVA_HOME, /nowhere; Spark needs a Java 17 or newer\n")


def test_no_pyspark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.model.extras.find_spec", lambda name: None if name == "pyspark" else name)
    assert prepare(tmp_path) == (1, "Error: Spark needs pyspark, which is not installed: pip install 'moldau[lake]'\n")


def test_directories_that_cannot_be_one(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert prepare(tmp_path / "file" / "cache") == (1, f"Error: {tmp_path}/file/cache: not a directory\n")
    code, said = prepare("/spark:cache")
    assert (code, said.startswith("Error: /spark:cache: Java has no colons")) == (1, True)
    code, said = prepare("", XDG_CACHE_HOME=None, HOME="~")
    assert (code, said) == (1, "Error: there is no home directory to keep it in; MOLDAU_SPARK_CACHE names another one\n")


def test_a_home_of_the_users_own(tmp_path: Path) -> None:
    code, said = prepare(tmp_path, SPARK_HOME="/opt/spark")
    assert (code, "SPARK_HOME, /opt/spark" in said) == (1, True)


@pytest.mark.parametrize("variable", ["SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"])
def test_a_collector_of_the_users_own(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java starts with one only."""
    for name in ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    assert [each for each in spark_prepare.quick_options() if each.endswith("GC")] == ["-XX:+UseSerialGC"]
    monkeypatch.setenv(variable, "-Dmine=1 -XX:+UseG1GC")
    assert not [each for each in spark_prepare.quick_options() if each.endswith("GC")]
