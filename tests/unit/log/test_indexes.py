"""Both indexes: their bytes, their searches against a slow one, and what is in the file and what in memory."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.log.cache import SegmentCache
from moldau.log.indexes import OffsetIndex, TimeIndex
from moldau.model.errors import StorageError
from moldau.testing.disk import ForgetfulDisk

BASE = 1000


def offset_index(disk: ForgetfulDisk, *, new: bool = False) -> OffsetIndex:
    return OffsetIndex(disk, SegmentCache(disk), "00.index", BASE, new=new)


def test_an_offset_entry_is_two_big_endian_int32() -> None:
    disk = ForgetfulDisk()
    index = offset_index(disk, new=True)
    index.append(5, 4100)
    index.append(9, 8300)
    index.store()
    assert disk.read("00.index") == struct.pack(">iiii", 5, 4100, 9, 8300)


def test_a_time_entry_is_an_int64_and_an_int32() -> None:
    disk = ForgetfulDisk()
    index = TimeIndex(disk, SegmentCache(disk), "00.timeindex", BASE, new=True)
    assert index.add(1_700_000_000_000, BASE + 7, -1) == 1_700_000_000_000
    assert index.add(1_700_000_000_000, BASE + 8, 1_700_000_000_000) == 1_700_000_000_000
    index.store()
    assert disk.read("00.timeindex") == struct.pack(">qi", 1_700_000_000_000, 7)
    assert index.last_entry() == (1_700_000_000_000, BASE + 7)


@given(st.sets(st.integers(1, 300), max_size=40), st.integers(0, 40), st.integers(-5, 310))
def test_searching_gives_what_a_walk_over_all_entries_gives(positions: set[int], stored: int, wanted: int) -> None:
    disk = ForgetfulDisk()
    index = offset_index(disk, new=True)
    entries = [(position // 2 + slot, position * 10) for slot, position in enumerate(sorted(positions))]
    for slot, entry in enumerate(entries):
        index.append(*entry)
        if slot + 1 == stored:
            index.store()
    assert [index[slot] for slot in range(len(index))] == entries
    assert index.last() == (entries[-1] if entries else None)
    assert index.search(wanted, 0) == sum(offset <= wanted for offset, _ in entries)
    assert index.position_before(BASE + wanted) == max((position for offset, position in entries if offset <= wanted), default=0)
    assert index.last_position_until(wanted * 10) == max((position for _, position in entries if position <= wanted * 10), default=0)
    again = offset_index(disk)
    assert len(again) == min(stored if stored <= len(entries) else 0, len(entries))


@pytest.mark.parametrize("entries", [0, 1, 2, 7, 1000])
@pytest.mark.parametrize("zeros", [1, 3, 1000])
def test_zeros_behind_the_entries_are_not_entries(entries: int, zeros: int) -> None:
    """Kafka allocates the whole file in advance; killed, it leaves it so."""
    disk = ForgetfulDisk()
    data = b"".join(struct.pack(">ii", number, number * 100) for number in range(1, entries + 1))
    file = disk.open("00.index", create=True)
    file.append([data, bytes(8 * (zeros + 1))])
    index = offset_index(disk)
    assert len(index) == entries
    index.append(2000, 300_000)
    index.store()
    assert disk.read("00.index") == data + struct.pack(">ii", 2000, 300_000)


def test_a_part_of_an_entry_at_the_end_is_ignored_and_cut() -> None:
    disk = ForgetfulDisk()
    disk.open("00.index", create=True).append([struct.pack(">iii", 1, 100, 2)])
    index = offset_index(disk)
    assert len(index) == 1
    index.append(3, 300)
    index.store()
    assert disk.read("00.index") == struct.pack(">iiii", 1, 100, 3, 300)


def test_entries_that_do_not_fit_on_the_disk_stay_in_memory_and_are_stored_later() -> None:
    disk = ForgetfulDisk()
    index = offset_index(disk, new=True)
    for number in range(1, 5):
        index.append(number, number * 100)
    disk.capacity = 13
    with pytest.raises(StorageError) as kept:
        index.store()
    assert len(index) == 4
    assert kept.value.no_space
    disk.capacity = None
    index.append(5, 500)
    index.store()
    assert disk.read("00.index") == b"".join(struct.pack(">ii", number, number * 100) for number in range(1, 6))


def test_truncating_drops_entries_in_the_file_and_in_memory() -> None:
    disk = ForgetfulDisk()
    index = offset_index(disk, new=True)
    for number in range(1, 5):
        index.append(number, number * 100)
    index.store()
    index.append(5, 500)
    index.truncate_to(500)
    assert len(index) == 4
    index.truncate_to(250)
    assert [index[slot] for slot in range(len(index))] == [(1, 100), (2, 200)]
    index.append(3, 250)
    index.store()
    assert disk.read("00.index") == struct.pack(">iiiiii", 1, 100, 2, 200, 3, 250)


@pytest.mark.parametrize(
    ("entries", "believed"),
    [([], 0), ([(1, 1)], 1), ([(1, 1), (2, 2)], 2), ([(1, 1), (0, 0), (3, 3)], 1), ([(1, 5), (2, 4)], 1), ([(1, 1), (1, 2)], 1)],
)
def test_after_a_crash_only_rising_entries_are_believed(entries: list[tuple[int, int]], believed: int) -> None:
    disk = ForgetfulDisk()
    disk.open("00.index", create=True).append([b"".join(struct.pack(">ii", *entry) for entry in entries)])
    assert offset_index(disk).rising_prefix() == believed


def test_the_cache_keeps_what_was_used_last_and_no_more_than_its_bounds() -> None:
    disk = ForgetfulDisk()
    for number in range(4):
        disk.open(f"{number}", create=True).append([bytes([number]) * 100])
    cache = SegmentCache(disk, open_files_max=2, index_bytes_max=250)
    first = cache.file("0")
    first.retain()
    assert cache.file("1").pread(1, 0) == b"\1"
    assert cache.file("0") is first
    cache.file("2")
    cache.file("3")
    assert first.pread(1, 0) == b"\0"
    first.release()
    for number in range(4):
        assert cache.index(f"{number}", 100) == bytes([number]) * 100
    assert cache.statistics() == {"open_files": 2, "indexes": 2, "index_bytes": 200}
    cache.forget("3")
    cache.close()
    assert cache.statistics() == {"open_files": 0, "indexes": 0, "index_bytes": 0}
