"""Logs with known contents: batches made, appended, flushed and read back."""

from collections.abc import Sequence
from itertools import count, islice

from moldau.log.config import LogConfig
from moldau.log.manager import LogManager
from moldau.log.partition_log import PartitionLog
from moldau.model.identity import TopicPartition
from moldau.ports.filesystem import FileSystem
from moldau.protocol.records.batch import CREATE_TIME, Compression, Record, batches, encode_batch, iterate
from moldau.protocol.records.header import check_batch

NOW_MS = 1_700_000_000_000
CLUSTER = "Kk9Ff5kLQpO0jyPUFxK3Vg"
TOPIC_ID = bytes(range(16))


def make_batch(
    values: Sequence[bytes], *, timestamp: int = NOW_MS, producer_id: int = -1, sequence: int = -1, compression: int = 0
) -> memoryview:
    """A batch as a producer sends it, with a timestamp that rises by one from record to record."""
    records = [Record(offset, timestamp + offset, CREATE_TIME, b"k%d" % offset, value, []) for offset, value in enumerate(values)]
    epoch = -1 if producer_id < 0 else 0
    return memoryview(
        bytearray(
            encode_batch(
                records,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                compression=Compression(compression),
            )
        )
    )


def append(log: PartitionLog, *produced: memoryview, now_ms: int = NOW_MS) -> None:
    """Append batches and write them, so that consumers may read them."""
    for batch in produced:
        log.append_as_leader(batch, check_batch(batch), now_ms)
    log.write_staged()
    log.advance_high_watermark(log.log_end_offset)


def append_values(log: PartitionLog, *values: bytes) -> None:
    """Append one batch."""
    append(log, make_batch(values))


def flush(log: PartitionLog) -> None:
    """Bring everything written to disk."""
    job = log.flush_job()
    if job is not None:
        job.run()
        log.flush_done(job)


def ongoing(log: PartitionLog) -> dict[int, int]:
    """Where the transactions without a marker have begun, by producer."""
    return {each.producer_id: each.transaction_start for each in log.active_producers() if each.transaction_start >= 0}


def values_of(log: PartitionLog) -> list[bytes | None]:
    """The values of all records, read as a fetch reads them."""
    return [record.value for record in records_of(log)]


def records_of(log: PartitionLog) -> list[Record]:
    """All records that consumers may see, without control records."""
    records: list[Record] = []
    offset = log.start_offset
    while offset < log.high_watermark:
        part = log.read(offset, 1 << 20, log.high_watermark, at_least_one=True).records
        assert part is not None
        data = part.file.pread(part.length, part.position)
        part.release()
        for header, batch in batches(memoryview(data)):
            if not header.is_control:
                records += [record for record in iterate(batch, max_decompressed_bytes=1 << 28) if record.offset >= offset]
            offset = header.last_offset + 1
    return records


def manager_over(files: FileSystem, *directories: str, config: LogConfig | None = None, cluster_id: str = CLUSTER) -> LogManager:
    """A manager of broker 0; not started. Its random bytes begin with 100, 101, 102, ... the first time, with 101, 102, ... the second."""
    first = count(100)
    return LogManager(
        files,
        directories or ("/data",),
        config or LogConfig(),
        broker_id=0,
        cluster_id=cluster_id,
        random_bytes=lambda length: bytes(number % 256 for number in islice(count(next(first)), length)),
    )


def create(manager: LogManager, topic: str, partition: int = 0, config: LogConfig | None = None) -> PartitionLog:
    """The log of a partition, without other replicas, of a topic whose id is `TOPIC_ID`."""
    topic_partition = TopicPartition(topic, partition)
    log = manager.create(topic_partition, TOPIC_ID, config or LogConfig(), NOW_MS)
    manager.decide_high_watermark(topic_partition, is_replicated=False)
    return log
