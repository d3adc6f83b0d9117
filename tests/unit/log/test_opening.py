"""Opening a log: after a clean stop nothing but ends is read; after a crash every batch after the recovery point is checked."""

import logging
import struct
import zlib
from typing import Any

import pytest

from moldau.log.batches import OldFormatError
from moldau.log.config import LogConfig
from moldau.log.damage import Holes, LostRecordsError
from moldau.log.partition_log import PartitionLog
from moldau.protocol.records.header import stamp
from moldau.testing.disk import ForgetfulDisk
from support.one_log import (
    DIRECTORY,
    NOW_MS,
    append,
    close_clean,
    flush,
    headers,
    make_batch,
    names,
    new_disk,
    offsets,
    open_log,
    overwrite,
    stage,
)
from support.searches import max_timestamp_offset

SIZE = len(make_batch(b"x" * 30))
LOG = f"{0:020d}.log"
THREE = LogConfig(segment_bytes=4 * SIZE, index_interval_bytes=0)


def filled(disk: ForgetfulDisk, batches: int, config: LogConfig = THREE, *, producer: int = -1) -> PartitionLog:
    """A log of batches of one record and SIZE bytes each, four to a segment."""
    log = open_log(disk, config)
    for number in range(batches):
        append(log, make_batch(b"x" * 30, producer=(producer, 0, number) if producer >= 0 else (-1, -1, -1)))
    return log


# After a clean stop


def test_a_new_log_is_empty_at_its_start_offset_and_its_folder_is_made() -> None:
    disk = new_disk()
    log = open_log(disk, start_offset=70)
    assert (log.start_offset, log.log_end_offset, log.flushed_offset, log.high_watermark) == (70, 70, 70, 70)
    assert names(disk, ".log") == [70]
    flush(log)
    disk.crash()
    assert disk.list(DIRECTORY) == ["00000000000000000070.log"]


def test_after_a_clean_stop_only_the_end_of_the_active_segment_is_read() -> None:
    disk = new_disk()
    log = filled(disk, 4000, LogConfig(segment_bytes=1000 * SIZE), producer=7)
    close_clean(log)
    overwrite(disk, LOG, 0, b"\xff" * 500)  # who does not look does not see
    disk.operations.clear()
    log = open_log(disk, clean=True)
    assert (log.start_offset, log.log_end_offset, log.flushed_offset) == (0, 4000, 4000)
    assert log.recovery is None
    assert disk.operations["pread"] <= 6
    assert disk.operations["read"] <= 3
    assert [view.last_sequence for view in log.active_producers()] == [3999]


def test_a_log_goes_on_after_a_clean_stop_as_if_there_had_been_none() -> None:
    config = THREE._replace(index_interval_bytes=2 * SIZE, segment_bytes=9 * SIZE)
    stopped, running = new_disk(), ForgetfulDisk()
    log = filled(running, 20, config)
    close_clean(log)
    log = open_log(stopped, config)
    for _ in range(20):
        append(log, make_batch(b"x" * 30))
        close_clean(log)
        log = open_log(stopped, config, clean=True)
        assert log.recovery is None
    close_clean(log)
    for kind in (".log", ".index"):
        assert names(stopped, kind) == names(running, kind)
        for base in names(running, kind):
            path = f"{DIRECTORY}/{base:020d}{kind}"
            assert stopped.read(path) == running.read(path)


def test_everything_a_clean_stop_leaves_survives_a_crash() -> None:
    disk = new_disk()
    close_clean(filled(disk, 10, producer=7))

    def contents() -> dict[str, bytes]:
        """Of all files but those of the indexes' checksums, which nobody needs."""
        return {name: disk.read(f"{DIRECTORY}/{name}") for name in disk.list(DIRECTORY) if not name.endswith(".checksums")}

    before = contents()
    disk.crash()
    assert contents() == before
    assert open_log(disk, THREE, clean=True).recovery is None


def test_a_stop_that_was_called_clean_and_was_not_is_found_out() -> None:
    disk = new_disk()
    close_clean(filled(disk, 10))
    disk.open(f"{DIRECTORY}/{8:020d}.log", writable=True).append([b"half a batch"])
    log = open_log(disk, THREE, clean=True)
    assert log.recovery is not None
    assert log.recovery.bytes_cut == 12
    assert log.log_end_offset == 10


def test_closing_without_a_change_writes_nothing() -> None:
    disk = new_disk()
    close_clean(filled(disk, 10))
    log = open_log(disk, THREE, clean=True)
    disk.operations.clear()
    close_clean(log)
    assert not set(disk.operations) & {"append", "truncate", "sync", "write_atomically", "sync_directory", "rename"}


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_missing_index_of_the_active_segment_is_made_anew(suffix: str) -> None:
    disk = new_disk()
    close_clean(filled(disk, 3))
    before = disk.read(f"{DIRECTORY}/{0:020d}{suffix}")
    disk.remove(f"{DIRECTORY}/{0:020d}{suffix}")
    log = open_log(disk, THREE, clean=True)
    assert log.log_end_offset == 3
    close_clean(log)
    assert disk.read(f"{DIRECTORY}/{0:020d}{suffix}") == before


def test_a_damaged_snapshot_is_passed_over_for_an_older_one_and_the_batches_since() -> None:
    disk = new_disk()
    close_clean(filled(disk, 10, producer=7))
    assert names(disk, ".snapshot") == [4, 8, 10]
    overwrite(disk, f"{10:020d}.snapshot", 20, b"?")
    log = open_log(disk, THREE, clean=True)
    assert [view.last_sequence for view in log.active_producers()] == [9]
    assert names(disk, ".snapshot") == [4, 8]


def test_files_that_waited_to_be_unlinked_are_handed_out_again() -> None:
    disk = new_disk()
    log = filled(disk, 10)
    log.delete_records(9)
    close_clean(log)
    log = open_log(disk, THREE, clean=True, start_offset=9)
    for segment in log.take_removed():
        segment.unlink()
    assert not [name for name in disk.list(DIRECTORY) if name.endswith(".deleted")]
    assert offsets(log) == [9]


def test_a_damaged_epoch_checkpoint_is_said_and_not_used(caplog: pytest.LogCaptureFixture) -> None:
    disk = new_disk()
    close_clean(filled(disk, 3))
    overwrite(disk, "leader-epoch-checkpoint", 0, b"?")
    log = open_log(disk, THREE, clean=True, leader_epoch=1)
    assert "leader-epoch-checkpoint" in caplog.text
    append(log, make_batch(b"x"))
    assert log.end_offset_for_epoch(1) == (1, 4)


def test_an_interrupted_compaction_is_finished() -> None:
    disk = new_disk()
    close_clean(filled(disk, 3))
    segment = f"{DIRECTORY}/{0:020d}.log"
    disk.write_atomically(f"{segment}.swap", disk.read(segment))
    disk.write_atomically(f"{DIRECTORY}/{7:020d}.log.cleaned", b"half")
    log = open_log(disk, clean=True)
    assert len(offsets(log)) == 3
    assert not [name for name in disk.list(DIRECTORY) if name.endswith((".swap", ".cleaned"))]


@pytest.mark.parametrize("clean", [True, False])
def test_a_start_offset_outside_the_log_costs_nothing_and_is_named(clean: bool, caplog: pytest.LogCaptureFixture) -> None:
    """One flipped digit of the checkpoint once marked every segment for deletion, without a line."""
    disk = new_disk()
    close_clean(filled(disk, 12))
    log = open_log(disk, THREE, clean=clean, recovery_point=12, start_offset=50)
    assert (log.start_offset, log.log_end_offset) == (0, 12)
    assert offsets(log) == list(range(12))
    assert log.take_removed() == []
    assert "start offset not used: partition=t-0 start_offset=50 end_offset=12" in caplog.text
    assert "log-start-offset-checkpoint" in caplog.text


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_ends_before_what_was_on_disk_is_not_opened_and_not_touched(clean: bool) -> None:
    """Instead of an empty or a shorter log: an error that says what is gone, and which command accepts it."""
    for damage in (0, SIZE, 2 * SIZE + 7):
        disk = new_disk()
        close_clean(filled(disk, 3))
        disk.open(f"{DIRECTORY}/{LOG}", writable=True).truncate(damage)
        with pytest.raises(LostRecordsError, match=r"on disk up to offset 3.*moldau log accept-loss data t-0"):
            open_log(disk, THREE, clean=clean, recovery_point=3)
        assert disk.size(f"{DIRECTORY}/{LOG}") == damage
        assert offsets(open_log(disk, THREE, clean=clean, recovery_point=3, accept_loss=True)) == list(range(damage // SIZE))


def test_a_folder_that_has_lost_all_its_segments_is_not_an_empty_log() -> None:
    disk = new_disk()
    close_clean(filled(disk, 3))
    disk.remove(f"{DIRECTORY}/{LOG}")
    for clean in (True, False):
        with pytest.raises(LostRecordsError):
            open_log(disk, THREE, clean=clean, recovery_point=3)
    disk.remove(f"{DIRECTORY}/{LOG}".replace(".log", ".checksums"))
    disk.remove(f"{DIRECTORY}/{LOG}".replace(".log", ".index"))
    disk.remove(f"{DIRECTORY}/{LOG}".replace(".log", ".timeindex"))
    with pytest.raises(LostRecordsError, match="the log ends at offset 0, but was on disk up to offset 3: 3 offsets are lost"):
        open_log(disk, THREE, recovery_point=3)


def test_a_segment_that_is_gone_from_the_middle_is_missed_by_its_indexes() -> None:
    disk = new_disk()
    close_clean(filled(disk, 12))
    disk.remove(f"{DIRECTORY}/{4:020d}.log")
    with pytest.raises(LostRecordsError, match=f"{4:020d}.log is missing, with the records from offset 4 on"):
        open_log(disk, THREE, clean=True, recovery_point=12)
    assert disk.exists(f"{DIRECTORY}/{4:020d}.index")
    log = open_log(disk, THREE, clean=True, recovery_point=12, accept_loss=True)
    assert offsets(log) == [0, 1, 2, 3, 8, 9, 10, 11]


def test_a_file_with_an_offset_that_no_log_has_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    disk = new_disk()
    close_clean(filled(disk, 3))
    for name in ("99999999999999999999.log", "09223372036854775807.log", "99999999999999999999.snapshot"):
        disk.write_atomically(f"{DIRECTORY}/{name}", b"")
        log = open_log(disk, THREE, clean=True, recovery_point=3)
        assert (log.start_offset, log.log_end_offset) == (0, 3)
        assert disk.exists(f"{DIRECTORY}/{name}")
        assert f"file left alone: path={DIRECTORY}/{name}" in caplog.text


# After a crash


def crashed(disk: ForgetfulDisk, recovery_point: int, config: LogConfig = THREE, **more: Any) -> PartitionLog:
    return open_log(disk, config, recovery_point=recovery_point, leader_epoch=9, **more)


def test_a_torn_tail_is_cut_and_said(caplog: pytest.LogCaptureFixture) -> None:
    disk = new_disk()
    filled(disk, 6)
    file = disk.open(f"{DIRECTORY}/{4:020d}.log", writable=True)
    file.truncate(2 * SIZE - 5)
    log = crashed(disk, 0)
    report = log.recovery
    assert report is not None
    assert (report.end_offset, report.segments, report.batches, report.bytes_cut) == (5, 2, 5, SIZE - 5)
    assert [(cut.path, cut.position, cut.bytes, cut.offset) for cut in report.cuts] == [(f"{DIRECTORY}/{4:020d}.log", SIZE, SIZE - 5, 5)]
    assert f"bytes={SIZE - 5} offset=5" in caplog.text
    assert offsets(log) == [0, 1, 2, 3, 4]
    append(log, make_batch(b"y"))
    assert offsets(log) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("position", [0, 3, 8, 11, 16, 17, 21, 40, 61, SIZE - 1])
@pytest.mark.parametrize("batch", [4, 5, 9])
def test_every_damaged_byte_behind_the_recovery_point_ends_the_log_there(batch: int, position: int) -> None:
    disk = new_disk()
    filled(disk, 12)
    base = batch // 4 * 4
    file = f"{base:020d}.log"
    at = (batch - base) * SIZE + position
    old = disk.read(f"{DIRECTORY}/{file}")[at]
    overwrite(disk, file, at, bytes([old ^ 0x10]))
    log = crashed(disk, 4)
    assert log.log_end_offset == batch
    assert offsets(log) == list(range(batch))
    assert log.recovery is not None
    assert len(log.recovery.removed) == (12 - batch) // 4 - (0 if batch % 4 else 1)
    for removed in log.recovery.removed:
        removed.unlink()
    assert names(disk, ".log") == [base for base in (0, 4, 8) if base <= batch]


def test_damage_before_the_recovery_point_is_left_to_readers() -> None:
    """Cutting there would throw away what was flushed after it."""
    disk = new_disk()
    filled(disk, 10)
    overwrite(disk, LOG, SIZE + 70, b"?")
    log = crashed(disk, 8)
    assert log.log_end_offset == 10
    assert len(offsets(log)) == 10


def test_a_segment_that_does_not_begin_where_the_one_before_ends_goes_with_all_after_it() -> None:
    disk = new_disk()
    filled(disk, 12)
    disk.open(f"{DIRECTORY}/{4:020d}.log", writable=True).truncate(2 * SIZE)
    log = crashed(disk, 2)
    assert offsets(log) == [0, 1, 2, 3, 4, 5]
    assert log.recovery is not None
    assert [removed.base_offset for removed in log.recovery.removed] == [8]
    assert log.recovery.bytes_cut == 4 * SIZE


@pytest.mark.parametrize("how", [{"holes": Holes.ANYWHERE}, {"adopted": True}])
def test_where_there_was_compaction_holes_are_kept_but_damage_is_not(how: dict[str, Any]) -> None:
    disk = new_disk()
    filled(disk, 12)
    disk.open(f"{DIRECTORY}/{4:020d}.log", writable=True).truncate(2 * SIZE)
    log = crashed(disk, 2, THREE, **how)
    assert offsets(log) == [0, 1, 2, 3, 4, 5, 8, 9, 10, 11]
    overwrite(disk, f"{4:020d}.log", SIZE + 70, b"?")
    log = crashed(disk, 2, THREE, **how)
    assert offsets(log) == [0, 1, 2, 3, 4]


def test_compaction_leaves_holes_before_the_recovery_point_only() -> None:
    disk = new_disk()
    filled(disk, 12)
    disk.open(f"{DIRECTORY}/{4:020d}.log", writable=True).truncate(2 * SIZE)
    assert offsets(crashed(disk, 8, holes=Holes.IN_SEGMENTS)) == [0, 1, 2, 3, 4, 5, 8, 9, 10, 11]
    with pytest.raises(LostRecordsError, match="offset 6: the segment begins where offset 6 is due; the log was on disk up to offset 7"):
        crashed(disk, 7, holes=Holes.IN_SEGMENTS)
    assert offsets(crashed(disk, 6, holes=Holes.IN_SEGMENTS)) == [0, 1, 2, 3, 4, 5]


def test_a_base_offset_that_skips_ahead_is_damage_although_the_checksum_matches() -> None:
    disk = new_disk()
    filled(disk, 3)
    overwrite(disk, LOG, SIZE, (7).to_bytes(8, "big"))
    assert crashed(disk, 0).log_end_offset == 1


def test_whole_batches_of_an_earlier_leadership_behind_a_cut_are_not_taken() -> None:
    """Blocks that were cut off may come back after a crash; their offsets fit, their epoch does not."""
    disk = new_disk()
    append(log := open_log(disk, leader_epoch=5), make_batch(b"x" * 30), make_batch(b"x" * 30))
    batch = make_batch(b"x" * 30)
    stamp(batch, 2, 4)
    disk.open(f"{DIRECTORY}/{LOG}", writable=True).append([batch])
    log.close()
    assert crashed(disk, 0).log_end_offset == 2


def test_index_entries_behind_the_recovery_point_are_not_believed() -> None:
    disk = new_disk()
    config = LogConfig(index_interval_bytes=0)
    log = filled(disk, 6, config)
    close_clean(log)
    true = disk.read(f"{DIRECTORY}/{0:020d}.index")
    overwrite(disk, f"{0:020d}.index", 3 * 8, struct.pack(">iiii", 4, 3 * SIZE + 11, 5, 4 * SIZE + 3))
    log = crashed(disk, 3, config)
    close_clean(log)
    assert disk.read(f"{DIRECTORY}/{0:020d}.index") == true


@pytest.mark.parametrize("damage", [bytes(8), struct.pack(">ii", 1, 5), struct.pack(">ii", 900, 9000)])
def test_an_index_that_does_not_rise_or_does_not_lead_to_a_batch_is_made_anew(damage: bytes) -> None:
    disk = new_disk()
    config = LogConfig(index_interval_bytes=0)
    close_clean(filled(disk, 9, config))
    true = disk.read(f"{DIRECTORY}/{0:020d}.index"), disk.read(f"{DIRECTORY}/{0:020d}.timeindex")
    overwrite(disk, f"{0:020d}.index", 2 * 8, damage)
    close_clean(crashed(disk, 7, config))
    assert (disk.read(f"{DIRECTORY}/{0:020d}.index"), disk.read(f"{DIRECTORY}/{0:020d}.timeindex")) == true


def test_indexes_that_kafka_left_allocated_in_full_are_cut_to_their_entries() -> None:
    disk = new_disk()
    close_clean(filled(disk, 9, LogConfig(index_interval_bytes=0)))
    before = {suffix: disk.read(f"{DIRECTORY}/{0:020d}{suffix}") for suffix in (".index", ".timeindex")}
    for suffix in before:
        disk.open(f"{DIRECTORY}/{0:020d}{suffix}", writable=True).append([bytes(1024)])
    log = open_log(disk, LogConfig(index_interval_bytes=0), recovery_point=3, adopted=True)
    assert offsets(log) == list(range(9))
    close_clean(log)
    assert {suffix: disk.read(f"{DIRECTORY}/{0:020d}{suffix}") for suffix in before} == before


@pytest.mark.parametrize("kept", [0, 5, 12, 20, 24, 30, 36])
def test_indexes_that_were_stored_and_not_synced_are_completed_also_at_the_end_of_a_segment(kept: int) -> None:
    """The records were flushed, then the segment was rolled: its indexes were written after the recovery point had reached its end."""
    for suffix in (".index", ".timeindex"):
        disk = new_disk()
        log = open_log(disk, THREE)
        for timestamp in (10, 30, 20, 40, 50):
            append(log, make_batch(b"x" * 30, timestamps=[timestamp]))
        close_clean(log)
        true = disk.read(f"{DIRECTORY}/{0:020d}{suffix}")
        disk.open(f"{DIRECTORY}/{0:020d}{suffix}", writable=True).truncate(min(kept, len(true)))
        log = crashed(disk, 4)
        assert (disk.read(f"{DIRECTORY}/{0:020d}{suffix}"), log.log_end_offset) == (true, 5)
        newest = max_timestamp_offset(log)
        assert newest is not None
        assert newest.offset == 4


def test_a_time_entry_that_no_batch_reaches_is_not_believed() -> None:
    disk = new_disk()
    close_clean(filled(disk, 3))
    disk.open(f"{DIRECTORY}/{0:020d}.timeindex", writable=True).append([struct.pack(">qi", NOW_MS + 999, 2)])
    log = crashed(disk, 3)
    newest = max_timestamp_offset(log)
    assert newest is not None
    assert (newest.timestamp_ms, newest.offset) == (NOW_MS, 0)


def test_a_hole_that_ends_at_the_recovery_point_costs_nothing() -> None:
    """An adopted log was compacted up to its empty active segment; the broker crashes before it has appended anything."""
    disk = new_disk()
    log = filled(disk, 8)
    close_clean(log)
    for suffix in (".log", ".index", ".timeindex", ".checksums"):
        disk.rename(f"{DIRECTORY}/{4:020d}{suffix}", f"{DIRECTORY}/{4:020d}{suffix}.gone")
    disk.open(f"{DIRECTORY}/{8:020d}.log", create=True)
    log = crashed(disk, 8)
    assert (log.log_end_offset, offsets(log)) == (8, [0, 1, 2, 3])


def test_epochs_behind_the_recovery_point_come_from_the_batches() -> None:
    disk = new_disk()
    log = open_log(disk, leader_epoch=2)
    append(log, make_batch(b"x"), make_batch(b"x"))
    flush(log)
    assert disk.read(f"{DIRECTORY}/leader-epoch-checkpoint").split() == [b"0", b"1", b"2", b"0"]
    log.lead_epoch(3)
    append(log, make_batch(b"x"))
    log.close()
    log = crashed(disk, 2, LogConfig())
    assert (log.end_offset_for_epoch(2), log.end_offset_for_epoch(3)) == ((2, 2), (3, 3))
    flush(log)
    assert disk.read(f"{DIRECTORY}/leader-epoch-checkpoint").split() == b"0 2 2 0 3 2".split()


def test_a_lost_tail_shows_in_the_epochs() -> None:
    """A consumer has read up to 3 in epoch 2; after the crash the same offsets are used again in epoch 9."""
    disk = new_disk()
    log = open_log(disk, leader_epoch=2)
    append(log, make_batch(b"x"))
    flush(log)
    append(log, make_batch(b"lost"), make_batch(b"lost"))
    disk.crash()
    log = crashed(disk, 1, LogConfig())
    append(log, make_batch(b"new"), make_batch(b"new"), make_batch(b"new"))
    assert log.end_offset_for_epoch(2) == (2, 1)
    assert log.end_offset_for_epoch(9) == (9, 4)


def test_producers_go_on_after_a_crash_where_the_log_ends() -> None:
    disk = new_disk()
    log = filled(disk, 10, producer=7)
    flush(log)
    log.close()
    disk.open(f"{DIRECTORY}/{8:020d}.log", writable=True).truncate(SIZE)
    log = crashed(disk, 6)
    assert [view.last_sequence for view in log.active_producers()] == [8]
    assert stage(log, make_batch(b"x" * 30, producer=(7, 0, 9))).base_offset == 9


@pytest.mark.parametrize("entry", [(2, 7 * SIZE), (2, 3 * SIZE + 7), (4, 100_000)])
def test_producers_are_complete_after_a_crash_that_damaged_the_index(entry: tuple[int, int]) -> None:
    """An index is not synced with every flush, so what comes after the snapshot must not be looked for where it says."""
    config = LogConfig(index_interval_bytes=0)
    disk = new_disk()
    log = filled(disk, 4, config, producer=7)
    close_clean(log)
    log = open_log(disk, config, clean=True)
    for number in range(4, 8):
        append(log, make_batch(b"x" * 30, producer=(7, 0, number)))
    flush(log)
    log.close()
    disk.write_atomically(f"{DIRECTORY}/{0:020d}.index", struct.pack(">ii", *entry))
    log = open_log(disk, config, recovery_point=8)
    assert [(view.producer_id, view.last_sequence) for view in log.active_producers()] == [(7, 7)]
    for number in range(3, 8):
        assert stage(log, make_batch(b"x" * 30, producer=(7, 0, number))).duplicate


def test_each_of_five_batches_in_flight_is_known_after_a_restart_too() -> None:
    """The snapshot holds one batch per producer; the others are looked up in the log when one of them is sent again."""
    for clean in (True, False):
        disk = new_disk()
        log = filled(disk, 10, producer=7)
        if clean:
            close_clean(log)
        else:
            flush(log)
        log = open_log(disk, THREE, recovery_point=10, clean=clean)
        for number in (5, 9, 7, 6, 8):
            assert stage(log, make_batch(b"x" * 30, producer=(7, 0, number))) == (number, number, -1, True)


def test_snapshots_behind_the_recovery_point_are_not_believed() -> None:
    disk = new_disk()
    log = filled(disk, 10, producer=7)
    close_clean(log)
    other = open_log(new_disk(), THREE)
    append(other, make_batch(b"x", producer=(8, 0, 0)))
    log = crashed(disk, 5)
    assert names(disk, ".snapshot") == [4]
    assert [(view.producer_id, view.last_sequence) for view in log.active_producers()] == [(7, 9)]


def test_an_older_format_keeps_the_log_closed_and_is_named() -> None:
    body = struct.pack(">bbqi", 1, 0, 1000, -1) + struct.pack(">i", 3) + b"abc"
    message = struct.pack(">qiI", 3, len(body) + 4, zlib.crc32(body)) + body
    disk = new_disk()
    filled(disk, 3)
    disk.open(f"{DIRECTORY}/{LOG}", writable=True).append([message])
    with pytest.raises(OldFormatError, match=rf"{LOG}: batch of message format 1 at byte {3 * SIZE}, offset 3"):
        crashed(disk, 0)
    disk = new_disk()
    disk.make_directory(DIRECTORY)
    disk.open(f"{DIRECTORY}/{LOG}", create=True).append([message])
    disk.open(f"{DIRECTORY}/{4:020d}.log", create=True)
    for adopted in (False, True):
        with pytest.raises(OldFormatError, match=LOG):
            open_log(disk, clean=True, adopted=adopted)


def test_recovery_is_summed_up_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    disk = new_disk()
    filled(disk, 6)
    with caplog.at_level(logging.INFO):
        log = crashed(disk, 5)
    assert "log recovered: partition=t-0 from=5 end=6 segments=1 batches=2 bytes_cut=0" in caplog.text
    assert len(headers(log)) == 6


def test_recovery_of_a_log_that_has_nothing_to_read_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    """A killed broker has a hundred of them: the lines that matter would be lost among theirs."""
    disk = new_disk()
    filled(disk, 0)
    with caplog.at_level(logging.INFO):
        crashed(disk, 0)
    assert "log recovered" not in caplog.text


def test_a_snapshot_that_is_safe_on_disk_is_not_written_again() -> None:
    """A roll right after a restart asks for a snapshot at the offset at which the clean stop has left one."""
    disk = new_disk()
    close_clean(filled(disk, 4, producer=7))
    log = open_log(disk, THREE, clean=True)
    disk.fail = lambda operation, path: operation in ("open", "append", "truncate") and path.endswith(".snapshot")
    append(log, make_batch(b"x" * 30, producer=(7, 0, 4)))
    assert names(disk, ".snapshot") == [4]
    disk.fail = None
    disk.crash()
    assert [view.last_sequence for view in crashed(disk, 4).active_producers()] == [3]


def test_a_clean_stop_of_a_recovered_log_keeps_its_producers() -> None:
    disk = new_disk()
    close_clean(filled(disk, 5, producer=7))
    for offset in names(disk, ".snapshot"):
        disk.remove(f"{DIRECTORY}/{offset:020d}.snapshot")
    disk.open(f"{DIRECTORY}/{4:020d}.log", writable=True).truncate(0)
    close_clean(crashed(disk, 4))
    assert [view.last_sequence for view in open_log(disk, THREE, clean=True).active_producers()] == [3]
