"""The log of one partition: what the broker appends to and reads from.

Offsets, and where the bytes before each are::

    start_offset     flushed_offset      log_end_offset   staged_end_offset
         |  on disk        |  in the page cache  |  staged in memory |
                                 high_watermark: up to where consumers may read

`append_as_leader` stages a batch without copying it; `write_staged` writes all staged batches with one call. Flushing runs in another
thread (`flush_job`, then `flush_done` or `flush_failed`). Everything else belongs to the broker's thread. The parts:
:mod:`moldau.log.growing` takes batches, :mod:`moldau.log.shortening` removes them, :mod:`moldau.log.reader` finds them;
:mod:`moldau.log.opening` starts a log.
"""

from typing import TYPE_CHECKING, NamedTuple, Self

from moldau.log.batches import UNREADABLE, walk
from moldau.log.cache import SegmentCache
from moldau.log.config import LogConfig
from moldau.log.flush import FlushJob
from moldau.log.growing import NEVER_MS, AppendResult
from moldau.log.opening import Opening
from moldau.log.producer_bound import ProducerBound
from moldau.log.producer_entry import ProducerEntry
from moldau.log.reader import ReadResult
from moldau.log.segments import RemovedSegment
from moldau.log.shortening import ShorteningLog
from moldau.model.errors import ErrorCode, PeerError, StorageError
from moldau.model.identity import TopicPartition
from moldau.ports.filesystem import FileSystem
from moldau.ports.transport import FileRange

if TYPE_CHECKING:
    from moldau.log.timestamps import SearchedLog, TimeSearch

__all__ = ["AppendResult", "FlushJob", "PartitionLog", "ProducerView", "ReadResult", "RemovedSegment"]


class ProducerView(NamedTuple):
    """One idempotent producer, for a person."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start: int


class PartitionLog(ShorteningLog):
    """A log that is open. Made by `open`."""

    __slots__ = ()

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
        holes_anywhere: bool = False,
        accept_loss: bool = False,
        producer_bound: ProducerBound | None = None,
    ) -> Self:
        """Open the log in a folder, which is made if it is missing.

        After a clean stop what was synced then is not checked; otherwise everything from `recovery_point` on is, and truncated where it is
        damaged (`recovery` says what). Without a `high_watermark` all that is there may be read. `adopted`: another system wrote it;
        `holes_anywhere`: it was compacted, and the recovery point got lost. Holes after that point are kept in both. LostRecordsError if
        what was on disk before the recovery point is not there any more, unless `accept_loss`. StorageError;
        OldFormatError, a StorageError that names file and offset, for batches of format 0 and 1; BadBatchError for a compacted segment
        that is damaged and was about to take the place of others.
        """
        cache = SegmentCache(files) if cache is None else cache
        opening = Opening(
            files,
            cache,
            directory,
            str(topic_partition),
            config,
            adopted=adopted,
            holes_anywhere=holes_anywhere,
            accept_loss=accept_loss,
            now_ms=now_ms,
            producer_bound=producer_bound,
        )
        opened = opening.open(recovery_point, start_offset, clean=clean)
        log = cls(files, cache, directory, topic_partition, config, opened, leader_epoch, now_ms)
        if opened.report is None:
            log._stable_on_disk = log.last_stable_offset
        if high_watermark is not None:
            log.high_watermark = max(log.start_offset, min(high_watermark, log.log_end_offset))
        return log

    def expect_no_holes(self) -> None:
        """The log was never compacted, and no loss of it was accepted: an offset that is missing is damage."""
        self._reader.holes_allowed = False

    def append_as_follower(self, records: memoryview, now_ms: int) -> int:
        """Write whole batches that were fetched from the leader, with their offsets and leader epochs. The new log end offset.

        A last batch that is cut off is left out. Nothing but the bytes, offsets and epochs is checked: the leader has accepted the rest.
        In an empty log the first batch may begin before the log start, which stays where it is (KAFKA-6975); the recovery point has to be
        on disk, as after a truncation (`take_cut`), before the next flush.
        CorruptBatchError: nothing was written. StorageError: the batches before `log_end_offset` are in the log.
        """
        from moldau.log.fetched import check_fetched

        assert not self.has_staged
        is_empty = self.start_offset == self.log_end_offset and not self.size_bytes
        batches = check_fetched(records, str(self.topic_partition), self.log_end_offset, self._epochs.latest, is_empty=is_empty)
        start_offset = self.start_offset
        if batches and batches[0].header.base_offset < start_offset:
            self.truncate_fully_and_start_at(batches[0].header.base_offset)
        try:
            self.write_fetched(batches, now_ms)
        finally:
            if self.start_offset < start_offset < self.log_end_offset:
                self.high_watermark = start_offset
                self._start_at(start_offset)
        return self.log_end_offset

    def advance_high_watermark(self, offset: int) -> bool:
        """Let consumers read up to `offset`, as far as that is written; never back. Whether more may be read now."""
        offset = min(offset, self.log_end_offset)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        return True

    def read(self, offset: int, max_bytes: int, limit_offset: int, *, at_least_one: bool) -> ReadResult:
        """The bytes of one segment from the batch that holds `offset` to before the one that holds `limit_offset`, `max_bytes` at most.

        `at_least_one` gives the first batch whole even if it is longer. PeerError: OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE.
        """
        if not self.start_offset <= offset <= self.log_end_offset:
            raise PeerError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition}: offset {offset} is not in {self.start_offset}..{self.log_end_offset}",
            )
        return self._reader.read(offset, max_bytes, limit_offset, self.log_end_offset, at_least_one=at_least_one)

    def aborted_in(self, read: ReadResult, offset: int, limit_offset: int) -> list[tuple[int, int]]:
        """Producer and first offset of each aborted transaction that may be in what `read` gave from `offset` on. StorageError."""
        return [] if read.records is None else self.aborted_transactions(offset, self._reader.end_of(read, limit_offset))

    def readable_bytes(self, offset: int, limit_offset: int, max_bytes: int) -> int:
        """How much `read`, called again and again, would give, up to `max_bytes`; all of it where `read` would raise."""
        if not self.start_offset <= offset <= self.log_end_offset:
            return max_bytes
        try:
            return self._reader.readable_bytes(offset, limit_offset, max_bytes, self.log_end_offset)
        except PeerError:
            return max_bytes

    def stretch(self, offset: int) -> tuple[FileRange, int]:
        """All that is written of the segment that holds `offset`, and the offset before which it ends; for who reads in spite of damage.

        Whoever asks releases the range. The first batches may lie before `offset`.
        """
        slot = self._segments.slot_of(offset)
        segment = self._segments.items[slot]
        return FileRange(segment.file(), 0, segment.size), self._segments.end_of(slot, self.log_end_offset)

    def remember_bad_batch(self, first_offset: int, last_offset: int) -> None:
        """A reader found the batch with these offsets damaged: fetches end before it and fail in it."""
        self._reader.remember_bad(first_offset, last_offset)

    def search_timestamp(self, timestamp_ms: int, limit_offset: int, decompressed_bytes_max: int) -> "TimeSearch":
        """A search for the first record before `limit_offset` that is not older; see :mod:`moldau.log.timestamps` for how it is run.

        PeerError CORRUPT_MESSAGE when damage is in the way.
        """
        from moldau.log.timestamps import first_not_older

        return self._searching(first_not_older(self._searched(decompressed_bytes_max), timestamp_ms, limit_offset))

    def search_largest_timestamp(self, limit_offset: int, decompressed_bytes_max: int) -> "TimeSearch":
        """The same for the record with the largest timestamp."""
        from moldau.log.timestamps import largest

        return self._searching(largest(self._searched(decompressed_bytes_max), limit_offset))

    def _searched(self, decompressed_bytes_max: int) -> "SearchedLog":
        from moldau.log.timestamps import SearchedLog

        return SearchedLog(self._segments, lambda: self.start_offset, lambda: self.log_end_offset, decompressed_bytes_max)

    def _searching(self, steps: "TimeSearch") -> "TimeSearch":
        try:
            return (yield from steps)
        except UNREADABLE as error:
            raise self._reader.corrupt(error.offset, error) from error

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The newest epoch up to `epoch` that has records, or that this broker leads with, and the offset after its last; ``(-1, -1)`` if
        unknown (KIP-101).
        """
        return self._epochs.end_offset_of(epoch, self.log_end_offset)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch that wrote `offset`, -1 if unknown."""
        return self._epochs.epoch_of(offset)

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch that has records, -1 without any."""
        return self._epochs.latest

    def epoch_of_last_batch(self) -> int:
        """The leader epoch that the last batch carries, from the file; -1 where there is none or it cannot be read."""
        for segment in reversed(self._segments.items):
            if segment.size:
                last = segment.index.last()
                try:
                    *_, (_, header) = walk(segment.file(), 0 if last is None else last[1], segment.size, segment.base_offset)
                except UNREADABLE:
                    break
                return header.partition_leader_epoch
        return -1

    @property
    def must_flush(self) -> bool:
        """Whether `flush.messages` is reached: acknowledgements of what is not flushed wait for the disk."""
        return self.log_end_offset - self.flushed_offset >= self.config.flush_messages

    def flush_wanted(self, now_ms: int) -> bool:
        """Whether a flush should start: `flush.messages` or `flush.ms` is reached, or a segment was rolled and not synced yet."""
        return self.must_flush or now_ms >= self._flush_due_ms or self._unsynced_files.has_files

    def flush_job(self) -> FlushJob | None:
        """What brings everything written to disk; None if it is there. After `run`, elsewhere, comes `flush_done` or, if it has raised,
        `flush_failed`. StorageError, for good after a sync has failed.
        """
        unwritten = self.log_end_offset > self.flushed_offset
        active = self._segments.active
        aborted = active.transaction_index
        if not (unwritten or self._unsynced_files.has_files or self._unsynced_files.has_names or self._epochs.changed or aborted.unsynced):
            return None
        if active.size - self._snapshot_due >= 0 and not self.has_staged:
            self._take_snapshot_if_there_is_room()
        if self._appender.failure is not None:
            raise self._appender.failure
        if aborted.unsynced:
            aborted.store()
            self._unsynced_files.add(aborted.path)
            aborted.unsynced = False
        file = active.file() if unwritten else None
        job = self._unsynced_files.job(self.log_end_offset, file, self._epochs)
        job.place = (active, active.size)
        job.batches = self.written_batches
        job.stable_offset = self.last_stable_offset
        return job

    def flush_done(self, job: FlushJob) -> None:
        """`job` has run without an error: what it covered is on disk."""
        if self._unsynced_files.done(job, self._epochs) and job.offset > self.flushed_offset:
            self.flushed_offset = job.offset
            self.flushed_batches = job.batches
            self._stable_on_disk = job.stable_offset
            if job.place is not None:
                self._reader.remember(job.offset, *job.place)
        rest = self.log_end_offset > self.flushed_offset
        self._flush_due_ms = self._now_ms + self.config.flush_ms if rest else NEVER_MS

    def flush_failed(self, job: FlushJob) -> None:
        """`job` has raised: what it covered may not be on disk."""
        self._unsynced_files.give_up(job)

    def _take_snapshot_if_there_is_room(self) -> None:
        try:
            self._take_snapshot()
        except StorageError as error:  # a snapshot only shortens the next start
            if not error.no_space:
                raise

    def seal(self) -> None:
        """Write what the log has to have before it is closed; a flush then brings all of it to disk. StorageError."""
        self.write_staged()
        active = self._segments.active
        if self._appender.seal():
            self._unsynced_files.add(*active.index_paths())
            active.transaction_index.unsynced = False
            active.store_checksums()
        if self._producers.entries or self.log_end_offset > active.base_offset:
            self._take_snapshot()

    def close(self) -> None:
        """Close all files as they are: a log that is to be clean was sealed and flushed before. StorageError: closed all the same."""
        self._producers.clear()
        self._appender.close()
        self._unsynced_files.close()
        for segment in self._segments.items:
            segment.forget()

    @property
    def segment_count(self) -> int:
        """Segments, the active one included."""
        return len(self._segments)

    @property
    def size_bytes(self) -> int:
        """Bytes of batches, without indexes and what waits to be unlinked."""
        return self._segments.size_bytes()

    def active_producers(self) -> list[ProducerView]:
        """The idempotent producers that are remembered, for DescribeProducers."""
        return [_view(*each) for each in self._producers.entries.items()]

    def producer(self, producer_id: int) -> ProducerView | None:
        """The same of one of them, if it is remembered."""
        entry = self._producers.entries.get(producer_id)
        return None if entry is None else _view(producer_id, entry)

    def expire_producers(self, now_ms: int) -> int:
        """Forget producers that were idle for `producer.id.expiration.ms`; how many."""
        return 0 if self.has_staged else self._producers.expire(now_ms, self.config.producer_id_expiration_ms)

    def statistics(self) -> dict[str, int]:
        """Numbers for a person who looks into a running broker."""
        return {
            "start_offset": self.start_offset,
            "log_end_offset": self.log_end_offset,
            "staged_end_offset": self.staged_end_offset,
            "flushed_offset": self.flushed_offset,
            "high_watermark": self.high_watermark,
            "last_stable_offset": self.last_stable_offset,
            "leader_epoch": self.leader_epoch,
            "segments": len(self._segments),
            "size_bytes": self.size_bytes,
            "producers": len(self._producers.entries),
            "bad_batches": len(self._reader.bad),
        }


def _view(producer_id: int, entry: ProducerEntry) -> ProducerView:
    return ProducerView(producer_id, entry.epoch, entry.last_sequence, entry.timestamp, entry.coordinator_epoch, entry.transaction_start)
