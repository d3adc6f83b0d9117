"""A temporary directory goes after its process is dead, and none that another process may use or that is to be kept."""

import os
import tempfile
from pathlib import Path

import pytest

from moldau.adapters.temporary_directory import keep, make_temporary, remove_left_behind

DEAD = 999_999_999


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_making_one_removes_those_of_dead_processes_alone(folder: Path) -> None:
    """An id that is another process's by now is no owner."""
    here = os.readlink("/proc/self/ns/pid")
    alive, kept = make_temporary("x-"), make_temporary("x-")
    for name, owner in (("x-dead", f"{DEAD} 1 {here}"), ("x-other", f"{os.getpid()} 1 {here}"), ("y-dead", f"{DEAD} 1 {here}")):
        (folder / name / "data").mkdir(parents=True)
        (folder / name / "owner").write_text(owner)
    keep(kept)
    made = make_temporary("x-")
    assert sorted(map(str, folder.iterdir())) == sorted([alive, kept, made, f"{folder}/y-dead"])


def test_what_lies_in_a_folder_that_others_share_is_neither_waited_for_nor_removed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe in the place of the owner's name would be waited for, for ever; in another container the id is another process's."""
    for name in ("x-pipe", "x-container", "x-foreign"):
        (folder / name).mkdir()
    os.mkfifo(folder / "x-pipe" / "owner")
    (folder / "x-container" / "owner").write_text(f"{DEAD} 1 pid:[1]")
    remove_left_behind("x-")
    (folder / "x-foreign" / "owner").write_text(f"{DEAD} 1 {os.readlink('/proc/self/ns/pid')}")
    monkeypatch.setattr(os, "getuid", lambda: -1)
    remove_left_behind("x-")
    assert sorted(each.name for each in folder.iterdir()) == ["x-container", "x-foreign", "x-pipe"]
