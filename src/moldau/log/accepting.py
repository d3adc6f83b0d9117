"""Accepting that records are gone: the next start opens the partition with what is left of it (``moldau log accept-loss``).

What was accepted stands in a file of its own in the log directory until that start has dealt with it, so that a running broker is not in
the way. What is left: of a log that ends too early or is damaged, everything before the damage; of a folder that is gone, nothing.
"""

from collections.abc import Sequence

from moldau.log.checkpoints import ACCEPTED_LOSS, OFFSET_CHECKPOINTS, format_offsets, read_offsets
from moldau.log.damage import DamagedFileError
from moldau.log.meta_properties import FILE_NAME as META_PROPERTIES
from moldau.model.errors import MoldauError
from moldau.model.identity import TopicPartition
from moldau.ports.filesystem import FileSystem


class NothingToAcceptError(MoldauError):
    """A directory or a partition that is not there, and never was."""


def accept_loss(files: FileSystem, directory: str, partitions: Sequence[TopicPartition]) -> None:
    """Write down, durably, that these partitions of a log directory may be opened without what is gone. All of them or none.

    NothingToAcceptError for a partition that has neither a folder nor a line in a checkpoint. StorageError.
    """
    if not files.exists(f"{directory}/{META_PROPERTIES}"):
        raise NothingToAcceptError(f"{directory} is no log directory: it has no {META_PROPERTIES}")
    known = {key for name in OFFSET_CHECKPOINTS for key in _read(files, f"{directory}/{name}")}
    for topic_partition in partitions:
        if topic_partition not in known and not files.exists(f"{directory}/{topic_partition}"):
            raise NothingToAcceptError(f"{directory} has never held the partition {topic_partition}")
    path = f"{directory}/{ACCEPTED_LOSS}"
    files.write_atomically(path, format_offsets(_read(files, path) | dict.fromkeys(partitions, 0)))


def _read(files: FileSystem, path: str) -> dict[TopicPartition, int]:
    try:
        return read_offsets(files, path)
    except DamagedFileError:
        return {}
