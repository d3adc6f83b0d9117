"""Logs keep no more files open than their shared cache may, however many there are, and nobody who appends, reads or flushes notices.

The file of an active segment is closed when others were written more recently. It is opened again by the next write.
"""

import gc
import weakref
from pathlib import Path
from random import Random

import pytest

from moldau.adapters.posix_files import PosixFiles
from moldau.log.cache import SegmentCache
from moldau.log.config import LogConfig
from moldau.log.partition_log import PartitionLog
from moldau.model.errors import StorageError
from moldau.model.identity import TopicPartition
from moldau.ports.filesystem import FileSystem
from moldau.testing.disk_nodes import ForgetfulFile
from support.one_log import NOW_MS, append, close_clean, flush, make_batch, new_disk, offsets, stage

OPEN_FILES_MAX = 4


class Logs:
    """Logs that share one cache."""

    def __init__(self, files: FileSystem, directory: str, count: int, *, clean: bool = False, segment_bytes: int = 1 << 30) -> None:
        self.cache = SegmentCache(files, open_files_max=OPEN_FILES_MAX)
        self.logs = [
            PartitionLog.open(
                files,
                f"{directory}/t-{number}",
                TopicPartition("t", number),
                LogConfig(segment_bytes=segment_bytes),
                recovery_point=0,
                start_offset=0,
                clean=clean,
                now_ms=NOW_MS,
                cache=self.cache,
            )
            for number in range(count)
        ]

    @property
    def open_files(self) -> int:
        return self.cache.statistics()["open_files"]


@pytest.fixture(params=["memory", "posix"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[FileSystem, str]:
    return (new_disk(), "data") if request.param == "memory" else (PosixFiles(), str(tmp_path))


def test_many_logs_are_appended_to_in_turn_and_read_back(place: tuple[FileSystem, str]) -> None:
    logs = Logs(*place, 20, segment_bytes=300)
    for _ in range(7):
        for log in logs.logs:
            append(log, make_batch(b"x" * 50))
            assert logs.open_files <= OPEN_FILES_MAX
    for log in logs.logs:
        assert offsets(log) == list(range(7))
        assert logs.open_files <= OPEN_FILES_MAX
        close_clean(log)
    assert logs.open_files == 0
    again = Logs(*place, 20, clean=True)
    assert [log.log_end_offset for log in again.logs] == [7] * 20
    for log in again.logs:
        append(log, make_batch(b"y"))
    assert [offsets(log) for log in again.logs] == [list(range(8))] * 20
    for log in again.logs:
        close_clean(log)


def test_one_request_may_stage_in_more_logs_than_may_have_a_file_open(place: tuple[FileSystem, str]) -> None:
    logs = Logs(*place, 20)
    for log in logs.logs:
        stage(log, make_batch(b"x"))
        assert logs.open_files <= OPEN_FILES_MAX
    for log in logs.logs:
        log.write_staged()
        assert logs.open_files <= OPEN_FILES_MAX
    assert [offsets(log) for log in logs.logs] == [[0]] * 20
    for log in logs.logs:
        close_clean(log)


def test_a_write_after_the_file_was_closed_costs_one_open() -> None:
    disk = new_disk()
    logs = Logs(disk, "data", 20)
    for log in logs.logs:
        append(log, make_batch(b"x"))
    before = disk.operations.copy()
    append(logs.logs[0], make_batch(b"x"))
    assert disk.operations - before == {"open": 1, "append": 1}
    append(logs.logs[0], make_batch(b"x"))
    assert disk.operations - before == {"open": 1, "append": 2}


def test_a_log_that_is_written_between_the_others_keeps_its_file() -> None:
    disk = new_disk()
    logs = Logs(disk, "data", 20)
    busy, *others = logs.logs
    append(busy, make_batch(b"x"))
    for log in others:
        append(busy, make_batch(b"x"))
        append(log, make_batch(b"x"))
    before = disk.operations.copy()
    append(busy, make_batch(b"x"))
    assert disk.operations - before == {"append": 1}


def test_appending_and_reading_share_one_file() -> None:
    logs = Logs(new_disk(), "data", 1)
    append(logs.logs[0], make_batch(b"x"))
    assert offsets(logs.logs[0]) == [0]
    flush(logs.logs[0])
    assert logs.open_files == 1


def test_a_range_that_is_being_sent_outlives_the_closing(place: tuple[FileSystem, str]) -> None:
    logs = Logs(*place, 20)
    first, *others = logs.logs
    append(first, make_batch(b"the value"))
    part = first.read(0, 1 << 20, 1, at_least_one=True).records
    assert part is not None
    for log in others:
        append(log, make_batch(b"x"))
    assert b"the value" in part.file.pread(part.length, part.position)
    part.release()
    for log in logs.logs:
        close_clean(log)


@pytest.mark.parametrize("seed", range(5))
def test_what_was_written_before_the_file_was_closed_is_flushed_like_the_rest(seed: int) -> None:
    disk = new_disk()
    logs = Logs(disk, "data", 20)
    for _ in range(2):
        for log in logs.logs:
            append(log, make_batch(b"x"))
    for log in logs.logs:
        flush(log)
        assert log.flushed_offset == 2
        assert logs.open_files <= OPEN_FILES_MAX
    for log in logs.logs:
        append(log, make_batch(b"lost, maybe"))
    disk.crash(Random(seed))
    for log in Logs(disk, "data", 20).logs:
        assert offsets(log)[:2] == [0, 1]


def test_a_failed_write_is_cut_off_before_the_next_whatever_was_open_meanwhile() -> None:
    disk = new_disk()
    logs = Logs(disk, "data", 20)
    first, *others = logs.logs
    append(first, make_batch(b"x"))
    disk.capacity = disk.used() + 30
    disk.fail = lambda operation, path: operation == "truncate" and "t-0" in path
    stage(first, make_batch(b"refused"))
    with pytest.raises(StorageError):
        first.write_staged()
    disk.capacity = None
    for log in others:
        append(log, make_batch(b"x"))
    disk.fail = None
    before = disk.operations["open"]
    append(first, make_batch(b"y"))
    assert disk.operations["open"] == before, "the file was not closed"
    assert offsets(first) == [0, 1]
    close_clean(first)
    assert Logs(disk, "data", 1, clean=True).logs[0].log_end_offset == 2


def test_a_file_that_cannot_be_opened_again_leaves_the_log_as_it_was() -> None:
    disk = new_disk()
    logs = Logs(disk, "data", 20)
    for log in logs.logs:
        append(log, make_batch(b"x"))
    disk.fail = lambda operation, path: operation == "open" and "t-0" in path
    stage(logs.logs[0], make_batch(b"refused"))
    with pytest.raises(StorageError):
        logs.logs[0].write_staged()
    disk.fail = None
    assert logs.logs[0].log_end_offset == 1
    append(logs.logs[0], make_batch(b"y"))
    assert offsets(logs.logs[0]) == [0, 1]


def test_a_file_that_somebody_removed_meanwhile_is_not_made_anew() -> None:
    disk = new_disk()
    logs = Logs(disk, "data", 20)
    for log in logs.logs:
        append(log, make_batch(b"x"))
    disk.remove(f"data/t-0/{0:020d}.log")
    stage(logs.logs[0], make_batch(b"y"))
    with pytest.raises(StorageError):
        logs.logs[0].write_staged()
    assert not disk.exists(f"data/t-0/{0:020d}.log")


def test_an_error_of_closing_is_that_of_the_log_whose_file_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """On some file systems closing is what brings bytes away: what was written may be lost, and no later sync would tell."""
    logs = Logs(new_disk(), "data", 20)
    release = ForgetfulFile.release

    def fail(file: ForgetfulFile) -> None:
        release(file)
        if "t-0/" in file.path:
            raise StorageError("quota exceeded", path=file.path, no_space=True)

    append(logs.logs[0], make_batch(b"x"))
    with monkeypatch.context() as patched:
        patched.setattr(ForgetfulFile, "release", fail)
        for log in logs.logs[1:]:
            append(log, make_batch(b"x"))
    with pytest.raises(StorageError, match="quota exceeded") as raised:
        logs.logs[0].flush_job()
    assert not raised.value.no_space, "it does not pass"
    stage(logs.logs[0], make_batch(b"y"))
    with pytest.raises(StorageError, match="quota exceeded"):
        logs.logs[0].write_staged()
    assert offsets(logs.logs[0]) == [0]
    before = logs.open_files
    with pytest.raises(StorageError, match="quota exceeded"):
        logs.logs[0].close()
    assert logs.open_files == before - 1, "the file that was read is closed all the same"


class WatchedLog(PartitionLog):
    """A log of which a test may see when it is freed."""

    __slots__ = ("__weakref__",)


def test_a_log_is_freed_once_it_is_closed_without_the_garbage_collector() -> None:
    """Which never looks at the logs that a broker has opened before it serves."""
    gc.collect()
    gc.disable()
    try:
        log = WatchedLog.open(
            new_disk(), "data/t-0", TopicPartition("t", 0), LogConfig(), recovery_point=0, start_offset=0, clean=False, now_ms=NOW_MS
        )
        append(log, make_batch(b"x"))
        close_clean(log)
        freed = weakref.ref(log)
        del log
        assert freed() is None
    finally:
        gc.enable()


def test_a_flush_that_finds_no_free_descriptor_closes_what_it_has_opened() -> None:
    disk = new_disk()
    logs = Logs(disk, "data", 1, segment_bytes=150)
    log = logs.logs[0]
    for _ in range(3):
        append(log, make_batch(b"x" * 50))
    opened: list[str] = []

    def fail(operation: str, path: str) -> bool:
        opened.extend([path] if operation == "open" else [])
        return operation == "open" and len(opened) == 3

    disk.fail = fail
    with pytest.raises(StorageError):
        log.flush_job()
    disk.fail = None
    assert len(opened) == 3
    flush(log)
    assert log.flushed_offset == 3
    close_clean(log)
    used = disk.used()
    disk.remove_tree("data/t-0")
    assert disk.used() < used
    assert not disk.used(), "removed files still take space: somebody has them open"
