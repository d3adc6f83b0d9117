"""How partitions come and go: folders made, set aside and marked for deletion, each step durable before the next."""

import contextlib
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from moldau.log.checkpoints import RECOVERY_POINTS
from moldau.log.config import LogConfig
from moldau.log.folders import FolderKind
from moldau.log.loading import Loader
from moldau.log.log_set import AllDirectoriesFailedError, LogSet
from moldau.log.partition_log import PartitionLog
from moldau.log.partition_metadata import write_topic_id
from moldau.log.placement import Placement
from moldau.log.removals import Removals
from moldau.model.errors import ErrorCode, PeerError, StorageError, WorldError
from moldau.model.identity import TopicPartition
from moldau.ports.filesystem import FileSystem

if TYPE_CHECKING:
    from moldau.log.directory import LogDirectory

_LOG = logging.getLogger(__name__)


class Lifecycle:
    """Creates and deletes the logs of a set."""

    def __init__(self, files: FileSystem, logs: LogSet, loader: Loader, removals: Removals, default_config: LogConfig) -> None:
        self._files = files
        self._logs = logs
        self._loader = loader
        self._removals = removals
        self._default_config = default_config
        self._unsettled: dict[str, LogDirectory] = {}

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
            directory.record(RECOVERY_POINTS, {topic_partition: log.flushed_offset})
            self._logs.has_new = True
            return log
        raise failure

    def delete(self, topic_partitions: Iterable[TopicPartition], now_ms: int) -> list[TopicPartition]:
        """Take partitions out of service and mark their folders; the bytes go after `file.delete.delay.ms`, by `remove_due`.

        Durable on return: after a crash they do not come back. Those that could not be marked, because their directory is offline or
        failed just now, are in the answer.
        """
        left = self.mark_deleted(topic_partitions, now_ms)
        self.settle_deleted()
        return left

    def mark_deleted(self, topic_partitions: Iterable[TopicPartition], now_ms: int) -> list[TopicPartition]:
        """First half of `delete`: nothing is durable yet. Takes time for the partitions given."""
        left: list[TopicPartition] = []
        for topic_partition in topic_partitions:
            placement = self._logs.placements.get(topic_partition)
            if placement is not None and not self._mark_deleted(placement, now_ms):
                left.append(topic_partition)
            elif placement is not None:
                self._unsettled[placement.directory.path] = placement.directory
        return left

    def settle_deleted(self) -> None:
        """Second half of `delete`. Takes time for all partitions of the directories that the deleted ones were in."""
        unsettled, self._unsettled = self._unsettled, {}
        for directory in unsettled.values():
            if not directory.online:
                continue
            try:
                self._logs.settle(directory)
            except StorageError as error:
                self._logs.storage_failed(directory, error)

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
