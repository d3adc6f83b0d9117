"""Accepting the loss of records: the next start opens the partition with what is left of it (``moldau log accept-loss``).

A file of its own in the log directory records the acceptance until that start has used it, so that a running broker is not in
the way. What is left: of a log that ends too early or is damaged, everything before the damage; of a missing folder, nothing.
"""

from collections.abc import Sequence

from moldau.log import names
from moldau.log.batches import BadBatchError, scan
from moldau.log.checkpoints import ACCEPTED_LOSS, OFFSET_CHECKPOINTS, RECOVERY_POINTS, format_offsets, read_offsets
from moldau.log.damage import DamagedFileError
from moldau.log.meta_properties import FILE_NAME as META_PROPERTIES
from moldau.model.errors import MoldauError, StorageError
from moldau.model.identity import TopicPartition
from moldau.ports.filesystem import FileSystem


class NothingToAcceptError(MoldauError):
    """A directory or a partition that is not there, and never was, or of which nothing is lost."""


def accept_loss(files: FileSystem, directory: str, partitions: Sequence[TopicPartition]) -> None:
    """Write down, durably, that these partitions of a log directory may be opened without the lost records. All of them or none.

    NothingToAcceptError for a partition that has neither a folder nor a line in a checkpoint, and for one that the next start opens with
    all that was on disk. StorageError.
    """
    if not files.exists(f"{directory}/{META_PROPERTIES}"):
        raise NothingToAcceptError(f"{directory} is no log directory: it has no {META_PROPERTIES}")
    checkpoints = {name: _read(files, f"{directory}/{name}") for name in OFFSET_CHECKPOINTS}
    for topic_partition in partitions:
        folder = f"{directory}/{topic_partition}"
        if not files.exists(folder):
            if not any(topic_partition in offsets for offsets in checkpoints.values()):
                raise NothingToAcceptError(f"{directory} has never held the partition {topic_partition}")
        elif _is_whole(files, folder, recovery_point := checkpoints[RECOVERY_POINTS].get(topic_partition, 0)):
            raise NothingToAcceptError(
                f"{folder}: no record is lost: all that was on disk, up to offset {recovery_point}, is there, and the next start opens it; "
                "if the partition is offline, the broker's log has the reason"
            )
    path = f"{directory}/{ACCEPTED_LOSS}"
    files.write_atomically(path, format_offsets(_read(files, path) | dict.fromkeys(partitions, 0)))


def _is_whole(files: FileSystem, folder: str, recovery_point: int) -> bool:
    """Whether the next start finds everything before the recovery point, as far as it looks: in the segment that ends there.

    False also where only that start can tell: for files that a compaction or a removal has left, or that cannot be read.
    """
    try:
        if not files.is_directory(folder):
            return False
        listing = files.list(folder)
        bases = [base for name in listing if (base := names.offset_of(name, names.LOG)) is not None]
        if any(name.endswith((names.CLEANED, names.SWAP)) or _is_orphan(name, bases) for name in listing):
            return False
        base = max((base for base in bases if base < recovery_point), default=None)
        if base is None:
            return recovery_point == 0 or bool(bases)
        end = _end_before(files, f"{folder}/{names.file_name(base, names.LOG)}", base, recovery_point)
    except (BadBatchError, StorageError):
        return False
    return end == recovery_point or (end < recovery_point and recovery_point in bases)  # compaction may leave less before it


def _end_before(files: FileSystem, path: str, base: int, recovery_point: int) -> int:
    """The offset after the first batch of a segment that reaches the recovery point, or after its last. BadBatchError, StorageError."""
    end, file = base, files.open(path)
    try:
        for span, _, _ in scan(file, 0, file.size(), base):
            end = span.last_offset + 1
            if end >= recovery_point:
                break
    finally:
        file.release()
    return end


def _is_orphan(name: str, bases: Sequence[int]) -> bool:
    """Whether it is an index without its segment."""
    return any((base := names.offset_of(name, suffix)) is not None and base not in bases for suffix in names.SEGMENT_SUFFIXES[1:])


def _read(files: FileSystem, path: str) -> dict[TopicPartition, int]:
    try:
        return read_offsets(files, path)
    except DamagedFileError:
        return {}
