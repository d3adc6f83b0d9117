"""Bringing a log to disk: what a job syncs and in which order, when one is wanted, and when the recovery point may move."""

from random import Random

import pytest

from moldau.log import roller
from moldau.log.config import LogConfig
from moldau.model.errors import StorageError
from moldau.testing.disk import ForgetfulDisk
from support.one_log import NOW_MS, append, flush, make_batch, names, new_disk, offsets, open_log, stage

SIZE = len(make_batch(b"x" * 30))


class Watched:
    """Notes the operations that bring something to disk, in order."""

    def __init__(self, disk: ForgetfulDisk) -> None:
        self.done: list[tuple[str, str]] = []
        disk.fail = self.note

    def note(self, operation: str, path: str) -> bool:
        if operation in ("sync", "sync_directory", "write_atomically") and not path.endswith(".tmp"):
            self.done.append((operation, path.rpartition("/")[2]))
        return False


def test_a_job_syncs_the_bytes_then_the_names_then_the_epochs() -> None:
    disk = new_disk()
    log = open_log(disk, LogConfig(segment_bytes=2 * SIZE))
    append(log, *[make_batch(b"x" * 30) for _ in range(3)])
    job = log.flush_job()
    assert job is not None
    assert log.flushed_offset == 0
    watched = Watched(disk)
    job.run()
    assert log.flushed_offset == 0
    log.flush_done(job)
    assert log.flushed_offset == 3
    assert [operation for operation, _ in watched.done[:5]] == ["sync"] * 5
    assert {name for _, name in watched.done[:5]} == {
        f"{0:020d}.log",
        f"{0:020d}.index",
        f"{0:020d}.timeindex",
        f"{2:020d}.snapshot",
        f"{2:020d}.log",
    }
    assert sorted(watched.done[5:7]) == [("sync_directory", "data"), ("sync_directory", "t-0")]
    assert watched.done[7] == ("write_atomically", "leader-epoch-checkpoint")
    assert log.flush_job() is None


def test_the_second_flush_of_a_segment_is_one_sync() -> None:
    disk = new_disk()
    log = open_log(disk)
    append(log, make_batch(b"x"))
    flush(log)
    append(log, make_batch(b"x"))
    watched = Watched(disk)
    flush(log)
    assert watched.done == [("sync", f"{0:020d}.log")]


@pytest.mark.parametrize("seed", range(20))
def test_after_a_flush_a_crash_takes_nothing(seed: int) -> None:
    disk = new_disk()
    log = open_log(disk, LogConfig(segment_bytes=3 * SIZE, index_interval_bytes=0))
    for number in range(10):
        append(log, make_batch(b"x" * 30, producer=(7, 0, number)))
    flush(log)
    disk.crash(Random(seed))
    log = open_log(disk, recovery_point=10)
    assert log.log_end_offset == 10
    assert offsets(log) == list(range(10))
    assert log.active_producers()[0].last_sequence == 9


def test_what_is_written_while_a_job_runs_waits_for_the_next() -> None:
    disk = new_disk()
    log = open_log(disk, LogConfig(segment_bytes=2 * SIZE))
    append(log, make_batch(b"x" * 30))
    first = log.flush_job()
    assert first is not None
    append(log, *[make_batch(b"x" * 30) for _ in range(4)])
    first.run()
    log.flush_done(first)
    assert log.flushed_offset == 1
    flush(log)
    assert log.flushed_offset == 5
    disk.crash()
    assert open_log(disk, recovery_point=5).log_end_offset == 5


def test_a_job_that_starts_before_another_has_ended_covers_its_files_too() -> None:
    disk = new_disk()
    log = open_log(disk, LogConfig(segment_bytes=2 * SIZE))
    append(log, *[make_batch(b"x" * 30) for _ in range(3)])
    first = log.flush_job()
    append(log, make_batch(b"x" * 30))
    second = log.flush_job()
    assert first is not None
    assert second is not None
    second.run()
    log.flush_done(second)
    assert log.flushed_offset == 4
    disk.crash()
    assert open_log(disk, recovery_point=4).log_end_offset == 4


def test_staged_batches_are_not_part_of_a_flush() -> None:
    log = open_log(new_disk())
    append(log, make_batch(b"x"))
    stage(log, make_batch(b"y"))
    flush(log)
    assert (log.flushed_offset, log.staged_end_offset) == (1, 2)


def test_a_sync_that_failed_is_never_followed_by_one_that_counts() -> None:
    """After a failed sync the kernel takes the pages for clean, so a later sync says nothing about them."""
    disk = new_disk()
    log = open_log(disk)
    append(log, make_batch(b"x"))
    job = log.flush_job()
    assert job is not None
    disk.fail = lambda operation, _: operation == "sync"
    with pytest.raises(StorageError):
        job.run()
    disk.fail = None
    with pytest.raises(StorageError, match="earlier sync failed"):
        log.flush_job()
    assert log.flushed_offset == 0
    log.close()


def test_epochs_that_find_no_room_are_written_by_the_next_job() -> None:
    """Nothing is lost by it: the log's own file was synced, only the small file beside it could not be replaced."""
    disk = new_disk()
    log = open_log(disk, LogConfig(segment_bytes=200))
    append(log, *[make_batch(b"x" * 100) for _ in range(3)])
    disk.capacity = 0
    job = log.flush_job()
    assert job is not None
    with pytest.raises(StorageError):
        job.run()
    log.flush_failed(job)
    assert log.flushed_offset == 0
    disk.capacity = None
    flush(log)
    assert log.flushed_offset == 3
    disk.crash()
    assert len(offsets(open_log(disk, LogConfig(segment_bytes=200), recovery_point=3))) == 3


def test_a_snapshot_that_finds_no_room_does_not_keep_records_from_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roller, "SNAPSHOT_INTERVAL_BYTES", 100)
    disk = new_disk()
    log = open_log(disk)
    append(log, make_batch(b"x" * 300, producer=(1, 0, 0)))
    flush(log)
    append(log, make_batch(b"x" * 300, producer=(1, 0, 1)))
    disk.capacity = 0
    flush(log)
    assert log.flushed_offset == 2


def test_a_job_that_outlives_its_log_writes_nothing_under_its_old_name() -> None:
    disk = new_disk()
    log = open_log(disk)
    append(log, make_batch(b"x"))
    job = log.flush_job()
    assert job is not None
    log.close()
    disk.rename("data/t-0", "data/t-0.0-delete")
    open_log(disk)
    job.run()
    log.flush_done(job)
    assert log.flushed_offset == 0
    assert not disk.exists("data/t-0/leader-epoch-checkpoint")


def test_a_truncation_while_a_job_runs_keeps_the_recovery_point_back() -> None:
    log = open_log(new_disk())
    append(log, *[make_batch(b"x") for _ in range(5)])
    job = log.flush_job()
    assert job is not None
    log.truncate_to(2)
    append(log, *[make_batch(b"y") for _ in range(3)])
    job.run()
    log.flush_done(job)
    assert log.flushed_offset == 0
    flush(log)
    assert log.flushed_offset == 5


def test_a_truncation_of_flushed_records_survives_a_crash() -> None:
    disk = new_disk()
    log = open_log(disk)
    append(log, *[make_batch(b"x") for _ in range(5)])
    flush(log)
    assert log.truncate_to(2) == 2
    disk.crash()
    assert offsets(open_log(disk, recovery_point=2)) == [0, 1]


def test_flush_messages_is_reached_by_unflushed_records() -> None:
    log = open_log(new_disk(), LogConfig(flush_messages=3))
    append(log, make_batch(b"a", b"b"))
    assert not log.must_flush
    append(log, make_batch(b"c"))
    assert log.must_flush
    assert log.flush_wanted(NOW_MS)
    flush(log)
    assert not log.flush_wanted(NOW_MS)


def test_flush_ms_counts_from_the_first_unflushed_write() -> None:
    log = open_log(new_disk(), LogConfig(flush_ms=500))
    assert not log.flush_wanted(NOW_MS + 10_000)
    append(log, make_batch(b"a"))
    append(log, make_batch(b"b"), now_ms=NOW_MS + 400)
    assert not log.flush_wanted(NOW_MS + 499)
    assert log.flush_wanted(NOW_MS + 500)
    assert not log.must_flush
    flush(log)
    assert not log.flush_wanted(NOW_MS + 10_000)


def test_a_rolled_segment_wants_to_be_flushed_without_acknowledgements_waiting() -> None:
    log = open_log(new_disk(), LogConfig(segment_bytes=2 * SIZE))
    append(log, make_batch(b"x" * 30), make_batch(b"x" * 30))
    assert not log.flush_wanted(NOW_MS)
    append(log, make_batch(b"x" * 30))
    assert log.flush_wanted(NOW_MS)
    assert not log.must_flush


def test_a_log_is_settled_when_a_start_has_nothing_to_read_and_no_file_waits_for_a_sync() -> None:
    log = open_log(new_disk(), LogConfig(segment_bytes=2 * SIZE))
    assert log.is_settled
    append(log, make_batch(b"x" * 30))
    assert not log.is_settled, "not on disk"
    flush(log)
    assert not log.is_settled, "a start would still read it: the recovery point is not written down"
    log.checkpointed_batches = log.flushed_batches
    assert log.is_settled
    assert not log.flush_wanted(NOW_MS + 10**12)
    append(log, *[make_batch(b"x" * 30) for _ in range(2)])
    log.checkpointed_batches = log.written_batches
    assert not log.is_settled, "the rolled segment is not synced"


def test_a_long_active_segment_gets_a_producer_snapshot_with_a_flush_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """It bounds what a start has to walk: of the snapshots only the newest is kept."""
    monkeypatch.setattr(roller, "SNAPSHOT_INTERVAL_BYTES", 4 * SIZE)
    disk = new_disk()
    log = open_log(disk)
    seen = []
    for number in range(12):
        append(log, make_batch(b"x" * 30, producer=(7, 0, number)))
        flush(log)
        seen.append(names(disk, ".snapshot"))
    assert seen == [[]] * 3 + [[4]] * 4 + [[8]] * 4 + [[12]]
    disk.crash()
    log = open_log(disk, recovery_point=10)
    assert names(disk, ".snapshot") == []
    assert log.active_producers()[0].last_sequence == 11
