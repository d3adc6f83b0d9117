"""Making a log whole again after a crash: everything from the recovery point on is read, and cut where it stops making sense.

Before the recovery point all was synced, so there headers are enough. After it a crash may have left anything: bytes that never
reached the disk, zeros, old contents of the blocks, a later segment whole and an earlier one short. So each batch must match its checksum
and begin exactly where the one before it ended (the checksum does not cover the base offset); at the first that does not, the file
is cut, and the segments after it go. Compaction leaves holes before the recovery point; where another system has compacted, or the
recovery point is not known, an offset may also be skipped after it. A follower gets holes with what it fetches of a compacted log, and has
marked its own before, whatever the policy is since. They are within a segment: there a batch stands where the one before it ended in the
file, so that nothing is missing between them. Between segments the end of the earlier one may be.
Leader epochs must not fall: after an earlier cut, blocks may still hold whole batches of an earlier leadership, with offsets that fit.

Indexes are sparse copies of the log and are rebuilt as the batches pass. They are not synced with every flush, so of the segment that
holds the recovery point only those entries are believed that rise and lead to a batch. The index of aborted transactions is synced; from
the recovery point on the producers' replayed state says what each marker has ended. Its entries before that are compared with the segment's
batches, unless their checksum shows that they are what was written: one that is wrong shows aborted records as committed.
"""

from typing import NamedTuple

from moldau.log.batches import BadBatchError, find, scan, walk
from moldau.log.damage import Holes, LostRecordsError
from moldau.log.indexes import IndexBuilder
from moldau.log.leader_epochs import LeaderEpochs
from moldau.log.producer_replay import marker_in, mend
from moldau.log.producer_snapshots import Snapshots
from moldau.log.producer_states import ProducerStates
from moldau.log.segment import Segment
from moldau.log.segments import RemovedSegment, Segments
from moldau.ports.filesystem import File, FileSystem
from moldau.ports.probe import reached
from moldau.protocol.records.header import BatchHeader


def believe_indexes(segment: Segment, file: File, recovery_point: int) -> int:
    """Keep of the segment's indexes what speaks of synced batches and proves right; the position to walk from.

    The two files may have lost different parts. The walk has to begin no later than at the batch that the last time entry speaks of, since
    nothing is known of the timestamps after it.
    """
    index, time_index = segment.index, segment.time_index
    index.keep(index.rising_prefix())
    time_index.keep(time_index.rising_prefix())
    last_time = None
    if recovery_point > segment.base_offset:
        time_index.keep(time_index.search(recovery_point - 1 - segment.base_offset, 1))
        last_time = time_index.last()
    if last_time is not None:
        index.keep(index.search(last_time[1], 0))
        last = index.last()
        position = last[1] if last is not None else 0
        if _is_reached(segment, file, position, *last_time):
            return position
    reached("recovery: rebuilt the indexes of a segment")
    index.clear()
    time_index.clear()
    return 0


def _is_reached(segment: Segment, file: File, position: int, timestamp: int, relative_offset: int) -> bool:
    """Whether a batch begins at `position`, and from there on one ends with the offset of a time entry and reaches its timestamp."""
    offset = segment.base_offset + relative_offset
    try:
        found = find(file, position, segment.size, segment.base_offset, offset)
    except BadBatchError:
        return False
    return found is not None and found[1].last_offset == offset and found[1].max_timestamp == timestamp


class Cut(NamedTuple):
    """Bytes that were removed from the end of a file, and the offset that was due where they began."""

    path: str
    position: int
    bytes: int
    offset: int
    reason: str


class RecoveryReport:
    """What recovery did, for the log line and for tests. From `recovery_point` to before `end_offset` every batch was checked."""

    __slots__ = ("batches", "cuts", "end_offset", "partition", "recovery_point", "removed", "segments")

    def __init__(self, partition: str, recovery_point: int) -> None:
        self.partition = partition
        self.recovery_point = recovery_point
        self.end_offset = -1
        self.segments = 0
        self.batches = 0
        self.cuts: list[Cut] = []
        self.removed: list[RemovedSegment] = []

    @property
    def bytes_cut(self) -> int:
        """Bytes of batches that are gone, in cut files and in removed segments."""
        return sum(cut.bytes for cut in self.cuts) + sum(removed.size_bytes for removed in self.removed)


class Recovery:
    """One recovery of one log. `producers` holds the state as of `producers_offset`; what comes from there on is replayed. `snapshots` are
    those up to there.
    """

    def __init__(
        self,
        files: FileSystem,
        segments: Segments,
        producers: ProducerStates,
        producers_offset: int,
        snapshots: Snapshots,
        epochs: LeaderEpochs,
        report: RecoveryReport,
        *,
        folder: str,
        durable_offset: int,
        holes: Holes,
        now_ms: int,
    ) -> None:
        self._files = files
        self._segments = segments
        self._producers = producers
        self._producers_offset = producers_offset
        self._snapshots = snapshots
        self._epochs = epochs
        self._report = report
        self._folder = folder
        self._durable_offset = durable_offset
        self._holes = holes
        self._now_ms = now_ms

    def run(self, index_interval: int, delete_delay_ms: int) -> list[Segment]:
        """Recover; the segments that were read, whose files are to be synced. StorageError, also OldFormatError.

        LostRecordsError, before anything is cut, where that would cost records before the durable offset.
        """
        segments, report = self._segments, self._report
        # The segment that ends at the recovery point is looked at too: it may have been rolled, and its indexes not synced, after that.
        slot = segments.slot_of(report.recovery_point - 1)
        due = segments.bases[slot]
        read: list[Segment] = []
        self._epochs.truncate_end(report.recovery_point)
        while slot < len(segments):
            segment = segments.items[slot]
            if segment.base_offset != due and not (self._holes is Holes.ANYWHERE and segment.base_offset > due):
                self._allow_cut(due, segment.path, 0, f"the segment begins where offset {due} is due")
                reached("recovery: removed segments that do not follow")
                report.removed += segments.remove(slot, len(segments), f"begins where offset {due} is due", delete_delay_ms)
                break
            due = self._recover_segment(segment, index_interval)
            read.append(segment)
            slot += 1
            if slot < len(segments) and segments.bases[slot] <= report.recovery_point and not report.cuts:
                due = max(due, segments.bases[slot])  # what was flushed may have holes that compaction has left
            if report.cuts and slot < len(segments):
                reached("recovery: removed segments after a cut")
                report.removed += segments.remove(slot, len(segments), f"follows the cut at offset {due}", delete_delay_ms)
        self._allow_cut(due, segments.active.path, segments.active.size, "the log ends here")
        report.segments = len(read)
        report.end_offset = due
        return read

    def _recover_segment(self, segment: Segment, index_interval: int) -> int:
        """Check and index one segment, and cut it at the first bad batch. The offset after the last good one."""
        file, due = segment.file(), segment.base_offset
        if not segment.indexes_match():
            segment.index.clear()
            segment.time_index.clear()
        segment.check_transactions()
        position = believe_indexes(segment, file, self._report.recovery_point)
        builder = IndexBuilder(segment.index, segment.time_index, index_interval)
        aborted = segment.transaction_index
        has_none = not aborted.stored  # `damaged` is known once `stored` is
        is_proven = not aborted.damaged and (has_none or segment.knows_all_transactions())
        aborted.truncate_to(self._report.recovery_point)
        try:
            for at, header in walk(file, position, segment.size, due):
                if header.last_offset >= self._report.recovery_point:
                    break
                self._note(builder, at, header)
                position, due = at + header.size, header.last_offset + 1
            latest = self._epochs.latest
            for (at, size, base_offset, last_offset), header, batch in scan(file, position, segment.size, due):
                if base_offset != due and self._holes is Holes.NONE:
                    raise BadBatchError(file.path, at, due, f"base offset {base_offset} where {due} is due")
                if 0 <= header.partition_leader_epoch < latest:
                    raise BadBatchError(file.path, at, due, f"leader epoch {header.partition_leader_epoch} after {latest}")
                latest = self._note(builder, at, header)
                self._replay(segment, header, batch)
                position, due = at + size, last_offset + 1
        except BadBatchError as error:
            self._cut(segment, position, due, error.reason)
            aborted.truncate_to(due)
        builder.finish()
        segment.set_largest_timestamp(builder.newest, builder.reached)
        segment.store_indexes()
        if not is_proven:
            reached("recovery: compared an index of aborted transactions with its log")
            mend(self._segments, segment, self._snapshots, self._report.partition, due)
        segment.store_checksums()
        return due

    def _note(self, builder: IndexBuilder, position: int, header: BatchHeader) -> int:
        """Take what is to be known of a good batch; the newest leader epoch so far."""
        self._report.batches += 1
        builder.add(position, header)
        epochs = self._epochs.entries
        if not epochs or header.partition_leader_epoch > epochs[-1][0]:
            if header.partition_leader_epoch < 0:
                return -1
            self._epochs.assign(header.partition_leader_epoch, header.base_offset)
        return epochs[-1][0]

    def _replay(self, segment: Segment, header: BatchHeader, batch: memoryview) -> None:
        """Let the producers know of a batch, and the index of a transaction that it aborts."""
        if header.producer_id >= 0 and header.last_offset >= self._producers_offset:  # a log may start inside its first batch
            aborted = self._producers.replay(header, self._now_ms, marker_in(batch) if header.is_control else None)
            if aborted is not None:
                segment.transaction_index.add(aborted)

    def _allow_cut(self, offset: int, path: str, position: int, reason: str) -> None:
        """LostRecordsError if the log must not end at this offset."""
        if offset < self._durable_offset:
            lost = f"{path}, byte {position}, offset {offset}: {reason}; the log was on disk up to offset {self._durable_offset}"
            raise LostRecordsError(self._folder, lost)

    def _cut(self, segment: Segment, position: int, offset: int, reason: str) -> None:
        self._allow_cut(offset, segment.path, position, reason)
        reached("recovery: cut a torn batch")
        self._report.cuts.append(Cut(segment.path, position, segment.size - position, offset, reason))
        file = self._files.open(segment.path, writable=True)
        try:
            file.truncate(position)
        finally:
            file.release()
        segment.size = position
