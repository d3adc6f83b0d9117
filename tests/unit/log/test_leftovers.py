"""An interrupted compaction or split is finished or undone as Kafka does it, and may be interrupted again at any step."""

from random import Random

import pytest

from moldau.log.batches import BadBatchError
from moldau.log.swap import settle_leftovers
from moldau.model.errors import StorageError
from moldau.protocol.records.header import stamp
from moldau.testing.disk import ForgetfulDisk
from support.logs import make_batch


def segment(base: int, count: int) -> bytes:
    batch = make_batch([b"v"] * count)
    stamp(batch, base, 0)
    return bytes(batch)


def folder(**files: bytes) -> ForgetfulDisk:
    """Files by name: ``s10_log_swap`` is segment 10's ``.log.swap``."""
    disk = ForgetfulDisk()
    disk.make_directory("/t-0")
    disk.sync_directory("/")
    for short, data in files.items():
        base, *suffixes = short.removeprefix("s").split("_")
        disk.write_atomically(f"/t-0/{int(base):020d}.{'.'.join(suffixes)}", data)
    return disk


def names(disk: ForgetfulDisk) -> list[str]:
    return [f"s{int(name[:20])}_{name[21:].replace('.', '_')}" for name in disk.list("/t-0")]


def test_a_folder_without_leftovers_is_not_touched() -> None:
    disk = folder(s0_log=segment(0, 5), s0_index=b"", s5_log_deleted=b"", s5_log=b"")
    disk.operations.clear()
    assert settle_leftovers(disk, "/t-0") == disk.list("/t-0")
    assert dict(disk.operations) == {"list": 2}, "one of them is this test's"


def test_unfinished_cleaning_is_undone() -> None:
    disk = folder(s0_log=segment(0, 5), s0_log_cleaned=segment(0, 2), s0_index_cleaned=b"")
    settle_leftovers(disk, "/t-0")
    assert names(disk) == ["s0_log"]


def test_a_finished_cleaning_replaces_all_segments_in_its_range() -> None:
    disk = folder(
        s0_log=segment(0, 5), s0_index=b"old", s5_log=segment(5, 5), s5_timeindex=b"old", s5_snapshot=b"kept", s10_log=segment(10, 1),
        s0_log_swap=segment(0, 10), s0_index_swap=b"new",
    )  # fmt: skip
    settle_leftovers(disk, "/t-0")
    assert names(disk) == ["s0_index", "s0_log", "s5_snapshot", "s10_log"]
    disk.crash()
    assert names(disk) == ["s0_index", "s0_log", "s5_snapshot", "s10_log"]
    assert disk.read(f"/t-0/{0:020d}.index") == b"new"
    assert disk.read(f"/t-0/{0:020d}.log") == segment(0, 10)


def test_an_index_whose_segment_was_renamed_already_follows_it() -> None:
    disk = folder(s0_log=segment(0, 10), s0_index=b"old", s0_index_swap=b"new")
    settle_leftovers(disk, "/t-0")
    assert names(disk) == ["s0_index", "s0_log"]
    assert disk.read(f"/t-0/{0:020d}.index") == b"new"


def test_a_split_that_was_not_finished_is_undone() -> None:
    """Of the two halves one has its final content (``.swap``), the other has not (``.cleaned``): the unsplit segment stays."""
    disk = folder(s0_log=segment(0, 10), s5_log_swap=segment(5, 5), s0_log_cleaned=segment(0, 3))
    settle_leftovers(disk, "/t-0")
    assert names(disk) == ["s0_log"]
    assert disk.read(f"/t-0/{0:020d}.log") == segment(0, 10)


def test_a_damaged_swap_changes_nothing() -> None:
    disk = folder(s0_log=segment(0, 10), s0_log_swap=b"garbage" * 20)
    with pytest.raises(BadBatchError, match=r"\.log\.swap"):
        settle_leftovers(disk, "/t-0")
    assert names(disk) == ["s0_log", "s0_log_swap"]


def test_an_index_without_its_segment_goes() -> None:
    """A kill between the renames of a removed segment's files leaves some of them."""
    disk = folder(
        s0_log_deleted=b"", s0_index=b"old", s0_timeindex=b"old", s0_txnindex=b"old", s5_log=segment(5, 5), s5_index=b"", s0_snapshot=b""
    )
    left = settle_leftovers(disk, "/t-0")
    assert names(disk) == ["s0_log_deleted", "s0_snapshot", "s5_index", "s5_log"]
    assert left == disk.list("/t-0")


@pytest.mark.parametrize("step", range(1, 12))
def test_it_may_be_interrupted_at_any_step(step: int) -> None:
    disk = folder(s0_log=segment(0, 5), s0_index=b"old", s5_log=segment(5, 5), s0_log_swap=segment(0, 10), s0_index_swap=b"new")
    calls = 0

    def nth(_operation: str, _path: str) -> bool:
        nonlocal calls
        calls += 1
        return calls == step

    disk.fail = nth
    try:
        settle_leftovers(disk, "/t-0")
    except StorageError:
        disk.fail = None
        disk.crash(Random(step))
        settle_leftovers(disk, "/t-0")
    disk.fail = None
    assert names(disk) == ["s0_index", "s0_log"]
    assert disk.read(f"/t-0/{0:020d}.index") == b"new"
    assert disk.read(f"/t-0/{0:020d}.log") == segment(0, 10)
