"""What DescribeLogDirs returns of the log directories; loaded with its first request."""

from collections.abc import Iterable
from dataclasses import dataclass

from moldau.log.directory import LogDirectory
from moldau.log.log_set import Placement
from moldau.model.errors import StorageError
from moldau.model.identity import TopicPartition
from moldau.ports.filesystem import FileSystem


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition's log: bytes of its segments, and how far it ends before the high watermark (0 unless it was cut)."""

    topic_partition: TopicPartition
    size_bytes: int
    offset_lag: int


@dataclass(frozen=True, slots=True)
class DirectoryDescription:
    """One log directory. `error` says why it is offline; then sizes are -1 and there are no partitions."""

    path: str
    error: str | None = None
    total_bytes: int = -1
    usable_bytes: int = -1
    partitions: Iterable[PartitionDescription] = ()
    """Made one by one, each as it is then."""


def describe(files: FileSystem, directory: LogDirectory, placements: Iterable[Placement]) -> DirectoryDescription:
    """One directory with those of the partitions that it holds and that can be used."""
    if directory.error is not None:
        return DirectoryDescription(directory.path, str(directory.error))
    try:
        total, usable = files.disk_space(directory.path)
    except StorageError as error:
        return DirectoryDescription(directory.path, str(error))
    partitions = (
        PartitionDescription(placement.topic_partition, log.size_bytes, max(0, log.high_watermark - log.log_end_offset))
        for placement in list(placements)
        if placement.directory is directory and (log := placement.log) is not None
    )
    return DirectoryDescription(directory.path, None, total, usable, partitions)
