"""What POSIX calls stand in for Linux's where those are missing, and what two processes see of each other's locks."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from moldau.adapters import posix_files
from moldau.adapters.posix_files import PosixFiles
from moldau.model.errors import StorageError
from moldau.ports.filesystem import LockHeldError


def test_linux_syncs_data_only() -> None:
    if not hasattr(os, "fdatasync"):
        pytest.skip("no Linux names here")
    assert posix_files.choose_sync() is os.fdatasync
    assert posix_files.choose_write() is os.writev


def test_without_fdatasync_the_file_is_synced_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fdatasync", raising=False)
    monkeypatch.delattr(fcntl, "F_FULLFSYNC", raising=False)
    assert posix_files.choose_sync() is os.fsync


def test_on_macos_the_drive_is_told_to_empty_its_cache_and_fsync_helps_where_it_cannot(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: list[object] = []
    monkeypatch.delattr(os, "fdatasync", raising=False)
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", lambda _descriptor, command: calls.append(command))
    monkeypatch.setattr(os, "fsync", lambda _descriptor: calls.append("fsync"))
    file = PosixFiles().open(str(tmp_path / "a"), create=True)
    file.sync()
    assert calls == [51]

    def unsupported(_descriptor: int, _command: int) -> int:
        raise OSError(45, "Operation not supported")

    monkeypatch.setattr(fcntl, "fcntl", unsupported)
    file.sync()
    assert calls == [51, "fsync"]
    file.release()


_HOLDER = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
getattr(fcntl, sys.argv[2])(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("kind", ["lockf", "flock"])
def test_a_lock_of_another_process_is_seen_whichever_kind_it_is(tmp_path: Path, kind: str) -> None:
    """``lockf`` is what Java's FileChannel takes: two brokers, one Apache Kafka and one ours, must not share a directory."""
    path = str(tmp_path / ".lock")
    holder = subprocess.Popen([sys.executable, "-c", _HOLDER, path, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(LockHeldError):
            PosixFiles().lock(path)
    PosixFiles().lock(path).release()


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_bytes(b"x")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link").symlink_to(outside)
    PosixFiles().remove_tree(str(inside))
    assert (outside / "precious").exists()
    assert not inside.exists()


def test_a_failed_replacement_leaves_the_old_file_and_no_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = PosixFiles()
    path = str(tmp_path / "a")
    files.write_atomically(path, b"old")

    def fails(_source: str, _target: str) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "rename", fails)
    with pytest.raises(StorageError):
        files.write_atomically(path, b"new")
    assert files.list(str(tmp_path)) == ["a"]
    assert files.read(path) == b"old"
