"""Checkpoint files: a version, a count, and so many lines of text, replaced as a whole. See docs/formats/checkpoints.md.

Four of them stand in each log directory and give one offset per partition; ``leader-epoch-checkpoint`` in each partition's folder has
the same frame.
"""

from collections.abc import Iterable, Mapping

from moldau.log.damage import DamagedFileError
from moldau.model.identity import TopicPartition
from moldau.ports.filesystem import FileSystem

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
"""Up to here a partition's log was on disk: recovery starts here."""
HIGH_WATERMARKS = "replication-offset-checkpoint"
"""Up to here all in-sync replicas had the partition's log."""
LOG_STARTS = "log-start-offset-checkpoint"
"""First offset that is shown, where it lies beyond the base of the first segment (after DeleteRecords)."""
CLEANED = "cleaner-offset-checkpoint"
"""First offset that compaction has not cleaned yet."""

OFFSET_CHECKPOINTS = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS, CLEANED)
LEADER_EPOCHS = "leader-epoch-checkpoint"

VERSION = 0  # do not change: Kafka reads no other


def format_lines(lines: Iterable[str]) -> bytes:
    """A checkpoint file with these entries."""
    entries = list(lines)
    return "\n".join((str(VERSION), str(len(entries)), *entries, "")).encode()


def parse_lines(data: bytes, path: str) -> list[str]:
    """The entries of a checkpoint file. An empty one has none: Kafka makes the file before it first writes to it.

    DamagedFileError for an unknown version and for a count that is not the number of entries.
    """
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError as error:
        raise DamagedFileError(path, f"byte {error.start}", "not text") from error
    if not lines:
        return []
    if lines[0] != str(VERSION):
        raise DamagedFileError(path, "line 1", f"version {lines[0]!r}, not {VERSION}")
    count = lines[1] if len(lines) > 1 else ""
    if count != str(len(lines) - 2):
        raise DamagedFileError(path, "line 2", f"{count!r} entries announced, {max(0, len(lines) - 2)} found")
    return lines[2:]


def format_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """A checkpoint file of one offset per partition."""
    return format_lines(f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())


def parse_offsets(data: bytes, path: str) -> dict[TopicPartition, int]:
    """Offsets by partition; DamagedFileError as `parse_lines`, and for a line that is not ``TOPIC PARTITION OFFSET``."""
    offsets: dict[TopicPartition, int] = {}
    for number, line in enumerate(parse_lines(data, path), start=3):
        try:
            topic, partition, offset = line.split()
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError as error:
            raise DamagedFileError(path, f"line {number}", f"{line!r} is not TOPIC PARTITION OFFSET") from error
    return offsets


def read_offsets(files: FileSystem, path: str) -> dict[TopicPartition, int]:
    """Offsets by partition from a file; none if it is missing. DamagedFileError, StorageError."""
    try:
        data = files.read(path)
    except FileNotFoundError:
        return {}
    return parse_offsets(data, path)
