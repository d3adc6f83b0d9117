"""A data directory that cannot be used is named with the reason and the way out, before anything is made in it."""

import errno
import os
from pathlib import Path

import pytest

from moldau.adapters import usable_directory
from moldau.assembly.data_directory import check_directory, strangers_in
from moldau.model.errors import StorageError

STORE = "store.sqlite"


def test_a_directory_that_can_be_used_is_left_as_it_was(tmp_path: Path) -> None:
    check_directory(str(tmp_path), STORE)
    check_directory(str(tmp_path / "new" / "data"), STORE)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.EACCES, "no permission; give user"),
        (errno.EROFS, "the file system is read-only; mount it writable"),
        (errno.ENOSPC, "no space left on the disk; a data directory takes 256 KB at least: make room, or choose"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_one_that_cannot_is_named_with_reason_and_way_out(
    number: int, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_path: str, _size: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(usable_directory, "probe", fails)
    path = tmp_path / "new" / "data"
    with pytest.raises(StorageError, match=f"{path}: cannot be used as a data directory: {reason}"):
        check_directory(str(path), STORE)
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "data"):
        with pytest.raises(StorageError, match="no directory; move it away"):
            check_directory(str(path), STORE)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_permissions_of_the_system(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    with pytest.raises(StorageError, match="no permission"):
        check_directory(str(tmp_path), STORE)


@pytest.mark.parametrize("reserving", ["refused", "not supported", "not there"])
@pytest.mark.parametrize("with_store", [True, False])
def test_a_directory_with_a_store_may_be_full(with_store: bool, reserving: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever restarts on a full disk wants to read what is there. It is found full by reserving or, where that is not done, by writing."""

    def write(_descriptor: int, _data: memoryview) -> int:
        assert reserving != "refused"
        raise OSError(errno.ENOSPC, "No space left on device")

    def reserve(_descriptor: int, _offset: int, _size: int) -> None:
        raise OSError(errno.ENOSPC if reserving == "refused" else errno.EOPNOTSUPP, "refused")

    monkeypatch.setattr(os, "write", write)
    if reserving == "not there":
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
    else:
        monkeypatch.setattr(os, "posix_fallocate", reserve, raising=False)
    if with_store:
        (tmp_path / STORE).write_text("")
        check_directory(str(tmp_path), STORE)
    else:
        with pytest.raises(StorageError, match="no space left"):
            check_directory(str(tmp_path), STORE)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("names", "strangers"),
    [
        ([], []),
        (["src", "README.md"], ["README.md", "src"]),
        ([".gitkeep", ".git", "lost+found"], []),
        ([".gitkeep", "lost+found", "notes.txt"], ["notes.txt"]),
        (["notes.txt", "meta.properties"], []),
        (["notes.txt", STORE], []),
        (["notes.txt", "recovery-point-offset-checkpoint"], []),
        (["notes.txt", "orders-0"], []),
        (["notes.txt", "orders-0.0123456789abcdef0123456789abcdef-delete"], []),
        (["meta.properties.tmp"], []),
        ([f"{STORE}-wal"], []),
    ],
)
def test_what_lies_in_a_directory_that_no_broker_has_used(names: list[str], strangers: list[str], tmp_path: Path) -> None:
    """Claim: nothing in a data directory, whoever wrote it, or in one that a start which was killed has left; hidden files do not count."""
    for name in names:
        (tmp_path / name).write_text("")
    assert strangers_in(str(tmp_path), STORE) == strangers
    assert strangers_in(str(tmp_path / "new"), STORE) == []
