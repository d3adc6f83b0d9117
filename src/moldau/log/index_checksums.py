"""``.checksums``: what a segment's index files hold, in a file of Moldau's own beside them (``docs/formats/index-checksums.md``).

Kafka's index formats have no checksum, and a wrong entry costs more than time: one of the time index has retention delete what is young,
one of the index of aborted transactions shows what was aborted. The file covers a prefix of each index: it stays true while they grow.
It is never synced: without it, or where a crash has torn it, the indexes are used unchecked, as in Kafka. An older one may reappear;
its largest timestamp counts as long as no time was indexed since.
"""

from contextlib import suppress

from fastcrc.crc32 import iscsi as crc32c

from moldau.log import names
from moldau.log.checkpoints import format_lines, parse_lines
from moldau.log.damage import DamagedFileError
from moldau.model.errors import StorageError
from moldau.model.value import Value
from moldau.ports.filesystem import FileSystem, NotRegularError

_SUFFIXES = (names.INDEX, names.TIME_INDEX, names.TRANSACTION_INDEX)


class IndexChecksums(Value):
    """The segment's largest timestamp and the offset that reaches it; by suffix the length and CRC-32C of each index file."""

    largest_timestamp: int
    largest_offset: int
    files: dict[str, tuple[int, int]]

    def match(self, files: FileSystem, stem: str, *suffixes: str) -> bool:
        """Whether these files of a segment begin with what they held. StorageError other than for files that are missing or not regular."""
        for suffix in suffixes:
            size, checksum = self.files.get(suffix, (0, 0))
            if size and crc32c(_prefix(files, stem + suffix, size)) != checksum:
                return False
        return True

    def knows_all_times(self, files: FileSystem, stem: str) -> bool:
        """Whether no time was indexed since: the largest timestamp is still that. After a power cut the file may be an older one."""
        try:
            size = files.size(stem + names.TIME_INDEX)
        except (FileNotFoundError, NotRegularError):
            size = 0
        return size == self.files.get(names.TIME_INDEX, (0, 0))[0]


def read_checksums(files: FileSystem, stem: str) -> IndexChecksums | None:
    """What was noted of the segment with this path without its suffix; None where there is nothing that can be read."""
    path = stem + names.CHECKSUMS
    try:
        rows = [line.split() for line in parse_lines(files.read(path), path)]
        (_, timestamp, offset), *indexes = rows
        return IndexChecksums(int(timestamp), int(offset), {suffix: (int(size), int(checksum)) for suffix, size, checksum in indexes})
    except (FileNotFoundError, DamagedFileError, ValueError, StorageError):
        return None


def write_checksums(files: FileSystem, stem: str, largest_timestamp: int, largest_offset: int) -> None:
    """Note what a segment's index files hold now, into the page cache. A disk that cannot take it is no reason to fail."""
    path, rows = stem + names.CHECKSUMS, [f"largest {largest_timestamp} {largest_offset}"]
    with suppress(StorageError):
        rows += [
            f"{suffix} {size} {crc32c(_prefix(files, stem + suffix, size))}"
            for suffix in _SUFFIXES
            if files.exists(stem + suffix) and (size := files.size(stem + suffix))
        ]
        if len(rows) == 1:
            files.remove(path)
            return
        file = files.open(path, create=True)
        try:
            file.truncate(0)
            file.append([format_lines(rows)])
        finally:
            file.release()


def _prefix(files: FileSystem, path: str, size: int) -> bytes:
    try:
        file = files.open(path)
    except StorageError:
        return b""
    try:
        return file.pread(size, 0)
    finally:
        file.release()
