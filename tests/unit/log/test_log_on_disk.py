"""The whole life of a log on a real file system: what the forgetful disk promises, POSIX keeps."""

from pathlib import Path

from moldau.adapters.posix_files import PosixFiles
from moldau.log.config import LogConfig
from moldau.log.partition_log import PartitionLog
from moldau.model.identity import TopicPartition
from moldau.ports.filesystem import FileSystem
from support.one_log import append, close_clean, flush, make_batch, offsets

PARTITION = TopicPartition("t", 0)
SIZE = len(make_batch(b"x" * 30))


def open_at(files: FileSystem, directory: str, *, clean: bool, recovery_point: int = 0) -> PartitionLog:
    config = LogConfig(segment_bytes=3 * SIZE, index_interval_bytes=0, retention_ms=-1, retention_bytes=4 * SIZE)
    return PartitionLog.open(
        files, directory, PARTITION, config, recovery_point=recovery_point, start_offset=0, clean=clean, now_ms=1, leader_epoch=1
    )


def test_a_log_lives_on_a_real_file_system(tmp_path: Path) -> None:
    files, directory = PosixFiles(), f"{tmp_path}/t-0"
    log = open_at(files, directory, clean=False)
    for number in range(10):
        append(log, make_batch(b"x" * 30, timestamps=[1], producer=(7, 0, number)), now_ms=1)
    flush(log)
    records = log.read(0, 1 << 20, 10, at_least_one=True).records
    assert records is not None
    removed = log.apply_retention(1)
    assert [segment.base_offset for segment in removed] == [0, 3]
    for segment in removed:
        segment.unlink()
    assert records.file.fileno() >= 0
    assert len(records.file.pread(records.length, records.position)) == 3 * SIZE
    records.release()
    assert log.truncate_to(9) == 9
    close_clean(log)
    expected = {f"{base:020d}{suffix}" for base in (6, 9) for suffix in (".log", ".index", ".timeindex", ".snapshot")}
    expected |= {"00000000000000000006.checksums", "leader-epoch-checkpoint"}
    assert {path.name for path in tmp_path.glob("t-0/*")} == expected
    log = open_at(files, directory, clean=True, recovery_point=9)
    assert log.recovery is None
    append(log, make_batch(b"x" * 30, timestamps=[1], producer=(7, 0, 9)), now_ms=1)
    log.close()
    with (tmp_path / "t-0" / f"{9:020d}.log").open("ab") as file:
        file.write(b"torn")
    log = open_at(files, directory, clean=False, recovery_point=9)
    assert log.recovery is not None
    assert log.recovery.bytes_cut == 4
    assert offsets(log) == [6, 7, 8, 9]
    close_clean(log)
