"""Ranges for fetches: whole batches where possible, never beyond the limit, and nothing from a damaged batch on."""

import struct
from zlib import crc32

import pytest

from moldau.log.config import LogConfig
from moldau.log.partition_log import PartitionLog
from moldau.model.errors import ErrorCode, PeerError
from moldau.testing.disk import ForgetfulDisk
from support.one_log import NOW_MS, append, close_clean, make_batch, names, open_log, overwrite, stage
from support.searches import max_timestamp_offset, offset_for_timestamp

SIZE = len(make_batch(b"x" * 100, b""))


def filled(disk: ForgetfulDisk, batches: int = 10, **settings: int) -> PartitionLog:
    """A log of batches of two records and SIZE bytes each."""
    log = open_log(disk, LogConfig(**settings))  # type: ignore[arg-type]
    append(log, *[make_batch(b"x" * 100, b"") for _ in range(batches)])
    return log


def length(log: PartitionLog, offset: int, max_bytes: int = 1 << 20, limit: int | None = None, *, at_least_one: bool = True) -> int:
    result = log.read(offset, max_bytes, log.log_end_offset if limit is None else limit, at_least_one=at_least_one)
    if result.records is None:
        return 0
    result.records.release()
    return result.records.length


def refusal(log: PartitionLog, offset: int) -> ErrorCode:
    with pytest.raises(PeerError) as caught:
        log.read(offset, 1000, log.log_end_offset, at_least_one=True)
    return caught.value.code


def test_an_offset_inside_a_batch_gives_the_whole_batch() -> None:
    log = filled(ForgetfulDisk())
    for offset in range(20):
        assert length(log, offset) == SIZE * (10 - offset // 2)


def test_offsets_outside_of_the_log_are_out_of_range_and_its_end_is_empty() -> None:
    log = filled(ForgetfulDisk())
    assert length(log, 20) == 0
    assert refusal(log, 21) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert refusal(log, -1) == ErrorCode.OFFSET_OUT_OF_RANGE
    log.delete_records(4)
    assert refusal(log, 3) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert length(log, 4) == 8 * SIZE


@pytest.mark.parametrize("offset", [0, 5])
@pytest.mark.parametrize("limit", [0, 1, 5, 6, 7, 19, 20, 25])
def test_a_range_ends_before_the_batch_that_holds_the_limit(offset: int, limit: int) -> None:
    log = filled(ForgetfulDisk())
    assert length(log, offset, limit=limit) == max(0, min(limit, 20) // 2 - offset // 2) * SIZE


def test_the_first_batch_is_given_whole_or_not_at_all() -> None:
    log = filled(ForgetfulDisk())
    assert length(log, 0, SIZE - 1) == SIZE
    assert length(log, 0, SIZE - 1, at_least_one=False) == 0
    assert length(log, 0, 0) == SIZE
    assert length(log, 0, SIZE + 5) == SIZE + 5  # as in Kafka the last batch may be cut; clients drop it


def test_with_an_index_a_range_ends_where_a_batch_does() -> None:
    log = filled(ForgetfulDisk(), index_interval_bytes=0)
    assert length(log, 0, SIZE + 5) == SIZE
    assert length(log, 3, 4 * SIZE - 1) == 3 * SIZE


def test_a_range_lies_in_one_segment_and_the_next_read_goes_on_in_the_next() -> None:
    disk = ForgetfulDisk()
    log = filled(disk, segment_bytes=4 * SIZE)
    assert names(disk, ".log") == [0, 8, 16]
    assert [length(log, offset) for offset in (0, 6, 8, 16)] == [4 * SIZE, SIZE, 4 * SIZE, 2 * SIZE]
    assert [log.readable_bytes(0, limit, 1 << 20) for limit in (0, 8, 10, 20)] == [0, 4 * SIZE, 5 * SIZE, 10 * SIZE]
    assert log.readable_bytes(0, 20, 100) == 100
    assert log.readable_bytes(25, 20, 100) == 100  # so that a waiting fetch is woken up and told


def test_a_read_that_begins_where_the_last_one_ended_needs_neither_index_nor_walk() -> None:
    disk = ForgetfulDisk()
    log = filled(disk, index_interval_bytes=0)
    assert length(log, 0, 5 * SIZE) == 5 * SIZE
    disk.operations.clear()
    assert length(log, 10) == 5 * SIZE
    assert disk.operations["pread"] == 0
    append(log, make_batch(b"y"))
    disk.operations.clear()
    assert length(log, 20) > 0
    assert disk.operations["pread"] == 0


def test_staged_batches_are_not_read() -> None:
    log = filled(ForgetfulDisk())
    stage(log, make_batch(b"z"))
    assert length(log, 0, limit=100) == 10 * SIZE
    assert length(log, 20, limit=100) == 0


def test_a_range_can_be_sent_after_its_segment_was_removed() -> None:
    disk = ForgetfulDisk()
    log = filled(disk, segment_bytes=4 * SIZE)
    records = log.read(0, 1 << 20, 20, at_least_one=True).records
    assert records is not None
    log.delete_records(20)
    for segment in log.take_removed():
        segment.unlink()
    assert len(records.file.pread(records.length, records.position)) == 4 * SIZE
    records.release()


def test_a_batch_known_to_be_bad_ends_the_range_before_it_and_fails_the_fetch_that_begins_in_it() -> None:
    log = filled(ForgetfulDisk())
    log.remember_bad_batch(8, 9)
    assert length(log, 0) == 4 * SIZE
    assert refusal(log, 8) == ErrorCode.CORRUPT_MESSAGE
    assert refusal(log, 9) == ErrorCode.CORRUPT_MESSAGE
    assert length(log, 10) == 5 * SIZE
    assert log.statistics()["bad_batches"] == 1


def test_a_batch_of_an_old_format_in_the_middle_is_told_to_who_meets_it() -> None:
    disk = ForgetfulDisk()
    log = filled(disk)
    body = struct.pack(">bbqii", 1, 0, NOW_MS, -1, SIZE - 34) + b"o" * (SIZE - 34)
    overwrite(disk, f"{0:020d}.log", 5 * SIZE, struct.pack(">qiI", 10, len(body) + 4, crc32(body)) + body)
    assert refusal(log, 15) == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert length(log, 0) == 5 * SIZE
    append(log, make_batch(b"newer", timestamps=[NOW_MS + 5]))
    with pytest.raises(PeerError, match="offset 10; only format 2 can be read"):
        offset_for_timestamp(log, NOW_MS + 5)


def test_a_batch_found_bad_while_looking_for_an_offset_is_remembered() -> None:
    disk = ForgetfulDisk()
    log = filled(disk)
    overwrite(disk, f"{0:020d}.log", 5 * SIZE + 8, b"\xff\xff\xff\xff")
    assert refusal(log, 15) == ErrorCode.CORRUPT_MESSAGE
    assert length(log, 0) == 5 * SIZE
    assert refusal(log, 10) == ErrorCode.CORRUPT_MESSAGE


def test_without_its_index_a_segment_is_walked_once_to_make_a_new_one() -> None:
    disk = ForgetfulDisk()
    log = filled(disk, segment_bytes=8 * SIZE, index_interval_bytes=0)
    close_clean(log)
    for suffix in (".index", ".timeindex"):
        disk.remove(f"data/t-0/{0:020d}{suffix}")
    log = open_log(disk, LogConfig(index_interval_bytes=0), clean=True)
    assert length(log, 13) == 2 * SIZE
    assert max_timestamp_offset(log) is not None


def test_an_index_that_leads_astray_is_not_followed() -> None:
    disk = ForgetfulDisk()
    log = filled(disk, segment_bytes=8 * SIZE, index_interval_bytes=0)
    close_clean(log)
    overwrite(disk, f"{0:020d}.index", 3 * 8 + 4, (SIZE * 4 + 7).to_bytes(4, "big"))
    log = open_log(disk, clean=True)
    assert length(log, 10) == 3 * SIZE
