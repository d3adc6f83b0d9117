"""Spark's Python processes find the installed pyspark, with its compiled modules, where Spark looks for a zip file of it; and what is
prepared once is used by each start.
"""

import errno
import os
import shutil
import stat
import subprocess
import sys
from importlib.machinery import ModuleSpec
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

import pyspark
import pytest

from moldau.lake import spark_home
from moldau.lake.class_archive import reading
from moldau.lake.java_options import java_options
from moldau.lake.spark_home import (
    CACHE_VARIABLE,
    PreparedSpark,
    cache_directory,
    linked_home,
    prepare_spark,
    prepared_spark,
)


@pytest.fixture(autouse=True)
def no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv(CACHE_VARIABLE, "/nowhere")


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


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The cache of these tests, which is empty."""
    directory = tmp_path / "cache"
    monkeypatch.setenv(CACHE_VARIABLE, str(directory))
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    return directory


def made(_prepared: PreparedSpark, archive: Path) -> None:
    """What Java does."""
    archive.write_text("classes")


def started(directory: Path) -> tuple[Path, str | None]:
    """Home and Java options of a Spark that is started now."""
    directory.mkdir(exist_ok=True)
    with linked_home(str(directory)):
        return Path(os.environ["SPARK_HOME"]), os.environ.get("SPARK_SUBMIT_OPTS")


@pytest.mark.parametrize(
    ("variables", "directory"),
    [
        ({CACHE_VARIABLE: "/spark", "XDG_CACHE_HOME": "/cache"}, "/spark"),
        ({CACHE_VARIABLE: "", "XDG_CACHE_HOME": "/cache"}, "/cache/moldau/spark"),
        ({"XDG_CACHE_HOME": "cache"}, "/home/me/.cache/moldau/spark"),
        ({}, "/home/me/.cache/moldau/spark"),
        ({"HOME": "~"}, None),
    ],
)
def test_where_the_cache_is(variables: dict[str, str], directory: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (CACHE_VARIABLE, "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/me", **variables}.items():
        monkeypatch.setenv(name, value)
    assert cache_directory() == (None if directory is None else Path(directory))


def test_starts_use_what_is_prepared_and_write_nothing_there(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Options of the environment come after ours, and win."""
    before, options = started(tmp_path / "work")
    assert (before.parent, options, cache.exists()) == (tmp_path / "work", None, False)
    assert prepare_spark(cache, made)
    assert not prepare_spark(cache, lambda *_: pytest.fail("it is there"))
    content = sorted(cache.rglob("*"))
    home, options = started(tmp_path / "other")
    prepared = prepared_spark(cache)
    assert (home, list((tmp_path / "other").iterdir())) == (prepared.home, [])
    assert options == java_options(reading(prepared.archive))
    assert f"-XX:SharedArchiveFile={prepared.archive} " in options
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dmine=1")
    assert started(tmp_path / "other")[1] == f"{options} -Dmine=1"
    assert os.environ["SPARK_SUBMIT_OPTS"] == "-Dmine=1"
    assert "SPARK_HOME" not in os.environ
    assert sorted(cache.rglob("*")) == content


@pytest.mark.parametrize("variable", ["SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS"])
@pytest.mark.parametrize("option", ["-XX:ArchiveClassesAtExit=mine.jsa", "-XX:SharedArchiveFile=mine.jsa", "-XX:AOTCache=mine.aot"])
def test_an_archive_of_the_users_own(variable: str, option: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java would not start with both."""
    prepare_spark(cache, made)
    monkeypatch.setenv(variable, f"-Dmine=1 {option}")
    home, options = started(tmp_path / "work")
    assert home == prepared_spark(cache).home
    assert options == (f"-Dmine=1 {option}" if variable == "SPARK_SUBMIT_OPTS" else "")


def test_what_is_not_whole_is_left_alone(cache: Path, tmp_path: Path) -> None:
    prepare_spark(cache, made)
    prepared = prepared_spark(cache)
    os.truncate(prepared.archive, 1)
    assert started(tmp_path / "work")[0].parent == tmp_path / "work"
    assert prepare_spark(cache, made)
    shutil.rmtree(prepared.home)
    assert started(tmp_path / "work")[0].parent == tmp_path / "work"
    assert not prepare_spark(cache, lambda *_: pytest.fail("only the home is missing"))
    assert started(tmp_path / "work")[0] == prepared.home


def test_a_home_that_is_named_has_nothing_of_ours(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare_spark(cache, made)
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert started(tmp_path / "work") == (Path("/opt/spark"), None)


def test_what_fits_no_more_is_removed(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a pyspark that was upgraded in its place the older archive, of one that was removed all; other ones stay."""
    for place in "ab":
        installed(monkeypatch, tmp_path / place, "1")
        prepare_spark(cache, made)
    first = {each.name for each in cache.iterdir()}
    (tmp_path / "b" / "jars" / "new.jar").touch()
    prepare_spark(cache, made)
    second = {each.name for each in cache.iterdir()}
    assert [len(first - second), len(second - first)] == [2, 2], "an archive and its size are other ones"
    shutil.rmtree(tmp_path / "a")
    (tmp_path / "b" / "jars" / "newer.jar").touch()
    prepare_spark(cache, made)
    left = {each.name for each in cache.iterdir()}
    assert left == {"lock", prepared_spark(cache).home.name} | {
        prepared_spark(cache).archive.with_suffix(end).name for end in (".jsa", ".size")
    }


def test_a_pyspark_that_was_upgraded_in_its_place(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With another py4j it has another home; the archive of the former one is removed. What Python compiles is no part of a home."""
    place = installed(monkeypatch, tmp_path / "a", "1")
    prepare_spark(cache, made)
    (place / "__pycache__").mkdir()
    former = prepared_spark(cache)
    assert former.is_there
    installed(monkeypatch, place, "2")
    prepare_spark(cache, made)
    now = prepared_spark(cache)
    assert former.home != now.home
    assert list(cache.glob("classes-*.jsa")) == [now.archive]
    assert len(list(cache.glob("classes-*"))) == 2
    assert former.home.exists(), "a Spark that has started before may run"


def test_other_users_of_a_cache(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One prepares for all, as in an image; what one of them may not look at is neither removed nor used, and no error."""
    installed(monkeypatch, tmp_path / "a", "1")
    prepare_spark(cache, made)
    theirs = prepared_spark(cache)
    assert stat.filemode(theirs.home.stat().st_mode) == stat.filemode(cache.stat().st_mode)
    see = os.stat

    def may_not_see(path: str | Path, **options: Any) -> os.stat_result:
        if path == theirs.home / "jars":
            raise PermissionError(errno.EACCES, "permission denied", str(path))
        return see(path, **options)

    monkeypatch.setattr(os, "stat", may_not_see)
    assert started(tmp_path / "work")[0].parent == tmp_path / "work"
    installed(monkeypatch, tmp_path / "b", "1")
    prepare_spark(cache, made)
    assert theirs.home.exists()
    assert theirs.archive.exists()
    assert prepared_spark(cache).is_there
