"""The growing end of a log: batches are staged in memory, written together, and indexed on the way.

Where bytes are::

    0 ............ segment.size ............ position
    in the page cache        | staged: the caller's memory

Staging keeps the caller's view, without a copy. `write` hands all views to one vectored write. If that fails the file is cut back
and everything that staging changed is put back, so that the staged batches never happened. The indexes are memory at this point
(:mod:`moldau.log.indexes`), so putting them back is cutting two byte arrays.

The file belongs to the cache, which may take it back at any time between two calls; the next write opens it again. Bytes of the page cache
stay there meanwhile, and batches that are staged wait for the write.

What decides between two batches is kept as plain limits, compared once per batch: the position from which an index entry is due, the
length that the segment may reach, the timestamp and the clock from which it is rolled.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from moldau.log.cache import SegmentCache
from moldau.log.config import LogConfig
from moldau.log.indexes import STORE_BYTES
from moldau.log.segment import Segment
from moldau.log.transaction_index import ENTRIES_MAX, TransactionIndexEntry
from moldau.model.errors import StorageError
from moldau.ports.filesystem import Bytes, File
from moldau.protocol.records.header import HEADER_SIZE, BatchHeader, read_header

if TYPE_CHECKING:
    from moldau.log.indexes import OffsetIndex, TimeIndex

_NEVER = 1 << 80
_RELATIVE_MAX = 2**31 - 1


_Mark = tuple[int, int, int, int, int, int, int, int, int]
"""What staging changes, as it was before the first staged batch: see `SegmentAppender.begin`. A plain tuple: every write makes one."""


class SegmentAppender:
    """Appends to one segment, from its creation or reopening until it is rolled.

    Not `ready`, it has not looked at its files yet, and its limits are such that the first batch asks for `prepare`.
    """

    __slots__ = (
        "_cache",
        "_config",
        "_created_ms",
        "_index_room",
        "_jitter_ms",
        "_mark",
        "_offset_index",
        "_time_index",
        "_uncut",
        "_used",
        "failure",
        "file",
        "index_from",
        "indexed_timestamp",
        "max_timestamp",
        "max_timestamp_offset",
        "offset_limit",
        "position",
        "ready",
        "roll_ms",
        "roll_timestamp",
        "segment",
        "segment_limit",
        "staged",
    )

    def __init__(self, cache: SegmentCache, segment: Segment, config: LogConfig, now_ms: int, jitter: int) -> None:
        self._cache = cache
        self._config = config
        self._created_ms = now_ms
        self._jitter_ms = jitter % config.segment_jitter_ms if config.segment_jitter_ms > 0 else 0
        self._mark: _Mark | None = None
        self._offset_index: OffsetIndex
        self._time_index: TimeIndex
        """Of the segment, once `ready`."""
        self._index_room = 0
        """At least so many entries fit into both indexes; looked at again when it comes down to 0."""
        self._uncut = False
        self._used = False
        self.segment = segment
        self.file: File | None = None
        self.failure: StorageError | None = None
        """Why it is unknown which of the written bytes are in the file."""
        self.staged: list[Bytes] = []
        self.position = segment.size
        self.ready = False
        self.max_timestamp = -1
        self.max_timestamp_offset = segment.base_offset
        self.indexed_timestamp = -1
        self.index_from = _NEVER
        self.segment_limit = -1
        self.offset_limit = segment.base_offset + _RELATIVE_MAX
        self.roll_timestamp = _NEVER
        self.roll_ms = _NEVER

    def prepare(self) -> None:
        """Open the file and find out where indexing and rolling stand. StorageError."""
        segment = self.segment
        file = self.file or self._open()
        if file.size() != segment.size:
            raise StorageError(f"the file has {file.size()} bytes, the log knows of {segment.size}", path=segment.path)
        self.max_timestamp, self.max_timestamp_offset = segment.largest_timestamp()
        self._offset_index, self._time_index = segment.index, segment.time_index
        self.indexed_timestamp = segment.time_index.last_entry()[0]
        self.segment_limit = self._config.segment_bytes
        if segment.size:
            last = segment.index.last()
            self.index_from = (last[1] if last is not None else 0) + self._config.index_interval_bytes
            self._set_roll_time(read_header(file.pread(HEADER_SIZE, 0)).max_timestamp)
            self._limit_by_indexes()
        else:
            self.index_from = -1
        self.ready = True

    def reconfigure(self, config: LogConfig) -> None:
        """Take over limits from another configuration; those of time hold from the next segment on."""
        self._config = config
        if self.ready:
            self.segment_limit = config.segment_bytes
            self._limit_by_indexes()

    def must_roll(self, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        """Whether a batch has to go to a new segment. A roll for age or a full index can wait while many others are rolled."""
        if self.position == 0:
            return False
        if self.position + size > self._config.segment_bytes or last_offset > self.offset_limit:
            return True
        is_index_full = self.position + size > self.segment_limit
        if not (is_index_full or max_timestamp > self.roll_timestamp or now_ms > self.roll_ms):
            return False
        if self._cache.may_roll_early(now_ms):
            return True
        if is_index_full:
            self.index_from = _NEVER
        return False

    def note_aborted(self, transactions: Sequence[TransactionIndexEntry]) -> None:
        """Index transactions whose abort markers are written."""
        index = self.segment.transaction_index
        for aborted in transactions:
            index.add(aborted)
        if len(index) >= ENTRIES_MAX:
            self.segment_limit = 0

    def begin(self) -> None:
        """Remember how things are before the first batch is staged."""
        self._mark = (
            self.max_timestamp,
            self.max_timestamp_offset,
            self.index_from,
            len(self._offset_index.tail),
            len(self._time_index.tail),
            self.indexed_timestamp,
            self.segment_limit,
            self.roll_timestamp,
            self.roll_ms,
        )

    def stage(self, batch: memoryview, header: BatchHeader) -> None:
        """Stage a batch that has its offset already. The memory must stay as it is until `write`."""
        if not self.staged:
            self.begin()
        self.staged.append(batch)
        last_offset, timestamp = header.last_offset, header.max_timestamp
        if timestamp > self.max_timestamp and header.record_count:  # one that compaction has emptied has no record of its time
            self.max_timestamp = timestamp
            self.max_timestamp_offset = last_offset
        if self.position > self.index_from:
            self.index(last_offset, timestamp)
        self.position += len(batch)

    def index(self, last_offset: int, timestamp: int) -> None:
        """An index entry is due for the batch that is being staged; for the first of a segment, its times are."""
        segment, position = self.segment, self.position
        if position == 0:
            self._set_roll_time(timestamp)
        else:
            segment.index.append(last_offset - segment.base_offset, position)
            if self.max_timestamp > self.indexed_timestamp:
                self.indexed_timestamp = segment.time_index.add(self.max_timestamp, self.max_timestamp_offset, self.indexed_timestamp)
        self.index_from = position + self._config.index_interval_bytes
        self._index_room -= 1
        if self._index_room <= 0:
            self._limit_by_indexes()

    def write(self) -> None:
        """Write everything staged (into the page cache). StorageError: nothing of it is in the log."""
        segment = self.segment
        wanted = self.position - segment.size
        self._used = True
        try:
            file = self.file or self._open()
            if self._uncut:
                self._cut()
            written = file.append(self.staged)
            while written < wanted:
                written += file.append([memoryview(b"".join(self.staged))[written:]])
        except StorageError:
            self.undo()
            raise
        segment.size = self.position
        segment.set_largest_timestamp(self.max_timestamp, self.max_timestamp_offset)
        self.staged = []
        if len(self._offset_index.tail) >= STORE_BYTES:
            self._store_indexes_if_possible()

    def undo(self) -> None:
        """Take back what is staged and cut off what may have been written of it."""
        segment, mark = self.segment, self._mark
        assert mark is not None
        self.staged = []
        self.position = segment.size
        self.max_timestamp, self.max_timestamp_offset, self.index_from, index_tail, time_index_tail, *limits = mark
        self.indexed_timestamp, self.segment_limit, self.roll_timestamp, self.roll_ms = limits
        del segment.index.tail[index_tail:]
        del segment.time_index.tail[time_index_tail:]
        self._uncut = True
        with suppress(StorageError):
            self._cut()

    def seal(self) -> bool:
        """Finish the indexes, for the segment gets no more batches or the log is closed. Whether their files may be unsynced.

        StorageError; may be repeated.
        """
        segment = self.segment
        if self._uncut:
            self._cut()
        if self.ready:
            self.indexed_timestamp = segment.time_index.add(self.max_timestamp, self.max_timestamp_offset, self.indexed_timestamp)
        return segment.store_indexes() or self.ready

    def close(self) -> None:
        """Write no more. StorageError from closing the file; it is closed all the same."""
        self.ready = False
        self.segment_limit = -1
        if self.file is not None:
            self._cache.forget(self.segment.path)
        if self.failure is not None:
            raise self.failure

    def keeps_file(self) -> bool:
        """Whether a failed write has to be cut off yet, or there was a write since this was last asked."""
        used, self._used = self._used, False
        return used or self._uncut

    def give_back(self, file: File) -> None:
        """Release the file. An error is this log's, and kept for it: who needed the descriptor may be another."""
        self.file = None
        try:
            file.release()
        except StorageError as error:
            self.failure = StorageError(f"written bytes may be lost, closing failed: {error}", path=self.segment.path)

    def _open(self) -> File:
        if self.failure is not None:
            raise self.failure
        file = self.file = self._cache.writable(self.segment.path, self, create=not self.ready)
        return file

    def _cut(self) -> None:
        """Remove from the file what a failed write has left there."""
        file = self.file or self._open()
        file.truncate(self.segment.size)
        self._uncut = False

    def _set_roll_time(self, first_timestamp: int) -> None:
        wait = self._config.roll_ms - self._jitter_ms
        if first_timestamp >= 0:
            self.roll_timestamp = first_timestamp + wait
            self.roll_ms = _NEVER
        else:
            self.roll_timestamp = _NEVER
            self.roll_ms = self._created_ms + wait

    def _limit_by_indexes(self) -> None:
        """Roll at the next batch when an index is full; the time index keeps one entry free for the end of the segment."""
        segment, size = self.segment, self._config.segment_index_bytes
        index, time_index = segment.index, segment.time_index
        self._index_room = min(size // index.entry.size - len(index), size // time_index.entry.size - 1 - len(time_index))
        if self._index_room <= 0 or len(segment.transaction_index) >= ENTRIES_MAX:
            self.segment_limit = 0

    def _store_indexes_if_possible(self) -> None:
        with suppress(StorageError):  # The tails stay in memory, and rolling or closing will say what is wrong with the disk.
            self.segment.store_indexes()
