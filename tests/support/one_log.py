"""One log on a forgetful disk, for tests of its parts."""

from collections.abc import Sequence

from moldau.log.config import LogConfig
from moldau.log.damage import Holes
from moldau.log.partition_log import AppendResult, PartitionLog
from moldau.model.identity import TopicPartition
from moldau.ports.filesystem import FileSystem
from moldau.protocol.records.batch import Record, batches, encode_batch
from moldau.protocol.records.header import BatchHeader, check_batch
from moldau.testing.disk import ForgetfulDisk

DIRECTORY = "data/t-0"
PARTITION = TopicPartition("t", 0)
NOW_MS = 1_000_000


def new_disk() -> ForgetfulDisk:
    """A disk with a log directory that survives a crash."""
    disk = ForgetfulDisk()
    disk.make_directory("data")
    disk.sync_directory("/")
    return disk


def make_batch(
    *values: bytes, timestamps: Sequence[int] = (), producer: tuple[int, int, int] = (-1, -1, -1), log_append_time_ms: int | None = None
) -> memoryview:
    """One batch as a producer sends it; `producer` is id, epoch and first sequence. Timestamps are NOW_MS unless given."""
    times = timestamps or [NOW_MS] * len(values)
    records = [Record(offset, time, 0, None, value, []) for offset, (value, time) in enumerate(zip(values, times, strict=True))]
    producer_id, epoch, sequence = producer
    data = encode_batch(
        records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, log_append_time_ms=log_append_time_ms
    )
    return memoryview(bytearray(data))


def open_log(
    files: FileSystem,
    config: LogConfig | None = None,
    *,
    recovery_point: int = 0,
    start_offset: int = 0,
    clean: bool = False,
    now_ms: int = NOW_MS,
    leader_epoch: int = 0,
    adopted: bool = False,
    holes: Holes = Holes.NONE,
    accept_loss: bool = False,
) -> PartitionLog:
    """Open the log in DIRECTORY."""
    return PartitionLog.open(
        files,
        DIRECTORY,
        PARTITION,
        config or LogConfig(),
        recovery_point=recovery_point,
        start_offset=start_offset,
        clean=clean,
        now_ms=now_ms,
        leader_epoch=leader_epoch,
        adopted=adopted,
        holes=holes,
        accept_loss=accept_loss,
    )


def stage(log: PartitionLog, batch: memoryview, now_ms: int = NOW_MS) -> AppendResult:
    """Append without writing."""
    return log.append_as_leader(batch, check_batch(batch), now_ms)


def append(log: PartitionLog, *batches: memoryview, now_ms: int = NOW_MS) -> None:
    """Append and write; consumers may read it."""
    for batch in batches:
        stage(log, batch, now_ms)
    log.write_staged()
    log.advance_high_watermark(log.log_end_offset)


def flush(log: PartitionLog) -> None:
    """Bring everything written to disk."""
    job = log.flush_job()
    if job is not None:
        job.run()
        log.flush_done(job)


def close_clean(log: PartitionLog) -> None:
    """As a broker that stops: sealed and flushed before it is closed."""
    log.seal()
    flush(log)
    log.close()


def headers(log: PartitionLog) -> list[BatchHeader]:
    """Headers of all batches, by fetches."""
    found: list[BatchHeader] = []
    offset = log.start_offset
    while (part := log.read(offset, 1 << 20, log.log_end_offset, at_least_one=True).records) is not None:
        data = part.file.pread(part.length, part.position)
        part.release()
        found += [header for header, _ in batches(memoryview(data))]
        offset = found[-1].last_offset + 1
    return found


def offsets(log: PartitionLog) -> list[int]:
    """Base offsets of all batches."""
    return [header.base_offset for header in headers(log)]


def names(files: FileSystem, suffix: str) -> list[int]:
    """Offsets in the names of the files of one kind."""
    return [int(name.removesuffix(suffix)) for name in files.list(DIRECTORY) if name.endswith(suffix)]


def overwrite(files: FileSystem, name: str, position: int, data: bytes) -> None:
    """Damage a file of the log."""
    file = files.open(f"{DIRECTORY}/{name}", writable=True)
    file.pwrite(data, position)
    file.release()
