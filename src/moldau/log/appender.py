"""Appending to a log: producers checked, offsets given, batches staged and written, segments rolled.

If `append_as_leader` or `write_staged` raise StorageError, nothing staged since the last `write_staged` may be acknowledged. A full disk
passes: the log can be used as before, reads continue, and the next append tries again.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from moldau.log.config import LogConfig
from moldau.log.producer_replay import marker_in
from moldau.log.reader import LogReader
from moldau.log.roller import LogParts, SegmentRoller
from moldau.log.segment_appender import SegmentAppender
from moldau.model.errors import ErrorCode, PeerError, StorageError
from moldau.ports.probe import chance, reached
from moldau.protocol.records.header import LOG_OVERHEAD, TRANSACTIONAL_BIT, BatchHeader, read_header, stamp, stamp_log_append_time

if TYPE_CHECKING:
    from moldau.log.fetched import FetchedBatch
    from moldau.protocol.records.control import EndTxnMarker

NEVER_MS = 1 << 80

_result = tuple.__new__


class AppendResult(NamedTuple):
    """What became of a batch. `log_append_time_ms` is -1 unless the broker stamps it. A `duplicate` was stored before, at these offsets."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    duplicate: bool


class LogAppender:
    """Invariant: log end <= staged end. Nothing is staged while both are equal."""

    __slots__ = (
        "_after_ms",
        "_append_time",
        "_before_ms",
        "_config",
        "_epoch_begins",
        "_epochs",
        "_lost",
        "_offsets",
        "_producers",
        "_reader",
        "_roller",
        "_segment_appender",
        "_segments",
        "last_append_ms",
        "leader_epoch",
        "staged_end_offset",
        "unflushed_since_ms",
        "written_batches",
    )

    def __init__(
        self,
        parts: LogParts,
        reader: LogReader,
        roller: SegmentRoller,
        leader_epoch: int,
        now_ms: int,
    ) -> None:
        self._offsets = offsets = parts.offsets
        self._segments = parts.segments
        self._producers = parts.producers
        self._epochs = epochs = parts.epochs
        self._reader = reader
        self._roller = roller
        self._lost: StorageError | None = None
        """What a write in the middle of staging has raised; the next `write_staged` raises it."""
        self.staged_end_offset = offsets.log_end_offset
        """After the last record that is staged."""
        self.leader_epoch = leader_epoch
        self._epoch_begins = epochs.begin_term(leader_epoch, offsets.log_end_offset)
        self.last_append_ms = now_ms
        """When the last batch came."""
        self.written_batches = 0
        """Counts the batches written since the log was opened, and those that opening had to read one by one."""
        self.unflushed_since_ms = NEVER_MS
        """When the first batch was written that no flush has covered."""
        self._segment_appender = roller.append_to(parts.segments.active, now_ms)
        self.reconfigure(parts.config)

    def reconfigure(self, config: LogConfig) -> None:
        """Obey other settings from now on."""
        self._config = config
        self._append_time = config.append_time
        self._reader.holes_allowed |= config.compacts
        self._after_ms = NEVER_MS if config.append_time else config.message_timestamp_after_max_ms
        self._before_ms = NEVER_MS if config.append_time else config.message_timestamp_before_max_ms
        self._segment_appender.reconfigure(config)

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
        appender = self._segment_appender
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
            self.last_append_ms = now_ms
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

    def append_marker_as_leader(
        self, producer_id: int, producer_epoch: int, marker: "EndTxnMarker", now_ms: int, *, transaction_version: int
    ) -> AppendResult:
        """Stage the control batch that ends the producer's transaction here; without one it is written all the same and ends nothing.

        PeerError: INVALID_PRODUCER_EPOCH for a marker of an earlier transaction, TRANSACTION_COORDINATOR_FENCED for one of an earlier
        coordinator; nothing was staged. StorageError: see `append_as_leader`.
        """
        from moldau.protocol.records.control import ControlType, encode_end_txn_marker

        self._producers.check_marker(producer_id, producer_epoch, marker.coordinator_epoch, transaction_version)
        data = encode_end_txn_marker(marker, producer_id=producer_id, producer_epoch=producer_epoch, timestamp=now_ms)
        batch = memoryview(bytearray(data))
        result = self.append_as_leader(batch, read_header(batch)._replace(producer_id=-1), now_ms)  # it has no sequence to be checked
        self._producers.stage_marker(
            producer_id,
            producer_epoch,
            marker.coordinator_epoch,
            result.base_offset,
            now_ms,
            now_ms,
            abort=marker.type is ControlType.ABORT,
        )
        return result

    def append_as_follower(self, records: memoryview, now_ms: int, before_holes: Callable[[], object] | None = None) -> int:
        """Write whole batches that were fetched from the leader, with their offsets and leader epochs. The new log end offset.

        A last batch that is cut off is left out. Nothing but the bytes, offsets and epochs is checked: the leader has accepted the rest.
        In an empty log the first batch may begin before the log start, which stays where it is (KAFKA-6975). `before_holes` is called first
        where offsets are left out, as the leader's log was compacted; what it raises leaves the log as it is.
        CorruptBatchError: nothing was written. StorageError: the batches before `log_end_offset` are in the log.
        """
        from moldau.log.fetched import check_fetched

        assert not self.has_staged
        offsets, active = self._offsets, self._segments.active
        is_empty = offsets.start_offset == offsets.log_end_offset and not active.size
        end_offset, latest_epoch = offsets.log_end_offset, self._epochs.latest
        batches, has_holes = check_fetched(records, self._producers.partition, end_offset, latest_epoch, is_empty=is_empty)
        if has_holes:
            if before_holes is not None:
                before_holes()
            self._reader.holes_allowed = True
        if batches and batches[0].header.base_offset < active.base_offset:
            self._begin_with(batches[0], now_ms)
            del batches[0]
        self._write_fetched(batches, now_ms)
        return offsets.log_end_offset

    @property
    def has_staged(self) -> bool:
        """Whether something is appended that is not written."""
        return self.staged_end_offset != self._offsets.log_end_offset

    def write_staged(self) -> None:
        """Write all staged batches (into the page cache) with one call. StorageError: none of them is in the log."""
        lost = self._lost
        if lost is not None:
            self._lost = None
            self.take_back_staged()
            raise lost
        if self.staged_end_offset != self._offsets.log_end_offset:
            self._write()

    def lead_epoch(self, epoch: int) -> None:
        """Lead with `epoch` from now on. `end_offset_for_epoch` knows it at once; its file does with the first batch. StorageError."""
        if self.has_staged:
            self.write_staged()
        self.leader_epoch = epoch
        self._epoch_begins = self._epochs.begin_term(epoch, self._offsets.log_end_offset)

    def take_back_staged(self) -> None:
        """What is staged was never appended."""
        if self.has_staged:
            self._segment_appender.undo()
            self._producers.undo()
            self.staged_end_offset = self._offsets.log_end_offset

    @property
    def failure(self) -> StorageError | None:
        """Why it is unknown which of the written bytes reach the disk."""
        return self._segment_appender.failure

    def roll(self, now_ms: int) -> None:
        """Seal the active segment and begin a new one at the end. Nothing is staged. StorageError: the old one stays, or there is a new."""
        sealed = self._segment_appender
        self._segment_appender = self._roller.roll(sealed, self._offsets.log_end_offset, now_ms)
        sealed.segment.store_checksums()
        sealed.close()
        self._segment_appender.prepare()

    def skip_to(self, offset: int, now_ms: int) -> None:
        """End at `offset`, in a new segment; nothing is staged. What is missing before it was compacted. StorageError."""
        self._reader.holes_allowed = True
        self._roll_at(offset, now_ms)

    def seal(self) -> bool:
        """Write what is staged, and all of the active segment's indexes. Whether their files may be unsynced. StorageError."""
        self.write_staged()
        return self._segment_appender.seal()

    def close(self) -> None:
        """Close the file of the active segment. StorageError; it is closed all the same."""
        self._segment_appender.close()

    def restart(self) -> None:
        """The log was truncated while this was closed: continue at its end."""
        self.staged_end_offset = self._offsets.log_end_offset
        self._epoch_begins = self.leader_epoch > self._epochs.latest
        self._segment_appender = self._roller.append_to(self._segments.active, self.last_append_ms)

    def _check_timestamps(self, base_timestamp: int, timestamp: int, now_ms: int) -> None:
        config = self._config
        for value in (base_timestamp, timestamp):
            if value != -1 and not -config.message_timestamp_after_max_ms <= now_ms - value <= config.message_timestamp_before_max_ms:
                raise PeerError(
                    ErrorCode.INVALID_TIMESTAMP,
                    f"{self._producers.partition}: timestamp {value} is not within {config.message_timestamp_before_max_ms} ms before"
                    f" and {config.message_timestamp_after_max_ms} ms after the broker's {now_ms}",
                )

    def _make_room(self, size: int, last_offset: int, timestamp: int, now_ms: int) -> SegmentAppender:
        """Get ready for a batch: look at the files, if that was not done yet, and roll if one of the limits says so."""
        if size > self._config.segment_bytes:
            raise PeerError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{self._producers.partition}: batch of {size} bytes, segment.bytes is {self._config.segment_bytes}",
            )
        if not self._segment_appender.ready:
            self._segment_appender.prepare()
        appender = self._segment_appender
        if appender.must_roll(size, last_offset, timestamp, now_ms) or (appender.position and chance("log: rolls early")):
            if self.has_staged:
                try:
                    self._write()
                except StorageError as error:
                    self._lost = error
                    raise
            self.roll(now_ms)
        return self._segment_appender

    def _write(self) -> None:
        offsets, appender = self._offsets, self._segment_appender
        first_offset, count = offsets.log_end_offset, len(appender.staged)
        try:
            appender.write()
        except StorageError:
            reached("log: a write failed and was undone")
            self.staged_end_offset = first_offset
            self._producers.undo()
            raise
        aborted = self._producers.commit()
        if aborted:
            appender.note_aborted(aborted)
        offsets.log_end_offset = self.staged_end_offset
        self.written_batches += count
        if self._epoch_begins:
            self._epochs.assign(self.leader_epoch, first_offset)
            self._epoch_begins = False
        if self.unflushed_since_ms == NEVER_MS:
            self.unflushed_since_ms = self.last_append_ms

    def _begin_with(self, batch: "FetchedBatch", now_ms: int) -> None:
        """Put a segment that begins with this batch, in which the log start lies, in the place of the empty one.

        The batch is on disk before the empty segment goes, so that a start finds the log to reach its recovery point at any time.
        StorageError: the log is as it was.
        """
        header, view = batch
        self._segment_appender.close()
        appender = self._roller.create_apart(header.base_offset, now_ms)
        try:
            appender.prepare()
            appender.stage(view, header)
            appender.write()
            self._roller.put_in_place(appender)
        except StorageError:
            self._roller.discard(appender)
            raise
        self._segment_appender = appender
        self._reader.forget_positions()
        self._epochs.clear()
        self._producers.clear()
        self.staged_end_offset = header.last_offset + 1
        self._note_replicated([batch], now_ms)
        self._epochs.truncate_start(self._offsets.start_offset)

    def _write_fetched(self, batches: "Sequence[FetchedBatch]", now_ms: int) -> None:
        """Write batches of the leader that :func:`moldau.log.fetched.check_fetched` accepted, as they are; roll segments on the way.

        Nothing is staged before or after. StorageError: those before `log_end_offset` are in the log.
        """
        first, appender = 0, self._segment_appender
        for number, (header, view) in enumerate(batches):
            size, last_offset, timestamp = len(view), header.last_offset, header.max_timestamp
            if (
                appender.position + size > appender.segment_limit
                or timestamp > appender.roll_timestamp
                or now_ms > appender.roll_ms
                or last_offset > appender.offset_limit
            ):
                if not appender.ready:
                    appender.prepare()
                is_out_of_reach = last_offset > appender.offset_limit
                if is_out_of_reach or appender.must_roll(size, last_offset, timestamp, now_ms):
                    self._write_replicated(batches[first:number], now_ms)
                    first = number
                    self._roll_at(header.base_offset if is_out_of_reach else self._offsets.log_end_offset, now_ms)
                    appender = self._segment_appender
            appender.stage(view, header)
            self.staged_end_offset = last_offset + 1
        self._write_replicated(batches[first:], now_ms)

    def _write_replicated(self, staged: "Sequence[FetchedBatch]", now_ms: int) -> None:
        """Write these batches, which are all that is staged. StorageError."""
        if not staged:
            return
        try:
            self._segment_appender.write()
        except StorageError:
            self.staged_end_offset = self._offsets.log_end_offset
            raise
        self._note_replicated(staged, now_ms)

    def _note_replicated(self, staged: "Sequence[FetchedBatch]", now_ms: int) -> None:
        """These batches are written: note their epochs, producers and transactions, and where the log ends."""
        epochs, latest = self._epochs, self._epochs.latest
        for header, view in staged:
            if header.partition_leader_epoch > latest:
                latest = header.partition_leader_epoch
                epochs.assign(latest, header.base_offset)
            if header.producer_id >= 0:
                aborted = self._producers.replay(header, now_ms, marker_in(view) if header.is_control else None)
                if aborted is not None:
                    self._segment_appender.note_aborted([aborted])
        self._offsets.log_end_offset = self.staged_end_offset
        self.written_batches += len(staged)
        self._epoch_begins = self.leader_epoch > epochs.latest
        self.last_append_ms = now_ms
        if self.unflushed_since_ms == NEVER_MS:
            self.unflushed_since_ms = now_ms

    def _roll_at(self, base_offset: int, now_ms: int) -> None:
        """Roll, and have the new segment begin at `base_offset`, after a hole that reaches farther than one index can say. StorageError."""
        end_offset = self._offsets.log_end_offset
        self._offsets.log_end_offset = self.staged_end_offset = base_offset
        try:
            self.roll(now_ms)
        finally:
            if self._segments.active.base_offset != base_offset:  # a log that ends with the old segment ends where that does
                self._offsets.log_end_offset = self.staged_end_offset = end_offset
