"""The file system port means the same over POSIX and in the disk that forgets."""

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from moldau.adapters.posix_files import PosixFiles
from moldau.model.errors import StorageError
from moldau.ports.filesystem import File, FileSystem, LockHeldError, MissingFileError, NotRegularError
from moldau.testing.disk import ForgetfulDisk


@dataclass
class Place:
    files: FileSystem
    root: str

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def put(self, name: str, data: bytes) -> str:
        file = self.files.open(self.path(name), create=True)
        assert file.append([data]) == len(data)
        file.release()
        return self.path(name)

    def link(self, name: str, target: str) -> str:
        """A symbolic link to another name in the place, there or not."""
        if isinstance(self.files, ForgetfulDisk):
            self.files.make_special(self.path(name), "a symbolic link", self.path(target))
        else:
            os.symlink(self.path(target), self.path(name))
        return self.path(name)

    def fifo(self, name: str) -> str:
        """A FIFO that nobody reads or writes."""
        if isinstance(self.files, ForgetfulDisk):
            self.files.make_special(self.path(name), "a FIFO")
        else:
            os.mkfifo(self.path(name))
        return self.path(name)


def posix(_patch: pytest.MonkeyPatch) -> FileSystem:
    return PosixFiles()


def posix_without_linux_names(patch: pytest.MonkeyPatch) -> FileSystem:
    patch.delattr(os, "fdatasync", raising=False)
    patch.delattr(os, "writev")
    return PosixFiles()


def forgetful(_patch: pytest.MonkeyPatch) -> FileSystem:
    return ForgetfulDisk(now_ms=lambda: 1_700_000_000_000)


@pytest.fixture(params=[posix, posix_without_linux_names, forgetful], ids=lambda make: make.__name__)
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    files: FileSystem = request.param(monkeypatch)
    files.make_directory(str(tmp_path))
    return Place(files, str(tmp_path))


def test_append_writes_buffers_of_any_kind_in_order_at_the_end(place: Place) -> None:
    file = place.files.open(place.path("a"), create=True)
    assert file.append([b"one", bytearray(b"two"), memoryview(b"..three..")[2:7]]) == 11
    assert file.append([b"four"]) == 4
    assert file.size() == 15
    assert file.pread(100, 0) == b"onetwothreefour"
    file.release()


def test_more_buffers_than_one_system_call_takes(place: Place) -> None:
    buffers = [b"%05d" % number for number in range(3000)]
    file = place.files.open(place.path("a"), create=True)
    assert file.append(buffers) == 15_000
    assert file.pread(15_000, 0) == b"".join(buffers)
    file.release()


def test_append_of_nothing(place: Place) -> None:
    file = place.files.open(place.path("a"), create=True)
    assert file.append([]) == 0
    assert file.append([b""]) == 0
    file.release()


def test_append_goes_to_the_end_of_what_was_there(place: Place) -> None:
    path = place.put("a", b"old")
    file = place.files.open(path, writable=True)
    file.append([b"new"])
    assert place.files.read(path) == b"oldnew"
    file.release()


def test_pread_stops_at_the_end(place: Place) -> None:
    file = place.files.open(place.put("a", b"0123456789"))
    assert file.pread(4, 3) == b"3456"
    assert file.pread(4, 8) == b"89"
    assert file.pread(4, 10) == b""
    assert file.pread(4, 99) == b""
    file.release()


def test_pwrite_overwrites_and_extends_and_leaves_append_at_the_end(place: Place) -> None:
    file = place.files.open(place.path("a"), create=True)
    file.append([b"0123456789"])
    file.pwrite(memoryview(b"xy"), 2)
    file.append([b"!"])
    assert file.pread(100, 0) == b"01xy456789!"
    file.pwrite(b"zz", 12)
    assert file.pread(100, 0) == b"01xy456789!\0zz"
    file.append([b"?"])
    assert file.pread(100, 0) == b"01xy456789!\0zz?"
    file.release()


def test_truncate_cuts_and_extends_with_zeros_and_append_follows(place: Place) -> None:
    file = place.files.open(place.path("a"), create=True)
    file.append([b"0123456789"])
    file.truncate(4)
    file.append([b"ab"])
    assert file.pread(100, 0) == b"0123ab"
    file.truncate(8)
    file.append([b"c"])
    assert file.pread(100, 0) == b"0123ab\0\0c"
    assert file.size() == 9
    file.release()


def test_sync_of_file_and_directory(place: Place) -> None:
    file = place.files.open(place.path("a"), create=True)
    file.append([b"x"])
    file.sync()
    file.release()
    place.files.sync_directory(place.root)


def test_a_file_lives_until_its_last_user_releases_it_even_without_a_name(place: Place) -> None:
    file = place.files.open(place.put("a", b"data"))
    file.retain()
    file.release()
    place.files.remove(place.path("a"))
    assert not place.files.exists(place.path("a"))
    assert file.pread(10, 0) == b"data"
    file.release()
    with pytest.raises(AssertionError, match="released"):
        file.release()


def test_open_of_a_missing_file_fails_and_makes_nothing(place: Place) -> None:
    with pytest.raises(StorageError, match="missing") as caught:
        place.files.open(place.path("missing"))
    assert caught.value.path == place.path("missing")
    assert not caught.value.no_space
    with pytest.raises(StorageError):
        place.files.open(place.path("missing"), writable=True)
    with pytest.raises(StorageError):
        place.files.open(place.path("nowhere/file"), create=True)
    assert place.files.list(place.root) == []


def test_create_opens_what_is_there(place: Place) -> None:
    file = place.files.open(place.put("a", b"data"), create=True)
    assert file.size() == 4
    file.release()


def test_a_file_opened_for_reading_cannot_be_written(place: Place) -> None:
    file = place.files.open(place.put("a", b"data"))
    with pytest.raises(StorageError):
        file.append([b"x"])
    with pytest.raises(StorageError):
        file.pwrite(b"x", 0)
    with pytest.raises(StorageError):
        file.truncate(0)
    assert file.pread(10, 0) == b"data"
    file.release()


def test_names(place: Place) -> None:
    place.files.make_directory(place.path("d/e"))
    place.files.make_directory(place.path("d/e"))
    place.put("d/b", b"1")
    place.put("d/a", b"22")
    assert place.files.list(place.path("d")) == ["a", "b", "e"]
    assert place.files.exists(place.path("d/a"))
    assert place.files.exists(place.path("d/e"))
    assert not place.files.exists(place.path("d/x"))
    assert place.files.is_directory(place.path("d"))
    assert not place.files.is_directory(place.path("d/a"))
    assert not place.files.is_directory(place.path("x"))
    assert place.files.size(place.path("d/a")) == 2
    assert abs(place.files.modified_ms(place.path("d/a"))) > 1_600_000_000_000
    place.files.set_modified_ms(place.path("d/a"), 1_234_567_890_123)
    assert place.files.modified_ms(place.path("d/a")) == 1_234_567_890_123
    with pytest.raises(StorageError):
        place.files.set_modified_ms(place.path("d/missing"), 0)


def test_what_is_not_there(place: Place) -> None:
    for call in (place.files.read, place.files.size, place.files.modified_ms):
        with pytest.raises(FileNotFoundError):
            call(place.path("x"))
    for fails in (place.files.list, place.files.sync_directory):
        with pytest.raises(StorageError):
            fails(place.path("x"))
    with pytest.raises(StorageError):
        place.files.rename(place.path("x"), place.path("y"))
    place.files.remove(place.path("x"))
    place.files.remove_tree(place.path("x"))


def test_rename_replaces_a_file_and_open_handles_follow_the_file(place: Place) -> None:
    place.put("target", b"old")
    file = place.files.open(place.put("source", b"new"), writable=True)
    place.files.rename(place.path("source"), place.path("target"))
    file.append([b"er"])
    assert place.files.read(place.path("target")) == b"newer"
    assert place.files.list(place.root) == ["target"]
    file.release()


def test_rename_of_a_directory_keeps_what_is_in_it(place: Place) -> None:
    place.files.make_directory(place.path("t-0"))
    place.put("t-0/a", b"1")
    file = place.files.open(place.path("t-0/a"))
    place.files.rename(place.path("t-0"), place.path("t-0.abc-delete"))
    assert place.files.list(place.path("t-0.abc-delete")) == ["a"]
    assert file.pread(1, 0) == b"1"
    file.release()


def test_remove_refuses_a_directory_and_remove_tree_takes_it(place: Place) -> None:
    place.files.make_directory(place.path("d/e"))
    place.put("d/e/f", b"1")
    with pytest.raises(StorageError):
        place.files.remove(place.path("d"))
    place.files.remove_tree(place.path("d"))
    assert not place.files.exists(place.path("d"))


def test_a_file_in_place_of_a_directory(place: Place) -> None:
    path = place.put("a", b"1")
    with pytest.raises(StorageError):
        place.files.make_directory(f"{path}/b")
    with pytest.raises(StorageError):
        place.files.list(path)
    with pytest.raises(StorageError):
        place.files.remove_tree(path)
    with pytest.raises(StorageError):
        place.files.read(place.root)


def file_operations(files: FileSystem) -> dict[str, Callable[[str], object]]:
    """All that opens, reads or measures a file."""

    def lock(path: str) -> None:
        files.lock(path).release()

    def opened(path: str, **how: bool) -> None:
        file: File = files.open(path, **how)
        file.release()

    return {
        "open": opened,
        "open to write": partial(opened, writable=True),
        "open or make": partial(opened, create=True),
        "read": files.read,
        "size": files.size,
        "modified_ms": files.modified_ms,
        "forget_cached": files.forget_cached,
        "lock": lock,
    }


OPERATIONS = list(file_operations(ForgetfulDisk()))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_only_regular_files_are_opened_at_once_and_without_following_a_link(place: Place, operation: str) -> None:
    """A FIFO would keep the one thread for ever, and a link lead out of the directory: each is named instead."""
    place.put("file", b"precious")
    place.files.make_directory(place.path("directory"))
    act = file_operations(place.files)[operation]
    others = {
        "a directory": place.path("directory"),
        "a FIFO": place.fifo("fifo"),
        "a symbolic link": place.link("link", "file"),
    }
    for kind, path in others.items():
        with pytest.raises(NotRegularError, match=f"is {kind}, not a regular file; move it away") as caught:
            act(path)
        assert caught.value.path == path
        assert not caught.value.no_space
    with pytest.raises(NotRegularError, match="is a symbolic link"):
        act(place.link("dangling", "nowhere"))
    assert not place.files.exists(place.path("nowhere"))
    assert place.files.read(place.path("file")) == b"precious"


def test_a_name_that_stands_for_anything_exists(place: Place) -> None:
    for path in (place.fifo("fifo"), place.link("dangling", "nowhere")):
        assert place.files.exists(path)
        assert not place.files.is_directory(path)


def test_a_small_file_is_not_written_through_a_link_or_into_a_fifo(place: Place) -> None:
    place.put("file", b"precious")
    place.link("checkpoint.tmp", "file")
    with pytest.raises(NotRegularError):
        place.files.write_atomically(place.path("checkpoint"), b"new")
    place.fifo("other.tmp")
    with pytest.raises(NotRegularError):
        place.files.write_atomically(place.path("other"), b"new")
    place.link("third", "file")
    place.files.write_atomically(place.path("third"), b"new")
    assert place.files.read(place.path("third")) == b"new"
    assert place.files.read(place.path("file")) == b"precious"


def test_a_link_to_a_directory_leads_there_but_is_none(place: Place) -> None:
    """An operator's log directory may be a link; a partition's folder is looked at with `is_directory`, and removed as what it is."""
    place.files.make_directory(place.path("disk"))
    place.put("disk/a", b"1")
    link = place.link("data", "disk")
    place.files.make_directory(link)
    assert place.files.list(link) == ["a"]
    assert place.files.read(f"{link}/a") == b"1"
    place.files.write_atomically(f"{link}/b", b"2")
    place.files.sync_directory(link)
    assert not place.files.is_directory(link)
    with pytest.raises(NotRegularError):
        place.files.remove_tree(link)
    assert place.files.list(place.path("disk")) == ["a", "b"]
    place.files.remove(link)
    assert place.files.list(place.path("disk")) == ["a", "b"]


def test_what_is_missing_is_told_from_a_disk_that_fails(place: Place) -> None:
    missing = place.path("missing")
    for call in (place.files.open, place.files.list, place.files.sync_directory, place.files.forget_cached):
        with pytest.raises(MissingFileError) as caught:
            call(missing)
        assert caught.value.path == missing


def test_write_atomically_replaces_and_leaves_nothing_beside(place: Place) -> None:
    path = place.path("checkpoint")
    place.files.write_atomically(path, b"one")
    place.files.write_atomically(path, b"")
    place.files.write_atomically(path, b"three")
    assert place.files.read(path) == b"three"
    assert place.files.list(place.root) == ["checkpoint"]
    with pytest.raises(StorageError):
        place.files.write_atomically(place.path("nowhere/checkpoint"), b"")


def test_forgetting_what_is_cached_loses_nothing_that_was_synced_or_waits_to_be_written(place: Place) -> None:
    file = place.files.open(place.path("a"), create=True)
    file.append([b"synced"])
    file.sync()
    file.append([b" and written"])
    place.files.forget_cached(file.path)
    assert file.pread(100, 0) == b"synced and written"
    file.release()


def test_disk_space(place: Place) -> None:
    total, free = place.files.disk_space(place.root)
    assert total >= free > 0


def test_a_lock_is_held_once_and_can_be_taken_again_after_release(place: Place) -> None:
    path = place.path(".lock")
    lock = place.files.lock(path)
    with pytest.raises(LockHeldError, match=r"in use by another broker, .*; stop it, .*--data") as caught:
        place.files.lock(path)
    assert caught.value.path == path
    lock.release()
    place.files.lock(path).release()
    assert place.files.exists(path)


def test_errors_of_the_system_are_translated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """POSIX only: a full disk and a used-up quota are passing, anything else is not; the cause is kept."""
    file = PosixFiles().open(str(tmp_path / "a"), create=True)
    for number, no_space in ((errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EMFILE, True), (errno.EIO, False)):

        def fails(*_: object, number: int = number) -> int:
            raise OSError(number, os.strerror(number))

        for name in ("write", "pwrite", "ftruncate", "pread", "fstat"):
            monkeypatch.setattr(os, name, fails)
        for call in (
            lambda: file.append([b"x"]),
            lambda: file.pwrite(b"x", 0),
            lambda: file.truncate(1),
            lambda: file.pread(1, 0),
            file.size,
        ):
            with pytest.raises(StorageError, match=os.strerror(number)) as caught:
                call()
            assert caught.value.no_space is no_space
            assert caught.value.retriable is no_space
            assert isinstance(caught.value.__cause__, OSError)
    monkeypatch.undo()
    file.release()


def test_a_write_cut_short_by_the_system_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """POSIX only: three bytes a call, as a signal or a nearly full disk makes it, and yet all arrive in order."""
    writev = os.writev
    monkeypatch.setattr(os, "writev", lambda descriptor, buffers: writev(descriptor, [bytes(buffers[0])[:3]]))
    file = PosixFiles().open(str(tmp_path / "a"), create=True)
    assert file.append([b"0123456", memoryview(b"789"), b"abcd"]) == 14
    assert file.pread(100, 0) == b"0123456789abcd"
    file.release()


def test_a_disk_that_fills_up_in_the_middle_gives_the_count_and_then_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """POSIX here, the forgetful disk in its own tests."""
    writev = os.writev
    room = [5]

    def full(descriptor: int, buffers: list[bytes]) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = writev(descriptor, [b"".join(buffers)[: room[0]]])
        room[0] -= count
        return count

    monkeypatch.setattr(os, "writev", full)
    file = PosixFiles().open(str(tmp_path / "a"), create=True)
    assert file.append([b"0123", b"4567"]) == 5
    with pytest.raises(StorageError) as caught:
        file.append([b"01", b"23"])
    assert caught.value.no_space
    file.release()
