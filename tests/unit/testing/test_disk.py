"""The forgetful disk keeps what was synced over every crash, loses no more than it may, and fails when told to."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.model.errors import StorageError
from moldau.testing.disk import ForgetfulDisk
from moldau.testing.disk_nodes import ForgetfulFile


def disk_with_file(data: bytes = b"", capacity: int | None = None) -> tuple[ForgetfulDisk, ForgetfulFile]:
    disk = ForgetfulDisk(capacity=capacity)
    disk.make_directory("/d")
    disk.sync_directory("/")
    file = disk.open("/d/a", create=True)
    disk.sync_directory("/d")
    if data:
        file.append([data])
        file.sync()
    return disk, file


def test_without_a_random_source_all_unsynced_bytes_are_lost() -> None:
    disk, file = disk_with_file(b"safe")
    file.append([b"unsafe"])
    assert disk.crash() == ["/d/a: lost, 10 -> 4 bytes"]
    assert disk.read("/d/a") == b"safe"


@given(st.binary(max_size=2000), st.lists(st.binary(min_size=1, max_size=700), max_size=5), st.integers(0))
def test_synced_bytes_survive_and_nothing_grows(safe: bytes, unsafe: list[bytes], seed: int) -> None:
    disk, file = disk_with_file(safe)
    for data in unsafe:
        file.append([data])
    disk.crash(Random(seed))
    left = disk.read("/d/a")
    assert left.startswith(safe)
    assert len(left) <= len(safe) + sum(map(len, unsafe))
    disk.crash(Random(seed))
    assert disk.read("/d/a") == left, "a second crash takes nothing more"


def test_every_kind_of_loss_happens() -> None:
    seen: dict[str, list[bytes]] = {}
    for seed in range(300):
        disk, file = disk_with_file(b"S" * 600)
        file.append([b"1" * 600])
        file.append([b"2" * 600])
        [line] = disk.crash(Random(seed))
        seen.setdefault(line.split()[1].rstrip(","), []).append(disk.read("/d/a"))
    whole = b"S" * 600 + b"1" * 600 + b"2" * 600
    assert set(seen) == {"lost", "all", "prefix", "zeros", "garbage", "pages"}
    assert set(seen["lost"]) == {b"S" * 600}
    assert set(seen["all"]) == {whole}
    assert all(whole.startswith(left) for left in seen["prefix"])
    assert any(600 < len(left) < 1800 and len(left) % 600 for left in seen["prefix"]), "cut within a write"
    assert all(len(left) == 1800 and whole.startswith(left.rstrip(b"\0")) for left in seen["zeros"])
    assert all(len(left) == 1800 for left in seen["garbage"])
    assert any(b"\0" in left and left.endswith(b"2") for left in seen["pages"]), "a hole before bytes that were kept"


def test_an_unsynced_truncation_may_be_undone() -> None:
    sizes = set()
    for seed in range(50):
        disk, file = disk_with_file(b"x" * 100)
        file.truncate(10)
        disk.crash(Random(seed))
        sizes.add(disk.size("/d/a"))
    assert sizes == {10, 100}


def test_an_unsynced_overwrite_leaves_each_byte_old_or_new() -> None:
    for seed in range(50):
        disk, file = disk_with_file(b"o" * 2000)
        file.pwrite(b"n" * 1000, 500)
        disk.crash(Random(seed))
        left = disk.read("/d/a")
        assert len(left) == 2000
        assert set(left) <= {ord("o"), ord("n")}


def test_an_unsynced_name_is_lost_although_its_file_was_synced() -> None:
    disk, _ = disk_with_file()
    file = disk.open("/d/b", create=True)
    file.append([b"x"])
    file.sync()
    disk.crash()
    assert disk.list("/d") == ["a"]


def test_names_changed_in_one_directory_are_lost_from_the_latest_backwards() -> None:
    seen = set()
    for seed in range(60):
        disk, _ = disk_with_file(b"x")
        disk.rename("/d/a", "/d/b")
        disk.open("/d/c", create=True)
        disk.remove("/d/b")
        disk.crash(Random(seed))
        seen.add(tuple(disk.list("/d")))
    assert seen == {("a",), ("b",), ("b", "c"), ("c",)}


def test_a_removed_file_comes_back_with_its_bytes_unless_the_directory_was_synced() -> None:
    disk, _ = disk_with_file(b"x")
    disk.remove("/d/a")
    disk.crash()
    assert disk.read("/d/a") == b"x"
    disk.remove("/d/a")
    disk.sync_directory("/d")
    disk.crash()
    assert disk.list("/d") == []


def test_a_file_replaced_atomically_is_old_or_new_after_a_failure_at_any_step() -> None:
    for step in range(1, 8):
        disk, file = disk_with_file()
        file.release()
        disk.write_atomically("/d/a", b"old")
        calls = 0

        def nth(_operation: str, _path: str, step: int = step) -> bool:
            nonlocal calls
            calls += 1
            return calls == step

        disk.fail = nth
        try:
            disk.write_atomically("/d/a", b"new")
            failed = False
        except StorageError:
            failed = True
        disk.fail = None
        disk.crash(Random(step))
        assert disk.read("/d/a") in ((b"old", b"new") if failed else (b"new",))
        assert [name for name in disk.list("/d") if name != "a.tmp"] == ["a"]


def test_a_full_disk_takes_part_of_a_write_and_then_none_until_there_is_space() -> None:
    disk, file = disk_with_file(b"12345", capacity=8)
    assert file.append([b"67", b"89"]) == 3
    with pytest.raises(StorageError) as caught:
        file.append([b"x"])
    assert caught.value.no_space
    file.truncate(5)
    assert file.append([b"x"]) == 1
    with pytest.raises(StorageError, match="no space"):
        file.pwrite(b"abcdefgh", 4)
    assert file.pread(100, 0) == b"1234abcd"
    assert disk.disk_space("/d") == (8, 0)


def test_space_of_a_removed_file_is_free_when_its_last_user_is_gone() -> None:
    disk, file = disk_with_file(b"12345", capacity=8)
    disk.remove("/d/a")
    assert disk.used() == 5
    file.release()
    assert disk.used() == 0


def test_a_failing_operation_names_the_path_and_is_no_matter_of_space() -> None:
    disk, file = disk_with_file(b"x")
    disk.fail = lambda operation, path: operation == "pread" and path == "/d/a"
    with pytest.raises(StorageError, match="/d/a: input/output error") as caught:
        file.pread(1, 0)
    assert not caught.value.no_space
    assert file.size() == 1


def test_bytes_of_a_failed_sync_are_readable_but_never_safe() -> None:
    disk, file = disk_with_file(b"safe")
    file.append([b"gone"])
    disk.fail = lambda operation, _path: operation == "sync"
    with pytest.raises(StorageError):
        file.sync()
    disk.fail = None
    assert file.pread(10, 0) == b"safegone"
    file.append([b"kept"])
    file.sync()
    disk.crash()
    assert disk.read("/d/a") == b"safe\0\0\0\0kept"


def test_operations_are_counted() -> None:
    disk, file = disk_with_file()
    file.append([b"x"])
    file.sync()
    file.sync()
    assert (disk.operations["append"], disk.operations["sync"]) == (1, 2)


def test_a_crash_ends_handles_and_locks() -> None:
    disk, file = disk_with_file()
    disk.lock("/d/.lock")
    disk.crash()
    with pytest.raises(AssertionError, match="before the crash"):
        file.size()
    disk.lock("/d/.lock")
