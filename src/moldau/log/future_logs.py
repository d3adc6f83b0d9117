"""Logs that move between the directories of a broker (KIP-113): a copy grows in a folder marked ``-future``, and then takes the place.

    step         what                                                                              a crash in it, or a stop, leaves
    making       a folder with a mark that says ``copying``                                        the log
    copying      batches are appended, as a follower appends what it fetches: the copy has         the log
                 offsets, producers, transactions and epochs by itself
    settling     once it has all that there is: it is synced, and the checkpoints of its           the log
                 directory get lines of it; what comes meanwhile is copied after it
    taking over  1. the copy has all again, on disk, and its mark says ``whole``                   the log
                 2. the folder of the log is marked as deleted, on disk                            the log, or the copy
                 3. the folder of the copy gets the partition's name; it is served                 the copy
                 4. the mark is removed once that name is on disk                                  the copy

A start takes a copy that is whole for the log where the partition has no folder in any directory, and removes every other one; while a
directory is offline it leaves alone what is whole. So there is one log at any time, with everything that was on disk. Taking over is one
step on the broker's thread, but for its end: nothing is appended to the log meanwhile. The caller does the steps in their order, and what
takes long in the background.

The leader epochs that the copied batches carry do not say where each began, once compaction has removed batches: a leader that went by them
would agree with records that were never committed. So the copy gets the epochs of its log in the end.

A copy is begun again, in another folder, where its log was cut, opened again, or begins after the copy's end now. It is dropped where
either of both cannot be used any more.
"""

import contextlib
import logging
from collections.abc import Callable
from functools import partial

from moldau.log.checkpoints import CLEANED, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from moldau.log.config import UNLIMITED, LogConfig
from moldau.log.directory import LogDirectory
from moldau.log.housekeeping import Removals
from moldau.log.loading import Loader, format_move_mark, mark_dropped
from moldau.log.log_set import FutureLog, LogSet, Placement
from moldau.log.names import MOVE_MARK, FolderKind, marked_name
from moldau.log.partition_log import FlushJob, PartitionLog
from moldau.log.partition_metadata import write_topic_id
from moldau.model.errors import ErrorCode, MoldauError, PeerError, StorageError
from moldau.model.identity import ID_BYTES, TopicPartition
from moldau.ports.filesystem import FileSystem
from moldau.ports.probe import reached

_LOG = logging.getLogger(__name__)

TAKEN_OVER_BYTES_MAX = 1024 * 1024
"""More than this is not synced while the log is taken over, as long as it comes no faster than the disk takes it."""
SYNCS_MAX = 5
"""Then it is taken over all the same."""


class FutureLogs:
    """See the module. What fails in the directory of a copy ends the copy: the log stays as it is, where it is."""

    def __init__(self, files: FileSystem, logs: LogSet, loader: Loader, removals: Removals, random_bytes: Callable[[int], bytes]) -> None:
        self._files = files
        self._logs = logs
        self._loader = loader
        self._removals = removals
        self._random_bytes = random_bytes

    # Which logs move

    def begin(self, topic_partition: TopicPartition, path: str, now_ms: int) -> bool:
        """Move a log to the directory `path`; one that moves elsewhere moves there instead, one that is there stays. Whether there is
        something to do. A replica that is not here yet will be made there.

        PeerError: LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR, REPLICA_NOT_AVAILABLE.
        """
        directory = self._directory(path)
        placement = self._logs.placements.get(topic_partition)
        if placement is None:
            self._logs.prefer(topic_partition, directory)
            raise PeerError(ErrorCode.REPLICA_NOT_AVAILABLE, f"there is no replica of {topic_partition} here")
        if placement.log is None:
            raise PeerError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic_partition} is offline: {placement.problem}")
        future = self._logs.futures.get(topic_partition)
        if future is not None and future.directory is directory:
            return False
        folder = f"{directory.path}/{topic_partition}"
        if placement.directory is not directory and self._files.exists(folder):
            raise PeerError(ErrorCode.KAFKA_STORAGE_ERROR, f"{folder} is there, but is none of the logs that were opened")
        self.cancel(topic_partition, now_ms)
        if placement.directory is directory:
            return False
        self._add(placement, placement.log, directory)
        return True

    def _directory(self, path: str) -> LogDirectory:
        for directory in self._logs.directories:
            if directory.path == path:
                if directory.error is not None:
                    raise PeerError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is offline: {directory.error}")
                return directory
        raise PeerError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is no log directory of this broker")

    def _add(self, placement: Placement, log: PartitionLog, directory: LogDirectory) -> FutureLog:
        key = placement.topic_partition
        folder = f"{directory.path}/{marked_name(key, FolderKind.FUTURE, self._random_bytes(ID_BYTES))}"
        future = self._logs.futures[key] = FutureLog(key, directory, folder, log)
        future.topic_id = placement.topic_id
        _LOG.info("log moves to another directory: partition=%s from=%s to=%s", key, placement.directory.path, directory.path)
        return future

    def moving(self) -> list[TopicPartition]:
        """The partitions whose logs move."""
        return list(self._logs.futures)

    def current(self, topic_partition: TopicPartition, now_ms: int) -> FutureLog | None:
        """The copy with which to continue, which may be another one now; None where the log moves no more."""
        future, placement = self._logs.futures.get(topic_partition), self._logs.placements.get(topic_partition)
        if future is None or placement is None or placement.log is None:
            self.cancel(topic_partition, now_ms)
            return None
        log, copy = placement.log, future.log
        is_same = log is future.source and log.truncations == future.truncations
        if is_same and (copy is None or copy.log_end_offset >= log.start_offset):
            return future
        reached("log: a copy was begun again")
        self.cancel(topic_partition, now_ms)
        return self._add(placement, log, future.directory)

    def holds(self, future: FutureLog) -> bool:
        """Whether it is still the partition's copy."""
        return self._logs.futures.get(future.topic_partition) is future

    def cancel(self, topic_partition: TopicPartition, now_ms: int) -> None:
        """Move a log no more; harmless where it does not move."""
        future = self._logs.futures.get(topic_partition)
        if future is not None:
            self._logs.drop_future(future)
            if not future.is_busy:
                self._remove(future, now_ms)
            _LOG.info("copy of a log dropped: partition=%s path=%s", topic_partition, future.folder)

    def _remove(self, future: FutureLog, now_ms: int) -> None:
        self._removals.add_copy(now_ms, future.directory, future.folder, self._files)

    def failed(self, future: FutureLog, error: StorageError | PeerError, now_ms: int) -> None:
        """A copy could not be made, written or synced: drop it."""
        _LOG.error("log not moved: partition=%s to=%s reason=%s", future.topic_partition, future.directory.path, error)
        if self.holds(future):
            self.cancel(future.topic_partition, now_ms)
        if isinstance(error, StorageError):
            self._logs.storage_failed(future.directory, error)

    def ended(self, future: FutureLog, error: StorageError | None, now_ms: int) -> bool:
        """Work for a copy that ran elsewhere, while it was `is_busy`, has ended, perhaps with an error. Whether there is still the copy."""
        future.is_busy = False
        if not self.holds(future):
            self._remove(future, now_ms)
        if error is not None:
            self.failed(future, error, now_ms)
        return self.holds(future)

    # Making

    def making(self, future: FutureLog) -> Callable[[], None]:
        """What makes the folder of a copy, durably, on any thread; then `made`. StorageError."""
        return partial(_make, self._files, future.directory.path, future.folder, future.topic_partition, future.topic_id)

    def made(self, future: FutureLog, now_ms: int) -> None:
        """The folder of a copy is made: open it."""
        future.is_made = True
        config = future.source.config._replace(flush_messages=UNLIMITED, flush_ms=UNLIMITED)
        starts, key = future.directory.offsets[LOG_STARTS], future.topic_partition
        starts[key] = future.source.start_offset
        try:
            self._loader.open_log(future, config, now_ms, clean=True)
        except StorageError as error:
            self.failed(future, error, now_ms)
        finally:
            del starts[key]  # on disk it would be taken for the line of a log that is lost

    # Copying

    def copy(self, future: FutureLog, bytes_max: int, now_ms: int) -> int:
        """Copy the next so many bytes, or one batch: how many bytes it grew by. Where that fails, the copy is dropped."""
        log, copy = future.source, future.log
        assert copy is not None
        size = copy.size_bytes
        try:
            records = _read(log, copy.log_end_offset, bytes_max)
        except PeerError as error:  # a damaged batch
            _LOG.error("log not moved: partition=%s reason=%s", future.topic_partition, error)
            self.cancel(future.topic_partition, now_ms)
            return 0
        except StorageError as error:
            self._logs.partition_failed(self._logs.placements[future.topic_partition], error)
            self.cancel(future.topic_partition, now_ms)
            return 0
        try:
            if records:
                copy.append_as_follower(memoryview(records), now_ms)
            elif copy.log_end_offset < log.log_end_offset:
                copy.skip_to(log.log_end_offset, now_ms)
        except (StorageError, PeerError) as error:
            self.failed(future, error, now_ms)
            return 0
        copied = copy.size_bytes - size
        future.unsynced_bytes += copied
        return copied

    def is_level(self, future: FutureLog) -> bool:
        """Whether the copy has all that the log has."""
        return future.log is not None and future.log.log_end_offset == future.source.staged_end_offset

    # Settling

    def sync_wanted(self, future: FutureLog, now_ms: int) -> bool:
        """Whether to sync before anything else: so many files at a time, and so many bytes at the end."""
        assert future.log is not None
        if future.log.flush_wanted(now_ms):  # a segment is full: there is no other reason in its settings
            return True
        is_last = self.is_level(future) and future.checkpointed_start is not None
        return is_last and future.unsynced_bytes > TAKEN_OVER_BYTES_MAX and future.syncs < SYNCS_MAX

    def flush_job(self, future: FutureLog, now_ms: int) -> FlushJob | None:
        """What brings all of the copy to disk, on any thread; then comes `flush_done` or `flush_failed` of its log. None if it is there."""
        assert future.log is not None
        future.unsynced_bytes = 0
        future.syncs += self.is_level(future)
        try:
            return future.log.flush_job()
        except StorageError as error:
            self.failed(future, error, now_ms)
            return None

    def is_settled(self, future: FutureLog) -> bool:
        """Whether the checkpoints of its directory have lines of the copy by which a start may go."""
        key = future.topic_partition
        has_new_holes = key in self._logs.placements[key].directory.offsets[CLEANED] and key not in future.directory.offsets[CLEANED]
        return future.checkpointed_start == future.source.start_offset and not has_new_holes

    def settling(self, future: FutureLog, now_ms: int) -> Callable[[], None] | None:
        """What brings lines of a copy that was synced into these checkpoints, on any thread, or a StorageError. None if
        the copy was dropped.
        """
        copy, key = future.log, future.topic_partition
        assert copy is not None
        try:
            _trim(copy, future.source)
        except (StorageError, PeerError) as error:
            self.failed(future, error, now_ms)
            return None
        offsets, before = future.directory.offsets, self._logs.placements[key].directory
        offsets[RECOVERY_POINTS][key] = copy.flushed_offset
        offsets[LOG_STARTS][key] = copy.start_offset
        offsets[HIGH_WATERMARKS][key] = copy.high_watermark
        if key in before.offsets[CLEANED] or before.adopted:
            offsets[CLEANED][key] = copy.start_offset  # it may have holes, and is compacted from its beginning
        future.checkpointed_start = copy.start_offset
        return future.directory.checkpoint()

    # Taking over

    def take_over(self, future: FutureLog, now_ms: int) -> PartitionLog | None:
        """Have a copy that `is_level` and `is_settled` take the place of its log, which is closed then. The log that is to be served; None
        if the copy could not be written, and the log is as before. MoldauError: the partition is offline.
        """
        log, placement = future.source, self._logs.placements[future.topic_partition]
        assert self.is_level(future), "nothing was appended since"
        try:
            self._finish(future, log)
        except (StorageError, PeerError) as error:
            self._mark_dropped(future)
            self.failed(future, error, now_ms)
            return None
        del self._logs.futures[future.topic_partition]
        self._leave(placement, future, now_ms)
        return self._arrive(future, log.config, log.high_watermark, now_ms)

    def _finish(self, future: FutureLog, log: PartitionLog) -> None:
        copy = future.log
        assert copy is not None
        _trim(copy, log)
        copy.take_epochs_from(log)
        copy.seal()
        job = copy.flush_job()
        if job is not None:
            try:
                job.run()
            except StorageError:
                copy.flush_failed(job)
                raise
            copy.flush_done(job)
        copy.close()
        future.log = None
        self._files.write_atomically(f"{future.folder}/{MOVE_MARK}", format_move_mark(future.topic_partition, is_whole=True))

    def _mark_dropped(self, future: FutureLog) -> None:
        with contextlib.suppress(StorageError):
            future.folder = mark_dropped(self._files, future.directory, future.folder)

    def _leave(self, placement: Placement, future: FutureLog, now_ms: int) -> None:
        """Have the next start find the copy. StorageError: the log is offline; where it is still in its folder, the copy goes."""
        delay_ms = future.source.config.file_delete_delay_ms
        try:
            removed = self._logs.mark_deleted(placement)
        except StorageError as error:
            future.directory.forget(placement.topic_partition)
            if self._files.exists(placement.folder):
                self._mark_dropped(future)
                self._remove(future, now_ms)
            self._logs.storage_failed(placement.directory, error)
            raise
        self._removals.add(now_ms + delay_ms, placement.directory, removed)
        try:
            self._files.sync_directory(placement.directory.path)
        except StorageError as error:  # a start after a crash may find both
            self._logs.storage_failed(placement.directory, error)

    def _arrive(self, future: FutureLog, config: LogConfig, high_watermark: int, now_ms: int) -> PartitionLog:
        directory, key = future.directory, future.topic_partition
        folder = f"{directory.path}/{key}"
        moved = Placement(key, directory, future.folder)
        moved.topic_id = future.topic_id
        directory.offsets[HIGH_WATERMARKS][key] = high_watermark
        self._logs.add(moved)
        try:
            self._files.rename(future.folder, folder)
            moved.folder = folder
            log = self._loader.open_log(moved, config, now_ms, clean=True)
        except MoldauError as error:
            moved.fail(error)
            if isinstance(error, StorageError):
                self._logs.storage_failed(directory, error)
            raise
        moved.take_high_watermark()
        moved.high_watermark = None
        reached("log: a copy took the place of its log")
        mark = f"{folder}/{MOVE_MARK}"
        self._removals.add(now_ms, directory, mark, partial(_remove_mark, self._files, directory.path, mark))
        _LOG.info("log moved to another directory: partition=%s path=%s", key, folder)
        return log


def _make(files: FileSystem, path: str, folder: str, topic_partition: TopicPartition, topic_id: bytes | None) -> None:
    files.make_directory(folder)
    files.write_atomically(f"{folder}/{MOVE_MARK}", format_move_mark(topic_partition, is_whole=False))
    if topic_id is not None:
        write_topic_id(files, folder, topic_id)
    files.sync_directory(path)


def _trim(copy: PartitionLog, log: PartitionLog) -> None:
    """Have a copy show what its log shows. StorageError, PeerError."""
    copy.advance_high_watermark(log.high_watermark)
    if log.start_offset > copy.start_offset:
        copy.delete_records(log.start_offset)


def _remove_mark(files: FileSystem, path: str, mark: str) -> None:
    files.sync_directory(path)
    files.remove(mark)


def _read(log: PartitionLog, offset: int, bytes_max: int) -> bytes:
    """The next batches, the last of them perhaps in part. StorageError, PeerError."""
    read = log.read(offset, bytes_max, log.log_end_offset, at_least_one=True)
    if read.records is None:
        return b""
    try:
        return read.records.file.pread(read.records.length, read.records.position)
    finally:
        read.records.release()
