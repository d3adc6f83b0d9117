"""A loss is accepted where the next start would keep the partition offline for it, and refused where nothing is lost."""

from collections.abc import Callable

import pytest

from moldau.log.accepting import NothingToAcceptError, accept_loss
from moldau.log.checkpoints import ACCEPTED_LOSS
from moldau.log.config import LogConfig
from moldau.log.damage import LostRecordsError
from moldau.model.identity import TopicPartition
from moldau.model.steps import drain
from moldau.testing.disk import ForgetfulDisk
from support.logs import NOW_MS, append_values, create, flush, make_batch, manager_over

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SIZE = len(make_batch([b"a"]))
FOLDER = "/data/t-0"
FIRST = f"{FOLDER}/{0:020d}.log"
LAST = f"{FOLDER}/{2:020d}.log"
"""The segment that holds the recovery point: offset 2 is before it, offset 3 after it."""


def written(*, clean: bool) -> ForgetfulDisk:
    """A partition of two segments with two records each; three are flushed and known to be if the broker was killed, else all."""
    disk = ForgetfulDisk()
    manager = manager_over(disk)
    manager.start(NOW_MS)
    log = create(manager, "t", config=LogConfig(segment_bytes=2 * SIZE))
    for value in (b"a", b"b", b"c"):
        append_values(log, value)
    flush(log)
    drain(manager.checkpoint())
    append_values(log, b"d")
    if clean:
        manager.shutdown()
    else:
        flush(log)
        disk.crash()
    return disk


def is_refused(disk: ForgetfulDisk) -> bool:
    """Whether a loss of it is not accepted; an acceptance is withdrawn."""
    try:
        accept_loss(disk, "/data", [T0])
    except NothingToAcceptError:
        return True
    disk.remove(f"/data/{ACCEPTED_LOSS}")
    return False


def is_kept_offline(disk: ForgetfulDisk) -> bool:
    """Whether the next start finds a loss."""
    manager = manager_over(disk)
    manager.start(NOW_MS)
    return isinstance(manager.problem(T0), LostRecordsError)


@pytest.mark.parametrize("clean", [True, False])
def test_what_is_not_lost_is_refused_in_words_and_nothing_is_written(clean: bool) -> None:
    disk = written(clean=clean)
    until = 4 if clean else 3
    with pytest.raises(NothingToAcceptError, match=f"^{FOLDER}: no record is lost: all that was on disk, up to offset {until}, is there"):
        accept_loss(disk, "/data", [T0])
    assert not disk.exists(f"/data/{ACCEPTED_LOSS}")
    assert not is_kept_offline(disk)


def test_one_that_is_not_lost_has_all_refused() -> None:
    disk = written(clean=False)
    disk.open(LAST, writable=True).truncate(0)
    manager = manager_over(disk)
    manager.start(NOW_MS)
    create(manager, "t", 1)
    manager.shutdown()
    with pytest.raises(NothingToAcceptError, match=r"^/data/t-1: no record is lost"):
        accept_loss(disk, "/data", [T0, T1])
    assert not disk.exists(f"/data/{ACCEPTED_LOSS}")


@pytest.mark.parametrize("clean", [True, False])
def test_a_segment_that_was_cut_short_is_lost_before_the_recovery_point(clean: bool) -> None:
    for left in range(2 * SIZE + 1):
        disk = written(clean=clean)
        disk.open(LAST, writable=True).truncate(left)
        assert is_refused(disk) == (left >= (2 if clean else 1) * SIZE), left
        assert is_refused(disk) != is_kept_offline(disk), left


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("path", [FIRST, LAST])
def test_no_damage_for_which_a_start_keeps_it_offline_is_refused(path: str, clean: bool) -> None:
    for position in range(2 * SIZE):
        disk = written(clean=clean)
        file = disk.open(path, writable=True)
        file.pwrite(bytes([file.pread(1, position)[0] ^ 0xFF]), position)
        assert not (is_refused(disk) and is_kept_offline(disk)), position


def without_folder(disk: ForgetfulDisk) -> None:
    disk.remove_tree(FOLDER)


def without_segments(disk: ForgetfulDisk) -> None:
    for name in disk.list(FOLDER):
        if name.endswith(".log"):
            disk.remove(f"{FOLDER}/{name}")


def without_the_first_segment(disk: ForgetfulDisk) -> None:
    disk.open(f"{FOLDER}/{0:020d}.index", create=True).release()
    disk.remove(FIRST)


def without_the_last_segment(disk: ForgetfulDisk) -> None:
    disk.remove(LAST)


def with_a_directory_for_the_last_segment(disk: ForgetfulDisk) -> None:
    disk.remove(LAST)
    disk.make_directory(LAST)


def with_a_compaction_that_was_interrupted(disk: ForgetfulDisk) -> None:
    """It covers the rest of the log: the segment that takes its place is damaged."""
    file = disk.open(f"{LAST}.swap", create=True, writable=True)
    file.append([b"damaged"])


@pytest.mark.parametrize(
    "lose",
    [
        without_folder,
        without_segments,
        without_the_first_segment,
        without_the_last_segment,
        with_a_directory_for_the_last_segment,
        with_a_compaction_that_was_interrupted,
    ],
)
@pytest.mark.parametrize("clean", [True, False])
def test_the_loss_of_whole_files_is_accepted(lose: Callable[[ForgetfulDisk], None], clean: bool) -> None:
    disk = written(clean=clean)
    lose(disk)
    accept_loss(disk, "/data", [T0])
    assert disk.exists(f"/data/{ACCEPTED_LOSS}")
