"""Appending what was fetched from the leader of the partition: `PartitionLog.append_as_follower`."""

from random import Random

import pytest

from moldau.log.config import LogConfig
from moldau.log.damage import Holes
from moldau.log.partition_log import PartitionLog
from moldau.model.errors import CorruptBatchError, PeerError, StorageError
from moldau.protocol.records.header import stamp
from moldau.testing.disk import ForgetfulDisk
from support.one_log import DIRECTORY, NOW_MS, append, close_clean, flush, make_batch, names, new_disk, offsets, open_log, stage

FAR = 3_000_000_000
"""More offsets than one index can tell apart."""


def fetched(offset: int, *values: bytes, epoch: int = 0, producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
    """A batch as a leader of this epoch has it."""
    batch = make_batch(*values, producer=producer)
    stamp(batch, offset, epoch)
    return bytes(batch)


def follow(log: PartitionLog, *batches: bytes, now_ms: int = NOW_MS) -> int:
    end_offset = log.append_as_follower(memoryview(b"".join(batches)), now_ms)
    log.advance_high_watermark(end_offset)
    return end_offset


@pytest.fixture
def log() -> PartitionLog:
    return open_log(ForgetfulDisk())


def test_offsets_and_epochs_are_those_of_the_leader(log: PartitionLog) -> None:
    assert follow(log, fetched(0, b"a", b"b", epoch=3), fetched(2, b"c", epoch=3), fetched(3, b"d", epoch=5)) == 4
    assert offsets(log) == [0, 2, 3]
    assert [log.end_offset_for_epoch(epoch) for epoch in (2, 3, 4, 5, 6)] == [(2, 0), (3, 3), (3, 3), (5, 4), (-1, -1)]
    assert not log.has_staged


def test_a_last_batch_that_is_cut_off_is_left_out(log: PartitionLog) -> None:
    whole, cut = fetched(0, b"a"), fetched(1, b"b")
    for length in range(1, len(cut)):
        with pytest.raises(CorruptBatchError):
            follow(log, cut[:length])
    assert follow(log, whole, cut[:-1]) == 1
    assert follow(log, cut) == 2
    assert follow(log) == 2


@pytest.mark.parametrize(
    "batch",
    [
        fetched(1, b"before the end"),
        fetched(2, b"an earlier leader", epoch=3),
        bytes([*fetched(2, b"changed")[:-1], 0xFF]),
        b"no batch at all".ljust(100, b"\0"),
        fetched(-5, b"no offset"),
    ],
    ids=["offset", "epoch", "checksum", "garbage", "negative"],
)
def test_nothing_is_written_of_a_fetch_with_a_bad_batch(log: PartitionLog, batch: bytes) -> None:
    follow(log, fetched(0, b"a", b"b", epoch=4))
    before = log.statistics()
    for records in ((batch,), (fetched(2, b"c", epoch=4), batch)):
        with pytest.raises(CorruptBatchError):
            follow(log, *records)
    assert log.statistics() == before


def test_what_the_leader_accepted_is_not_validated_again() -> None:
    """Longer than a segment, too old, out of sequence, of a producer that is not known, of an earlier epoch (KAFKA-9617, KAFKA-6003)."""
    disk = ForgetfulDisk()
    log = open_log(disk, LogConfig(segment_bytes=200, message_timestamp_before_max_ms=1))
    follow(
        log,
        fetched(0, b"x" * 500),
        fetched(1, b"a", producer=(7, 4, 1000)),
        fetched(2, b"b", producer=(7, 4, 5)),
        fetched(3, b"c", producer=(7, 2, 0)),
        now_ms=NOW_MS + 1000,
    )
    assert names(disk, ".log") == [0, 1, 3]
    assert [(each.producer_id, each.epoch, each.last_sequence) for each in log.active_producers()] == [(7, 2, 0)]


def test_an_empty_log_may_get_a_batch_that_begins_before_its_start() -> None:
    """DeleteRecords had moved the leader's start into the middle of a batch (KAFKA-6975)."""
    disk = ForgetfulDisk()
    log = open_log(disk)
    log.truncate_fully_and_start_at(2)
    log.take_cut()
    with pytest.raises(CorruptBatchError):
        follow(log, fetched(0, b"a", b"b"))
    assert follow(log, fetched(0, b"a", b"b", b"c", b"d", producer=(7, 0, 0))) == 4
    assert (log.start_offset, log.high_watermark, offsets(log), names(disk, ".log")) == (2, 4, [0], [0])
    assert log.take_cut() is None
    assert log.epoch_at(2) == 0
    with pytest.raises(PeerError):
        log.read(1, 1000, 4, at_least_one=True)
    close_clean(log)
    log = open_log(disk, recovery_point=4, start_offset=2, clean=True)
    assert (log.start_offset, offsets(log)) == (2, [0])


STRADDLING = fetched(0, b"a", b"b", b"c", b"d", producer=(7, 0, 0))
"""A batch in which a log that starts at offset 2 begins."""


def empty_log_at_2(disk: ForgetfulDisk) -> PartitionLog:
    log = open_log(disk)
    log.truncate_fully_and_start_at(2)
    flush(log)
    return log


def test_an_empty_log_that_cannot_take_such_a_batch_stays_as_it_is() -> None:
    """Whatever operation of the disk fails: the log start and the high watermark do not move back, and the next fetch brings the batch."""
    for failing in range(1, 100):
        disk, calls = new_disk(), 0
        log = empty_log_at_2(disk)

        def fail(operation: str, path: str, failing: int = failing) -> bool:
            nonlocal calls
            calls += 1
            return calls == failing

        disk.fail = fail
        before = log.statistics()
        try:
            follow(log, STRADDLING, fetched(4, b"e"))
        except StorageError:
            if log.log_end_offset == 2:
                assert log.statistics() == before
            disk.fail = None
            follow(log, *([STRADDLING] if log.log_end_offset == 2 else []), fetched(4, b"e"))
        disk.fail = None
        assert (log.start_offset, log.high_watermark, offsets(log), names(disk, ".log")) == (2, 5, [0, 4], [0])
        close_clean(log)
        log = open_log(disk, recovery_point=5, start_offset=2, clean=True)
        assert (log.start_offset, offsets(log)) == (2, [0, 4])
        if calls < failing:
            return
    raise AssertionError("every operation was to fail once")


@pytest.mark.parametrize("seed", range(30))
def test_a_crash_after_such_a_batch_loses_no_more_than_the_batch(seed: int) -> None:
    """The recovery point is the log start all the time: a start that found the log to end before it would refuse the partition."""
    disk = new_disk()
    log = empty_log_at_2(disk)
    follow(log, STRADDLING)
    disk.crash(Random(seed))
    log = open_log(disk, recovery_point=2, start_offset=2)
    assert (log.log_end_offset, log.size_bytes, log.epoch_at(2)) in [(2, 0, -1), (4, len(STRADDLING), 0)], "a batch that is there counts"
    if log.log_end_offset == 2:
        follow(log, STRADDLING)
    assert (log.start_offset, log.log_end_offset, offsets(log), names(disk, ".log")) == (2, 4, [0], [0])
    assert [(each.producer_id, each.last_sequence) for each in log.active_producers()] == [(7, 3)]


def test_readers_pass_over_holes_that_compaction_has_left_at_the_leader(log: PartitionLog) -> None:
    log.expect_no_holes()
    assert follow(log, fetched(0, b"a"), fetched(7, b"b"), fetched(20, b"c", b"d")) == 22
    assert offsets(log) == [0, 7, 20]
    assert log.read(10, 1000, 22, at_least_one=True).records is not None


def test_a_hole_longer_than_an_index_can_tell_begins_a_segment() -> None:
    disk = ForgetfulDisk()
    log = open_log(disk, LogConfig(index_interval_bytes=0))
    follow(log, fetched(0, b"a"), fetched(1, b"b"), fetched(FAR, b"c"), fetched(FAR + 1, b"d"))
    assert (names(disk, ".log"), offsets(log)) == ([0, FAR], [0, 1, FAR, FAR + 1])
    flush(log)
    close_clean(log)
    log = open_log(disk, recovery_point=FAR + 2, clean=True)
    assert (log.log_end_offset, offsets(log)) == (FAR + 2, [0, 1, FAR, FAR + 1])


def test_a_log_that_could_not_begin_a_segment_after_a_hole_ends_before_the_hole() -> None:
    disk = ForgetfulDisk()
    log = open_log(disk)
    disk.fail = lambda operation, path: operation == "open" and path.endswith(f"{FAR}.log")
    with pytest.raises(StorageError):
        follow(log, fetched(0, b"a"), fetched(FAR, b"b"))
    disk.fail = None
    assert (log.log_end_offset, log.has_staged, offsets(log)) == (1, False, [0])
    assert follow(log, fetched(FAR, b"b")) == FAR + 1


def test_a_producer_that_goes_on_at_the_leader_is_not_forgotten(log: PartitionLog) -> None:
    """Idleness counts from its last batch; a follower that forgot it would take any sequence after it has become leader."""
    expiration_ms = log.config.producer_id_expiration_ms
    follow(log, fetched(0, b"a", producer=(7, 0, 0)))
    follow(log, fetched(1, b"b", producer=(7, 0, 1)), now_ms=NOW_MS + expiration_ms)
    assert log.expire_producers(NOW_MS + expiration_ms + 1) == 0
    assert log.expire_producers(NOW_MS + 2 * expiration_ms) == 1


def test_who_has_followed_leads_with_what_it_has_learned(log: PartitionLog) -> None:
    follow(log, fetched(0, b"a", epoch=4, producer=(7, 0, 0)))
    log.lead_epoch(6)
    append(log, make_batch(b"b", producer=(7, 0, 1)))
    again = make_batch(b"a", producer=(7, 0, 0))
    assert stage(log, again) == (0, 0, -1, True)
    assert [log.end_offset_for_epoch(epoch) for epoch in (4, 6)] == [(4, 1), (6, 2)]


@pytest.mark.parametrize(
    ("offset", "left", "segments"), [(9, [0, 5], [0, 9]), (10, [0, 5], [0, 10]), (11, [0, 5], [0, 10]), (5, [0], [0, 5])]
)
@pytest.mark.parametrize("clean", [True, False])
def test_a_log_with_holes_ends_where_it_was_truncated_also_after_a_start(
    offset: int, left: list[int], segments: list[int], *, clean: bool
) -> None:
    """Not after the last record that compaction has left: a replica in sync must not give the offsets up to there away again (seed 287)."""
    disk, config = new_disk(), LogConfig(cleanup_policy=frozenset({"compact"}))
    log = open_log(disk, config)
    follow(log, fetched(0, b"a", epoch=1), fetched(5, b"b", epoch=1), fetched(10, b"c", b"d", epoch=2), fetched(12, b"e", epoch=3))
    flush(log)
    end = min(offset, 10)
    assert log.truncate_to(offset) == end
    assert (log.log_end_offset, log.high_watermark, log.flushed_offset) == (end, end, end)
    assert (log.latest_epoch, offsets(log), names(disk, ".log")) == (1, left, segments)
    flush(log)
    if clean:
        close_clean(log)
    log = open_log(disk, config, recovery_point=end, clean=clean)
    assert (log.log_end_offset, offsets(log)) == (end, left)
    assert follow(log, fetched(end + 3, b"f", epoch=4)) == end + 4
    assert offsets(log) == [*left, end + 3]


@pytest.mark.parametrize("segment_bytes", [100_000, 150])
def test_a_follower_keeps_after_a_crash_what_it_fetched_of_a_compacted_log(segment_bytes: int) -> None:
    """It is in sync, and may be all that is left: nothing is missing where the leader has compacted (seed 581)."""
    disk, config = new_disk(), LogConfig(segment_bytes=segment_bytes)
    log = open_log(disk, config)
    follow(log, fetched(3, b"a"), fetched(5, b"b"), fetched(9, b"c"), fetched(10, b"d"))
    log = open_log(disk, config, holes=Holes.IN_SEGMENTS)
    assert (log.log_end_offset, offsets(log)) == (11, [3, 5, 9, 10])


def test_the_lost_end_of_a_segment_is_no_hole_of_compaction() -> None:
    disk, config = new_disk(), LogConfig(segment_bytes=150)
    log = open_log(disk, config)
    follow(log, fetched(3, b"a"), fetched(5, b"b"), fetched(9, b"c"), fetched(10, b"d"))
    assert names(disk, ".log") == [0, 6]
    disk.open(f"{DIRECTORY}/{0:020d}.log", writable=True).truncate(len(fetched(3, b"a")))
    log = open_log(disk, config, holes=Holes.IN_SEGMENTS)
    assert (log.log_end_offset, offsets(log)) == (4, [3])
