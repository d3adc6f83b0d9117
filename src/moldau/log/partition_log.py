"""The log of one partition: what the broker appends to and reads from.

Offsets, and where the bytes before each are::

    start_offset     flushed_offset      written_offset      end_offset
         |  on disk        |  in the page cache  |  staged in memory |
                                 high_watermark: up to where consumers may read

`append` stages a batch without copying it; `write_staged` writes all staged batches with one call. Flushing runs in another thread
(`flush_job`, `flush_done`). Everything else belongs to the broker's thread. The parts: :mod:`moldau.log.append` grows the active segment,
:mod:`moldau.log.read` finds ranges, :mod:`moldau.log.opening` and :mod:`moldau.log.recovery` start a log,
:mod:`moldau.log.retention` chooses what goes.

If `append` or `write_staged` raise StorageError, nothing staged since the last `write_staged` may be acknowledged. A full disk passes:
the log can be used as before, reads go on, and the next append tries again.
"""

from typing import NamedTuple, Self
from zlib import crc32

from moldau.log.append import Appender
from moldau.log.batches import BadBatchError
from moldau.log.cache import SegmentCache
from moldau.log.config import LogConfig
from moldau.log.flush import FlushJob
from moldau.log.opening import OpenedLog, Opening
from moldau.log.read import Reader, ReadResult
from moldau.log.recovery import RecoveryReport, replay_producers
from moldau.log.retention import Bounds, Expired, before_start, expired
from moldau.log.segment import Segment
from moldau.log.segments import RemovedSegment
from moldau.log.timestamps import TimestampOffset, first_not_older, largest
from moldau.model.errors import ErrorCode, PeerError, StorageError
from moldau.model.identity import TopicPartition
from moldau.ports.filesystem import FileSystem
from moldau.protocol.records.header import LOG_OVERHEAD, BatchHeader, stamp, stamp_log_append_time

__all__ = ["AppendResult", "FlushJob", "PartitionLog", "ProducerView", "ReadResult", "RecoveryReport", "RemovedSegment", "TimestampOffset"]

SNAPSHOT_INTERVAL_BYTES = 64 * 1024 * 1024
"""A flush also takes a producer snapshot when so much was written since the last one: it bounds what a start has to walk."""


class AppendResult(NamedTuple):
    """What became of a batch. `log_append_time_ms` is -1 unless the broker stamps it. A `duplicate` was stored before, at these offsets."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    duplicate: bool


class ProducerView(NamedTuple):
    """One idempotent producer, for a person."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start: int


_result = tuple.__new__
_UNCHECKED_MS = 1 << 80


class PartitionLog:
    """Invariants: start <= high watermark <= written <= end, flushed <= written. Nothing is staged while written equals end."""

    __slots__ = (
        "_after_ms",
        "_append_time",
        "_appender",
        "_before_ms",
        "_cache",
        "_epoch_begins",
        "_epochs",
        "_files",
        "_flush_due_ms",
        "_lost",
        "_now_ms",
        "_producers",
        "_reader",
        "_removed",
        "_segments",
        "_snapshot_due",
        "_snapshots",
        "_unflushed",
        "config",
        "directory",
        "end_offset",
        "flushed_offset",
        "high_watermark",
        "leader_epoch",
        "recovery",
        "start_offset",
        "topic_partition",
        "written_offset",
    )

    def __init__(
        self,
        files: FileSystem,
        cache: SegmentCache,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        opened: OpenedLog,
        leader_epoch: int,
        now_ms: int,
    ) -> None:
        self._files = files
        self._cache = cache
        self.directory = directory
        self.topic_partition = topic_partition
        self._segments = opened.segments
        self._producers = opened.producers
        self._snapshots = opened.snapshots
        self._epochs = opened.epochs
        self._unflushed = opened.unflushed
        self._removed = opened.removed
        self.recovery = opened.report
        """What opening found to mend, None after a clean stop."""
        self.start_offset = opened.start_offset
        self.flushed_offset = opened.flushed_offset
        self.written_offset = self.end_offset = opened.end_offset
        self.high_watermark = opened.end_offset
        self.leader_epoch = leader_epoch
        self._epoch_begins = leader_epoch > opened.epochs.latest
        self._reader = Reader(str(topic_partition), self._segments)
        self._lost: StorageError | None = None
        self._flush_due_ms = _UNCHECKED_MS
        self._snapshot_due = SNAPSHOT_INTERVAL_BYTES + (0 if opened.report else self._segments.active.size)
        self._now_ms = now_ms
        self.config = config
        self._appender = self._append_to(self._segments.active, now_ms)
        self.reconfigure(config)

    @classmethod
    def open(
        cls,
        files: FileSystem,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        *,
        recovery_point: int,
        start_offset: int,
        clean: bool,
        now_ms: int,
        leader_epoch: int = -1,
        high_watermark: int | None = None,
        cache: SegmentCache | None = None,
        adopted: bool = False,
    ) -> Self:
        """Open the log in a folder, which is made if it is missing.

        After a clean stop what was synced then is believed; otherwise everything from `recovery_point` on is checked, and cut where it is
        damaged (`recovery` says what). Without a `high_watermark` all that is there may be read. `adopted`: another system wrote it; its
        holes are kept. StorageError; OldFormatError, a StorageError that names file and offset, for batches of format 0 and 1.
        """
        cache = SegmentCache(files) if cache is None else cache
        opening = Opening(files, cache, directory, str(topic_partition), config, adopted=adopted, now_ms=now_ms)
        opened = opening.open(recovery_point, start_offset, clean=clean)
        log = cls(files, cache, directory, topic_partition, config, opened, leader_epoch, now_ms)
        if high_watermark is not None:
            log.high_watermark = max(log.start_offset, min(high_watermark, log.end_offset))
        return log

    def reconfigure(self, config: LogConfig) -> None:
        """Obey other settings from now on."""
        self.config = config
        self._append_time = config.append_time
        self._after_ms = _UNCHECKED_MS if config.append_time else config.message_timestamp_after_max_ms
        self._before_ms = _UNCHECKED_MS if config.append_time else config.message_timestamp_before_max_ms
        self._appender.reconfigure(config)

    # Appending

    def append(self, batch: memoryview, header: BatchHeader, now_ms: int) -> AppendResult:
        """Stage a batch that `check_batch` took: give it offsets and epoch, in place. The memory must stay as it is until `write_staged`.

        A batch that repeats one of its producer's last five is not staged; its answer holds like theirs.
        PeerError: OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TIMESTAMP, RECORD_LIST_TOO_LARGE; nothing was staged.
        StorageError: see the module.
        """
        _, length, _, _, _, _, delta, base_timestamp, timestamp, producer_id, producer_epoch, sequence, _ = header
        if timestamp - now_ms > self._after_ms or now_ms - base_timestamp > self._before_ms:
            self._check_timestamps(base_timestamp, timestamp, now_ms)
        size = length + LOG_OVERHEAD
        appender = self._appender
        offset = self.end_offset
        last_offset = offset + delta
        append_time = -1
        if self._append_time:
            append_time = timestamp = now_ms
        position = appender.position
        if (
            position + size > appender.segment_limit
            or timestamp > appender.roll_timestamp
            or now_ms > appender.roll_ms
            or last_offset > appender.offset_limit
        ):
            appender = self._make_room(size, last_offset, timestamp, now_ms)
            position = appender.position
        if producer_id >= 0:
            stored = self._producers.stage(producer_id, producer_epoch, sequence, delta, offset, timestamp, now_ms)
            if stored is not None:
                return AppendResult(stored.first_offset, stored.last_offset, stored.timestamp if self._append_time else -1, duplicate=True)
        if append_time >= 0:
            stamp_log_append_time(batch, now_ms)
        stamp(batch, offset, self.leader_epoch)
        staged = appender.staged
        if not staged:
            appender.begin()
            self._now_ms = now_ms
        staged.append(batch)
        if timestamp > appender.max_timestamp:
            appender.max_timestamp = timestamp
            appender.max_timestamp_offset = last_offset
        if position > appender.index_from:
            appender.index(last_offset, timestamp)
        appender.position = position + size
        self.end_offset = last_offset + 1
        result: AppendResult = _result(AppendResult, (offset, last_offset, append_time, False))
        return result

    @property
    def has_staged(self) -> bool:
        """Whether something is appended that is not written."""
        return self.end_offset != self.written_offset

    def write_staged(self) -> None:
        """Write all staged batches (into the page cache) with one call. StorageError: none of them is in the log."""
        lost = self._lost
        if lost is not None:
            self._lost = None
            self._take_back_staged()
            raise lost
        if self.end_offset != self.written_offset:
            self._write()

    def assign_leader_epoch(self, epoch: int) -> None:
        """Lead with `epoch` from now on. It is noted with the first batch appended under it."""
        if self.has_staged:
            self.write_staged()
        self.leader_epoch = epoch
        self._epoch_begins = epoch > self._epochs.latest

    def advance_high_watermark(self, offset: int) -> None:
        """Let consumers read up to `offset`, as far as that is written; never back."""
        self.high_watermark = max(self.high_watermark, min(offset, self.written_offset))

    # Reading

    def read(self, offset: int, max_bytes: int, limit_offset: int, *, at_least_one: bool) -> ReadResult:
        """The bytes of one segment from the batch that holds `offset` to before the one that holds `limit_offset`, `max_bytes` at most.

        `at_least_one` gives the first batch whole even if it is longer. PeerError: OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE.
        """
        if not self.start_offset <= offset <= self.end_offset:
            raise PeerError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.topic_partition}: offset {offset} is not in {self.start_offset}..{self.end_offset}"
            )
        return self._reader.read(offset, max_bytes, limit_offset, self.written_offset, at_least_one=at_least_one)

    def readable_bytes(self, offset: int, limit_offset: int, max_bytes: int) -> int:
        """How much `read`, called again and again, would give, up to `max_bytes`; all of it where `read` would raise."""
        if not self.start_offset <= offset <= self.end_offset:
            return max_bytes
        try:
            return self._reader.readable_bytes(offset, limit_offset, max_bytes, self.written_offset)
        except PeerError:
            return max_bytes

    def remember_bad_batch(self, first_offset: int, last_offset: int) -> None:
        """A reader found the batch with these offsets damaged: fetches end before it and fail in it."""
        self._reader.remember_bad(first_offset, last_offset)

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record that is not older. PeerError CORRUPT_MESSAGE when damage is in the way."""
        try:
            return first_not_older(self._segments, timestamp_ms, self.start_offset, self.written_offset)
        except BadBatchError as error:
            raise self._reader.corrupt(error.offset, error) from error

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """The record with the largest timestamp. PeerError CORRUPT_MESSAGE when damage is in the way."""
        try:
            return largest(self._segments, self.start_offset, self.written_offset)
        except BadBatchError as error:
            raise self._reader.corrupt(error.offset, error) from error

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The newest epoch up to `epoch` that has records, and the offset after its last; ``(-1, -1)`` if unknown (KIP-101)."""
        return self._epochs.end_offset_of(epoch, self.written_offset)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch that wrote `offset`, -1 if unknown."""
        return self._epochs.epoch_of(offset)

    # Shortening

    def delete_records(self, before_offset: int) -> int:
        """Show nothing before `before_offset` any more (-1: the high watermark) and remove segments that have nothing else.

        The new start offset. PeerError OFFSET_OUT_OF_RANGE beyond the high watermark. The removed files are in `take_removed`.
        """
        if before_offset == -1:
            before_offset = self.high_watermark
        if not 0 <= before_offset <= self.high_watermark:
            raise PeerError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition}: offset {before_offset} is beyond the high watermark {self.high_watermark}",
            )
        self._start_at(before_offset)
        unseen = before_start(self._segments.items, self._bounds())
        if unseen is not None:
            self._remove_first(unseen)
        return self.start_offset

    def apply_retention(self, now_ms: int) -> list[RemovedSegment]:
        """Remove what is too old, too much, or before the start offset. All that was removed since the last call: `unlink` it later."""
        self.write_staged()
        while (found := expired(self._segments.items, self.config, self._bounds(), now_ms)) is not None:
            if found.segments == len(self._segments):
                self._roll(now_ms)
            self._remove_first(found)
        return self.take_removed()

    def take_removed(self) -> list[RemovedSegment]:
        """Segments taken out of use since the last call, whose files wait to be unlinked after their `delay_ms`."""
        removed, self._removed = self._removed, []
        return removed

    def truncate_to(self, offset: int) -> int:
        """Cut off the batch that holds `offset` and all after it. The new end offset. StorageError.

        What is cut off may have been flushed: the new recovery point has to be on disk before the next batch is flushed.
        """
        self._take_back_staged()
        if offset >= self.end_offset:
            self._epochs.truncate_end(self.end_offset)
            return self.end_offset
        if offset < self._segments.bases[0]:
            self.truncate_fully_and_start_at(offset)
            return offset
        self._unflushed.truncated()
        self._appender.close()
        slot = self._segments.slot_of(offset)
        self._remove_slots(slot + 1, len(self._segments), f"truncated to offset {offset}")
        end_offset = self._cut_active(offset)
        self._epochs.truncate_end(end_offset)
        self._snapshots.remove_after(end_offset)
        self._files.sync_directory(self.directory)
        self._load_producers(end_offset)
        self._end_at(end_offset)
        return end_offset

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything and begin at `offset`. StorageError."""
        self._take_back_staged()
        self._unflushed.truncated()
        self._appender.close()
        self._remove_slots(0, len(self._segments), f"truncated, to start at offset {offset}")
        for snapshot in list(self._snapshots.offsets):
            self._snapshots.remove(snapshot)
        self._epochs.clear()
        self._producers.clear()
        self._create_segment(offset)
        self._files.sync_directory(self.directory)
        self.start_offset = self.high_watermark = offset
        self._end_at(offset)

    # Flushing

    @property
    def must_flush(self) -> bool:
        """Whether `flush.messages` is reached: acknowledgements of what is not flushed wait for the disk."""
        return self.written_offset - self.flushed_offset >= self.config.flush_messages

    def flush_wanted(self, now_ms: int) -> bool:
        """Whether a flush should start: `flush.messages` or `flush.ms` is reached, or a segment was rolled and not synced yet."""
        return self.must_flush or now_ms >= self._flush_due_ms or self._unflushed.has_files

    def flush_job(self) -> FlushJob | None:
        """What brings everything written to disk; None if it is there. After `run`, elsewhere, comes `flush_done`. StorageError."""
        unwritten = self.written_offset > self.flushed_offset
        if not (unwritten or self._unflushed.has_files or self._unflushed.has_names or self._epochs.changed):
            return None
        active = self._segments.active
        if active.size - self._snapshot_due >= 0 and not self.has_staged:
            self._take_snapshot()
        file = (self._appender.file or active.file()) if unwritten else None
        job = self._unflushed.job(self.written_offset, file, self._epochs)
        job.place = (active, active.size)
        return job

    def flush_done(self, job: FlushJob) -> None:
        """`job` has run without an error: what it covered is on disk."""
        if self._unflushed.done(job, self._epochs) and job.offset > self.flushed_offset:
            self.flushed_offset = job.offset
            if job.place is not None:
                self._reader.remember(job.offset, *job.place)
        rest = self.written_offset > self.flushed_offset
        self._flush_due_ms = self._now_ms + self.config.flush_ms if rest else _UNCHECKED_MS

    def close(self, *, clean: bool) -> None:
        """Close all files; `clean` flushes before. StorageError: closed all the same, but not clean."""
        try:
            if clean:
                self.write_staged()
                self._appender.seal()
                if self.end_offset > self._segments.active.base_offset and self.end_offset not in self._snapshots.offsets:
                    self._take_snapshot()
                job = self.flush_job()
                if job is not None:
                    job.run()
                    self.flush_done(job)
        finally:
            self._appender.close()
            self._unflushed.close()
            for segment in self._segments.items:
                segment.forget()

    # Looking

    @property
    def size_bytes(self) -> int:
        """Bytes of batches, without indexes and what waits to be unlinked."""
        return self._segments.size_bytes()

    def active_producers(self) -> list[ProducerView]:
        """The idempotent producers that are remembered, for DescribeProducers."""
        return [
            ProducerView(producer_id, entry.epoch, entry.last_sequence, entry.timestamp, entry.coordinator_epoch, entry.transaction_start)
            for producer_id, entry in self._producers.entries.items()
        ]

    def expire_producers(self, now_ms: int) -> int:
        """Forget producers that were idle for `producer.id.expiration.ms`; how many."""
        return 0 if self.has_staged else self._producers.expire(now_ms, self.config.producer_id_expiration_ms)

    def statistics(self) -> dict[str, int]:
        """Numbers for a person who looks into a running broker."""
        return {
            "start_offset": self.start_offset,
            "end_offset": self.end_offset,
            "written_offset": self.written_offset,
            "flushed_offset": self.flushed_offset,
            "high_watermark": self.high_watermark,
            "leader_epoch": self.leader_epoch,
            "segments": len(self._segments),
            "size_bytes": self.size_bytes,
            "producers": len(self._producers.entries),
            "bad_batches": len(self._reader.bad),
        }

    # Steps of the above

    def _check_timestamps(self, base_timestamp: int, timestamp: int, now_ms: int) -> None:
        config = self.config
        for value in (base_timestamp, timestamp):
            if value != -1 and not -config.message_timestamp_after_max_ms <= now_ms - value <= config.message_timestamp_before_max_ms:
                raise PeerError(
                    ErrorCode.INVALID_TIMESTAMP,
                    f"{self.topic_partition}: timestamp {value} is not within {config.message_timestamp_before_max_ms} ms before"
                    f" and {config.message_timestamp_after_max_ms} ms after the broker's {now_ms}",
                )

    def _make_room(self, size: int, last_offset: int, timestamp: int, now_ms: int) -> Appender:
        """Get ready for a batch: look at the files, if that was not done yet, and roll if one of the limits says so."""
        if size > self.config.segment_bytes:
            raise PeerError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{self.topic_partition}: batch of {size} bytes, segment.bytes is {self.config.segment_bytes}",
            )
        if not self._appender.ready:
            self._appender.prepare()
        if self._appender.must_roll(size, last_offset, timestamp, now_ms):
            if self.has_staged:
                try:
                    self._write()
                except StorageError as error:
                    self._lost = error
                    raise
            self._roll(now_ms)
        return self._appender

    def _write(self) -> None:
        first_offset = self.written_offset
        try:
            self._appender.write()
        except StorageError:
            self.end_offset = first_offset
            self._producers.undo()
            raise
        self._producers.commit()
        self.written_offset = self.end_offset
        if self._epoch_begins:
            self._epochs.assign(self.leader_epoch, first_offset)
            self._epoch_begins = False
        if self._flush_due_ms == _UNCHECKED_MS:
            self._flush_due_ms = self._now_ms + self.config.flush_ms

    def _take_back_staged(self) -> None:
        if self.has_staged:
            self._appender.undo()
            self._producers.undo()
            self.end_offset = self.written_offset

    def _roll(self, now_ms: int) -> None:
        """Seal the active segment and begin a new one at the end. Nothing is staged. StorageError: the old one stays."""
        appender = self._appender
        if not appender.ready:
            appender.prepare()
        appender.seal()
        self._take_snapshot()
        sealed = appender.segment
        self._create_segment(self.end_offset)
        appender.close()
        self._unflushed.add(sealed.path, sealed.index.path, sealed.time_index.path)
        self._appender = self._append_to(self._segments.active, now_ms)
        self._appender.prepare()

    def _create_segment(self, base_offset: int) -> None:
        segment = Segment(self._files, self._cache, self.directory, base_offset, 0, new=True)
        file = self._files.open(segment.path, create=True)
        try:
            file.truncate(0)
        finally:
            file.release()
        self._segments.add(segment)
        self._unflushed.add_directory(self.directory)
        self._snapshot_due = SNAPSHOT_INTERVAL_BYTES

    def _append_to(self, segment: Segment, now_ms: int) -> Appender:
        spread = crc32(f"{self.topic_partition}:{segment.base_offset}".encode())
        return Appender(self._files, segment, self.config, now_ms, spread)

    def _take_snapshot(self) -> None:
        self._unflushed.add(self._snapshots.write(self.end_offset, self._producers.entries))
        self._snapshots.remove_between(self._segments.bases, self.end_offset)
        self._snapshot_due = self._segments.active.size + SNAPSHOT_INTERVAL_BYTES

    def _bounds(self) -> Bounds:
        return Bounds(self.start_offset, self.written_offset, self.high_watermark)

    def _start_at(self, offset: int) -> None:
        if offset > self.start_offset:
            self.start_offset = offset
            self._epochs.truncate_start(offset)

    def _remove_first(self, found: Expired) -> None:
        self._remove_slots(0, found.segments, found.reason)
        self._start_at(self._segments.bases[0])

    def _remove_slots(self, first: int, last: int, reason: str) -> None:
        self._reader.forget_positions()
        removed = self._segments.remove(first, last, reason, self.config.file_delete_delay_ms)
        for segment in removed:
            self._snapshots.forget(segment.base_offset)
        self._removed += removed
        self._unflushed.add_directory(self.directory)

    def _cut_active(self, offset: int) -> int:
        """Cut the active segment before the batch that holds `offset`; the offset at which it ends then."""
        segment = self._segments.active
        found = segment.locate(offset)
        if found is not None:
            segment.forget()
            file = self._files.open(segment.path, writable=True)
            try:
                file.truncate(found[0])
                file.sync()
            finally:
                file.release()
            segment.size = found[0]
            segment.index.truncate_to(segment.size)
            segment.time_index.truncate_to(offset)
        return segment.index_end(self.config.index_interval_bytes)

    def _end_at(self, offset: int) -> None:
        self._reader.forget_positions()
        self.written_offset = self.end_offset = offset
        self.start_offset = min(self.start_offset, offset)
        self.flushed_offset = min(self.flushed_offset, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self._epoch_begins = self.leader_epoch > self._epochs.latest
        self._appender = self._append_to(self._segments.active, self._now_ms)

    def _load_producers(self, until: int) -> None:
        self._producers.clear()
        first = self._segments.bases[0]
        loaded = self._snapshots.load_newest(until, self._now_ms)
        if loaded is not None:
            first, self._producers.entries = loaded
        replay_producers(self._segments, self._producers, first, until, self._now_ms)
