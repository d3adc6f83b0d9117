"""Spark's Python processes find the installed pyspark, with its compiled modules, where Spark looks for a zip file of it."""

import os
import subprocess
import sys
from importlib.machinery import ModuleSpec
from importlib.util import cache_from_source
from pathlib import Path

import pyspark
import pytest

from moldau.lake import spark_home
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
            assert Path(os.environ["SPARK_HOME"]).parent == tmp_path
    assert len(list(tmp_path.iterdir())) == 1


def installed(monkeypatch: pytest.MonkeyPatch, place: Path, py4j: str) -> Path:
    """A pyspark there, which is the one that is found from now on."""
    for name in ("jars", "bin", "python/lib"):
        (place / name).mkdir(parents=True, exist_ok=True)
    for old in (place / "python" / "lib").iterdir():
        old.unlink()
    (place / "python" / "lib" / f"py4j-{py4j}-src.zip").touch()
    monkeypatch.setattr(spark_home, "find_spec", lambda _: ModuleSpec("pyspark", None, origin=str(place / "__init__.py")))
    return place


def homes_target(directory: Path) -> tuple[Path, list[str]]:
    """Where its jars and pyspark are, and the py4j that it has."""
    with linked_home(str(directory)):
        home = Path(os.environ["SPARK_HOME"])
        libraries = home / "python" / "lib"
        found = sorted(each.name for each in libraries.glob("py4j-*") if each.exists())
        assert (libraries / "pyspark.zip" / "pyspark").resolve() == (home / "jars").resolve().parent
        return (home / "jars").resolve().parent, found


def test_it_is_of_the_pyspark_that_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A directory that a former start has used, as a load's, may have links to one that was moved, or upgraded."""
    directory = tmp_path / "work"
    directory.mkdir()
    for place, py4j in (("a", "1"), ("a", "1"), ("b", "1"), ("b", "2")):
        home = installed(monkeypatch, tmp_path / place, py4j)
        assert homes_target(directory) == (home, [f"py4j-{py4j}-src.zip"])
    assert "SPARK_HOME" not in os.environ
    assert len(list(directory.iterdir())) == 3


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
