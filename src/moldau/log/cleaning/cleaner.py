"""Looks for the dirtiest logs and has them compacted, as many at once as there are to be. On the broker's thread."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.log.checkpoints import CLEANED
from moldau.log.cleaning.planning import CleanerSettings, DirtyLog, find_dirt, task_for
from moldau.log.cleaning.running import RunningPass
from moldau.model.errors import StorageError
from moldau.ports.probe import chance

if TYPE_CHECKING:
    from moldau.log.cleaning.task import BadBatch, PassDone
    from moldau.log.housekeeping import Removals
    from moldau.log.log_set import LogSet, Placement
    from moldau.log.partition_log import PartitionLog
    from moldau.log.segments import RemovedSegment
    from moldau.model.identity import TopicPartition
    from moldau.ports.background import Background, Workers
    from moldau.ports.filesystem import FileSystem

_LOG = logging.getLogger(__name__)

_COUNTED = ("passes", "passes_failed", "bytes_read", "bytes_written", "records_read", "records_removed")


class LogCleaner:
    """A :class:`moldau.log.cleaning.running.PassHost`. `time_ms` is the wall's clock."""

    def __init__(
        self,
        files: "FileSystem",
        logs: "LogSet",
        removals: "Removals",
        workers: "Workers",
        background: "Background | None",
        time_ms: Callable[[], int],
    ) -> None:
        self.files = files
        self.workers = workers
        self._logs = logs
        self._removals = removals
        self._background = background
        self._time_ms = time_ms
        self._settings = CleanerSettings()
        self._passes: dict[TopicPartition, RunningPass] = {}
        self._resting: set[TopicPartition] = set()
        """Logs whose pass did not come to its end; they wait for the next look."""
        self._uncleanable: dict[TopicPartition, PartitionLog] = {}
        """Logs with damage that every pass fails at. A log that is opened again is tried again."""
        self._waiting: dict[TopicPartition, None] = {}
        self._stopped = False
        self._counts = dict.fromkeys(_COUNTED, 0)
        self._last_pass_ms = 0
        self._dirtiest_percent = 0

    def look(self, settings: CleanerSettings) -> None:
        """Begin what is due. To be called now and then; a pass that ends is followed by the next that is due without that."""
        self._settings = settings
        self._resting.clear()
        self._uncleanable = {key: log for key, log in self._uncleanable.items() if self._is_open(key, log)}
        self._fill()

    def take_waiting(self) -> "list[TopicPartition]":
        """Logs of which more could be compacted if more was on disk, as found since this was last asked."""
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting

    def stop(self) -> None:
        """Begin nothing more, and give up what is under way. That has ended when `running` is empty."""
        self._stopped = True
        for running in list(self._passes.values()):
            running.stop()

    @property
    def running(self) -> "list[TopicPartition]":
        """The logs that are being compacted."""
        return list(self._passes)

    def statistics(self) -> dict[str, int]:
        """Numbers for a person who looks into a running broker."""
        return {
            "compaction_running": len(self._passes),
            "compaction_uncleanable": len(self._uncleanable),
            "compaction_dirtiest_percent": self._dirtiest_percent,
            "compaction_last_pass_ms": self._last_pass_ms,
            **{f"compaction_{name}": count for name, count in self._counts.items()},
        }

    def _fill(self) -> None:
        while not self._stopped and len(self._passes) < self._settings.threads:
            found = self._dirtiest()
            if found is None:
                return
            self._begin(*found)

    def _dirtiest(self) -> "tuple[Placement, DirtyLog] | None":
        now_ms = self._time_ms()
        best: tuple[Placement, DirtyLog] | None = None
        dirtiest = 0.0
        for placement in self._logs.in_service():
            dirt = self._dirt_of(placement, now_ms)
            if dirt is None:
                continue
            dirtiest = max(dirtiest, dirt.ratio)
            is_due = dirt.is_due or (dirt.dirty_bytes > 0 and chance("compaction: passes early"))
            if is_due and (best is None or dirt.ratio > best[1].ratio):
                best = placement, dirt
        self._dirtiest_percent = round(100 * dirtiest)
        return best

    def _dirt_of(self, placement: "Placement", now_ms: int) -> DirtyLog | None:
        key, log = placement.topic_partition, placement.log
        if log is None or not placement.may_be_trimmed or not log.config.compacts or log.has_staged:
            return None
        if key in self._passes or key in self._resting or self._uncleanable.get(key) is log:
            return None
        self._logs.note_cut(placement)
        try:
            dirt = find_dirt(log, placement.directory.offsets[CLEANED].get(key), now_ms)
        except StorageError as error:
            self._logs.partition_failed(placement, error)
            return None
        wanted = min(log.last_stable_offset, log.active_base_offset)
        if dirt is not None and max(dirt.first_dirty, log.durable_stable_offset) < wanted:
            self._waiting[key] = None
        return dirt

    def _begin(self, placement: "Placement", dirt: DirtyLog) -> None:
        key = placement.topic_partition
        try:
            task = task_for(dirt, self._settings, self._time_ms())
        except StorageError as error:
            self._resting.add(key)
            self._logs.partition_failed(placement, error)
            return
        running = self._passes[key] = RunningPass(self, placement, dirt)
        running.begin(task.encode())

    def _is_open(self, key: "TopicPartition", log: "PartitionLog") -> bool:
        placement = self._logs.placements.get(key)
        return placement is not None and placement.log is log

    # What a running pass asks for

    def run(self, work: Callable[[], object], then: Callable[[BaseException | None], object]) -> None:
        """Do `work` in the background, or at once where there is none."""
        if self._background is not None:
            self._background.run(work, lambda _result, error: then(error))
            return
        try:
            work()
        except StorageError as error:
            then(error)
        else:
            then(None)

    def checkpoint(self, running: RunningPass) -> Callable[[], None]:
        """What brings the checkpoints of the log's directory to disk, as they are now."""
        directory = running.placement.directory
        self._logs.note_offsets(directory)
        return directory.checkpoint()

    def swapped(self, running: RunningPass, removed: "list[RemovedSegment]") -> None:
        """Segments were replaced: their bytes go after `file.delete.delay.ms`."""
        now_ms = self._time_ms()
        for segment in removed:
            self._removals.add(now_ms + segment.delay_ms, running.placement.directory, segment.paths[0], segment.unlink)

    def finished(self, running: RunningPass, done: "PassDone") -> None:
        """A pass has come to its end."""
        removed = done.records_read - done.records_kept
        for name, count in zip(_COUNTED, (1, 0, done.bytes_read, done.bytes_written, done.records_read, removed), strict=True):
            self._counts[name] += count
        self._last_pass_ms = round(done.seconds * 1000)
        key = running.placement.topic_partition
        _LOG.info(
            "log compacted: partition=%s from=%d end=%d keys=%d records=%d removed=%d bytes=%d left=%d ms=%d",
            key, running.first_dirty, done.end_offset, done.keys, done.records_read, removed, done.bytes_read, done.bytes_written,
            self._last_pass_ms,
        )  # fmt: skip
        if done.batches_unreadable:
            _LOG.warning("malformed records left as they are by compaction: partition=%s batches=%d", key, done.batches_unreadable)
        self._end(running)

    def gave_up(self, running: RunningPass, reason: str) -> None:
        """A pass has ended before."""
        self._resting.add(running.placement.topic_partition)
        if not self._stopped:
            self._counts["passes_failed"] += 1
            _LOG.warning("compaction given up for now: partition=%s reason=%s", running.placement.topic_partition, reason)
        self._end(running)

    def damaged(self, running: RunningPass, bad: "BadBatch") -> None:
        """A log cannot be compacted any more."""
        key = running.placement.topic_partition
        _LOG.error("damaged batch, log is not compacted any more: partition=%s path=%s position=%d", key, bad.path, bad.position)
        self._uncleanable[key] = running.log
        running.log.remember_bad_batch(bad.first_offset, bad.last_offset)

    def entry_missing(self, running: RunningPass, offset: int) -> None:
        """Rebuild the index; the next look begins another pass, unless the rebuilt one lacks the entry too."""
        try:
            if running.log.mend_aborted(offset):
                return
        except StorageError as error:
            self.storage_failed(running, error)
            return
        key = running.placement.topic_partition
        _LOG.error("aborted transaction without an entry, log is not compacted any more: partition=%s marker_offset=%d", key, offset)
        self._uncleanable[key] = running.log

    def storage_failed(self, running: RunningPass, error: StorageError) -> None:
        """The disk of a log has failed."""
        if running.placement.log is running.log:
            self._logs.partition_failed(running.placement, error)

    def _end(self, running: RunningPass) -> None:
        del self._passes[running.placement.topic_partition]
        self._fill()
