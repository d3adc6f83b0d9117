"""An archive of Java classes is made once for one Java and one class path, and a test without one starts Java as ever."""

import os
import shutil
from pathlib import Path

import pytest

from support.class_archives import archive_path, make_archive, reading


def test_an_archive_is_made_once(tmp_path: Path) -> None:
    """By one run; what does not fit any more is removed, and archives of other programs stay."""
    old, other, new = (tmp_path / "made" / f"{name}.jsa" for name in (f"spark-{'0' * 16}", f"kafka-{'0' * 16}", f"spark-{'1' * 16}"))
    for each in (old, other, new):
        make_archive(each, lambda path: path.write_text("classes"))
    assert sorted(tmp_path.glob("made/*.jsa")) == sorted([other, new])
    make_archive(new, lambda _: pytest.fail("it is there"))


def test_a_run_that_writes_nothing(tmp_path: Path) -> None:
    """There is no archive then, and no option for one."""
    archive = tmp_path / f"spark-{'0' * 16}.jsa"
    make_archive(archive, lambda _: None)
    assert not archive.exists()
    assert reading(archive) == ()
    make_archive(archive, lambda path: path.write_text("classes"))
    assert reading(archive)[0] == f"-XX:SharedArchiveFile={archive}"


def test_another_jar_or_another_java_has_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java would not use it: it compares paths, sizes and times."""
    jars, found = tmp_path / "jars", set()
    jars.mkdir()
    for change in (
        lambda: (jars / "a.jar").write_text("a"),
        lambda: (jars / "b.jar").write_text("b"),
        lambda: os.utime(jars / "a.jar", (1, 1)),
        lambda: (jars / "b.jar").write_text("longer"),
        lambda: monkeypatch.setattr(shutil, "which", lambda *_, **__: str(tmp_path / "java")),
    ):
        change()
        path = archive_path(tmp_path, "spark", jars)
        assert path == archive_path(tmp_path, "spark", jars)
        found.add(path)
    assert len(found) == 5
