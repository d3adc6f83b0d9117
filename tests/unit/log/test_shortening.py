"""Retention, DeleteRecords and truncation: what goes, what stays, and what happens to the files."""

import pytest

from moldau.log.config import LogConfig
from moldau.log.partition_log import PartitionLog
from moldau.model.errors import ErrorCode, PeerError
from moldau.testing.disk import ForgetfulDisk
from support.one_log import DIRECTORY, NOW_MS, append, close_clean, flush, make_batch, names, new_disk, offsets, open_log, stage

SIZE = len(make_batch(b"x" * 30))
TWO = LogConfig(segment_bytes=2 * SIZE, retention_ms=-1)


def filled(disk: ForgetfulDisk, config: LogConfig = TWO, timestamps: tuple[int, ...] = (NOW_MS,) * 7) -> PartitionLog:
    """Segments of two batches of one record, the last with one."""
    log = open_log(disk, config)
    for number, timestamp in enumerate(timestamps):
        append(log, make_batch(b"x" * 30, timestamps=[timestamp], producer=(7, 0, number)))
    return log


def test_segments_whose_newest_record_is_too_old_go() -> None:
    disk = new_disk()
    times = (100, 500, 300, 200, 900, 800, 950)
    log = filled(disk, TWO._replace(retention_ms=NOW_MS), times)
    for passed, start in ((0, 0), (500, 0), (501, 4), (900, 4), (901, 6)):
        log.apply_retention(NOW_MS + passed)
        assert (log.start_offset, names(disk, ".log")[0]) == (start, start)


def test_an_old_segment_behind_a_young_one_stays() -> None:
    disk = new_disk()
    log = filled(disk, TWO._replace(retention_ms=NOW_MS), (900, 900, 100, 100, 900))
    assert log.apply_retention(NOW_MS + 500) == []
    assert names(disk, ".log") == [0, 2, 4]


def test_an_expired_active_segment_is_rolled_and_goes_unless_it_is_empty() -> None:
    disk = new_disk()
    log = filled(disk, TWO._replace(retention_ms=1000))
    assert [segment.base_offset for segment in log.apply_retention(NOW_MS + 1001)] == [0, 2, 4, 6]
    assert (log.start_offset, log.log_end_offset, names(disk, ".log")) == (7, 7, [7])
    assert log.apply_retention(NOW_MS + 9999) == []
    append(log, make_batch(b"y", producer=(7, 0, 7)))
    assert offsets(log) == [7]


def test_records_without_timestamps_age_with_their_file() -> None:
    now_ms = NOW_MS
    disk = ForgetfulDisk(now_ms=lambda: now_ms)
    log = filled(disk, TWO._replace(retention_ms=1000), (-1,) * 5)
    assert log.apply_retention(NOW_MS + 1000) == []
    assert len(log.apply_retention(NOW_MS + 1001)) == 3


def test_the_rest_is_never_shorter_than_retention_bytes() -> None:
    for keep in range(0, 8 * SIZE, 10):
        log = filled(new_disk(), TWO._replace(retention_bytes=keep))
        removed = log.apply_retention(NOW_MS)
        assert sum(segment.size_bytes for segment in removed) == 7 * SIZE - log.size_bytes
        assert log.size_bytes >= min(keep, 7 * SIZE)
        oldest = min(2 * SIZE, log.size_bytes)
        assert log.size_bytes - oldest < keep or not log.size_bytes


def test_nothing_beyond_the_high_watermark_goes() -> None:
    disk = new_disk()
    log = filled(disk, TWO._replace(retention_ms=1000, retention_bytes=0))
    log.high_watermark = 3
    log.apply_retention(NOW_MS + 9999)
    assert names(disk, ".log") == [2, 4, 6]


def test_without_delete_in_the_cleanup_policy_only_deleted_records_go() -> None:
    disk = new_disk()
    log = filled(disk, TWO._replace(cleanup_policy=frozenset({"compact"}), retention_ms=1000, retention_bytes=0))
    assert log.apply_retention(NOW_MS + 9999) == []
    log.delete_records(5)
    assert [segment.base_offset for segment in log.apply_retention(NOW_MS)] == [0, 2]
    assert (log.start_offset, names(disk, ".log")) == (5, [4, 6])


def test_files_are_renamed_first_and_unlinked_when_the_caller_says() -> None:
    disk = new_disk()
    log = filled(disk, TWO._replace(retention_bytes=0, file_delete_delay_ms=77))
    removed = log.apply_retention(NOW_MS)[0]
    assert removed.delay_ms == 77
    assert "retention.bytes" in removed.reason
    assert all(disk.exists(path) and path.endswith(".deleted") for path in removed.paths)
    assert {path.rpartition("/")[2].split(".")[1] for path in removed.paths} == {"log", "index", "timeindex", "checksums"}
    removed.unlink()
    assert not any(disk.exists(path) for path in removed.paths)
    removed.unlink()


def test_deleting_records_moves_the_start_and_removes_whole_segments() -> None:
    disk = new_disk()
    log = filled(disk)
    assert log.delete_records(3) == 3
    assert (offsets(log), names(disk, ".log")) == ([3, 4, 5, 6], [2, 4, 6])
    assert log.delete_records(1) == 3
    assert log.delete_records(-1) == 7
    assert (offsets(log), names(disk, ".log")) == ([], [6])
    assert [segment.base_offset for segment in log.take_removed()] == [0, 2, 4]
    for offset in (8, -2):
        with pytest.raises(PeerError) as caught:
            log.delete_records(offset)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_the_snapshot_of_a_removed_segment_goes_with_it() -> None:
    disk = new_disk()
    log = filled(disk)
    assert names(disk, ".snapshot") == [2, 4, 6]
    log.delete_records(5)
    assert names(disk, ".snapshot") == [4, 6]


@pytest.mark.parametrize("offset", range(8))
def test_truncating_leaves_what_came_before(offset: int) -> None:
    disk = new_disk()
    log = filled(disk)
    flush(log)
    assert log.truncate_to(offset) == offset
    assert offsets(log) == list(range(offset))
    assert (log.log_end_offset, log.high_watermark, log.flushed_offset) == (offset, offset, offset)
    assert [view.last_sequence for view in log.active_producers()] == ([offset - 1] if offset else [])
    again = make_batch(b"x" * 30, producer=(7, 0, offset))
    append(log, again)
    assert offsets(log) == list(range(offset + 1))
    close_clean(log)
    assert offsets(open_log(disk, TWO, clean=True)) == list(range(offset + 1))


def test_truncating_inside_a_batch_takes_the_whole_batch() -> None:
    log = open_log(new_disk())
    append(log, make_batch(b"a", b"b", b"c"), make_batch(b"d", b"e", b"f"))
    assert log.truncate_to(4) == 3
    assert offsets(log) == [0]


def test_truncating_takes_back_what_is_staged_and_drops_its_epoch() -> None:
    log = filled(new_disk())
    log.lead_epoch(4)
    stage(log, make_batch(b"y"))
    assert log.truncate_to(7) == 7
    assert log.end_offset_for_epoch(4) == (-1, -1)
    append(log, make_batch(b"z"))
    assert log.end_offset_for_epoch(4) == (4, 8)


def test_truncating_fully_begins_anew_at_any_offset() -> None:
    disk = new_disk()
    log = filled(disk)
    log.truncate_fully_and_start_at(100)
    assert (log.start_offset, log.log_end_offset, offsets(log)) == (100, 100, [])
    assert (names(disk, ".log"), names(disk, ".snapshot"), log.active_producers()) == ([100], [], [])
    append(log, make_batch(b"y"))
    close_clean(log)
    assert offsets(open_log(disk, clean=True)) == [100]
    assert not disk.exists(f"{DIRECTORY}/{0:020d}.log")
