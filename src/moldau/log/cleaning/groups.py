"""Which neighbouring segments become one, so that a log that is compacted again and again does not end as many small files; and the
segment that such a group becomes: its files while they end with ``.cleaned``.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from moldau.log import names
from moldau.log.cache import SegmentCache
from moldau.log.indexes import IndexBuilder, OffsetIndex, TimeIndex
from moldau.log.transaction_index import ABORTED, ABORTED_VERSION, TransactionIndexEntry
from moldau.model.errors import StorageError
from moldau.ports.filesystem import Bytes, File, FileSystem
from moldau.protocol.records.header import BatchHeader

RELATIVE_OFFSET_MAX = 2**31 - 1
SEGMENTS_MAX = 64
"""Of a group: it is swapped in on the broker's thread, with some renames for each segment."""
SIZE_MAX = 2**31 - 1


class SegmentSizes(NamedTuple):
    """A segment with what counts for its place: `end_offset` is where the next one begins."""

    base_offset: int
    end_offset: int
    size: int
    index_bytes: int
    time_index_bytes: int


def group_segments(segments: Sequence[SegmentSizes], segment_bytes: int, index_bytes: int) -> list[list[SegmentSizes]]:
    """The segments in their order, in groups that are, before anything is removed from them, no larger than one segment may be.

    Offsets in a segment are stored relative to its base in 31 bits, so a group spans no more.
    """
    groups: list[list[SegmentSizes]] = []
    log_size = index_size = time_index_size = 0
    for segment in segments:
        group = groups[-1] if groups else []
        log_size += segment.size
        index_size += segment.index_bytes
        time_index_size += segment.time_index_bytes
        fits = (
            0 < len(group) < SEGMENTS_MAX
            and log_size <= segment_bytes
            and max(index_size, time_index_size) <= index_bytes
            and (not segment.size or segment.end_offset - 1 - group[0].base_offset <= RELATIVE_OFFSET_MAX)
        )
        if fits:
            group.append(segment)
        else:
            groups.append([segment])
            log_size, index_size, time_index_size = segment.size, segment.index_bytes, segment.time_index_bytes
    return groups


class CleanedSegment:
    """Appended to, then `finish`ed or `discard`ed. What an earlier attempt left under its names is overwritten."""

    def __init__(self, files: FileSystem, folder: str, base_offset: int, index_interval_bytes: int) -> None:
        self._files = files
        self._folder = folder
        self._stem = f"{folder}/{names.file_name(base_offset, '')}"
        self.size = 0
        self.suffixes = [names.LOG, names.INDEX, names.TIME_INDEX]
        self.remove()
        cache = SegmentCache(files)
        self._index = OffsetIndex(files, cache, self._path(names.INDEX), base_offset, new=True)
        self._time_index = TimeIndex(files, cache, self._path(names.TIME_INDEX), base_offset, new=True)
        self._builder = IndexBuilder(self._index, self._time_index, index_interval_bytes)
        self._file: File | None = files.open(self._path(names.LOG), create=True)

    @property
    def largest_timestamp(self) -> tuple[int, int]:
        """The largest timestamp, -1 without any, and the last offset of the batch that reaches it."""
        return self._builder.newest, self._builder.reached

    def note(self, header: BatchHeader) -> None:
        """A batch follows, with the next `append`."""
        self._builder.add(self.size, header)
        self.size += header.size
        if self.size > SIZE_MAX:
            raise StorageError(f"compaction makes it longer than {SIZE_MAX} bytes", path=self._path(names.LOG))

    def append(self, pieces: list[Bytes]) -> None:
        """Write the bytes of what was noted. StorageError."""
        file, wanted = self._file, sum(map(len, pieces))
        assert file is not None
        written = file.append(pieces) if pieces else 0
        while written < wanted:
            written += file.append([memoryview(b"".join(pieces))[written:]])

    def finish(self, aborted: Iterable[TransactionIndexEntry], modified_ms: int) -> None:
        """Complete the indexes and bring all files to disk, as if last written at `modified_ms`. StorageError."""
        self._builder.finish()
        self._index.store()
        self._time_index.store()
        entries = b"".join(ABORTED.pack(ABORTED_VERSION, *entry) for entry in aborted)
        if entries:
            self.suffixes.append(names.TRANSACTION_INDEX)
            file = self._files.open(self._path(names.TRANSACTION_INDEX), create=True)
            try:
                while entries:
                    entries = entries[file.append([entries]) :]
            finally:
                file.release()
        self._release()
        for suffix in self.suffixes:
            self._files.set_modified_ms(self._path(suffix), modified_ms)
            file = self._files.open(self._path(suffix), writable=True)
            try:
                file.sync()
            finally:
                file.release()
        self._files.sync_directory(self._folder)

    def discard(self) -> None:
        """It is of no use after all. StorageError."""
        self._release()
        self.remove()

    def remove(self) -> None:
        """Remove all files of its names. StorageError."""
        for suffix in names.SEGMENT_SUFFIXES:
            self._files.remove(self._path(suffix))

    def _path(self, suffix: str) -> str:
        return self._stem + suffix + names.CLEANED

    def _release(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.release()
