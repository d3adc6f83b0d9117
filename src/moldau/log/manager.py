"""All logs of a broker, in one or several log directories.

A directory that fails goes offline alone: its logs are closed as they are and answer KAFKA_STORAGE_ERROR, the others go on. Only when the
last one fails does `all_failed` become true, and the process has nothing left to serve.

Nothing is deleted for being unknown: a folder of a topic that nobody registered is opened and kept with retention and compaction off, what
has no partition's name is not looked at, and folders marked ``-stray`` and ``-future`` are left alone.

Times and random bytes are handed in; what takes long (checkpoints, removals) runs in the background where there is one.
"""

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence

from moldau.log.adopt import AdoptedTopic, adopt_topics
from moldau.log.cache import SegmentCache
from moldau.log.config import LogConfig
from moldau.log.damage import DamagedFileError
from moldau.log.description import DirectoryDescription, describe
from moldau.log.directory import Identity, LogDirectory
from moldau.log.folders import FolderKind
from moldau.log.housekeeping import Housekeeping
from moldau.log.loading import Loader, TopicConfig
from moldau.log.log_set import AllDirectoriesFailedError, LogSet, OfflineListener
from moldau.log.partition_log import PartitionLog
from moldau.log.partition_metadata import write_topic_id
from moldau.log.placement import Placement
from moldau.log.removals import Removals
from moldau.model.errors import ErrorCode, MoldauError, PeerError, StorageError, WorldError
from moldau.model.identity import TopicPartition
from moldau.ports.background import Background
from moldau.ports.filesystem import FileSystem, LockHeldError

_LOG = logging.getLogger(__name__)


class LogManager:
    """See the module. All methods are called on the broker's thread."""

    def __init__(
        self,
        files: FileSystem,
        directories: Sequence[str],
        default_config: LogConfig,
        *,
        broker_id: int,
        cluster_id: str,
        random_bytes: Callable[[int], bytes],
        topic_config: TopicConfig = lambda _topic: None,
        background: Background | None = None,
        on_offline: OfflineListener = lambda _path, _partitions: None,
        cache: SegmentCache | None = None,
    ) -> None:
        self._files = files
        self._identity = Identity(broker_id, cluster_id)
        self._random_bytes = random_bytes
        self._default_config = default_config
        self._cache = SegmentCache(files) if cache is None else cache
        self._logs = LogSet(files, [LogDirectory(files, path) for path in directories], random_bytes, on_offline)
        self._removals = Removals()
        self._loader = Loader(files, self._cache, default_config, topic_config, self._logs, self._removals)
        self._housekeeping = Housekeeping(self._logs, self._removals, background)
        self.checkpoint = self._housekeeping.checkpoint
        self.apply_retention = self._housekeeping.apply_retention
        self.expire_producers = self._housekeeping.expire_producers
        self.remove_due = self._housekeeping.remove_due
        self.next_removal_ms = self._removals.next_due_ms

    # Start and stop

    def start(self, now_ms: int, *, adopt: bool = False) -> None:
        """Open all directories and the logs in them.

        LockHeldError and ForeignDirectoryError stop the start: somebody has to decide. A directory that cannot be used goes offline;
        AllDirectoriesFailedError if none is left. With `adopt`, what was marked for deletion is left as it is.
        """
        try:
            for directory in self._logs.directories:
                self._open_directory(directory, adopt)
        except WorldError:
            self._release_locks()
            raise
        for directory in self._logs.online():
            try:
                self._loader.load(directory, now_ms, finish_deletions=not adopt)
            except StorageError as error:
                self._logs.take_offline(directory, error)
        if self.all_failed:
            raise AllDirectoriesFailedError(self._logs.directories)
        _LOG.info("logs loaded: %s", " ".join(f"{name}={value}" for name, value in self.statistics().items()))

    def _open_directory(self, directory: LogDirectory, adopt: bool) -> None:
        try:
            directory.open(self._identity, adopt=adopt)
        except LockHeldError:
            raise
        except (StorageError, DamagedFileError) as error:
            self._logs.take_offline(directory, error)

    def adopt_topics(self) -> list[AdoptedTopic]:
        """The topics of all partitions found, after a start with `adopt`; every folder has its topic's id then. StorageError."""
        return adopt_topics(self._files, self._logs.placements.values(), self._random_bytes)

    def shutdown(self) -> None:
        """Flush and close all logs, write the checkpoints and then the mark of a clean stop, and give the locks back.

        Never raises for a disk that fails: its directory gets no mark, and its logs are recovered at the next start.
        """
        for directory in self._logs.online():
            clean = True
            for placement in self._logs.held(directory):
                clean &= placement.close_clean()
            try:
                self._logs.settle(directory)
                if clean:
                    directory.mark_clean()
            except StorageError as error:
                _LOG.error("log directory not stopped cleanly: path=%s reason=%s", directory.path, error)
        self._release_locks()
        self._cache.close()

    def _release_locks(self) -> None:
        for directory in self._logs.directories:
            directory.release()

    # Partitions

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """The log of a partition; None if it has none here, or if it is offline (`problem` tells why)."""
        placement = self._logs.placements.get(topic_partition)
        return None if placement is None else placement.log

    def problem(self, topic_partition: TopicPartition) -> MoldauError | None:
        """Why a partition is offline, to be answered with KAFKA_STORAGE_ERROR; None if it is not offline, or not here."""
        placement = self._logs.placements.get(topic_partition)
        return None if placement is None else placement.problem

    def topic_id(self, topic_partition: TopicPartition) -> bytes | None:
        """The topic's id that the partition's folder carries."""
        placement = self._logs.placements.get(topic_partition)
        return None if placement is None else placement.topic_id

    def partitions(self) -> list[TopicPartition]:
        """All partitions that have a folder, in service or offline."""
        return list(self._logs.placements)

    def logs(self) -> Iterator[tuple[TopicPartition, PartitionLog]]:
        """All logs in service."""
        return ((placement.topic_partition, placement.log) for placement in self._logs.in_service() if placement.log is not None)

    def create(
        self, topic_partition: TopicPartition, topic_id: bytes, config: LogConfig, now_ms: int, *, is_new: bool = True
    ) -> PartitionLog:
        """The log of a partition; made, durably, where it is missing, in the directory that holds the fewest.

        A folder that carries another topic's id is left from an earlier topic of that name: it is marked ``-stray`` and kept. With `is_new`
        false the partition existed before, so that while a directory is offline its log is taken to be there. PeerError
        KAFKA_STORAGE_ERROR for a partition that is offline; StorageError if no directory can hold it.
        """
        placement = self._logs.placements.get(topic_partition)
        if placement is not None and placement.topic_id not in (None, topic_id) and placement.directory.online:
            _LOG.warning("folder of an earlier topic set aside: path=%s", self._logs.mark(placement, FolderKind.STRAY))
            self._logs.settle(placement.directory)
            placement = None
        if placement is None:
            if not is_new and len(self._logs.online()) < len(self._logs.directories):
                raise PeerError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic_partition} may be in a log directory that is offline")
            return self._create(topic_partition, topic_id, config, now_ms)
        if placement.log is None:
            raise PeerError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic_partition} is offline: {placement.problem}")
        if placement.topic_id is None:
            write_topic_id(self._files, placement.folder, topic_id)
            placement.topic_id = topic_id
        placement.log.reconfigure(config)
        return placement.log

    def _create(self, topic_partition: TopicPartition, topic_id: bytes, config: LogConfig, now_ms: int) -> PartitionLog:
        failure: WorldError = AllDirectoriesFailedError(self._logs.directories)
        for directory in self._logs.emptiest_first():
            placement = Placement(topic_partition, directory, f"{directory.path}/{topic_partition}")
            if self._files.exists(placement.folder):
                raise PeerError(ErrorCode.KAFKA_STORAGE_ERROR, f"{placement.folder} is there, but is none of the logs that were opened")
            try:
                self._files.make_directory(placement.folder)
                write_topic_id(self._files, placement.folder, topic_id)
                self._files.sync_directory(directory.path)
                log = self._loader.open_log(placement, config, now_ms, clean=True)
            except StorageError as error:
                failure = error
                with contextlib.suppress(StorageError):
                    self._files.remove_tree(placement.folder)
                self._logs.storage_failed(directory, error)
                continue
            placement.topic_id = topic_id
            self._logs.add(placement)
            return log
        raise failure

    def delete(self, topic_partitions: Iterable[TopicPartition], now_ms: int) -> list[TopicPartition]:
        """Take partitions out of service and mark their folders; the bytes go after `file.delete.delay.ms`, by `remove_due`.

        Durable on return: after a crash they do not come back. Those that could not be marked, because their directory is offline or
        failed just now, are in the answer.
        """
        left: list[TopicPartition] = []
        touched: dict[str, LogDirectory] = {}
        for topic_partition in topic_partitions:
            placement = self._logs.placements.get(topic_partition)
            if placement is not None and not self._mark_deleted(placement, now_ms):
                left.append(topic_partition)
            elif placement is not None:
                touched[placement.directory.path] = placement.directory
        for directory in touched.values():
            try:
                self._logs.settle(directory)
            except StorageError as error:
                self._logs.storage_failed(directory, error)
        return left

    def _mark_deleted(self, placement: Placement, now_ms: int) -> bool:
        config = self._default_config if placement.log is None else placement.log.config
        if not placement.directory.online:
            return False
        try:
            path = self._logs.mark(placement, FolderKind.DELETE)
        except StorageError as error:
            self._logs.storage_failed(placement.directory, error)
            return False
        self._removals.add(now_ms + config.file_delete_delay_ms, placement.directory, lambda: self._files.remove_tree(path), path)
        return True

    def retry_full(self, now_ms: int) -> None:
        """Try again to open the logs that a full disk kept closed."""
        for placement in list(self._logs.placements.values()):
            if isinstance(placement.problem, StorageError) and placement.problem.no_space and placement.directory.online:
                try:
                    self._loader.try_open(placement, now_ms)
                except StorageError as error:
                    self._logs.storage_failed(placement.directory, error)

    # Disks

    def storage_failed(self, topic_partition: TopicPartition, error: StorageError) -> None:
        """Take note of an error that a partition's log raised: a full disk passes, any other takes its directory offline."""
        placement = self._logs.placements.get(topic_partition)
        if placement is not None:
            self._logs.storage_failed(placement.directory, error)

    def offline_directory(self, path: str, error: StorageError) -> None:
        """Take a log directory offline; harmless when it is."""
        for directory in self._logs.directories:
            if directory.path == path:
                self._logs.take_offline(directory, error)

    @property
    def all_failed(self) -> bool:
        """Whether no log directory is left in service."""
        return self._logs.all_failed

    def describe(self) -> list[DirectoryDescription]:
        """What DescribeLogDirs tells."""
        return [describe(self._files, directory, self._logs.held(directory)) for directory in self._logs.directories]

    def statistics(self) -> dict[str, int]:
        """How many of what there are."""
        in_service = sum(1 for _ in self._logs.in_service())
        return {
            "directories": len(self._logs.directories),
            "directories_offline": len(self._logs.directories) - len(self._logs.online()),
            "partitions": in_service,
            "partitions_offline": len(self._logs.placements) - in_service,
            "removals_waiting": len(self._removals),
            **self._cache.statistics(),
        }
