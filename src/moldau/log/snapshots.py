"""The producer snapshots in a partition's folder: written, found, and removed when they are out of use."""

from contextlib import suppress

from moldau.log import names
from moldau.log.producer_entry import ProducerEntry
from moldau.log.producer_snapshot import BadSnapshotError, decode_snapshot, encode_snapshot, producers_of
from moldau.model.errors import StorageError
from moldau.ports.filesystem import FileSystem


class Snapshots:
    """Invariant: `offsets` are those of the snapshot files in the folder, rising."""

    __slots__ = ("_directory", "_files", "offsets")

    def __init__(self, files: FileSystem, directory: str, offsets: list[int]) -> None:
        self._files = files
        self._directory = directory
        self.offsets = sorted(offsets)

    def path(self, offset: int) -> str:
        """Path of the snapshot at `offset`."""
        return f"{self._directory}/{names.file_name(offset, names.SNAPSHOT)}"

    def write(self, offset: int, entries: dict[int, ProducerEntry]) -> str:
        """Write the snapshot at `offset` (into the page cache); its path. StorageError: no half of one stays, if the disk lets go of it."""
        path = self.path(offset)
        data = encode_snapshot(entries)
        file = self._files.open(path, create=True)
        try:
            file.truncate(0)
            while data:
                data = data[file.append([data]) :]
        except StorageError:
            with suppress(StorageError):
                self._files.remove(path)
            raise
        finally:
            file.release()
        self.offsets.append(offset)
        self.offsets.sort()
        return path

    def load_newest(self, until: int, now_ms: int, most: int) -> tuple[int, dict[int, ProducerEntry]] | None:
        """Offset and producers of the newest snapshot not after `until` that can be read; damaged ones are removed.

        Of those without a transaction, if they are more than `most`, the ones with the newest batches.
        """
        for offset in reversed([offset for offset in self.offsets if offset <= until]):
            try:
                return offset, producers_of(decode_snapshot(self._files.read(self.path(offset))), now_ms, most)
            except (BadSnapshotError, FileNotFoundError):
                self.remove(offset)
        return None

    def remove(self, offset: int) -> None:
        """Remove one."""
        self._files.remove(self.path(offset))
        self.offsets.remove(offset)

    def remove_after(self, offset: int) -> None:
        """Remove those that speak of records which were cut off."""
        for late in [other for other in self.offsets if other > offset]:
            self.remove(late)

    def remove_between(self, bases: list[int], offset: int) -> None:
        """Remove those before `offset` that stand at no segment's base: a newer one has taken their place."""
        kept = set(bases)
        for stray in [other for other in self.offsets if other < offset and other not in kept]:
            self.remove(stray)

    def forget(self, offset: int) -> None:
        """The file went with its segment."""
        if offset in self.offsets:
            self.offsets.remove(offset)
