"""What DescribeLogDirs returns of the log directories; loaded with its first request."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from moldau.log.directory import LogDirectory
from moldau.log.log_set import LogSet
from moldau.model.errors import StorageError
from moldau.model.identity import TopicPartition
from moldau.ports.filesystem import FileSystem


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition's log: bytes of its segments, and how far it ends before the high watermark (0 unless it was cut).

    Or a copy that is to take its place (`is_future`), and how far that ends before the log.
    """

    topic_partition: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool = False


@dataclass(frozen=True, slots=True)
class DirectoryDescription:
    """One log directory. `error` says why it is offline; then sizes are -1 and there are no partitions."""

    path: str
    error: str | None = None
    total_bytes: int = -1
    usable_bytes: int = -1
    partitions: Iterable[PartitionDescription] = ()
    """Made one by one, each as it is then."""


def describe(files: FileSystem, directory: LogDirectory, logs: LogSet) -> DirectoryDescription:
    """One directory with those of the partitions that it holds and that can be used, and copies that grow there."""
    if directory.error is not None:
        return DirectoryDescription(directory.path, str(directory.error))
    try:
        total, usable = files.disk_space(directory.path)
    except StorageError as error:
        return DirectoryDescription(directory.path, str(error))
    partitions = chain(_held(directory, logs), _futures(directory, logs))
    return DirectoryDescription(directory.path, None, total, usable, partitions)


def _held(directory: LogDirectory, logs: LogSet) -> Iterator[PartitionDescription]:
    return (
        PartitionDescription(placement.topic_partition, log.size_bytes, max(0, log.high_watermark - log.log_end_offset))
        for placement in list(logs.held(directory))
        if placement.directory is directory and (log := placement.log) is not None
    )


def _futures(directory: LogDirectory, logs: LogSet) -> Iterator[PartitionDescription]:
    for future in [each for each in logs.futures.values() if each.directory is directory]:
        log, copy = future.source, future.log
        if logs.futures.get(future.topic_partition) is future:
            size, end_offset = (0, log.start_offset) if copy is None else (copy.size_bytes, copy.log_end_offset)
            yield PartitionDescription(future.topic_partition, size, max(0, log.log_end_offset - end_offset), True)
