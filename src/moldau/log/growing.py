"""The part of a log that takes batches: producers checked, offsets given, batches staged and written, segments rolled.

If `append_as_leader` or `write_staged` raise StorageError, nothing staged since the last `write_staged` may be acknowledged. A full disk
passes: the log can be used as before, reads go on, and the next append tries again.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from moldau.log.cache import SegmentCache
from moldau.log.config import LogConfig
from moldau.log.opening import OpenedLog
from moldau.log.producer_replay import marker_in
from moldau.log.reader import LogReader
from moldau.log.segment import Segment
from moldau.log.segment_appender import SegmentAppender
from moldau.model.errors import ErrorCode, PeerError, StorageError
from moldau.model.identity import TopicPartition
from moldau.ports.filesystem import FileSystem
from moldau.protocol.records.header import LOG_OVERHEAD, TRANSACTIONAL_BIT, BatchHeader, stamp, stamp_log_append_time

if TYPE_CHECKING:
    from moldau.log.fetched import FetchedBatch

SNAPSHOT_INTERVAL_BYTES = 64 * 1024 * 1024
"""A flush also takes a producer snapshot when so much was written since the last one: it bounds what a start has to walk."""
NEVER_MS = 1 << 80

_result = tuple.__new__


class AppendResult(NamedTuple):
    """What became of a batch. `log_append_time_ms` is -1 unless the broker stamps it. A `duplicate` was stored before, at these offsets."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    duplicate: bool


class GrowingLog:
    """Invariants: start <= high watermark <= log end <= staged end, flushed <= log end. Nothing is staged while both ends are equal."""

    __slots__ = (
        "_after_ms",
        "_append_time",
        "_appender",
        "_before_ms",
        "_cache",
        "_cut_to",
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
        "_stable_on_disk",
        "_unsynced_files",
        "checkpointed_batches",
        "config",
        "directory",
        "flushed_batches",
        "flushed_offset",
        "high_watermark",
        "leader_epoch",
        "log_end_offset",
        "recovery",
        "staged_end_offset",
        "start_offset",
        "topic_partition",
        "unsettled",
        "written_batches",
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
        self.unsettled = opened.producers.transactions.unsettled
        """Not empty: there may be transactions that hold the last stable offset down."""
        self._snapshots = opened.snapshots
        self._epochs = opened.epochs
        self._unsynced_files = opened.unsynced_files
        self._removed = opened.removed
        self.recovery = opened.report
        """What opening found to mend, None after a clean stop."""
        self.start_offset = opened.start_offset
        self.written_batches = 0 if opened.report is None else opened.report.batches
        """Counts the batches written since the log was opened, and those that opening had to read one by one."""
        self.flushed_batches = 0
        """How many of them are on disk."""
        self.checkpointed_batches = 0
        """How many of them lie before the recovery point that a start would go by."""
        self.flushed_offset = opened.flushed_offset
        self.log_end_offset = self.staged_end_offset = opened.end_offset
        self.high_watermark = opened.end_offset
        self.leader_epoch = leader_epoch
        self._epoch_begins = opened.epochs.begin_term(leader_epoch, opened.end_offset)
        self._reader = LogReader(str(topic_partition), self._segments)
        self._lost: StorageError | None = None
        self._cut_to: int | None = None
        self._stable_on_disk = opened.start_offset
        self._flush_due_ms = NEVER_MS
        self._snapshot_due = SNAPSHOT_INTERVAL_BYTES + (0 if opened.report else self._segments.active.size)
        self._now_ms = now_ms
        self.config = config
        self._appender = self._append_to(self._segments.active, now_ms)
        self.reconfigure(config)

    def reconfigure(self, config: LogConfig) -> None:
        """Obey other settings from now on."""
        if self._flush_due_ms != NEVER_MS:
            self._flush_due_ms += config.flush_ms - self.config.flush_ms
        self.config = config
        self._append_time = config.append_time
        self._reader.holes_allowed |= config.compacts
        self._after_ms = NEVER_MS if config.append_time else config.message_timestamp_after_max_ms
        self._before_ms = NEVER_MS if config.append_time else config.message_timestamp_before_max_ms
        self._appender.reconfigure(config)

    def append_as_leader(self, batch: memoryview, header: BatchHeader, now_ms: int) -> AppendResult:
        """Stage a batch that `check_batch` took: give it offsets and epoch, in place. The memory must stay as it is until `write_staged`.

        A batch that repeats one of its producer's last five is not staged; its answer holds like theirs.
        A transactional batch begins a transaction of its producer unless one is ongoing; whether it may is for the caller to know.
        PeerError: OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, INVALID_TIMESTAMP, RECORD_LIST_TOO_LARGE;
        nothing was staged.
        StorageError: see the module.
        """
        _, length, _, _, _, attributes, delta, base_timestamp, timestamp, producer_id, producer_epoch, sequence, _ = header
        if timestamp - now_ms > self._after_ms or now_ms - base_timestamp > self._before_ms:
            self._check_timestamps(base_timestamp, timestamp, now_ms)
        size = length + LOG_OVERHEAD
        appender = self._appender
        offset = self.staged_end_offset
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
            try:
                appender = self._make_room(size, last_offset, timestamp, now_ms)
            except StorageError:
                self._producers.refused(producer_id, producer_epoch, sequence, now_ms)
                raise
            position = appender.position
        if producer_id >= 0:
            stored = self._producers.stage(
                producer_id, producer_epoch, sequence, delta, offset, timestamp, now_ms, attributes & TRANSACTIONAL_BIT
            )
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
        self.staged_end_offset = last_offset + 1
        result: AppendResult = _result(AppendResult, (offset, last_offset, append_time, False))
        return result

    def write_fetched(self, batches: "Sequence[FetchedBatch]", now_ms: int) -> None:
        """Write batches of the leader that :func:`moldau.log.fetched.check_fetched` accepted, as they are; roll segments on the way.

        Nothing is staged before or after. StorageError: those before `log_end_offset` are in the log.
        """
        staged: list[FetchedBatch] = []
        for batch in batches:
            header, view = batch
            if not self._appender.ready:
                self._appender.prepare()
            if header.base_offset > self.staged_end_offset:
                self._reader.holes_allowed = True
            is_out_of_reach = header.last_offset > self._appender.offset_limit
            if is_out_of_reach or self._appender.must_roll(header.size, header.last_offset, header.max_timestamp, now_ms):
                self._write_replicated(staged, now_ms)
                staged = []
                self._roll_at(header.base_offset if is_out_of_reach else self.log_end_offset, now_ms)
            self._appender.stage(view, header)
            self.staged_end_offset = header.last_offset + 1
            staged.append(batch)
        self._write_replicated(staged, now_ms)

    def _write_replicated(self, staged: "Sequence[FetchedBatch]", now_ms: int) -> None:
        """Write these batches, which are all that is staged; then note their epochs, producers and transactions. StorageError."""
        if not staged:
            return
        try:
            self._appender.write()
        except StorageError:
            self.staged_end_offset = self.log_end_offset
            raise
        epochs = self._epochs
        for header, view in staged:
            if header.partition_leader_epoch > epochs.latest:
                epochs.assign(header.partition_leader_epoch, header.base_offset)
            if header.producer_id >= 0:
                aborted = self._producers.replay(header, now_ms, marker_in(view) if header.is_control else None)
                if aborted is not None:
                    self._appender.note_aborted([aborted])
        self.log_end_offset = self.staged_end_offset
        self.written_batches += len(staged)
        self._epoch_begins = self.leader_epoch > epochs.latest
        self._now_ms = now_ms
        if self._flush_due_ms == NEVER_MS:
            self._flush_due_ms = now_ms + self.config.flush_ms

    def _roll_at(self, base_offset: int, now_ms: int) -> None:
        """Roll, and have the new segment begin at `base_offset`, after a hole that reaches farther than one index can say. StorageError."""
        end_offset = self.log_end_offset
        self.log_end_offset = self.staged_end_offset = base_offset
        try:
            self._roll(now_ms)
        finally:
            if self._segments.active.base_offset != base_offset:  # a log that ends with the old segment ends where that does
                self.log_end_offset = self.staged_end_offset = end_offset

    @property
    def has_staged(self) -> bool:
        """Whether something is appended that is not written."""
        return self.staged_end_offset != self.log_end_offset

    def write_staged(self) -> None:
        """Write all staged batches (into the page cache) with one call. StorageError: none of them is in the log."""
        lost = self._lost
        if lost is not None:
            self._lost = None
            self._take_back_staged()
            raise lost
        if self.staged_end_offset != self.log_end_offset:
            self._write()

    def lead_epoch(self, epoch: int) -> None:
        """Lead with `epoch` from now on. `end_offset_for_epoch` knows it at once; its file does with the first batch. StorageError."""
        if self.has_staged:
            self.write_staged()
        self.leader_epoch = epoch
        self._epoch_begins = self._epochs.begin_term(epoch, self.log_end_offset)

    def _check_timestamps(self, base_timestamp: int, timestamp: int, now_ms: int) -> None:
        config = self.config
        for value in (base_timestamp, timestamp):
            if value != -1 and not -config.message_timestamp_after_max_ms <= now_ms - value <= config.message_timestamp_before_max_ms:
                raise PeerError(
                    ErrorCode.INVALID_TIMESTAMP,
                    f"{self.topic_partition}: timestamp {value} is not within {config.message_timestamp_before_max_ms} ms before"
                    f" and {config.message_timestamp_after_max_ms} ms after the broker's {now_ms}",
                )

    def _make_room(self, size: int, last_offset: int, timestamp: int, now_ms: int) -> SegmentAppender:
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
        first_offset, count = self.log_end_offset, len(self._appender.staged)
        try:
            self._appender.write()
        except StorageError:
            self.staged_end_offset = first_offset
            self._producers.undo()
            raise
        aborted = self._producers.commit()
        if aborted:
            self._appender.note_aborted(aborted)
        self.log_end_offset = self.staged_end_offset
        self.written_batches += count
        if self._epoch_begins:
            self._epochs.assign(self.leader_epoch, first_offset)
            self._epoch_begins = False
        if self._flush_due_ms == NEVER_MS:
            self._flush_due_ms = self._now_ms + self.config.flush_ms

    def _take_back_staged(self) -> None:
        if self.has_staged:
            self._appender.undo()
            self._producers.undo()
            self.staged_end_offset = self.log_end_offset

    def _roll(self, now_ms: int) -> None:
        """Seal the active segment and begin a new one at the end. Nothing is staged. StorageError: the old one stays, or there is a new."""
        appender = self._appender
        if not appender.ready:
            appender.prepare()
        appender.seal()
        self._take_snapshot()
        sealed = appender.segment
        self._create_segment(self.log_end_offset)
        self._unsynced_files.add(sealed.path, *sealed.index_paths())
        sealed.transaction_index.unsynced = False
        sealed.store_checksums()
        self._appender = self._append_to(self._segments.active, now_ms)
        appender.close()
        self._appender.prepare()

    def _create_segment(self, base_offset: int) -> None:
        segment = Segment(self._files, self._cache, self.directory, base_offset, 0, new=True)
        file = self._files.open(segment.path, create=True)
        try:
            if file.size():
                file.truncate(0)
        except StorageError:
            with suppress(StorageError):
                self._files.remove(segment.path)
            raise
        finally:
            file.release()
        self._segments.add(segment)
        self._unsynced_files.add_directory(self.directory)
        self._snapshot_due = SNAPSHOT_INTERVAL_BYTES

    def _append_to(self, segment: Segment, now_ms: int) -> SegmentAppender:
        spread = crc32(f"{self.topic_partition}:{segment.base_offset}".encode())
        return SegmentAppender(self._cache, segment, self.config, now_ms, spread)

    def _take_snapshot(self) -> None:
        """Keep the producers as they are at the end of the log. One that is there already may be safe on disk, and stays as it is."""
        if self.log_end_offset not in self._snapshots.offsets:
            self._unsynced_files.add(self._snapshots.write(self.log_end_offset, self._producers.entries))
        self._snapshots.remove_between(self._segments.bases, self.log_end_offset)
        self._snapshot_due = self._segments.active.size + SNAPSHOT_INTERVAL_BYTES
