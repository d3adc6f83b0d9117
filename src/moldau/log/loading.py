"""Opening the logs that are in a directory at start.

A partition that cannot be opened stays offline with its reason, alone; only a failing disk takes its whole directory offline.
"""

import contextlib
import logging
from collections.abc import Callable, Iterable

from moldau.log.batches import OldFormatError
from moldau.log.cache import SegmentCache
from moldau.log.checkpoints import CLEANED, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from moldau.log.config import LogConfig
from moldau.log.damage import DamagedFileError, Holes, LostRecordsError
from moldau.log.directory import LogDirectory
from moldau.log.housekeeping import Removals
from moldau.log.log_set import LogSet, Placement
from moldau.log.names import LOG, MOVE_MARK, Folder, FolderKind, mark_of, marks, offset_of, parse, parse_folder
from moldau.log.partition_log import PartitionLog
from moldau.log.partition_metadata import read_topic_id
from moldau.log.producer_bound import ProducerBound
from moldau.model.errors import CorruptBatchError, MoldauError, StorageError, WorldError
from moldau.model.identity import TopicPartition
from moldau.ports.filesystem import FileSystem, MissingFileError, NotRegularError
from moldau.ports.probe import reached

_LOG = logging.getLogger(__name__)

TopicConfig = Callable[[str], LogConfig | None]
"""The settings of a topic's logs; None for a topic that is not registered."""


_COPYING, _WHOLE = "copying", "whole"


def format_move_mark(topic_partition: TopicPartition, *, is_whole: bool) -> bytes:
    """Its content: how far the copy is, and the partition, whose name may be cut short in that of the folder."""
    return f"{_WHOLE if is_whole else _COPYING} {topic_partition}".encode()


def parse_move_mark(content: bytes) -> tuple[TopicPartition, bool] | None:
    """The partition, and whether the copy is whole; None for what is no mark."""
    state, _, name = content.decode(errors="replace").partition(" ")
    folder = parse_folder(name)
    if state not in (_COPYING, _WHOLE) or folder is None or folder.kind is not FolderKind.LOG:
        return None
    return folder.topic_partition, state == _WHOLE


def mark_dropped(files: FileSystem, directory: LogDirectory, folder: str) -> str:
    """Have no start take a copy for a log, durably: it may outlive the partition. Its new path, which a start removes. StorageError."""
    path = folder.removesuffix(FolderKind.FUTURE.value) + FolderKind.DELETE.value
    files.rename(folder, path)
    files.sync_directory(directory.path)
    return path


class DuplicateFolderError(WorldError):
    """A partition has folders in two log directories, and it is not known which is the topic's."""

    def __init__(self, topic_partition: TopicPartition, first: str, second: str) -> None:
        message = f"partition {topic_partition} has two folders, {first} and {second}: move the wrong one away and start again"
        super().__init__(message, retriable=False)


class Loader:
    """Opens logs into a set of them and hands folders that were marked for deletion to `removals`."""

    def __init__(
        self,
        files: FileSystem,
        cache: SegmentCache,
        default_config: LogConfig,
        topic_config: TopicConfig,
        logs: LogSet,
        removals: Removals,
        producer_bound: ProducerBound,
    ) -> None:
        self._files = files
        self._cache = cache
        self._topic_config = topic_config
        self._unregistered = default_config._replace(retention_ms=-1, retention_bytes=-1, cleanup_policy=frozenset({"delete"}))
        self._logs = logs
        self._removals = removals
        self._producer_bound = producer_bound
        self._futures: dict[str, list[str]] = {}
        """Folders of copies, by directory, between `load` and `finish_moves`."""

    def load(self, directory: LogDirectory, now_ms: int, *, finish_deletions: bool) -> None:
        """Open every log of a directory. Without `finish_deletions`, what was marked for deletion stays as it is. StorageError: the
        directory fails. After the last directory, `settle` follows."""
        for name in self._files.list(directory.path):
            folder = parse_folder(name)
            path = f"{directory.path}/{name}"
            if folder is None:
                continue
            is_directory = self._files.is_directory(path)
            if folder.kind is FolderKind.LOG and (is_directory or self._topic_config(folder.topic_partition.topic) is not None):
                self._load_log(directory, folder, path, now_ms, is_directory=is_directory)
            elif is_directory and folder.kind is FolderKind.FUTURE:
                self._futures.setdefault(directory.path, []).append(path)
            elif is_directory and folder.kind is FolderKind.DELETE and finish_deletions:
                self._removals.add(now_ms, directory, path)
            else:
                _LOG.warning("folder left alone: path=%s", path)
        if not finish_deletions:
            for placement in self._logs.held(directory):
                if placement.log is not None:
                    placement.log.take_removed()
        if directory.failed_before:
            directory.forget_failure()

    def finish_moves(self, directory: LogDirectory, now_ms: int, *, finish_deletions: bool) -> None:
        """After all directories were loaded: rename copies that are whole and whose partitions have no folder, and remove the others. What
        another system has copied stays, as does what is whole while a directory is offline: the partition's log may be in that.
        StorageError: the directory fails.
        """
        sees_all = len(self._logs.online()) == len(self._logs.directories)
        for path in self._futures.pop(directory.path, ()):
            mark = f"{path}/{MOVE_MARK}"
            found = parse_move_mark(self._files.read(mark)) if self._files.exists(mark) else None
            is_empty = set(self._files.list(path)) <= {f"{MOVE_MARK}.tmp"}  # a crash came before the mark
            is_log = found is not None and found[1] and found[0] not in self._logs.placements
            if found is not None and is_log and sees_all:
                self._take_over(directory, found[0], path, now_ms)
            elif (is_empty or (found is not None and not is_log)) and finish_deletions:
                dropped = mark_dropped(self._files, directory, path) if found is not None and found[1] else path
                self._removals.add_copy(now_ms, directory, dropped, self._files)
            else:
                _LOG.warning("folder left alone: path=%s", path)

    def _take_over(self, directory: LogDirectory, topic_partition: TopicPartition, path: str, now_ms: int) -> None:
        name = str(topic_partition)
        folder = f"{directory.path}/{name}"
        self._files.rename(path, folder)
        self._files.sync_directory(directory.path)
        reached("log: a start took a copy for the log")
        _LOG.warning("log moved from another directory, which a crash has interrupted: path=%s", folder)
        self._load_log(directory, Folder(name, FolderKind.LOG, topic_partition), folder, now_ms, is_directory=True)
        self._files.remove(f"{folder}/{MOVE_MARK}")

    def settle(self, directory: LogDirectory) -> None:
        """Bring a directory's checkpoints in line with the folders that were found in all of them. StorageError: the directory fails.

        A partition that has a line and no folder was deleted, or it is lost: then it goes offline. A crash between the renaming of a
        deleted partition's folder and the checkpoints leaves such lines too. They are of topics that are not registered any more, or
        there is the renamed folder.
        """
        changed = False
        deleted = marks(self._files.list(directory.path), FolderKind.DELETE)
        for topic_partition in sorted(directory.known()):
            if topic_partition not in self._logs.placements and not self._is_deleted(directory, topic_partition, deleted):
                folder = f"{directory.path}/{topic_partition}"
                placement = Placement(topic_partition, directory, folder)
                placement.problem = LostRecordsError(folder, f"{folder} is missing, and all records of the partition with it")
                self._logs.add(placement)
                _report(placement, placement.problem)
            elif not self._has_folder(directory, topic_partition):
                directory.forget(topic_partition)
                changed = True
        lowered = self._lower_recovery_points(directory, self._logs.held(directory))
        try:
            if not lowered and (changed or directory.accepted_loss):
                self._logs.settle(directory)
            if not directory.unlowered:
                directory.forget_accepted()
        except StorageError as error:
            if not error.no_space:
                raise

    def _is_deleted(self, directory: LogDirectory, topic_partition: TopicPartition, deleted: set[str]) -> bool:
        if topic_partition in directory.accepted_loss:
            _LOG.warning("loss accepted: partition=%s folder=%s/%s", topic_partition, directory.path, topic_partition)
            return True
        return self._topic_config(topic_partition.topic) is None or mark_of(topic_partition, FolderKind.DELETE) in deleted

    def _has_folder(self, directory: LogDirectory, topic_partition: TopicPartition) -> bool:
        placement = self._logs.placements.get(topic_partition)
        return placement is not None and (
            placement.directory is directory or any(rival.directory is directory for rival in placement.rivals)
        )

    def try_again(self, placement: Placement, now_ms: int) -> None:
        """Try to open a log that was kept closed, by a full disk or by another folder. StorageError: the directory fails."""
        self.try_open(placement, now_ms)
        self._lower_recovery_points(placement.directory, [placement])

    def _lower_recovery_points(self, directory: LogDirectory, opened: Iterable[Placement]) -> bool:
        """Logs may have been found to end before their recovery points. What is appended to them must not be taken for synced after a
        crash, so they are served once lower points are on disk. Whether there were such logs. StorageError: the directory fails.
        """
        points = directory.offsets[RECOVERY_POINTS]
        lower = [
            placement
            for placement in opened
            if (log := placement.log) is not None
            and log.recovery is not None
            and (placement.topic_partition in directory.unlowered or log.flushed_offset < points.get(placement.topic_partition, 0))
        ]
        if not lower:
            return False
        directory.unlowered.update(placement.topic_partition for placement in lower)
        try:
            self._logs.settle(directory)
        except StorageError as error:
            if not error.no_space:
                raise
            for placement in lower:
                placement.fail(error)
                _report(placement, error)
        else:
            directory.unlowered.clear()
        return True

    def open_log(self, placement: Placement, config: LogConfig, now_ms: int, *, clean: bool) -> PartitionLog:
        """Open the log of a placement with what the checkpoints say. Raises what `PartitionLog.open` raises.

        The checkpointed high watermark is left for `Placement.take_high_watermark`: where this log is the whole in-sync set, all of it may
        be read.
        """
        offsets, key = placement.directory.offsets, placement.topic_partition
        if placement.directory.failed_before or not clean:
            self._forget_cached(placement)
        log = PartitionLog.open(
            self._files,
            placement.folder,
            key,
            config,
            cache=self._cache,
            recovery_point=offsets[RECOVERY_POINTS].get(key, 0),
            start_offset=offsets[LOG_STARTS].get(key, 0),
            clean=clean,
            now_ms=now_ms,
            adopted=placement.directory.adopted,
            holes=self._holes(placement, config),
            accept_loss=key in placement.directory.accepted_loss,
            producer_bound=self._producer_bound,
        )
        if key in placement.directory.accepted_loss:
            offsets[CLEANED].setdefault(key, log.start_offset)  # as where compaction was, offsets may be missing from now on
        if key not in offsets[CLEANED] and not placement.directory.adopted and not config.compacts:
            log.expect_no_holes()
        if offsets[CLEANED].get(key, 0) > log.log_end_offset:  # what is appended from now on was never cleaned
            offsets[CLEANED][key] = log.start_offset
        placement.opened(log)
        placement.high_watermark = offsets[HIGH_WATERMARKS].get(key, log.start_offset)
        return log

    @staticmethod
    def _holes(placement: Placement, config: LogConfig) -> Holes:
        """Compaction leaves holes before the recovery point. After it, a follower has those of the leader's log (`LogSet.note_holes`), also
        where `cleanup.policy` has changed since.
        """
        offsets, key = placement.directory.offsets, placement.topic_partition
        may_have_some = key in offsets[CLEANED]
        if key not in offsets[RECOVERY_POINTS] and (may_have_some or not placement.directory.knows_recovery_points):
            return Holes.ANYWHERE
        return Holes.IN_SEGMENTS if may_have_some or config.compacts else Holes.NONE

    def was_used(self, placement: Placement) -> bool:
        """Whether a partition's folder may ever have held a record. StorageError."""
        offsets, key = placement.directory.offsets, placement.topic_partition
        if any(offsets[name].get(key, 0) for name in (RECOVERY_POINTS, LOG_STARTS)) or not self._files.is_directory(placement.folder):
            return True
        segments = {name: offset for name in self._files.list(placement.folder) if (offset := offset_of(name, LOG)) is not None}
        return any(offset or self._files.size(f"{placement.folder}/{name}") for name, offset in segments.items())

    def _forget_cached(self, placement: Placement) -> None:
        """Read from the disk what a failed sync may have left in memory only: all, or what is not known to be synced. A directory that
        failed altogether could not be marked.
        """
        names = self._files.list(placement.folder)
        if not placement.directory.failed_before:
            point = placement.directory.offsets[RECOVERY_POINTS].get(placement.topic_partition, 0)
            segments = [offset for name in names if (offset := offset_of(name, LOG)) is not None]
            first = max((offset for offset in segments if offset <= point), default=0)
            names = [name for name in names if (known := parse(name)) is not None and known[0] >= first]
        for name in names:
            self._files.forget_cached(f"{placement.folder}/{name}")

    def _load_log(self, directory: LogDirectory, folder: Folder, path: str, now_ms: int, *, is_directory: bool) -> None:
        placement = Placement(folder.topic_partition, directory, path)
        known = self._logs.placements.get(folder.topic_partition)
        if known is not None:
            duplicate = DuplicateFolderError(folder.topic_partition, known.folder, path)
            _report(known, duplicate)
            known.fail(duplicate)
            known.rivals.append(placement)
            if is_directory:
                with contextlib.suppress(DamagedFileError, MissingFileError, NotRegularError):
                    placement.topic_id = read_topic_id(self._files, path)
            return
        self._logs.add(placement)
        if is_directory:
            self.try_open(placement, now_ms)
        else:
            placement.problem = NotRegularError("is not a directory; links are not followed. Move it away", path=path)
            _report(placement, placement.problem)

    def try_open(self, placement: Placement, now_ms: int) -> None:
        """Open a log, or note why it cannot be. StorageError: the directory fails."""
        config = self._topic_config(placement.topic_partition.topic) or self._unregistered
        try:
            placement.topic_id = read_topic_id(self._files, placement.folder)
            self.open_log(placement, config, now_ms, clean=placement.directory.clean)
        except (OldFormatError, DamagedFileError, CorruptBatchError, LostRecordsError, NotRegularError, MissingFileError) as error:
            placement.problem = error
            _report(placement, error)
        except StorageError as error:
            placement.problem = error
            if not error.no_space:
                raise
            _report(placement, error)


def _report(placement: Placement, error: MoldauError) -> None:
    _LOG.error("partition offline: partition=%s reason=%s", placement.topic_partition, error)
