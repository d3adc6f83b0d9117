"""Checkpoint files: a version, a count, and that many lines of text, replaced as a whole. See docs/formats/checkpoints.md.

Four of them stand in each log directory and give one offset per partition; ``leader-epoch-checkpoint`` in each partition's folder has
the same frame.

Kafka's format has no checksum, but its readers split a line at blanks and ignore those at its end. So the last entry that Moldau writes
ends with 32 of them, the CRC-32C of all bytes before: a space is a 0, a tab a 1, the highest bit first.
"""

import threading
from collections.abc import Callable, Iterable, Mapping

from fastcrc.crc32 import iscsi as crc32c

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

ACCEPTED_LOSS = ".moldau_accepted_loss"
"""A line for each partition whose loss `moldau log accept-loss` has accepted, until the next start has dealt with it."""

OFFSET_CHECKPOINTS = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS, CLEANED)
LEADER_EPOCHS = "leader-epoch-checkpoint"

VERSION = 0  # do not change: Kafka reads no other
_CHECKSUM_BITS = 32
_OFFSET_DIGITS = 19
_TO_BLANKS = str.maketrans("01", " \t")


def format_lines(lines: Iterable[str]) -> bytes:
    """A checkpoint file with these entries, and its checksum if there are any."""
    entries = list(lines)
    data = "\n".join((str(VERSION), str(len(entries)), *entries)).encode()
    return data + (_checksum(data) if entries else b"") + b"\n"


def parse_lines(data: bytes, path: str) -> list[str]:
    """The entries of a checkpoint file. An empty one has none: Kafka makes the file before it first writes to it.

    DamagedFileError for an unknown version, for a count that is not the number of entries, for a last line without an end, and where the
    checksum does not match. A file that another system wrote has none, and is used unchecked.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise DamagedFileError(path, f"byte {error.start}", "not text") from error
    if not text:
        return []
    lines = text.split("\n")
    if lines.pop() != "":
        raise DamagedFileError(path, f"line {len(lines) + 1}", "ends without the end of a line")
    if lines[0] != str(VERSION):
        raise DamagedFileError(path, "line 1", f"version {lines[0]!r}, not {VERSION}")
    count = lines[1] if len(lines) > 1 else ""
    if count != str(len(lines) - 2):
        raise DamagedFileError(path, "line 2", f"{count!r} entries announced, {max(0, len(lines) - 2)} found")
    content = data[:-1].rstrip(b" \t")
    if len(content) < len(data) - 1 and data[len(content) : -1] != _checksum(content):
        raise DamagedFileError(path, f"line {len(lines)}", "the checksum, blanks at the end of the line, does not match")
    return lines[2:]


def _checksum(content: bytes) -> bytes:
    return f"{crc32c(content):0{_CHECKSUM_BITS}b}".translate(_TO_BLANKS).encode()


def format_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """A checkpoint file of one offset per partition."""
    return format_lines(f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())


def parse_offsets(data: bytes, path: str) -> dict[TopicPartition, int]:
    """Offsets by partition; DamagedFileError as `parse_lines`, and for a line that is not ``TOPIC PARTITION OFFSET``."""
    offsets: dict[TopicPartition, int] = {}
    for number, line in enumerate(parse_lines(data, path), start=3):
        words = line.split()
        if len(words) != 3 or not (is_number(words[1]) and is_number(words[2])):
            raise DamagedFileError(path, f"line {number}", f"{line!r} is not TOPIC PARTITION OFFSET")
        topic_partition = TopicPartition(words[0], int(words[1]))
        if topic_partition in offsets:
            raise DamagedFileError(path, f"line {number}", f"a second entry for {topic_partition}")
        offsets[topic_partition] = int(words[2])
    return offsets


def is_number(word: str) -> bool:
    """Whether a word is a number as these files have them: digits, and no more than an offset can have."""
    return word.isascii() and word.isdigit() and len(word) <= _OFFSET_DIGITS and int(word) < 1 << 63


def read_offsets(files: FileSystem, path: str) -> dict[TopicPartition, int]:
    """Offsets by partition from a file; none if it is missing. DamagedFileError, StorageError."""
    try:
        data = files.read(path)
    except FileNotFoundError:
        return {}
    return parse_offsets(data, path)


class CheckpointWriter:
    """Each `prepare` takes a number; a write with an earlier number than the one on disk does nothing.

    A file whose content has not changed since this writer wrote it is left alone: an idle broker syncs nothing.
    """

    def __init__(self, files: FileSystem, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._lock = threading.Lock()
        self._prepared = 0
        self._written = 0
        self._on_disk: dict[str, bytes] = {}

    def prepare(self, contents: Callable[[], Mapping[str, bytes]]) -> Callable[[], None]:
        """The work of making these files, by name, and bringing them to disk. It may run in any thread; StorageError."""
        self._prepared += 1
        number = self._prepared

        def write() -> None:
            with self._lock:
                if number <= self._written:
                    return
                for name, data in contents().items():
                    if self._on_disk.get(name) != data:
                        self._on_disk.pop(name, None)
                        self._files.write_atomically(f"{self._directory}/{name}", data)
                        self._on_disk[name] = data
                self._written = number

        return write
