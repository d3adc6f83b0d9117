"""Removing records from a log: retention and DeleteRecords at its start, truncation at its end, compaction in between.

Files of removed segments are only renamed. Readers that are in the middle of one keep it open; the caller unlinks them later.

Which segments retention takes: by age, by the size of the whole, by the start offset. Kafka's rules: from the oldest on, up to the first
segment that stays; nothing that reaches beyond the high watermark; and the active segment only if it holds records, in which case it is
rolled first. Beyond Kafka's: age and size take nothing of a transaction that is not decided, nor what follows it. DeleteRecords may.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from moldau.log.appender import LogAppender
from moldau.log.config import LogConfig
from moldau.log.producer_replay import producers_before, replay_producers
from moldau.log.reader import LogReader
from moldau.log.roller import LogParts, SegmentRoller
from moldau.log.segment import Segment
from moldau.log.segments import RemovedSegment
from moldau.log.swap import swap_files
from moldau.log.transactions import LogTransactions
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.value import Value
from moldau.ports.probe import reached


class TrimBounds(NamedTuple):
    """Offsets of the log that limit what may go."""

    start_offset: int
    end_offset: int
    high_watermark: int
    last_stable_offset: int


class ExpiredSegments(Value):
    """So many segments from the first on are to go, for this reason."""

    segments: int
    reason: str


def expired(segments: Sequence[Segment], config: LogConfig, bounds: TrimBounds, now_ms: int) -> ExpiredSegments | None:
    """The first rule that some segments break, or None. To be called again once they are removed."""
    unseen = before_start(segments, bounds)
    if unseen is not None or not config.deletes:
        return unseen
    bounds = bounds._replace(high_watermark=bounds.last_stable_offset)
    if config.retention_bytes >= 0:
        count = _over_size(segments, config.retention_bytes, bounds)
        if count:
            return ExpiredSegments(count, f"retention.bytes {config.retention_bytes} exceeded")
    if config.retention_ms >= 0:
        oldest_ms = now_ms - config.retention_ms
        count = _leading(segments, bounds, lambda segment, _: segment.retention_timestamp() < oldest_ms)
        if count:
            return ExpiredSegments(count, f"retention.ms {config.retention_ms} exceeded")
    return None


def before_start(segments: Sequence[Segment], bounds: TrimBounds) -> ExpiredSegments | None:
    """The segments that hold nothing from the start offset on, or None."""
    count = _leading(segments, bounds, lambda segment, end: end <= bounds.start_offset, keep_active=True)
    return ExpiredSegments(count, f"before the start offset {bounds.start_offset}") if count else None


def _over_size(segments: Sequence[Segment], retention_bytes: int, bounds: TrimBounds) -> int:
    surplus = sum(segment.size for segment in segments) - retention_bytes

    def goes(segment: Segment, _: int) -> bool:
        nonlocal surplus
        if surplus < segment.size:
            return False
        surplus -= segment.size
        return True

    return _leading(segments, bounds, goes)


def _leading(segments: Sequence[Segment], bounds: TrimBounds, goes: Callable[[Segment, int], bool], *, keep_active: bool = False) -> int:
    """How many segments from the first on may be removed; `goes` gets each with the offset after its last record."""
    count = 0
    for slot, segment in enumerate(segments):
        active = slot + 1 == len(segments)
        end = bounds.end_offset if active else segments[slot + 1].base_offset
        if end > bounds.high_watermark or (active and (keep_active or not segment.size)) or not goes(segment, end):
            break
        count += 1
    return count


class LogTrimmer:
    """Invariant: the first segment holds the start offset, or is waiting for retention."""

    __slots__ = ("_appender", "_cut_to", "_parts", "_reader", "_roller", "_transactions")

    def __init__(
        self, parts: LogParts, reader: LogReader, roller: SegmentRoller, appender: LogAppender, transactions: LogTransactions
    ) -> None:
        self._parts = parts
        self._reader = reader
        self._roller = roller
        self._appender = appender
        self._transactions = transactions
        self._cut_to: int | None = None

    def delete_records(self, before_offset: int) -> int:
        """Show nothing before `before_offset` any more (-1: the high watermark) and remove segments that have nothing else.

        The new start offset. PeerError OFFSET_OUT_OF_RANGE beyond the high watermark. The removed files are in `Segments.removed`.
        """
        parts = self._parts
        if before_offset == -1:
            before_offset = parts.offsets.high_watermark
        if not 0 <= before_offset <= parts.offsets.high_watermark:
            raise PeerError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{parts.producers.partition}: offset {before_offset} is beyond the high watermark {parts.offsets.high_watermark}",
            )
        self._start_at(before_offset)
        unseen = before_start(parts.segments.items, self._bounds())
        if unseen is not None:
            self._remove_first(unseen)
        return parts.offsets.start_offset

    def apply_retention(self, now_ms: int) -> list[RemovedSegment]:
        """Remove what is too old, too much, or before the start offset. All that was removed since the last call: `unlink` it later."""
        parts = self._parts
        self._appender.write_staged()
        while (found := expired(parts.segments.items, parts.config, self._bounds(), now_ms)) is not None:
            if found.segments == len(parts.segments):
                self._appender.roll(now_ms)
            self._remove_first(found)
        return parts.segments.take_removed()

    def truncate_to(self, offset: int, before_cut: Callable[[int], object] | None = None) -> int:
        """Cut off the batch that holds `offset` and all after it. The new end offset: `offset`, or where that batch began. StorageError.

        `before_cut` is called with the new end offset before anything is cut off; what it raises leaves the log as it is.

        Compaction may have removed what was before it: then an empty segment at the new end says where that is, also to a start.

        What is cut off may have been flushed: the new recovery point has to be on disk before the next batch is flushed.
        """
        parts = self._parts
        self._appender.take_back_staged()
        if offset >= parts.offsets.log_end_offset:
            parts.epochs.truncate_end(parts.offsets.log_end_offset)
            return parts.offsets.log_end_offset
        slot = parts.segments.slot_of(offset)
        found = None if offset < parts.segments.bases[0] else parts.segments.items[slot].locate(offset)
        end_offset = offset if found is None else min(offset, found[1].base_offset)
        if before_cut is not None:
            before_cut(end_offset)
        if offset < parts.segments.bases[0]:
            self.truncate_fully_and_start_at(offset)
            return offset
        parts.unsynced.truncated()
        self._appender.close()
        self._remove_slots(slot + 1, len(parts.segments), f"truncated to offset {offset}")
        end_of_batches = self._cut_active(offset, None if found is None else found[0])
        parts.epochs.truncate_end(end_offset)
        parts.snapshots.remove_after(end_offset)
        parts.files.sync_directory(parts.directory)
        self._load_producers(end_offset)
        parts.offsets.move_end(end_offset)
        self._end_at(end_offset)
        if end_of_batches < end_offset:
            self._appender.skip_to(end_offset, self._appender.last_append_ms)
        return end_offset

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything and begin at `offset`. StorageError."""
        parts = self._parts
        self._appender.take_back_staged()
        parts.unsynced.truncated()
        self._appender.close()
        self._remove_slots(0, len(parts.segments), f"truncated, to start at offset {offset}")
        for snapshot in list(parts.snapshots.offsets):
            parts.snapshots.remove(snapshot)
        parts.epochs.clear()
        parts.producers.clear()
        self._roller.create_segment(offset)
        parts.files.sync_directory(parts.directory)
        parts.offsets.move_to(offset)
        self._end_at(offset)

    def take_cut(self) -> int | None:
        """The least offset that the end was cut to since this was last asked; None if it was not."""
        cut, self._cut_to = self._cut_to, None
        return cut

    def replace_segments(self, replaced: Sequence[Segment], size: int, largest_timestamp: tuple[int, int], suffixes: Sequence[str]) -> None:
        """Put one segment of `size` bytes in the place of neighbours, all of them sealed. Its files wait on disk as ``.cleaned``.

        `largest_timestamp`: what `Segment.largest_timestamp` of it is. The replaced files are in `Segments.removed`. After a crash, now or
        later, either the old segments exist or the new one; `sync_directory` makes it the new one. StorageError: the files are
        somewhere in between until the log is opened again.
        """
        parts = self._parts
        slot = parts.segments.slot_of(replaced[0].base_offset)
        self._reader.forget_positions()
        parts.segments.removed += swap_files(parts.files, parts.directory, replaced, suffixes, parts.config.file_delete_delay_ms)
        segment = Segment(parts.files, parts.cache, parts.directory, replaced[0].base_offset, size)
        segment.set_largest_timestamp(*largest_timestamp)
        segment.store_checksums()
        if len(segment.transaction_index):
            parts.unsynced.add(*segment.synced_paths())
        parts.segments.replace(slot, slot + len(replaced), segment)
        for each in replaced[1:]:
            parts.snapshots.forget(each.base_offset)

    def _bounds(self) -> TrimBounds:
        parts = self._parts
        return TrimBounds(
            parts.offsets.start_offset,
            parts.offsets.log_end_offset,
            parts.offsets.high_watermark,
            self._transactions.last_stable_offset,
        )

    def _start_at(self, offset: int) -> None:
        parts = self._parts
        if offset > parts.offsets.start_offset:
            parts.offsets.start_offset = offset
            parts.epochs.truncate_start(offset)

    def _remove_first(self, found: ExpiredSegments) -> None:
        self._remove_slots(0, found.segments, found.reason)
        self._start_at(self._parts.segments.bases[0])

    def _remove_slots(self, first: int, last: int, reason: str) -> None:
        parts = self._parts
        reached("log: removed segments from its start")
        self._reader.forget_positions()
        for segment in parts.segments.remove(first, last, reason, parts.config.file_delete_delay_ms):
            parts.snapshots.forget(segment.base_offset)
        parts.unsynced.add_directory(parts.directory)

    def _cut_active(self, offset: int, position: int | None) -> int:
        """Cut the active segment before the batch that holds `offset`, if one at `position` does; the offset after its last batch then."""
        parts = self._parts
        segment = parts.segments.active
        if position is not None:
            segment.check_transactions()
            segment.forget()
            file = parts.files.open(segment.path, writable=True)
            try:
                file.truncate(position)
                file.sync()
            finally:
                file.release()
            segment.size = position
            segment.index.truncate_to(segment.size)
            segment.time_index.truncate_to(offset)
            segment.transaction_index.truncate_to(offset)
        end_of_batches = segment.index_end(parts.config.index_interval_bytes)
        segment.store_indexes()
        segment.store_checksums()
        return end_of_batches

    def _end_at(self, offset: int) -> None:
        self._reader.forget_positions()
        self._cut_to = offset if self._cut_to is None else min(self._cut_to, offset)
        self._transactions.truncated(offset)
        self._appender.restart()

    def _load_producers(self, until: int) -> None:
        """Producers as of `until`; from a snapshot before the high watermark, so that all markers that do not count yet are seen."""
        parts = self._parts
        now_ms = self._appender.last_append_ms
        parts.producers.clear()
        first = parts.segments.bases[0]
        loaded = parts.snapshots.load_newest(min(until, parts.offsets.high_watermark), now_ms, parts.producers.most)
        if loaded is not None:
            first, entries = loaded
            parts.producers.load(entries)
            parts.producers.look_back = lambda: producers_before(parts.segments, first, now_ms, parts.producers.entries)
        replay_producers(parts.segments, parts.producers, first, until, now_ms)
