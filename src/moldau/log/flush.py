"""Flushing a log: what has to reach the disk before the recovery point may move, and when (``flush.messages``, ``flush.ms``)."""

from moldau.log.appender import NEVER_MS, LogAppender
from moldau.log.reader import LogReader
from moldau.log.roller import LogParts, SegmentRoller
from moldau.log.transactions import LogTransactions
from moldau.log.unsynced import FlushJob
from moldau.model.errors import StorageError


class LogFlush:
    """Makes jobs that sync a log, and moves the flushed offset when they have run."""

    __slots__ = (
        "_appender",
        "_epochs",
        "_offsets",
        "_parts",
        "_producers",
        "_reader",
        "_roller",
        "_segments",
        "_transactions",
        "_unsynced",
        "flushed_batches",
    )

    def __init__(
        self,
        parts: LogParts,
        reader: LogReader,
        roller: SegmentRoller,
        appender: LogAppender,
        transactions: LogTransactions,
    ) -> None:
        self._parts = parts
        self._offsets = parts.offsets
        self._segments = parts.segments
        self._producers = parts.producers
        self._epochs = parts.epochs
        self._unsynced = parts.unsynced
        self._reader = reader
        self._roller = roller
        self._appender = appender
        self._transactions = transactions
        self.flushed_batches = 0
        """How many of the written batches are on disk."""

    @property
    def must_flush(self) -> bool:
        """Whether `flush.messages` is reached: acknowledgements of what is not flushed wait for the disk."""
        return self._offsets.log_end_offset - self._offsets.flushed_offset >= self._parts.config.flush_messages

    def flush_wanted(self, now_ms: int) -> bool:
        """Whether a flush should start: `flush.messages` or `flush.ms` is reached, or a segment was rolled and not synced yet."""
        return self.must_flush or now_ms >= self._appender.unflushed_since_ms + self._parts.config.flush_ms or self._unsynced.has_files

    def flush_job(self) -> FlushJob | None:
        """What brings everything written to disk; None if it is there. After `run`, elsewhere, comes `flush_done` or, if it has raised,
        `flush_failed`. StorageError, for good after a sync has failed.
        """
        end_offset = self._offsets.log_end_offset
        unwritten = end_offset > self._offsets.flushed_offset
        active = self._segments.active
        aborted = active.transaction_index
        if not (unwritten or self._unsynced.has_files or self._unsynced.has_names or self._epochs.changed or aborted.unsynced):
            return None
        if self._roller.is_snapshot_due and not self._appender.has_staged:
            self._take_snapshot_if_there_is_room(end_offset)
        if self._appender.failure is not None:
            raise self._appender.failure
        if aborted.unsynced:
            aborted.store()
            self._unsynced.add(aborted.path)
            aborted.unsynced = False
        file = active.file() if unwritten else None
        job = self._unsynced.job(end_offset, file, self._epochs)
        job.place = (active, active.size)
        job.batches = self._appender.written_batches
        job.stable_offset = self._transactions.last_stable_offset
        return job

    def flush_done(self, job: FlushJob) -> None:
        """`job` has run without an error: what it covered is on disk."""
        offsets, appender = self._offsets, self._appender
        if self._unsynced.done(job, self._epochs) and job.offset > offsets.flushed_offset:
            offsets.flushed_offset = job.offset
            self.flushed_batches = job.batches
            self._transactions.flushed(job.stable_offset)
            if job.place is not None:
                self._reader.remember(job.offset, *job.place)
        rest = offsets.log_end_offset > offsets.flushed_offset
        appender.unflushed_since_ms = appender.last_append_ms if rest else NEVER_MS

    def flush_failed(self, job: FlushJob) -> None:
        """`job` has raised: what it covered may not be on disk."""
        self._unsynced.give_up(job)

    def seal(self) -> None:
        """Write what the log has to have before it is closed; a flush then brings all of it to disk. StorageError."""
        active = self._segments.active
        if self._appender.seal():
            self._unsynced.add(*active.synced_paths())
            active.transaction_index.unsynced = False
            active.store_checksums()
        end_offset = self._offsets.log_end_offset
        if self._producers.entries or end_offset > active.base_offset:
            self._roller.take_snapshot(end_offset)

    def _take_snapshot_if_there_is_room(self, end_offset: int) -> None:
        try:
            self._roller.take_snapshot(end_offset)
        except StorageError as error:  # a snapshot only shortens the next start
            if not error.no_space:
                raise
