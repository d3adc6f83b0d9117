"""One segment: a file of batches and its indexes (``docs/formats/segment.md``).

A segment opens nothing until it is read, and then through the shared :class:`moldau.log.cache.SegmentCache`.
Only the newest segment of a log grows; :class:`moldau.log.segment_appender.SegmentAppender` does that.
"""

import logging
from contextlib import suppress

from moldau.log import names
from moldau.log.batches import UNREADABLE, BadBatchError, find, walk
from moldau.log.cache import SegmentCache
from moldau.log.indexes import IndexBuilder, OffsetIndex, TimeIndex, read_checksums, write_checksums
from moldau.log.transaction_index import TransactionIndex
from moldau.model.errors import StorageError
from moldau.ports.filesystem import File, FileSystem
from moldau.protocol.records.header import BatchHeader

_LOG = logging.getLogger(__name__)

_UNKNOWN = -2
INDEX_INTERVAL = 4096
"""Bytes between the entries of an index that is rebuilt because it was missing."""


class Segment:
    """Invariants: `size` bytes of the file are whole batches that readers may see; offsets in the file are at least `base_offset`."""

    __slots__ = (
        "_cache",
        "_checked_transactions",
        "_files",
        "_has_indexes",
        "_index",
        "_max_offset",
        "_max_timestamp",
        "_stem",
        "_time_index",
        "_transaction_index",
        "_trusted",
        "base_offset",
        "path",
        "size",
    )

    def __init__(self, files: FileSystem, cache: SegmentCache, directory: str, base_offset: int, size: int, *, new: bool = False) -> None:
        self._files = files
        self._cache = cache
        self.base_offset = base_offset
        self.size = size
        stem = f"{directory}/{names.file_name(base_offset, '')}"
        self._stem = stem
        self.path = stem + names.LOG
        self._index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._transaction_index: TransactionIndex | None = None
        if new:
            self._index = OffsetIndex(files, cache, stem + names.INDEX, base_offset, new=True)
            self._time_index = TimeIndex(files, cache, stem + names.TIME_INDEX, base_offset, new=True)
            self._transaction_index = TransactionIndex(files, cache, stem + names.TRANSACTION_INDEX, base_offset, new=True)
        self._has_indexes = new
        self._checked_transactions = new
        self._trusted = new
        self._max_timestamp = -1 if new else _UNKNOWN
        self._max_offset = base_offset

    @property
    def index(self) -> OffsetIndex:
        """Of offsets. Made when it is first asked for, like the others: most segments that a start finds are not read soon."""
        if self._index is None:
            self._index = OffsetIndex(self._files, self._cache, self._stem + names.INDEX, self.base_offset)
        return self._index

    @property
    def time_index(self) -> TimeIndex:
        """Of timestamps."""
        if self._time_index is None:
            self._time_index = TimeIndex(self._files, self._cache, self._stem + names.TIME_INDEX, self.base_offset)
        return self._time_index

    @property
    def transaction_index(self) -> TransactionIndex:
        """Of aborted transactions."""
        if self._transaction_index is None:
            self._transaction_index = TransactionIndex(self._files, self._cache, self._stem + names.TRANSACTION_INDEX, self.base_offset)
        return self._transaction_index

    def file(self) -> File:
        """The file of batches, open for reading; the cache is its user."""
        return self._cache.file(self.path)

    def locate(self, offset: int) -> tuple[int, BatchHeader] | None:
        """Position and header of the batch that holds `offset`, or of the next after it; None if the segment ends before. BadBatchError."""
        self.find_indexes()
        start = self.index.position_before(offset)
        if 0 < start < self.size:
            with suppress(BadBatchError):
                for position, header in walk(self.file(), start, self.size, self.base_offset):
                    if header.last_offset >= offset:
                        if position == start and header.base_offset > offset:
                            break  # the index is wrong: the batch before may hold it
                        return position, header
                else:
                    return None
        return find(self.file(), 0, self.size, self.base_offset, offset)

    def largest_timestamp(self) -> tuple[int, int]:
        """The largest timestamp and the last offset of the batch that reaches it first; -1 without any. From the index, once."""
        if self._max_timestamp == _UNKNOWN:
            known = read_checksums(self._files, self._stem)
            if known is not None and known.knows_all_times(self._files, self._stem):
                self.set_largest_timestamp(known.largest_timestamp, known.largest_offset)
            else:
                self.find_indexes()
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

    def find_indexes(self) -> None:
        """Once: where an index file is missing or not what was written, rebuild both from the headers as far as they can be read."""
        if self._has_indexes:
            return
        self._has_indexes = True
        there = self._files.exists(self.index.path) and self._files.exists(self.time_index.path)
        if there and self.indexes_match():
            return
        self._rebuild_indexes()
        if there:
            _LOG.warning("index rebuilt: path=%s; it or its time index is not what was written", self.index.path)
            self._trusted = True
            with suppress(StorageError):
                self.index.store()
                self.time_index.store()
                self.store_checksums()

    def walk_from(self, offset: int) -> int:
        """Where a walk that looks for `offset` starts; the beginning if the index is not as it was written."""
        return self.index.position_before(offset) if self._is_trusted() else 0

    def offset_before(self, timestamp: int) -> int:
        """An offset up to which every record is older than `timestamp`."""
        return self.time_index.offset_before(timestamp) if self._is_trusted() else self.base_offset

    def _is_trusted(self) -> bool:
        """Whether the indexes are as they were written, or were rebuilt. Once true, it stays true."""
        if not self._trusted:
            self.find_indexes()
            self._trusted = self.indexes_match()
        return self._trusted

    def indexes_match(self) -> bool:
        """Whether offset index and time index are what was written, as far as that is known."""
        known = read_checksums(self._files, self._stem)
        return known is None or known.match(self._files, self._stem, names.INDEX, names.TIME_INDEX)

    def check_transactions(self) -> None:
        """Once: mark the index of aborted transactions as damaged if it is not what was written."""
        if self._checked_transactions:
            return
        self._checked_transactions = True
        known = read_checksums(self._files, self._stem)
        if known is not None and self.transaction_index.stored >= 0 and not known.match(self._files, self._stem, names.TRANSACTION_INDEX):
            self.transaction_index.damaged = True

    def knows_all_transactions(self) -> bool:
        """Whether a checksum is noted of all entries of the index of aborted transactions that are in the file."""
        known = read_checksums(self._files, self._stem)
        noted = (0, 0) if known is None else known.files.get(names.TRANSACTION_INDEX, (0, 0))
        return (
            known is not None
            and noted[0] == self.transaction_index.stored
            and known.match(self._files, self._stem, names.TRANSACTION_INDEX)
        )

    def store_checksums(self) -> None:
        """Note what the index files hold, which are stored. What they held before is compared first, or damage would be taken for good.

        Of an index of aborted transactions that is damaged, what it should hold stays noted until it is rebuilt.
        """
        if not self.indexes_match():
            self._rebuild_indexes()
            self.store_indexes()
        self.check_transactions()
        kept = {}
        if self.transaction_index.damaged and (known := read_checksums(self._files, self._stem)) is not None:
            kept = {suffix: row for suffix, row in known.files.items() if suffix == names.TRANSACTION_INDEX}
        write_checksums(self._files, self._stem, *self.largest_timestamp(), kept)

    def _rebuild_indexes(self) -> None:
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

        Where an index is missing, both are rebuilt from all batches.
        """
        self._has_indexes = True
        if self.index.has_nothing or self.time_index.has_nothing:
            self.index.clear()
            self.time_index.clear()
        builder = IndexBuilder(self.index, self.time_index, interval)
        start = builder.indexed_at
        if start and start >= self.size:
            raise BadBatchError(self.path, start, self.base_offset, f"indexed, but the file has {self.size} bytes")
        end = self.base_offset
        for position, header in walk(self.file(), start, self.size, self.base_offset):
            builder.add(position, header)
            end = header.last_offset + 1
        known = read_checksums(self._files, self._stem) if start else None
        if known is not None and known.largest_timestamp != builder.newest and known.knows_all_times(self._files, self._stem):
            _LOG.warning("index rebuilt: path=%s; its last entry is not what was written", self.time_index.path)
            self.index.clear()
            self.time_index.clear()
            self._files.remove(self._stem + names.CHECKSUMS)
            return self.index_end(interval)
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
        return self._stem + names.INDEX, self._stem + names.TIME_INDEX, self._stem + names.TRANSACTION_INDEX

    def synced_paths(self) -> tuple[str, ...]:
        """Those that are synced with the batches: the index files, and their checksums where they show damage that nothing else does."""
        paths = self.index_paths()
        return (*paths, self._stem + names.CHECKSUMS) if len(self.transaction_index) else paths

    def forget(self) -> None:
        """Close what the cache holds of it."""
        self._cache.forget(self.path)
        for path in self.index_paths():
            self._cache.forget(path)
