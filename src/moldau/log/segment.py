"""One segment: a file of batches and its indexes (``docs/formats/segment.md``).

A segment opens nothing until someone reads it, and then through the shared :class:`moldau.log.cache.SegmentCache`.
Only the newest segment of a log grows; :class:`moldau.log.append.Appender` does that.
"""

from moldau.log import names
from moldau.log.batches import UNREADABLE, BadBatchError, find, walk
from moldau.log.cache import SegmentCache
from moldau.log.index_builder import IndexBuilder
from moldau.log.offset_index import OffsetIndex
from moldau.log.time_index import TimeIndex
from moldau.log.transaction_index import TransactionIndex
from moldau.ports.filesystem import File, FileSystem
from moldau.protocol.records.header import BatchHeader

_UNKNOWN = -2
INDEX_INTERVAL = 4096
"""Bytes between the entries of an index that is made anew because it was missing."""


class Segment:
    """Invariants: `size` bytes of the file are whole batches that readers may see; offsets in the file are at least `base_offset`."""

    __slots__ = (
        "_cache",
        "_files",
        "_has_indexes",
        "_max_offset",
        "_max_timestamp",
        "base_offset",
        "index",
        "path",
        "size",
        "time_index",
        "transaction_index",
    )

    def __init__(self, files: FileSystem, cache: SegmentCache, directory: str, base_offset: int, size: int, *, new: bool = False) -> None:
        self._files = files
        self._cache = cache
        self.base_offset = base_offset
        self.size = size
        stem = f"{directory}/{names.file_name(base_offset, '')}"
        self.path = stem + names.LOG
        self.index = OffsetIndex(files, cache, stem + names.INDEX, base_offset, new=new)
        self.time_index = TimeIndex(files, cache, stem + names.TIME_INDEX, base_offset, new=new)
        self.transaction_index = TransactionIndex(files, cache, stem + names.TRANSACTION_INDEX, base_offset, new=new)
        self._has_indexes = new
        self._max_timestamp = -1 if new else _UNKNOWN
        self._max_offset = base_offset

    def file(self) -> File:
        """The file of batches, open for reading; the cache is its user."""
        return self._cache.file(self.path)

    def locate(self, offset: int) -> tuple[int, BatchHeader] | None:
        """Position and header of the batch that holds `offset`, or of the next after it; None if the segment ends before. BadBatchError."""
        self._find_indexes()
        start = self.index.position_before(offset)
        try:
            return find(self.file(), start, self.size, self.base_offset, offset)
        except BadBatchError:
            if start == 0:
                raise
        return find(self.file(), 0, self.size, self.base_offset, offset)

    def largest_timestamp(self) -> tuple[int, int]:
        """The largest timestamp and the last offset of the batch that reaches it first; -1 without any. From the index, once."""
        if self._max_timestamp == _UNKNOWN:
            self._find_indexes()
            self.set_largest_timestamp(*self.time_index.last_entry())
        return self._max_timestamp, self._max_offset

    def set_largest_timestamp(self, timestamp: int, offset: int) -> None:
        """Note what `largest_timestamp` is to answer."""
        self._max_timestamp = timestamp
        self._max_offset = offset

    def retention_timestamp(self) -> int:
        """When the newest record was written: its timestamp or, where no record has one, the file's."""
        timestamp = self.largest_timestamp()[0]
        return timestamp if timestamp >= 0 else self._files.modified_ms(self.path)

    def _find_indexes(self) -> None:
        """Once: where an index file is missing, make both anew, in memory, from the headers as far as they can be read."""
        if self._has_indexes:
            return
        self._has_indexes = True
        if self._files.exists(self.index.path) and self._files.exists(self.time_index.path):
            return
        self.index.clear()
        self.time_index.clear()
        builder = IndexBuilder(self.index, self.time_index, INDEX_INTERVAL)
        try:
            for position, header in walk(self.file(), 0, self.size, self.base_offset):
                builder.add(position, header)
        except UNREADABLE:
            pass
        builder.finish()

    def index_end(self, interval: int) -> int:
        """Walk from the last indexed batch to the end, and learn the largest timestamp. The offset after the last batch. BadBatchError.

        Where an index is missing, both are made anew from all batches.
        """
        self._has_indexes = True
        if not (self._files.exists(self.index.path) and self._files.exists(self.time_index.path)):
            self.index.clear()
            self.time_index.clear()
        last = self.index.last()
        start = last[1] if last is not None else 0
        if start and start >= self.size:
            raise BadBatchError(self.path, start, self.base_offset, f"indexed, but the file has {self.size} bytes")
        builder = IndexBuilder(self.index, self.time_index, interval)
        end = self.base_offset
        for position, header in walk(self.file(), start, self.size, self.base_offset):
            builder.add(position, header)
            end = header.last_offset + 1
        self.set_largest_timestamp(builder.newest, builder.reached)
        return end

    def store_indexes(self) -> bool:
        """Bring the index files up to date, in the page cache; whether they were not. StorageError."""
        return any([self.index.store(), self.time_index.store(), self.transaction_index.store()])

    def file_paths(self) -> list[str]:
        """The files that make up the segment, the batches first; some may not exist."""
        stem = self.path[: -len(names.LOG)]
        return [stem + suffix for suffix in names.SEGMENT_SUFFIXES]

    def index_paths(self) -> tuple[str, ...]:
        """The index files; some may not exist."""
        return self.index.path, self.time_index.path, self.transaction_index.path

    def forget(self) -> None:
        """Close what the cache holds of it."""
        self._cache.forget(self.path)
        for path in self.index_paths():
            self._cache.forget(path)
