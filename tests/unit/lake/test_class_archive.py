"""An archive of Java classes is made once for one Java and one class path; without one that is whole Java starts as ever."""

import fcntl
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from moldau.lake.class_archive import archive_path, is_whole, java_program, make_archive, reading, writing


def write(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text)


def test_an_archive_is_made_once(tmp_path: Path) -> None:
    """By one run; what does not fit any more is removed, and archives of other programs stay."""
    old, other, new = (tmp_path / "made" / f"{name}.jsa" for name in (f"spark-{'0' * 16}", f"kafka-{'0' * 16}", f"spark-{'1' * 16}"))
    for each in (old, other, new):
        assert make_archive(each, write("classes"))
    assert sorted(path.name for path in tmp_path.glob("made/*")) == sorted(
        ["lock", *(each.with_suffix(suffix).name for each in (other, new) for suffix in (".jsa", ".size"))]
    )
    assert not make_archive(new, lambda _: pytest.fail("it is there"))


def test_a_run_that_writes_nothing(tmp_path: Path) -> None:
    """There is no archive then, and no option for one."""
    archive = tmp_path / f"spark-{'0' * 16}.jsa"
    assert not make_archive(archive, lambda _: None)
    assert not archive.exists()
    assert reading(archive) == ()
    assert make_archive(archive, write("classes"))
    assert reading(archive)[0] == f"-XX:SharedArchiveFile={archive}"


def test_a_run_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    old, new = (tmp_path / f"spark-{digit * 16}.jsa" for digit in "01")
    make_archive(old, write("classes"))

    def fail(path: Path) -> None:
        path.write_text("half")
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        make_archive(new, fail)
    assert is_whole(old)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == ["", ".jsa", ".size"]


@pytest.mark.parametrize(
    "damage", [lambda path: os.truncate(path, 3), lambda path: path.unlink(), lambda path: path.with_suffix(".size").unlink()]
)
def test_one_that_is_not_whole_is_not_used_and_made_again(damage: Callable[[Path], object], tmp_path: Path) -> None:
    """Java 17 crashes with one that ends too early."""
    archive = tmp_path / f"spark-{'0' * 16}.jsa"
    make_archive(archive, write("classes"))
    damage(archive)
    assert reading(archive) == ()
    assert make_archive(archive, write("again"))
    assert archive.read_text() == "again"
    assert reading(archive)


def test_two_at_once(tmp_path: Path) -> None:
    """One makes it, the other waits and has it then."""
    archive, waits, made = tmp_path / f"spark-{'0' * 16}.jsa", threading.Event(), list[bool]()
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = threading.Thread(
            target=lambda: made.append(make_archive(archive, lambda _: pytest.fail("it is there"), on_wait=waits.set)), daemon=True
        )
        second.start()
        assert waits.wait(30)
        archive.write_text("classes")
        archive.with_suffix(".size").write_text("7")
    second.join(30)
    assert made == [False]


def test_another_jar_or_another_java_has_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java would not use it: it compares paths, sizes and times."""
    jars, found = tmp_path / "jars", set()
    for directory in (jars, tmp_path / "java" / "bin", tmp_path / "java" / "lib" / "server"):
        directory.mkdir(parents=True)
    for change in (
        lambda: (jars / "a.jar").write_text("a"),
        lambda: (jars / "b.jar").write_text("b"),
        lambda: os.utime(jars / "a.jar", (1, 1)),
        lambda: (jars / "b.jar").write_text("longer"),
        lambda: monkeypatch.setattr(shutil, "which", lambda *_, **__: str(tmp_path / "java" / "bin" / "java")),
        lambda: (tmp_path / "java" / "lib" / "server" / "libjvm.so").write_text("another release"),
    ):
        change()
        path = archive_path(tmp_path, "spark", jars)
        assert path == archive_path(tmp_path, "spark", jars)
        found.add(path)
    assert len(found) == 6


def test_jars_in_another_order_have_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java's class path has them as the directory lists them, which differs from disk to disk: a copy may not fit."""
    for name in "ab":
        (tmp_path / f"{name}.jar").touch()
    path, names = archive_path(tmp_path, "spark", tmp_path), os.listdir(tmp_path)
    monkeypatch.setattr(os, "listdir", lambda _: names[::-1])
    assert archive_path(tmp_path, "spark", tmp_path) != path


def test_a_java_that_goes_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link to a program for many, as version managers have it: it is called by the name that Spark calls it by."""
    (tmp_path / "manager").touch(0o755)
    (tmp_path / "java").symlink_to("manager")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert java_program() == tmp_path / "java"


@pytest.mark.system
@pytest.mark.skipif(shutil.which("java") is None, reason="no Java")
def test_java_starts_with_whatever_there_is(tmp_path: Path) -> None:
    """With an archive that is damaged within, or of another class path, as with one that fits: the same output, and nothing else."""
    archive = tmp_path / f"spark-{'0' * 16}.jsa"
    (tmp_path / "a").mkdir()

    def java(*options: str, path: str = "a") -> str:
        command = [str(java_program()), *options, "-cp", str(tmp_path / path), "-version"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        return (done.stdout + done.stderr).replace(", sharing", "")

    plain = java()
    make_archive(archive, lambda path: java(*writing(path)))
    size = archive.stat().st_size
    assert java("-Xshare:on", *reading(archive)[:2]) == plain
    assert java(*reading(archive)) == plain
    assert java(*reading(archive), path="b") == plain
    archive.chmod(0o600)
    for begin, end in ((size // 3, size - size // 3), (0, 4096)):
        with archive.open("r+b") as file:
            file.seek(begin)
            file.write(bytes(end - begin))
        assert java(*reading(archive)) == plain
