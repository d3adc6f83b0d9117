"""Whether Spark has to look for data sources: those of other packages must be found as before."""

import os
import sys
from pathlib import Path

import pytest

from moldau.lake.known_source import is_only_one


def test_ours_is_the_only_one() -> None:
    """The module ``pyspark_moldau`` is installed with us."""
    assert is_only_one()


def test_a_module_of_another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark imports it, too."""
    (tmp_path / "pyspark_other.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    assert not is_only_one()


@pytest.mark.parametrize("variable", [None, "PYTHONPATH"])
def test_a_module_that_only_the_workers_of_spark_find(variable: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They import from the directory that they run in, and from PYTHONPATH; a program, as one of ``bin``, need not."""
    (tmp_path / "pyspark_other.py").write_text("")
    if variable is None:
        monkeypatch.chdir(tmp_path)
    else:
        monkeypatch.setenv(variable, f"/nowhere{os.pathsep}{tmp_path}")
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])
    assert not is_only_one()


def test_another_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is installed there is not known here."""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert is_only_one()
    monkeypatch.setenv("PYSPARK_PYTHON", os.path.basename(sys.executable))
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable))
    assert is_only_one()
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.symlink_to(os.path.realpath(sys.executable))
    for each in (str(other), "no-python"):
        monkeypatch.setenv("PYSPARK_PYTHON", each)
        assert not is_only_one()
