"""The segments of a log, oldest first, and the binary search for the one that holds an offset."""

from bisect import bisect_right

from moldau.log import names
from moldau.log.segment import Segment
from moldau.ports.filesystem import FileSystem


class RemovedSegment:
    """A segment that is out of use: its files are renamed, and unlinked by `unlink` once `delay_ms` have passed."""

    __slots__ = ("_files", "base_offset", "delay_ms", "paths", "reason", "size_bytes")

    def __init__(self, files: FileSystem, base_offset: int, size_bytes: int, reason: str, delay_ms: int, paths: list[str]) -> None:
        self._files = files
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.reason = reason
        self.delay_ms = delay_ms
        self.paths = paths

    def unlink(self) -> None:
        """Give the space back; fine if that was done before. StorageError. May run in another thread."""
        for path in self.paths:
            self._files.remove(path)


class Segments:
    """Invariant: `bases` holds the base offsets of `items`, rising. Once a log is open there is at least one segment."""

    __slots__ = ("_files", "bases", "items", "removed")

    def __init__(self, files: FileSystem) -> None:
        self._files = files
        self.items: list[Segment] = []
        self.bases: list[int] = []
        self.removed: list[RemovedSegment] = []
        """Segments out of use whose files wait to be unlinked."""

    @property
    def active(self) -> Segment:
        """The newest one."""
        return self.items[-1]

    def __len__(self) -> int:
        return len(self.items)

    def add(self, segment: Segment) -> None:
        """Append the newest one."""
        assert not self.bases or segment.base_offset > self.bases[-1]
        self.items.append(segment)
        self.bases.append(segment.base_offset)

    def slot_of(self, offset: int) -> int:
        """Index of the segment that holds `offset`; the first one for an offset before all."""
        return max(0, bisect_right(self.bases, offset) - 1)

    def end_of(self, slot: int, log_end_offset: int) -> int:
        """The offset up to which (exclusive) the segment at `slot` reaches."""
        return self.bases[slot + 1] if slot + 1 < len(self.bases) else log_end_offset

    def size_bytes(self) -> int:
        """Bytes of batches in all segments."""
        return sum(segment.size for segment in self.items)

    def remove(self, first: int, last: int, reason: str, delay_ms: int) -> list[RemovedSegment]:
        """Take the segments from slot `first` to before `last` out of use, oldest first."""
        removed: list[RemovedSegment] = []
        for _ in range(first, last):
            segment = self.items[first]
            removed.append(retire(self._files, segment, reason, delay_ms))
            del self.items[first]
            del self.bases[first]
        self.removed += removed
        return removed

    def take_removed(self) -> list[RemovedSegment]:
        """Segments taken out of use since the last call, whose files wait to be unlinked after their `delay_ms`."""
        removed, self.removed = self.removed, []
        return removed

    def replace(self, first: int, last: int, segment: Segment) -> None:
        """Put one segment in the place of those from slot `first` to before `last`, whose files it has taken over."""
        assert segment.base_offset == self.bases[first]
        self.items[first:last] = [segment]
        self.bases[first:last] = [segment.base_offset]


def retire(files: FileSystem, segment: Segment, reason: str, delay_ms: int, *, with_snapshot: bool = True) -> RemovedSegment:
    """Rename a segment's files, and the producer snapshot at its base, so that no start finds them. StorageError.

    The batches go first: an index that a crash leaves without them is removed by the next start.
    """
    segment.forget()
    wanted = segment.file_paths()
    if with_snapshot:
        wanted.append(segment.path[: -len(names.LOG)] + names.SNAPSHOT)
    paths = []
    for path in wanted:
        if files.exists(path):
            files.rename(path, path + names.DELETED)
            paths.append(path + names.DELETED)
    return RemovedSegment(files, segment.base_offset, segment.size, reason, delay_ms, paths)
