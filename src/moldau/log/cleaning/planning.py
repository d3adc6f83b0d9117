"""What there is to clean in a log, and whether it is worth while. Decides only, on the broker's thread, from what is in memory.

    start_offset        first_dirty                 end_offset             last stable offset
         | cleaned before    | dirty, may be cleaned     | dirty, not yet        |        active segment ...

The dirty part ends with the first of: the active segment; the segment that holds the last stable offset, for a transaction may still go
either way, and what is not replicated may be lost; one that is not on disk, or whose transactions were decided by markers that are not,
for a crash would take the new record of a key after compaction has taken the old one; one with a record younger than
`min.compaction.lag.ms`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from moldau.log.batches import BadBatchError
from moldau.log.cleaning.task import CleaningTask, ProducerEnd, SourceSegment
from moldau.log.config import UNLIMITED
from moldau.log.partition_log import PartitionLog
from moldau.log.segment import Segment
from moldau.model.errors import CorruptBatchError
from moldau.protocol.records.header import HEADER_SIZE, read_header

CHUNK_BYTES_MIN = 4096


class CleanerSettings(NamedTuple):
    """The ``log.cleaner.*`` configurations, as they are now."""

    threads: int = 1
    """Passes at the same time; what follows is shared by them."""
    map_bytes: int = 128 * 1024 * 1024
    map_load_factor: float = 0.9
    io_bytes: int = 512 * 1024
    bytes_per_second: float = 1.7976931348623157e308
    decompressed_bytes_max: int = 100 * 1024 * 1024


class DirtyLog(NamedTuple):
    """What could be cleaned of one log: `sources`, the segments before `end_offset`."""

    log: PartitionLog
    first_dirty: int
    end_offset: int
    segments: list[Segment]
    sources: list[SourceSegment]
    overdue: bool
    """Whether `max.compaction.lag.ms` has passed."""

    @property
    def dirty_bytes(self) -> int:
        """Bytes of segments that no pass has been through."""
        return sum(source.size for source in self.sources if source.end_offset > self.first_dirty)

    @property
    def ratio(self) -> float:
        """Dirty bytes among all that could be cleaned."""
        return self.dirty_bytes / (sum(source.size for source in self.sources) or 1)

    @property
    def is_due(self) -> bool:
        """Whether it should be cleaned now."""
        return self.dirty_bytes > 0 and (self.overdue or self.ratio > self.log.config.min_cleanable_dirty_ratio)


def find_dirt(log: PartitionLog, cleaned_offset: int | None, now_ms: int) -> DirtyLog | None:
    """What is to be cleaned; None in a log that has nothing but its active segment. `cleaned_offset`: as far as the last pass has come.

    StorageError.
    """
    segments = log.sealed_segments()
    if not segments:
        return None
    ends = [*(segment.base_offset for segment in segments[1:]), log.active_base_offset]
    first_dirty = first_dirty_offset(log, cleaned_offset)
    sources = []
    for segment, end in zip(segments, ends, strict=True):
        if end > first_dirty and not _may_be_cleaned(log, segment, end, now_ms):
            break
        sources.append(SourceSegment(segment.base_offset, segment.size, end))
    segments = segments[: len(sources)]
    dirty = [segment for segment, source in zip(segments, sources, strict=True) if source.end_offset > first_dirty]
    end_offset = max(first_dirty, sources[-1].end_offset if sources else 0)
    return DirtyLog(log, first_dirty, end_offset, segments, sources, _is_overdue(log, dirty, now_ms))


def first_dirty_offset(log: PartitionLog, cleaned_offset: int | None) -> int:
    """Where the dirty part begins; the start of the log if the checkpoint does not fit it."""
    if cleaned_offset is None or not log.start_offset <= cleaned_offset <= log.log_end_offset:
        return log.start_offset
    return cleaned_offset


def _may_be_cleaned(log: PartitionLog, segment: Segment, end_offset: int, now_ms: int) -> bool:
    lag_ms = log.config.min_compaction_lag_ms
    return end_offset <= log.durable_stable_offset and (lag_ms <= 0 or segment.largest_timestamp()[0] <= now_ms - lag_ms)


def _is_overdue(log: PartitionLog, dirty: Sequence[Segment], now_ms: int) -> bool:
    lag_ms = log.config.max_compaction_lag_ms
    return lag_ms < UNLIMITED and any(0 < _first_timestamp(segment) < now_ms - lag_ms for segment in dirty if segment.size)


def _first_timestamp(segment: Segment) -> int:
    """The largest timestamp of the first batch; -1 where that cannot be read."""
    try:
        return read_header(segment.file().pread(HEADER_SIZE, 0)).max_timestamp
    except (BadBatchError, CorruptBatchError):
        return -1


def task_for(dirt: DirtyLog, settings: CleanerSettings, now_ms: int) -> CleaningTask:
    """What a worker has to know to clean it. StorageError."""
    log, config, threads = dirt.log, dirt.log.config, max(1, settings.threads)
    return CleaningTask(
        folder=log.directory,
        sources=dirt.sources,
        first_dirty=dirt.first_dirty,
        end_offset=dirt.end_offset,
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        map_bytes=settings.map_bytes // threads,
        map_load_factor=settings.map_load_factor,
        chunk_bytes=max(CHUNK_BYTES_MIN, settings.io_bytes // threads // 2),
        bytes_per_second=settings.bytes_per_second / threads,
        decompressed_bytes_max=settings.decompressed_bytes_max,
        aborted=log.aborted_entries(dirt.sources[0].base_offset, dirt.end_offset),
        producers=[end for end in map(ProducerEnd._make, log.producer_ends()) if end.last_offset < dirt.end_offset],
    )
