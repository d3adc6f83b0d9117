"""Whether Spark has to look for data sources: those of other packages must be found as before."""

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
