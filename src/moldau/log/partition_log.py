"""The log of one partition: what the broker appends to and reads from.

Offsets, and where the bytes before each are::

    start_offset     flushed_offset      log_end_offset   staged_end_offset
         |  on disk        |  in the page cache  |  staged in memory |
                                 high_watermark: up to where consumers may read

`append_as_leader` stages a batch without copying it; `write_staged` writes all staged batches with one call. Flushing runs in another
thread (`flush_job`, then `flush_done` or `flush_failed`). Everything else belongs to the broker's thread. The parts:
:mod:`moldau.log.appender` takes batches, :mod:`moldau.log.trimmer` removes them, :mod:`moldau.log.reader` finds them,
:mod:`moldau.log.transactions` knows which of them are decided, :mod:`moldau.log.flush` brings them to disk;
:mod:`moldau.log.opening` starts a log.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Self

from moldau.log.appender import AppendResult, LogAppender
from moldau.log.cache import SegmentCache
from moldau.log.config import LogConfig
from moldau.log.damage import Holes
from moldau.log.flush import LogFlush
from moldau.log.offsets import LogOffsets
from moldau.log.opening import OpenedLog, Opening
from moldau.log.producer_bound import ProducerBound
from moldau.log.producer_states import ProducerView
from moldau.log.reader import LogReader, ReadResult
from moldau.log.roller import LogParts, SegmentRoller
from moldau.log.segment import Segment
from moldau.log.segments import RemovedSegment
from moldau.log.transactions import LogTransactions
from moldau.log.trimmer import LogTrimmer
from moldau.log.unsynced import FlushJob
from moldau.model.identity import TopicPartition
from moldau.ports.filesystem import FileSystem
from moldau.ports.transport import FileRange

if TYPE_CHECKING:
    from moldau.log.open_transactions import Verification
    from moldau.log.timestamps import TimeSearch
    from moldau.log.transaction_index import TransactionIndexEntry
    from moldau.protocol.records.control import EndTxnMarker
    from moldau.protocol.records.header import BatchHeader

__all__ = ["AppendResult", "FlushJob", "PartitionLog", "ProducerView", "ReadResult", "RemovedSegment"]


class PartitionLog(LogOffsets):
    """A log that is open. Made by `open`.

    It is the `LogOffsets` that its parts share, and `append_as_leader`, `write_staged` and `read` are methods of the parts: each request
    reads those and calls these, and a property or a second call would cost as much as what it leads to.
    """

    __slots__ = (
        "_appender",
        "_epochs",
        "_flush",
        "_parts",
        "_producers",
        "_reader",
        "_segments",
        "_transactions",
        "_trimmer",
        "_unsynced",
        "append_as_leader",
        "checkpointed_batches",
        "config",
        "directory",
        "read",
        "recovery",
        "topic_partition",
        "unsettled",
        "write_staged",
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
        super().__init__(opened.start_offset, opened.flushed_offset, opened.end_offset)
        self.directory = directory
        self.topic_partition = topic_partition
        self.config = config
        segments, producers, snapshots, epochs, unsynced = opened[:5]
        reader = LogReader(producers.partition, self, segments)
        parts = LogParts(files, cache, directory, config, self, segments, producers, snapshots, epochs, unsynced)
        roller = SegmentRoller(parts, recovered=opened.report is not None)
        appender = LogAppender(parts, reader, roller, leader_epoch, now_ms)
        transactions = LogTransactions(self, segments, producers, snapshots, reader)
        self._flush = LogFlush(parts, reader, roller, appender, transactions)
        self._trimmer = LogTrimmer(parts, reader, roller, appender, transactions)
        self._parts = parts
        self._segments = segments
        self._producers = producers
        self._epochs = epochs
        self._unsynced = unsynced
        self._reader = reader
        self._appender = appender
        self._transactions = transactions
        self.append_as_leader = appender.append_as_leader
        self.write_staged = appender.write_staged
        self.read = reader.read
        self.unsettled = producers.transactions.unsettled
        """Not empty: there may be transactions that hold the last stable offset down."""
        self.recovery = opened.report
        """What opening found to mend, None after a clean stop."""
        self.checkpointed_batches = 0
        """How many of the written batches lie before the recovery point that a start would go by."""
        if opened.report is None:
            transactions.flushed(transactions.last_stable_offset)
        else:
            appender.written_batches = opened.report.batches

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
        holes: Holes = Holes.NONE,
        accept_loss: bool = False,
        producer_bound: ProducerBound | None = None,
    ) -> Self:
        """Open the log in a folder, which is made if it is missing.

        After a clean stop what was synced then is not checked; otherwise everything from `recovery_point` on is, and truncated where it is
        damaged (`recovery` says what). Without a `high_watermark` all that is there may be read. `adopted`: another system wrote it,
        with holes anywhere. LostRecordsError if what was on disk before the recovery point is missing, unless `accept_loss`. StorageError;
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
            holes=holes,
            accept_loss=accept_loss,
            now_ms=now_ms,
            producer_bound=producer_bound,
        )
        opened = opening.open(recovery_point, start_offset, clean=clean)
        log = cls(files, cache, directory, topic_partition, config, opened, leader_epoch, now_ms)
        if high_watermark is not None:
            log.restore_high_watermark(high_watermark)
        return log

    def reconfigure(self, config: LogConfig) -> None:
        """Obey other settings from now on."""
        self.config = self._parts.config = config
        self._appender.reconfigure(config)

    def expect_no_holes(self) -> None:
        """The log was never compacted, and no loss of it was accepted: an offset that is missing is damage."""
        self._reader.holes_allowed = False

    # Appending: see moldau.log.appender

    @property
    def leader_epoch(self) -> int:
        """The epoch that this broker leads with, or led with last."""
        return self._appender.leader_epoch

    @property
    def staged_end_offset(self) -> int:
        """After the last record that is staged."""
        return self._appender.staged_end_offset

    @property
    def has_staged(self) -> bool:
        """Whether something is appended that is not written."""
        return self._appender.has_staged

    def take_back_staged(self) -> None:
        """As :meth:`moldau.log.appender.LogAppender.take_back_staged`."""
        self._appender.take_back_staged()

    def append_marker_as_leader(
        self, producer_id: int, producer_epoch: int, marker: "EndTxnMarker", now_ms: int, *, transaction_version: int
    ) -> AppendResult:
        """As :meth:`moldau.log.appender.LogAppender.append_marker_as_leader`."""
        return self._appender.append_marker_as_leader(producer_id, producer_epoch, marker, now_ms, transaction_version=transaction_version)

    def append_as_follower(self, records: memoryview, now_ms: int, before_holes: Callable[[], object] | None = None) -> int:
        """As :meth:`moldau.log.appender.LogAppender.append_as_follower`."""
        return self._appender.append_as_follower(records, now_ms, before_holes)

    def skip_to(self, offset: int, now_ms: int) -> None:
        """As :meth:`moldau.log.appender.LogAppender.skip_to`."""
        self._appender.skip_to(offset, now_ms)

    def lead_epoch(self, epoch: int) -> None:
        """As :meth:`moldau.log.appender.LogAppender.lead_epoch`."""
        self._appender.lead_epoch(epoch)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The newest epoch up to `epoch` that has records, or that this broker leads with, and the offset after its last; ``(-1, -1)`` if
        unknown (KIP-101).
        """
        return self._epochs.end_offset_of(epoch, self.log_end_offset)

    def end_up_to_epoch(self, epoch: int) -> int:
        """As :meth:`moldau.log.leader_epochs.LeaderEpochs.end_up_to`."""
        return self._epochs.end_up_to(epoch, self.log_end_offset)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch that wrote `offset`, -1 if unknown."""
        return self._epochs.epoch_of(offset)

    def take_epochs_from(self, log: "PartitionLog") -> None:
        """As :meth:`moldau.log.leader_epochs.LeaderEpochs.take_from`; on disk with the next flush."""
        self._epochs.take_from(log._epochs)

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch that has records, -1 without any."""
        return self._epochs.latest

    # Reading: see moldau.log.reader

    def readable_bytes(self, offset: int, limit_offset: int, max_bytes: int) -> int:
        """As :meth:`moldau.log.reader.LogReader.readable_bytes`."""
        return self._reader.readable_bytes(offset, limit_offset, max_bytes)

    def stretch(self, offset: int) -> tuple[FileRange, int]:
        """As :meth:`moldau.log.reader.LogReader.stretch`."""
        return self._reader.stretch(offset)

    def remember_bad_batch(self, first_offset: int, last_offset: int) -> None:
        """A reader found the batch with these offsets damaged: fetches end before it and fail in it."""
        self._reader.remember_bad(first_offset, last_offset)

    def search_timestamp(self, timestamp_ms: int, limit_offset: int, decompressed_bytes_max: int) -> "TimeSearch":
        """As :meth:`moldau.log.reader.LogReader.search_timestamp`."""
        return self._reader.search_timestamp(timestamp_ms, limit_offset, decompressed_bytes_max)

    def search_largest_timestamp(self, limit_offset: int, decompressed_bytes_max: int) -> "TimeSearch":
        """As :meth:`moldau.log.reader.LogReader.search_largest_timestamp`."""
        return self._reader.search_largest_timestamp(limit_offset, decompressed_bytes_max)

    def epoch_of_last_batch(self) -> int:
        """The leader epoch that the last batch carries, from the file; -1 where there is none or it cannot be read."""
        return self._reader.epoch_of_last_batch()

    # Transactions and producers: see moldau.log.transactions

    @property
    def last_stable_offset(self) -> int:
        """Up to where readers of committed records may read: no transaction that has a record before it is undecided."""
        return self._transactions.last_stable_offset

    @property
    def durable_stable_offset(self) -> int:
        """Up to where a crash, too, leaves all records, and all transactions decided as they are."""
        return self._transactions.durable_stable_offset

    @property
    def first_ongoing_transaction(self) -> int | None:
        """Where the oldest transaction begins that has no marker."""
        return self._transactions.first_ongoing

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int | None = None) -> bool:
        """As :meth:`moldau.log.transactions.LogTransactions.has_ongoing_transaction`."""
        return self._transactions.has_ongoing_transaction(producer_id, producer_epoch)

    def note_refused(self, producer_id: int, epoch: int, sequence: int, now_ms: int) -> None:
        """A batch was refused with a retriable error before it came to the log: no later one of an unknown producer is taken before it."""
        self._producers.refused(producer_id, epoch, sequence, now_ms)

    def begin_verification(self, header: "BatchHeader", now_ms: int, *, bumps_epoch: bool) -> "Verification | None":
        """As :meth:`moldau.log.transactions.LogTransactions.begin_verification`."""
        return self._transactions.begin_verification(header, now_ms, bumps_epoch=bumps_epoch)

    def check_first(self, header: "BatchHeader", verification: "Verification") -> None:
        """As :meth:`moldau.log.transactions.LogTransactions.check_first`."""
        self._transactions.check_first(header, verification)

    def end_verification(self, producer_id: int) -> None:
        """The coordinator has refused, and a retry would not help."""
        self._transactions.end_verification(producer_id)

    def aborted_in(self, read: ReadResult, offset: int, limit_offset: int) -> list[tuple[int, int]]:
        """As :meth:`moldau.log.transactions.LogTransactions.aborted_in`."""
        return self._transactions.aborted_in(read, offset, limit_offset)

    def aborted_transactions(self, first_offset: int, end_offset: int) -> list[tuple[int, int]]:
        """As :meth:`moldau.log.transactions.LogTransactions.aborted_transactions`."""
        return self._transactions.aborted_transactions(first_offset, end_offset)

    def aborted_entries(self, first_offset: int, end_offset: int) -> "list[TransactionIndexEntry]":
        """As :meth:`moldau.log.transactions.LogTransactions.aborted_entries`."""
        return self._transactions.aborted_entries(first_offset, end_offset)

    def mend_aborted(self, offset: int) -> bool:
        """As :meth:`moldau.log.transactions.LogTransactions.mend_aborted`."""
        return self._transactions.mend_aborted(offset)

    def active_producers(self) -> list[ProducerView]:
        """The idempotent producers that are remembered, for DescribeProducers."""
        return self._producers.views()

    def producer(self, producer_id: int) -> ProducerView | None:
        """The same of one of them, if it is remembered."""
        return self._producers.view(producer_id)

    def producer_ends(self) -> list[tuple[int, int, int]]:
        """Id, offset of the last record (-1 for none) and epoch of each producer that is remembered."""
        return self._producers.ends()

    def expire_producers(self, now_ms: int) -> int:
        """Forget producers that were idle for `producer.id.expiration.ms`; how many."""
        return 0 if self.has_staged else self._producers.expire(now_ms, self.config.producer_id_expiration_ms)

    # Flushing: see moldau.log.flush

    @property
    def written_batches(self) -> int:
        """Counts the batches written since the log was opened, and those that opening had to read one by one."""
        return self._appender.written_batches

    @property
    def flushed_batches(self) -> int:
        """How many of the written batches are on disk."""
        return self._flush.flushed_batches

    @property
    def is_settled(self) -> bool:
        """Whether everything is on disk and before the recovery point that a start would go by, so that no flush is wanted."""
        return self._appender.written_batches == self.checkpointed_batches and not self._unsynced.has_files

    @property
    def must_flush(self) -> bool:
        """Whether `flush.messages` is reached: acknowledgements of what is not flushed wait for the disk."""
        return self._flush.must_flush

    def flush_wanted(self, now_ms: int) -> bool:
        """As :meth:`moldau.log.flush.LogFlush.flush_wanted`."""
        return self._flush.flush_wanted(now_ms)

    def flush_job(self) -> FlushJob | None:
        """As :meth:`moldau.log.flush.LogFlush.flush_job`."""
        return self._flush.flush_job()

    def flush_done(self, job: FlushJob) -> None:
        """As :meth:`moldau.log.flush.LogFlush.flush_done`."""
        self._flush.flush_done(job)

    def flush_failed(self, job: FlushJob) -> None:
        """As :meth:`moldau.log.flush.LogFlush.flush_failed`."""
        self._flush.flush_failed(job)

    def seal(self) -> None:
        """As :meth:`moldau.log.flush.LogFlush.seal`."""
        self._flush.seal()

    def close(self) -> None:
        """Close all files as they are: a log that is to be clean was sealed and flushed before. StorageError: closed all the same."""
        self._producers.clear()
        try:
            self._appender.close()
        finally:
            self._unsynced.close()
            for segment in self._segments.items:
                segment.forget()
            offsets = self.copy()  # with their own, the parts refer to the log no more: it is freed without the garbage collector
            self._parts.offsets = offsets
            for part in (self._appender, self._flush, self._reader, self._transactions):
                part._offsets = offsets

    # Removing: see moldau.log.trimmer

    def delete_records(self, before_offset: int) -> int:
        """As :meth:`moldau.log.trimmer.LogTrimmer.delete_records`."""
        return self._trimmer.delete_records(before_offset)

    def apply_retention(self, now_ms: int) -> list[RemovedSegment]:
        """As :meth:`moldau.log.trimmer.LogTrimmer.apply_retention`."""
        return self._trimmer.apply_retention(now_ms)

    def truncate_to(self, offset: int, before_cut: Callable[[int], object] | None = None) -> int:
        """As :meth:`moldau.log.trimmer.LogTrimmer.truncate_to`."""
        return self._trimmer.truncate_to(offset, before_cut)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """As :meth:`moldau.log.trimmer.LogTrimmer.truncate_fully_and_start_at`."""
        self._trimmer.truncate_fully_and_start_at(offset)

    def take_cut(self) -> int | None:
        """As :meth:`moldau.log.trimmer.LogTrimmer.take_cut`."""
        return self._trimmer.take_cut()

    def take_removed(self) -> list[RemovedSegment]:
        """As :meth:`moldau.log.segments.Segments.take_removed`."""
        return self._segments.take_removed()

    @property
    def truncations(self) -> int:
        """How often the end was cut off since the log was opened."""
        return self._unsynced.truncations

    # Compaction: see moldau.log.cleaning

    def replace_segments(self, replaced: Sequence[Segment], size: int, largest_timestamp: tuple[int, int], suffixes: Sequence[str]) -> None:
        """As :meth:`moldau.log.trimmer.LogTrimmer.replace_segments`."""
        self._trimmer.replace_segments(replaced, size, largest_timestamp, suffixes)

    def sealed_segments(self) -> list[Segment]:
        """All but the active one."""
        return self._segments.items[:-1]

    @property
    def active_base_offset(self) -> int:
        """Where the active segment begins."""
        return self._segments.active.base_offset

    @property
    def active_path(self) -> str:
        """The file that is appended to."""
        return self._segments.active.path

    @property
    def segment_count(self) -> int:
        """Segments, the active one included."""
        return len(self._segments)

    @property
    def size_bytes(self) -> int:
        """Bytes of batches, without indexes and what waits to be unlinked."""
        return self._segments.size_bytes()

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
