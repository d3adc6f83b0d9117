"""Where a partition's log is kept, and whether it can be used."""

import contextlib

from moldau.log.directory import LogDirectory
from moldau.log.partition_log import PartitionLog
from moldau.model.errors import MoldauError, StorageError
from moldau.model.identity import TopicPartition


class Placement:
    """A partition's folder in a log directory. Invariant: there is a `log`, or a `problem` that says why there is none."""

    __slots__ = ("_opened", "directory", "folder", "log", "problem", "topic_id", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, directory: LogDirectory, folder: str) -> None:
        self.topic_partition = topic_partition
        self.directory = directory
        self.folder = folder
        self.topic_id: bytes | None = None
        """Of the topic that the folder was made for; None where it has no `partition.metadata`."""
        self.log: PartitionLog | None = None
        self.problem: MoldauError | None = None
        self._opened = False

    def opened(self, log: PartitionLog) -> None:
        """The log can be used."""
        self.log = log
        self.problem = None
        self._opened = True

    def fail(self, problem: MoldauError) -> None:
        """Take the partition offline; nothing more is written to its log. The first problem stays."""
        self.problem = self.problem or problem
        self.close_unclean()

    def close_unclean(self) -> None:
        """Close the log as it is: nothing more is flushed or written."""
        log, self.log = self.log, None
        if log is not None:
            with contextlib.suppress(StorageError):
                log.close()

    @property
    def is_clean(self) -> bool:
        """Whether the next start may trust a log that is offline. Not if it went offline while it was in use, or if it had to be recovered
        and could not be."""
        return self.directory.clean and not self._opened
