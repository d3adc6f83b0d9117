"""What a log does with a batch: it is stamped in place, segments are rolled, indexes grow, and failed writes leave no trace."""

import struct

import pytest

from moldau.log.cache import EARLY_ROLL_MS, EARLY_ROLLS_MAX
from moldau.log.config import LogConfig
from moldau.log.partition_log import PartitionLog
from moldau.log.segment_appender import SegmentAppender
from moldau.model.errors import ErrorCode, PeerError, StorageError
from moldau.protocol.records.header import check_batch, read_header, verify_crc
from moldau.testing.disk import ForgetfulDisk
from support.one_log import DIRECTORY, NOW_MS, append, close_clean, headers, make_batch, names, offsets, open_log, stage

BATCH = len(make_batch(b"x" * 30))


def file_sizes(disk: ForgetfulDisk) -> list[int]:
    return [disk.size(f"{DIRECTORY}/{name:020d}.log") for name in names(disk, ".log")]


def test_offsets_and_epoch_are_stamped_in_place_and_outside_the_checksum() -> None:
    log = open_log(ForgetfulDisk(), leader_epoch=7)
    first, second = make_batch(b"a", b"b", b"c"), make_batch(b"d")
    assert stage(log, first) == (0, 2, -1, False)
    assert stage(log, second) == (3, 3, -1, False)
    for batch, base in ((first, 0), (second, 3)):
        header = read_header(batch)
        assert (header.base_offset, header.partition_leader_epoch) == (base, 7)
        assert verify_crc(batch)


def test_staged_batches_are_written_together_and_only_then_read() -> None:
    disk = ForgetfulDisk()
    log = open_log(disk)
    append(log, make_batch(b"a"))
    disk.operations.clear()
    for _ in range(5):
        stage(log, make_batch(b"b"))
    assert (log.log_end_offset, log.staged_end_offset, log.has_staged) == (1, 6, True)
    assert offsets(log) == [0]
    log.write_staged()
    assert (log.log_end_offset, log.has_staged) == (6, False)
    assert disk.operations["append"] == 1
    assert offsets(log) == [0, 1, 2, 3, 4, 5]


def test_log_append_time_is_stamped_on_the_whole_batch() -> None:
    log = open_log(ForgetfulDisk(), LogConfig(message_timestamp_type="LogAppendTime"))
    batch = make_batch(b"a", b"b", timestamps=[5, 6])
    assert stage(log, batch, now_ms=NOW_MS + 9).log_append_time_ms == NOW_MS + 9
    header = read_header(batch)
    assert header.timestamp_type_is_log_append
    assert header.max_timestamp == NOW_MS + 9
    assert verify_crc(batch)


@pytest.mark.parametrize(("before", "after"), [(-1001, None), (None, 501)])
def test_timestamps_out_of_bounds_are_refused(before: int | None, after: int | None) -> None:
    config = LogConfig(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=500)
    log = open_log(ForgetfulDisk(), config)
    with pytest.raises(PeerError) as caught:
        stage(log, make_batch(b"a", timestamps=[NOW_MS + (before or after or 0)]))
    assert caught.value.code == ErrorCode.INVALID_TIMESTAMP
    assert not log.has_staged
    stage(log, make_batch(b"a", timestamps=[NOW_MS - 1000]))
    stage(log, make_batch(b"a", timestamps=[NOW_MS + 500]))
    stage(log, make_batch(b"a", timestamps=[-1]))
    log.reconfigure(config._replace(message_timestamp_type="LogAppendTime"))
    stage(log, make_batch(b"a", timestamps=[0]))


def test_a_segment_is_rolled_before_it_would_become_too_long() -> None:
    disk = ForgetfulDisk()
    log = open_log(disk, LogConfig(segment_bytes=3 * BATCH))
    append(log, *[make_batch(b"x" * 30) for _ in range(7)])
    assert names(disk, ".log") == [0, 3, 6]
    assert file_sizes(disk) == [3 * BATCH, 3 * BATCH, BATCH]
    assert names(disk, ".snapshot") == [3, 6]
    assert offsets(log) == list(range(7))


def test_a_batch_longer_than_a_segment_is_refused() -> None:
    log = open_log(ForgetfulDisk(), LogConfig(segment_bytes=BATCH - 1))
    with pytest.raises(PeerError) as caught:
        stage(log, make_batch(b"x" * 30))
    assert caught.value.code == ErrorCode.RECORD_LIST_TOO_LARGE


def test_a_segment_is_rolled_when_a_batch_is_much_newer_than_its_first() -> None:
    disk = ForgetfulDisk()
    log = open_log(disk, LogConfig(segment_ms=100, message_timestamp_after_max_ms=10_000))
    for timestamp in (1000, 900, 1100, 1101, 1150, 1201, 1202):
        append(log, make_batch(b"x", timestamps=[timestamp]), now_ms=NOW_MS)
    assert names(disk, ".log") == [0, 3, 6]


def test_of_many_segments_that_are_old_at_once_some_are_rolled_a_little_later() -> None:
    """A request of 140 KB, 2,000 batches for a topic with ``segment.ms=1``, made 10,000 files and stalled the others 1.7 s."""
    disk = ForgetfulDisk()
    log = open_log(disk, LogConfig(segment_ms=1, message_timestamp_after_max_ms=10_000))
    append(log, *[make_batch(b"x", timestamps=[NOW_MS + 10 * number]) for number in range(200)], now_ms=NOW_MS)
    assert len(names(disk, ".log")) == 1 + EARLY_ROLLS_MAX
    append(log, make_batch(b"x", timestamps=[NOW_MS + 2001]), now_ms=NOW_MS + EARLY_ROLL_MS)
    assert len(names(disk, ".log")) == 2 + EARLY_ROLLS_MAX
    assert log.log_end_offset == 201


def test_while_others_are_rolled_a_segment_whose_index_is_full_goes_on_without_entries() -> None:
    disk = ForgetfulDisk()
    log = open_log(disk, LogConfig(segment_index_bytes=8 * 3, index_interval_bytes=0))
    append(log, *[make_batch(b"x") for _ in range(200)], now_ms=NOW_MS)
    assert names(disk, ".log") == [2 * number for number in range(1 + EARLY_ROLLS_MAX)]
    append(log, make_batch(b"x"), now_ms=NOW_MS + EARLY_ROLL_MS)
    assert names(disk, ".log")[-1] == 200


def test_without_timestamps_the_clock_decides_when_to_roll() -> None:
    disk = ForgetfulDisk()
    log = open_log(disk, LogConfig(segment_ms=100))
    for now_ms in (0, 50, 100, 101, 201, 202):
        append(log, make_batch(b"x", timestamps=[-1]), now_ms=NOW_MS + now_ms)
    assert names(disk, ".log") == [0, 3, 5]


def test_jitter_makes_rolling_by_time_earlier_by_less_than_its_bound() -> None:
    waits = set()
    for segment_ms in range(1000, 1020):
        disk = ForgetfulDisk()
        log = open_log(disk, LogConfig(segment_ms=segment_ms, segment_jitter_ms=400))
        timestamp = 1000
        while names(disk, ".log") == [0]:
            append(log, make_batch(b"x", timestamps=[timestamp]))
            timestamp += 10
        waits.add(segment_ms - (timestamp - 1000))
    assert max(waits) < 400
    assert len({wait // 20 for wait in waits}) >= 1


def test_a_segment_is_rolled_when_an_index_is_full() -> None:
    disk = ForgetfulDisk()
    log = open_log(disk, LogConfig(segment_index_bytes=8 * 3, index_interval_bytes=0))
    append(log, *[make_batch(b"x") for _ in range(9)])
    assert names(disk, ".log") == [0, 2, 4, 6, 8]  # 24 bytes are 2 entries of the time index, of which one is kept for the end
    for base in (0, 2, 4, 6):
        assert disk.size(f"{DIRECTORY}/{base:020d}.index") <= 24


def test_index_entries_are_an_interval_of_bytes_apart_and_name_the_last_offset_of_their_batch() -> None:
    disk = ForgetfulDisk()
    log = open_log(disk, LogConfig(index_interval_bytes=2 * BATCH))
    two = len(make_batch(b"x" * 30, b""))
    for number in range(8):
        append(log, make_batch(b"x" * 30, b"", timestamps=[100 + number, 50]))
    close_clean(log)
    index = disk.read(f"{DIRECTORY}/{0:020d}.index")
    assert list(struct.iter_unpack(">ii", index)) == [(5, 2 * two), (9, 4 * two), (13, 6 * two)]
    times = disk.read(f"{DIRECTORY}/{0:020d}.timeindex")
    assert list(struct.iter_unpack(">qi", times)) == [(102, 5), (104, 9), (106, 13), (107, 15)]


def test_time_entries_never_fall_and_a_sealed_segment_ends_with_its_largest() -> None:
    disk = ForgetfulDisk()
    log = open_log(disk, LogConfig(index_interval_bytes=0, segment_bytes=4 * BATCH))
    for timestamp in (500, 900, 100, 200, 1):
        append(log, make_batch(b"x" * 30, timestamps=[timestamp]))
    assert names(disk, ".log") == [0, 4]
    times = disk.read(f"{DIRECTORY}/{0:020d}.timeindex")
    assert list(struct.iter_unpack(">qi", times)) == [(900, 1)]


def test_the_epoch_begins_with_its_first_batch() -> None:
    log = open_log(ForgetfulDisk(), leader_epoch=3)
    assert (log.end_offset_for_epoch(3), log.latest_epoch) == ((3, 0), -1)
    append(log, make_batch(b"a"), make_batch(b"b"))
    log.lead_epoch(5)
    assert log.end_offset_for_epoch(3) == (3, 2)
    stage(log, make_batch(b"c"))
    log.lead_epoch(6)
    append(log, make_batch(b"d"))
    assert [log.end_offset_for_epoch(epoch) for epoch in (2, 3, 4, 5, 6, 7)] == [(2, 0), (3, 2), (3, 2), (5, 3), (6, 4), (-1, -1)]
    assert [log.epoch_at(offset) for offset in range(4)] == [3, 3, 5, 6]
    assert [header.partition_leader_epoch for header in headers(log)] == [3, 3, 5, 6]


def test_a_repeated_batch_is_answered_and_not_stored() -> None:
    log = open_log(ForgetfulDisk())
    batch = make_batch(b"a", b"b", producer=(7, 0, 0))
    again = memoryview(bytearray(batch))
    assert stage(log, batch) == (0, 1, -1, False)
    assert stage(log, again) == (0, 1, -1, True)
    log.write_staged()
    assert stage(log, again) == (0, 1, -1, True)
    assert not log.has_staged
    assert log.log_end_offset == 2


# Failures


def state_of(log: PartitionLog) -> tuple[object, ...]:
    return log.statistics(), log.active_producers(), log.end_offset_for_epoch(log.leader_epoch), offsets(log)


def batches_of(count: int) -> list[memoryview]:
    return [make_batch(b"x" * 30, producer=(7, 0, number), timestamps=[NOW_MS + number]) for number in range(count)]


@pytest.mark.parametrize("room", [0, 1, 11, 60, BATCH - 1, BATCH, BATCH + 1, 2 * BATCH + 30, 3 * BATCH - 1])
def test_a_disk_that_fills_up_at_any_byte_leaves_no_trace(room: int) -> None:
    disk = ForgetfulDisk()
    log = open_log(disk, LogConfig(index_interval_bytes=0), leader_epoch=2)
    append(log, make_batch(b"first"))
    size, before = file_sizes(disk), state_of(log)
    log.lead_epoch(3)
    disk.capacity = disk.used() + room
    for batch in batches_of(3):
        stage(log, batch)
    with pytest.raises(StorageError) as caught:
        log.write_staged()
    assert caught.value.no_space
    assert file_sizes(disk) == size
    log.lead_epoch(2)
    assert state_of(log) == before
    disk.capacity = None
    append(log, *batches_of(3))
    assert offsets(log) == [0, 1, 2, 3]
    close_clean(log)
    assert open_log(disk, clean=True).log_end_offset == 4


def test_reads_go_on_while_the_disk_is_full() -> None:
    disk = ForgetfulDisk()
    log = open_log(disk)
    append(log, make_batch(b"a"))
    disk.capacity = disk.used()
    for _ in range(3):
        stage(log, make_batch(b"b"))
        with pytest.raises(StorageError):
            log.write_staged()
        assert offsets(log) == [0]


def test_what_a_failed_write_left_and_could_not_be_cut_is_cut_before_the_next_write() -> None:
    disk = ForgetfulDisk()
    log = open_log(disk)
    append(log, make_batch(b"a"))
    size = file_sizes(disk)
    disk.capacity = disk.used() + 100
    disk.fail = lambda operation, path: operation == "truncate"
    stage(log, make_batch(b"b" * 100))
    with pytest.raises(StorageError):
        log.write_staged()
    assert file_sizes(disk) != size
    assert offsets(log) == [0]
    disk.capacity, disk.fail = None, None
    append(log, make_batch(b"c"))
    assert file_sizes(disk) == [2 * size[0]]
    assert offsets(log) == [0, 1]


def test_a_write_that_fails_when_a_batch_needs_a_new_segment_fails_all_that_was_staged() -> None:
    """The broker gave answers for what was staged before; `write_staged` must still say that they do not hold."""
    disk = ForgetfulDisk()
    log = open_log(disk, LogConfig(segment_bytes=2 * BATCH))
    stage(log, batches_of(1)[0])
    stage(log, make_batch(b"x" * 30))
    disk.capacity = disk.used() + BATCH
    with pytest.raises(StorageError):
        stage(log, make_batch(b"x" * 30))
    disk.capacity = None
    stage(log, make_batch(b"x" * 30))
    with pytest.raises(StorageError):
        log.write_staged()
    assert (log.staged_end_offset, log.log_end_offset, log.active_producers()) == (0, 0, [])
    append(log, *batches_of(1))
    assert offsets(log) == [0]


def test_a_new_segment_that_cannot_be_made_is_made_by_a_later_append() -> None:
    disk = ForgetfulDisk()
    log = open_log(disk, LogConfig(segment_bytes=2 * BATCH))
    append(log, make_batch(b"x" * 30), make_batch(b"x" * 30))
    for suffix in (".index", ".snapshot", ".log"):
        disk.fail = lambda operation, path, suffix=suffix: operation in ("open", "append") and path.endswith(suffix)
        with pytest.raises(StorageError):
            stage(log, make_batch(b"x" * 30))
        log.write_staged()
        assert log.staged_end_offset == 2
    disk.fail = None
    append(log, make_batch(b"x" * 30))
    assert names(disk, ".log") == [0, 2]
    assert offsets(log) == [0, 1, 2]


def test_a_file_that_was_changed_behind_the_logs_back_is_not_written_to() -> None:
    disk = ForgetfulDisk()
    append(log := open_log(disk), make_batch(b"a"))
    close_clean(log)
    log = open_log(disk, clean=True)
    file = disk.open(f"{DIRECTORY}/{0:020d}.log", writable=True)
    file.append([b"somebody else"])
    batch = make_batch(b"b")
    with pytest.raises(StorageError, match="the log knows of"):
        log.append_as_leader(batch, check_batch(batch), NOW_MS)


def test_a_segment_that_could_not_be_made_leaves_no_empty_file_behind() -> None:
    """An empty newest segment decides where a log ends after a clean stop."""
    disk = ForgetfulDisk()
    log = open_log(disk, LogConfig(segment_bytes=2 * BATCH))
    append(log, make_batch(b"x" * 30), make_batch(b"x" * 30))
    disk.open(f"{DIRECTORY}/{2:020d}.log", create=True).append([b"left from an earlier time"])
    disk.fail = lambda operation, path: operation == "truncate" and path.endswith(".log")
    with pytest.raises(StorageError):
        stage(log, make_batch(b"x" * 30))
    disk.fail = None
    assert names(disk, ".log") == [0]
    close_clean(log)
    assert open_log(disk, clean=True).log_end_offset == 2


def test_a_file_that_cannot_be_closed_at_a_roll_leaves_a_log_that_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(ForgetfulDisk(), LogConfig(segment_bytes=200))
    append(log, make_batch(b"x" * 100))
    close = SegmentAppender.close

    def close_and_fail(appender: SegmentAppender) -> None:
        close(appender)
        raise StorageError("no space left on device", path="x", no_space=True)

    with monkeypatch.context() as patched:
        patched.setattr(SegmentAppender, "close", close_and_fail)
        with pytest.raises(StorageError):
            append(log, make_batch(b"y" * 100))
    append(log, make_batch(b"z" * 100))
    assert offsets(log) == [0, 1]


def test_no_batch_of_a_new_producer_overtakes_one_for_which_there_was_no_room_for_a_segment() -> None:
    """The next one may be short enough for the segment that there is."""
    disk = ForgetfulDisk()
    log = open_log(disk, LogConfig(segment_bytes=1000))
    append(log, make_batch(bytes(700)))
    disk.capacity = disk.used()
    with pytest.raises(StorageError):
        stage(log, make_batch(bytes(500), producer=(7, 0, 0)))
    disk.capacity = None
    with pytest.raises(PeerError) as caught:
        stage(log, make_batch(b"short", producer=(7, 0, 1)))
    assert caught.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, make_batch(bytes(500), producer=(7, 0, 0)), make_batch(b"short", producer=(7, 0, 1)))
    assert offsets(log) == [0, 1, 2]
