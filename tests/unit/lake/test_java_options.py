"""Options of Spark's Java."""

from pathlib import Path

import pytest

from moldau.lake.java_options import SERIAL_COLLECTOR, collector_options, java_options, names_collector

PLACES = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")


@pytest.fixture(autouse=True)
def none_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*PLACES, "SPARK_HOME", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)


def test_options_as_one_text() -> None:
    assert java_options(["-a", "-b=c d", '-e="\\']) == '-a "-b=c d" "-e=\\"\\\\"'


@pytest.mark.parametrize(("cores", "memory_mb", "ours"), [(1, 512, True), (2, 4096, True), (3, 1024, False), (2, 4097, False)])
def test_the_serial_collector_is_for_small_heaps_on_few_cores(cores: int, memory_mb: int, ours: bool) -> None:
    assert collector_options(cores, memory_mb, {}) == ((SERIAL_COLLECTOR,) if ours else ())


@pytest.mark.parametrize("variable", PLACES)
def test_a_collector_in_the_environment_is_the_only_one(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java does not start with two."""
    monkeypatch.setenv(variable, "-Dmine=1 -XX:+UseG1GC")
    assert collector_options(2, 1024, {}) == ()


def test_a_collector_in_the_settings_is_the_only_one() -> None:
    assert collector_options(2, 1024, {"spark.driver.defaultJavaOptions": "-XX:+UseParallelGC"}) == ()
    assert collector_options(2, 1024, {"spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1"}) == (SERIAL_COLLECTOR,)


def test_settings_may_be_numbers() -> None:
    assert collector_options(2, 1024, {"spark.sql.shuffle.partitions": 4}) == (SERIAL_COLLECTOR,)  # type: ignore[dict-item]  # Spark takes them


@pytest.mark.parametrize(
    "given", ["--conf spark.driver.defaultJavaOptions=-XX:+UseG1GC pyspark-shell", "--properties-file mine pyspark-shell"]
)
def test_a_collector_in_what_is_submitted_is_the_only_one(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", given)
    assert collector_options(2, 1024, {}) == ()


@pytest.mark.parametrize("name", ["spark-defaults.conf", "spark-env.sh", "java-opts"])
@pytest.mark.parametrize(("variable", "folder"), [("SPARK_HOME", "conf"), ("SPARK_CONF_DIR", ".")])
def test_a_collector_in_a_file_of_the_home_is_the_only_one(
    variable: str, folder: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, str(tmp_path))
    assert collector_options(2, 1024, {}) == (SERIAL_COLLECTOR,)
    (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / folder / name).write_text("spark.driver.defaultJavaOptions  -XX:+UseZGC\n")
    assert collector_options(2, 1024, {}) == ()


def test_what_names_a_collector() -> None:
    assert names_collector("", "-Da=b -XX:-UseG1GC")
    assert all(map(names_collector, ["-XX:+UseShenandoahGC", "@options", "-Da=b @options", "-XX:Flags=f", "-XX:VMOptionsFile=f"]))
    assert not names_collector("-XX:+UseNUMA", "-Dgc=UseG1GC", "-Dmail=a@b")
