"""How partitions come and go: folders made, set aside and marked for deletion, each step durable before the next."""

import contextlib
import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from moldau.log.checkpoints import RECOVERY_POINTS
from moldau.log.config import LogConfig
from moldau.log.housekeeping import Removals
from moldau.log.loading import Loader
from moldau.log.log_set import AllDirectoriesFailedError, LogSet, Placement
from moldau.log.partition_log import PartitionLog
from moldau.log.partition_metadata import write_topic_id
from moldau.model.errors import ErrorCode, PeerError, StorageError, WorldError
from moldau.model.identity import TopicPartition
from moldau.model.steps import UNFINISHED, Steps
from moldau.model.value import Value
from moldau.ports.background import Background, run_all
from moldau.ports.filesystem import FileSystem

if TYPE_CHECKING:
    from moldau.log.directory import LogDirectory

_LOG = logging.getLogger(__name__)

FOLDERS_AT_ONCE = 3
"""Threads that make folders for one request: the syncs of several at once become fewer on the disk."""


class _Folder(Value):
    """The folder of a new partition."""

    directory: "LogDirectory"
    path: str
    topic_id: bytes


class Lifecycle:
    """Creates and deletes the logs of a set."""

    def __init__(
        self, files: FileSystem, logs: LogSet, loader: Loader, removals: Removals, default_config: LogConfig, background: Background | None
    ) -> None:
        self._files = files
        self._logs = logs
        self._loader = loader
        self._removals = removals
        self._default_config = default_config
        self._unsettled: dict[str, LogDirectory] = {}
        self._background = background
        self._made: dict[TopicPartition, _Folder] = {}
        """Folders that `make_folders` has made, until `create` or `drop_folders` takes them."""

    def create(
        self, topic_partition: TopicPartition, topic_id: bytes, config: LogConfig, now_ms: int, *, is_new: bool = True
    ) -> PartitionLog:
        """The log of a partition; made, durably, where it is missing, in the directory that holds the fewest.

        See `choose_folder` for one that is there. With `is_new` false the partition existed before, so that while a directory is offline
        its log is taken to be there. PeerError KAFKA_STORAGE_ERROR for a partition that is offline; StorageError if no directory can hold
        it.
        """
        self.choose_folder(topic_partition, topic_id, now_ms)
        placement = self._logs.placements.get(topic_partition)
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

    def choose_folder(self, topic_partition: TopicPartition, topic_id: bytes, now_ms: int) -> None:
        """Set aside, as ``-stray``, folders of the partition's name that are not the topic's, and open the one that is.

        Those are folders that carry another topic's id: a directory comes back that was offline while a topic was deleted, and created
        again. Of several that may be the topic's, also those that never held a record: a power cut brings a folder back whose removal was
        not on disk. The partition stays offline if more than one folder is left, and where a disk fails.
        """
        placement = self._logs.placements.get(topic_partition)
        if placement is None or (not placement.rivals and placement.topic_id in (None, topic_id)):
            return
        found = [placement, *placement.rivals]
        own = [each for each in found if each.topic_id in (None, topic_id)]
        try:
            if len(own) > 1:
                used = [each for each in own if self._loader.was_used(each)]
                own = used or sorted(own, key=lambda each: each.topic_id is None)[:1]
            if len(own) > 1 or (own and not self._files.is_directory(own[0].folder)):
                return
        except StorageError as error:
            _LOG.error("partition offline: partition=%s reason=%s", topic_partition, error)
            return
        for chosen in own:
            self._choose(placement, chosen, now_ms)
        for each in found:
            if each not in own and each.directory.online:
                try:
                    self._logs.set_aside(each)
                except StorageError as error:
                    self._logs.storage_failed(each.directory, error)

    def _choose(self, placement: Placement, chosen: Placement, now_ms: int) -> None:
        placement.rivals, placement.problem = [], None
        if chosen is not placement:
            self._logs.replace(placement, chosen)
        if chosen.directory.error is not None:
            chosen.problem = chosen.directory.error
            return
        try:
            self._loader.try_again(chosen, now_ms)
        except StorageError as error:
            self._logs.storage_failed(chosen.directory, error)

    def make_folders(self, wanted: Sequence[tuple[TopicPartition, bytes]]) -> Steps:
        """First part of `create` for new partitions, each with its topic's id: their folders are made, and durable at the end, elsewhere.

        Where that fails nothing is left; `create` tries again and says what is wrong. What `create` does not take is for `drop_folders`.
        """
        online = self._logs.online()
        if self._background is None or not online:
            return
        held = {directory.path: len(list(self._logs.held(directory))) for directory in online}
        folders: dict[str, list[tuple[TopicPartition, _Folder]]] = {}
        for topic_partition, topic_id in wanted:
            chosen = self._logs.preferred.get(topic_partition)
            directory = chosen if chosen in online else min(online, key=lambda directory: held[directory.path])
            path = f"{directory.path}/{topic_partition}"
            is_free = topic_partition not in self._logs.placements and not directory.has_stale_line(topic_partition)
            if is_free and not self._files.exists(path):
                held[directory.path] += 1
                folders.setdefault(directory.path, []).append((topic_partition, _Folder(directory, path, topic_id)))
            yield UNFINISHED
        for path, some in folders.items():
            parts = [some[start::FOLDERS_AT_ONCE] for start in range(min(FOLDERS_AT_ONCE, len(some)))]
            works = [partial(_write_topic_ids, self._files, [each for _, each in part]) for part in parts]
            try:
                for _, folder in some:
                    self._files.make_directory(folder.path)
                    yield UNFINISHED
                yield from run_all(self._background, [*works, partial(self._files.sync_directory, path)])
            except StorageError:
                yield from run_all(self._background, [partial(_remove_folders, self._files, [each for _, each in some])])
            else:
                self._made.update(some)

    def drop_folders(self, topic_partitions: Iterable[TopicPartition]) -> Steps:
        """Remove those folders that `make_folders` made and no partition uses: their topics were deleted."""
        left = [self._made.pop(each) for each in topic_partitions if each in self._made]
        if left and self._background is not None:
            yield from run_all(self._background, [partial(_remove_folders, self._files, left)])

    def _create(self, topic_partition: TopicPartition, topic_id: bytes, config: LogConfig, now_ms: int) -> PartitionLog:
        failure: WorldError = AllDirectoriesFailedError(self._logs.directories)
        made = self._made.pop(topic_partition, None)
        directories = self._logs.emptiest_first(topic_partition)
        if made is not None and made.directory in directories:
            directories = [made.directory, *(each for each in directories if each is not made.directory)]
        for directory in directories:
            placement = Placement(topic_partition, directory, f"{directory.path}/{topic_partition}")
            is_made = made is not None and made.directory is directory
            if not is_made and self._files.exists(placement.folder):
                raise PeerError(ErrorCode.KAFKA_STORAGE_ERROR, f"{placement.folder} is there, but is none of the logs that were opened")
            try:
                if directory.has_stale_line(topic_partition):  # recovery would miss in the new log what an earlier one of its name had
                    self._logs.settle(directory)
                if not is_made:
                    _make_folders(self._files, [_Folder(directory, placement.folder, topic_id)])
                log = self._loader.open_log(placement, config, now_ms, clean=True)
            except StorageError as error:
                if not (isinstance(failure, StorageError) and failure.no_space):  # that is tried again when there is room
                    failure = error
                _remove_folders(self._files, [_Folder(directory, placement.folder, topic_id)])
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
        for directory in self._take_unsettled():
            try:
                self._logs.settle(directory)
            except StorageError as error:
                self._logs.storage_failed(directory, error)
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

    def settle_deleted(self) -> Steps:
        """Second half of `delete`, in steps: it takes time for all partitions of the directories that the deleted ones were in."""
        return self._settle_all(self._take_unsettled())

    def retry_settling(self) -> Steps:
        """Second half of `delete` once more where there was no room for it."""
        return self._settle_all([directory for directory in self._logs.online() if directory.has_stale_lines])

    def _settle_all(self, directories: "Sequence[LogDirectory]") -> Steps:
        for directory in directories:
            for placement in list(self._logs.held(directory)):
                yield UNFINISHED
                if self._logs.holds(placement):
                    self._logs.note_offset(placement)
            settle = self._logs.settling(directory)
            try:
                if self._background is None:
                    settle()
                else:
                    yield from run_all(self._background, [settle])
            except StorageError as error:
                self._logs.storage_failed(directory, error)

    def _take_unsettled(self) -> "list[LogDirectory]":
        unsettled, self._unsettled = self._unsettled, {}
        return [directory for directory in unsettled.values() if directory.online]

    def _mark_deleted(self, placement: Placement, now_ms: int) -> bool:
        config = self._default_config if placement.log is None else placement.log.config
        future = self._logs.futures.get(placement.topic_partition)
        if future is not None:
            self._logs.drop_future(future)
            if not future.is_busy:
                self._removals.add_copy(now_ms, future.directory, future.folder, self._files)
        if not placement.directory.online:
            return False
        try:
            path = self._logs.mark_deleted(placement)
        except StorageError as error:
            self._logs.storage_failed(placement.directory, error)
            return False
        self._removals.add(now_ms + config.file_delete_delay_ms, placement.directory, path)
        return True


def _make_folders(files: FileSystem, folders: Sequence[_Folder]) -> None:
    """Make folders of one directory with their topics' ids; all of it is on disk at the end. StorageError."""
    for folder in folders:
        files.make_directory(folder.path)
    _write_topic_ids(files, folders)
    files.sync_directory(folders[0].directory.path)


def _write_topic_ids(files: FileSystem, folders: Sequence[_Folder]) -> None:
    for folder in folders:
        write_topic_id(files, folder.path, folder.topic_id)


def _remove_folders(files: FileSystem, folders: Sequence[_Folder]) -> None:
    """Remove folders of one or several directories, durably where the disk allows it: one that a crash brings back would stand beside the
    folder that the partition has in another directory since.
    """
    for folder in folders:
        with contextlib.suppress(StorageError):
            files.remove_tree(folder.path)
    for path in dict.fromkeys(folder.directory.path for folder in folders):
        with contextlib.suppress(StorageError):
            files.sync_directory(path)
