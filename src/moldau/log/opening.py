"""From the files in a partition's folder to a log that can be used.

After a clean stop nothing is read but names, sizes, the last index entries with the few batches after them, the newest producer snapshot
and the leader epochs: the time it takes does not depend on how much data there is. Otherwise see :mod:`moldau.log.recovery`.
"""

import logging
from typing import TYPE_CHECKING, NamedTuple

from moldau.log import names
from moldau.log.batches import BadBatchError, walk
from moldau.log.cache import SegmentCache
from moldau.log.checkpoints import LOG_STARTS
from moldau.log.config import LogConfig
from moldau.log.damage import DamagedFileError, Holes, LostRecordsError
from moldau.log.leader_epochs import LeaderEpochs, decode_leader_epochs
from moldau.log.producer_bound import ProducerBound
from moldau.log.producer_replay import producers_before, replay_producers
from moldau.log.producer_snapshots import Snapshots
from moldau.log.producer_states import ProducerStates
from moldau.log.segment import Segment
from moldau.log.segments import RemovedSegment, Segments
from moldau.log.swap import settle_leftovers
from moldau.log.unsynced import UnsyncedFiles
from moldau.ports.filesystem import FileSystem

if TYPE_CHECKING:
    from moldau.log.recovery import RecoveryReport

_LOG = logging.getLogger(__name__)


class OpenedLog(NamedTuple):
    """What a log consists of once its files are understood."""

    segments: Segments
    producers: ProducerStates
    snapshots: Snapshots
    epochs: LeaderEpochs
    unsynced_files: UnsyncedFiles
    start_offset: int
    end_offset: int
    flushed_offset: int
    report: "RecoveryReport | None"


class Opening:
    """Opens one log.

    `holes`: which are no loss after the recovery point. `adopted`: another system wrote it, and they may be anywhere.

    Everything before the recovery point was on disk. If some of it is missing or damaged now, the log is not opened, and its files stay as
    they are, unless that is accepted (`accept_loss`).
    """

    def __init__(
        self,
        files: FileSystem,
        cache: SegmentCache,
        directory: str,
        partition: str,
        config: LogConfig,
        *,
        adopted: bool,
        holes: Holes,
        accept_loss: bool,
        now_ms: int,
        producer_bound: ProducerBound | None = None,
    ) -> None:
        self._files = files
        self._cache = cache
        self._directory = directory
        self._partition = partition
        self._config = config
        self._adopted = adopted
        self._holes = Holes.ANYWHERE if adopted else holes
        self._accept_loss = accept_loss
        self._now_ms = now_ms
        self._segments = Segments(files)
        self._producers = ProducerStates(partition, producer_bound)
        self._unsynced_files = UnsyncedFiles(files, directory)

    def open(self, recovery_point: int, start_offset: int, *, clean: bool) -> OpenedLog:
        """Open. LostRecordsError; StorageError, of that OldFormatError for batches that cannot be read."""
        try:
            return self._open(recovery_point, start_offset, clean=clean)
        except BaseException:
            self._producers.clear()  # they count in the bound of all logs
            raise

    def _open(self, recovery_point: int, start_offset: int, *, clean: bool) -> OpenedLog:
        if not self._files.exists(self._directory):
            self._files.make_directory(self._directory)
            self._unsynced_files.add_directory(self._directory.rpartition("/")[0] or ".")
        durable_offset = 0 if self._accept_loss else recovery_point
        found = settle_leftovers(self._files, self._directory, range(start_offset, durable_offset))
        snapshots = Snapshots(self._files, self._directory, self._find_files(found))
        epochs = self._load_epochs() if names.LEADER_EPOCHS in found else LeaderEpochs()
        report = None
        if not self._segments.items:
            self._expect_end(start_offset, durable_offset)
            end_offset = flushed_offset = start_offset
            self._create_segment(start_offset)
        else:
            clean_end = self._end_of_clean_log() if clean else None
            if clean_end is not None:
                self._expect_end(clean_end, durable_offset)
                end_offset = flushed_offset = clean_end
                self._load_producers(snapshots, self._checked(start_offset, end_offset), end_offset)
            else:
                first = self._segments.active.base_offset if clean else recovery_point
                report = self._recover(first, durable_offset, start_offset, snapshots, epochs)
                end_offset, flushed_offset = report.end_offset, min(report.recovery_point, report.end_offset)
        start_offset = max(self._checked(start_offset, end_offset), self._segments.bases[0])
        epochs.truncate_end(end_offset)
        epochs.truncate_start(start_offset)
        snapshots.remove_after(end_offset)
        return OpenedLog(
            self._segments,
            self._producers,
            snapshots,
            epochs,
            self._unsynced_files,
            start_offset,
            end_offset,
            flushed_offset,
            report,
        )

    def _expect_end(self, end_offset: int, durable_offset: int) -> None:
        """LostRecordsError if the log ends before what was on disk."""
        if end_offset < durable_offset:
            raise LostRecordsError(
                self._directory,
                f"{self._directory}: the log ends at offset {end_offset}, but was on disk up to offset {durable_offset}: "
                f"{durable_offset - end_offset} offsets are lost",
            )

    def _checked(self, start_offset: int, end_offset: int) -> int:
        """The start offset, or that of the first segment if the log ends before it: nothing is removed for a number that cannot be."""
        if start_offset <= end_offset:
            return start_offset
        first = self._segments.bases[0]
        _LOG.warning(
            "start offset not used: partition=%s start_offset=%d end_offset=%d folder=%s; outside the log; all is kept, the log "
            "begins with its first segment, at offset %d; see %s",
            self._partition, start_offset, end_offset, self._directory, first, f"{self._directory.rpartition('/')[0]}/{LOG_STARTS}",
        )  # fmt: skip
        return first

    def _find_files(self, found: list[str]) -> list[int]:
        """Take the segments and what waits to be removed out of a listing; the offsets of the snapshots in it."""
        snapshots = []
        for name in found:
            known = names.parse(name)
            if known is None:
                self._find_other(name)
                continue
            offset, suffix = known
            if suffix == names.LOG:
                size = self._files.size(f"{self._directory}/{name}")
                segment = Segment(self._files, self._cache, self._directory, offset, size)
                self._segments.add(segment)
                if self._adopted:
                    next(walk(segment.file(), 0, segment.size, offset), None)
            elif suffix == names.SNAPSHOT:
                snapshots.append(offset)
        return snapshots

    def _find_other(self, name: str) -> None:
        path = f"{self._directory}/{name}"
        if name.endswith(names.DELETED):
            self._segments.removed.append(
                RemovedSegment(self._files, -1, self._files.size(path), "left from before", self._config.file_delete_delay_ms, [path])
            )
        elif name.endswith((*names.SEGMENT_SUFFIXES, names.SNAPSHOT)):
            _LOG.warning("file left alone: path=%s; its name has no offset that a log can have", path)

    def _create_segment(self, base_offset: int) -> None:
        segment = Segment(self._files, self._cache, self._directory, base_offset, 0, new=True)
        self._files.open(segment.path, create=True).release()
        self._segments.add(segment)
        self._unsynced_files.add_directory(self._directory)

    def _load_epochs(self) -> LeaderEpochs:
        path = f"{self._directory}/{names.LEADER_EPOCHS}"
        try:
            return decode_leader_epochs(self._files.read(path), path)
        except DamagedFileError as error:
            _LOG.warning("leader epochs not used: %s", error)
            return LeaderEpochs()

    def _end_of_clean_log(self) -> int | None:
        """The offset after the last batch, or None if the active segment does not end with one."""
        segment = self._segments.active
        if not segment.size:
            return segment.base_offset
        try:
            return segment.index_end(self._config.index_interval_bytes)
        except BadBatchError:
            return None
        finally:
            segment.forget()

    def _load_producers(self, snapshots: Snapshots, start_offset: int, until: int) -> int:
        """Producers from the newest snapshot and what follows it; the offset of that snapshot."""
        had_some = bool(snapshots.offsets)
        loaded = snapshots.load_newest(until, self._now_ms, self._producers.most)
        if loaded is None and not had_some and self._adopted:  # before 0.11 Kafka had neither snapshots nor producers
            return until
        first = max(start_offset, self._segments.bases[0])
        if loaded is not None:
            first, entries = loaded
            self._producers.load(entries)
            self._producers.look_back = lambda: producers_before(self._segments, first, self._now_ms, self._producers.entries)
        replay_producers(self._segments, self._producers, first, until, self._now_ms)
        return first

    def _recover(
        self, recovery_point: int, durable_offset: int, start_offset: int, snapshots: Snapshots, epochs: LeaderEpochs
    ) -> "RecoveryReport":
        from moldau.log.recovery import Recovery, RecoveryReport

        segments = self._segments
        recovery_point = max(recovery_point, segments.bases[0])
        report = RecoveryReport(self._partition, recovery_point)
        snapshots.remove_after(recovery_point)
        self._load_producers(snapshots, start_offset, recovery_point)
        recovery = Recovery(
            self._files,
            segments,
            self._producers,
            recovery_point,
            snapshots,
            epochs,
            report,
            folder=self._directory,
            durable_offset=durable_offset,
            holes=self._holes,
            now_ms=self._now_ms,
        )
        read = recovery.run(self._config.index_interval_bytes, self._config.file_delete_delay_ms)
        if report.end_offset < recovery_point:  # what was flushed is damaged, and more is gone than the producers' state knows of
            snapshots.remove_after(report.end_offset)
            self._producers.clear()
            self._load_producers(snapshots, start_offset, report.end_offset)
        for segment in read:
            self._unsynced_files.add(segment.path, *segment.synced_paths())
            segment.transaction_index.unsynced = False
        for removed in report.removed:
            snapshots.forget(removed.base_offset)
        self._unsynced_files.add_directory(self._directory)
        _log_recovery(report)
        return report


def _log_recovery(report: "RecoveryReport") -> None:
    for cut in report.cuts:
        _LOG.warning("log cut: path=%s position=%d bytes=%d offset=%d reason=%s", cut.path, cut.position, cut.bytes, cut.offset, cut.reason)
    for removed in report.removed:
        _LOG.warning("segment removed: paths=%s bytes=%d reason=%s", removed.paths, removed.size_bytes, removed.reason)
    _LOG.log(
        logging.INFO if report.batches or report.bytes_cut else logging.DEBUG,  # after a kill most logs of a broker are empty
        "log recovered: partition=%s from=%d end=%d segments=%d batches=%d bytes_cut=%d",
        report.partition,
        report.recovery_point,
        report.end_offset,
        report.segments,
        report.batches,
        report.bytes_cut,
    )
