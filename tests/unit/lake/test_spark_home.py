"""Spark's Python processes find the installed pyspark, with its compiled modules, where Spark looks for a zip file of it."""

import os
import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pyspark
import pytest

from moldau.lake.spark_home import linked_home


@pytest.fixture(autouse=True)
def no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)


def test_a_process_imports_what_is_installed(tmp_path: Path) -> None:
    """By the path that Spark gives its processes; and all else of the home is there."""
    with linked_home(str(tmp_path)):
        home = Path(os.environ["SPARK_HOME"])
    assert "SPARK_HOME" not in os.environ
    path = os.pathsep.join(map(str, [home / "python/lib/pyspark.zip", *(home / "python/lib").glob("py4j-*.zip")]))
    program = "import py4j, pyspark; print(pyspark.__file__, pyspark.__cached__, py4j.__file__)"
    command = [sys.executable, "-S", "-c", program]
    found = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True).stdout.split()
    assert found[0] == str(home / "python/lib/pyspark.zip/pyspark/__init__.py")
    assert os.path.samefile(found[1], cache_from_source(pyspark.__file__))
    assert found[2].startswith(str(home))
    assert (home / "bin/spark-submit").exists()
    assert list((home / "jars").glob("spark-core_*.jar"))


def test_it_is_made_once(tmp_path: Path) -> None:
    """Two sessions of a process may have one directory."""
    for _ in range(2):
        with linked_home(str(tmp_path)):
            assert os.environ["SPARK_HOME"] == str(tmp_path / "home")


def test_a_home_that_is_named_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    with linked_home(str(tmp_path)):
        assert os.environ["SPARK_HOME"] == "/opt/spark"
    assert os.environ["SPARK_HOME"] == "/opt/spark"
    assert not list(tmp_path.iterdir())


def test_all_that_workers_use_is_imported() -> None:
    """What one of the modules lacks is left to the worker that wants it; here all are there."""
    program = "import sys; from moldau.lake import python_daemon as d; d.import_used(); print(set(d.USED) <= set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert found.strip() == "True"
