"""The index files of a segment: the sparse ones from offsets to positions and from timestamps to offsets, and what all of them share.

    stored ............ | tail
    in the index file   | in memory

Appending touches the tail only and costs no system call; `store` moves it to the file. A tail lost in a crash is rebuilt from the log.

Entries go to the file when a segment is rolled, the log is closed, or some KB have gathered. The file is never synced for its own sake,
only before the recovery point passes the segment.

``.checksums``: what these files hold, in a file of Moldau's own beside them (``docs/formats/index-checksums.md``). Kafka's index formats
have no checksum, and a wrong entry costs more than time: one of the time index has retention delete what is young, one of the index of
aborted transactions shows what was aborted. The file covers a prefix of each index: it stays true while they grow. It is synced only for a
sealed segment with aborted transactions, whose index shows no damage by itself: without it, or where a crash has torn it, the other indexes
are used unchecked, as in Kafka. An older one may reappear; its largest timestamp counts as long as no time was indexed since.
"""

from collections.abc import Mapping
from contextlib import suppress
from struct import Struct

from fastcrc.crc32 import iscsi as crc32c

from moldau.log import names
from moldau.log.cache import SegmentCache
from moldau.log.checkpoints import format_lines, parse_lines
from moldau.log.damage import DamagedFileError
from moldau.model.errors import StorageError
from moldau.model.value import Value
from moldau.ports.filesystem import FileSystem, NotRegularError
from moldau.protocol.records.header import BatchHeader

STORE_BYTES = 4096
"""A tail of this size is moved to the file at the next write."""


class EntryFile:
    """Entries of one size, most of them in the file, the newest in memory.

    Invariant: `_stored` is a multiple of the entry size, or -1 while the file has not been looked at.

    `stale` says that the file is not as it should be, so that `store` has work even without a tail: it is missing, or it holds more than
    the stored entries.
    """

    __slots__ = ("_cache", "_files", "_stored", "base_offset", "path", "stale", "tail")

    entry = Struct("")

    def __init__(self, files: FileSystem, cache: SegmentCache, path: str, base_offset: int, *, new: bool = False) -> None:
        self._files = files
        self._cache = cache
        self.path = path
        self.base_offset = base_offset
        self.tail = bytearray()
        self.stale = new
        self._stored = 0 if new else -1

    @property
    def stored(self) -> int:
        """Bytes of valid entries in the file."""
        if self._stored < 0:
            self._stored = self._measure()
        return self._stored

    @property
    def has_nothing(self) -> bool:
        """Whether the file is missing, or holds no valid entry although it is not empty."""
        return not self.stored and self.stale

    def __len__(self) -> int:
        return (self.stored + len(self.tail)) // self.entry.size

    def keep(self, entries: int) -> None:
        """Drop all but the first `entries`, in memory; the file is cut by the next `store`."""
        stored = self.stored
        size = entries * self.entry.size
        if size < stored:
            self._stored = size
            self.stale = True
            self._cache.forget(self.path)
        del self.tail[max(0, size - stored) :]

    def store(self) -> bool:
        """Bring the file to what it should hold (in the page cache): cut what is after the stored entries, append the tail.

        Whether there was anything to do. StorageError: the tail stays in memory, and the next `store` starts over.
        """
        if not self.tail and not self.stale:
            return False
        stored = self.stored
        file = self._files.open(self.path, create=True)
        try:
            if file.size() != stored:
                file.truncate(stored)
            data = bytes(self.tail)  # not a view: an error that is kept somewhere would keep the tail from growing
            while data:
                data = data[file.append([data]) :]
        finally:
            file.release()
        self._stored = stored + len(self.tail)
        self.tail = bytearray()
        self.stale = False
        return True

    def clear(self) -> None:
        """Drop every entry, in memory; the file is emptied by the next `store`."""
        self._cache.forget(self.path)
        self.tail = bytearray()
        self._stored = 0
        self.stale = True

    def _measure(self) -> int:
        """Bytes of valid entries in the file, which was not looked at before."""
        raise NotImplementedError


class IndexFile(EntryFile):
    """Entries of two numbers in rising order.

    Kafka allocates its index files in full and leaves zeros after the last entry when it is killed: `stored` ends before them.
    """

    __slots__ = ()

    entry = Struct(">ii")

    def __getitem__(self, slot: int) -> tuple[int, int]:
        """The two numbers of an entry as they are stored."""
        at = slot * self.entry.size
        stored = self.stored
        first: int
        second: int
        if at >= stored:
            first, second = self.entry.unpack_from(self.tail, at - stored)
        else:
            first, second = self.entry.unpack_from(self._cache.index(self.path, stored), at)
        return first, second

    def last(self) -> tuple[int, int] | None:
        """The last entry; read alone, without the others, where it is in the file."""
        size = self.entry.size
        first: int
        second: int
        if self.tail:
            first, second = self.entry.unpack_from(self.tail, len(self.tail) - size)
        elif self.stored:
            file = self._files.open(self.path)
            try:
                first, second = self.entry.unpack(file.pread(size, self.stored - size))
            finally:
                file.release()
        else:
            return None
        return first, second

    def search(self, value: int, field: int) -> int:
        """How many entries have a number of at most `value` in `field` (0 or 1). Both fields rise."""
        stored = self.stored
        unpack, size = self.entry.unpack_from, self.entry.size
        if self.tail and unpack(self.tail)[field] <= value:
            data: bytes | bytearray = self.tail
            before, low, high = stored // size, 1, len(self.tail) // size
        elif stored:
            data = self._cache.index(self.path, stored)
            before, low, high = 0, 0, stored // size
        else:
            return 0
        while low < high:
            middle = (low + high) // 2
            if unpack(data, middle * size)[field] <= value:
                low = middle + 1
            else:
                high = middle
        return before + low

    def append(self, first: int, second: int) -> None:
        """Add an entry to the tail."""
        self.tail += self.entry.pack(first, second)

    def rising_prefix(self) -> int:
        """How many entries, from the first, rise in both numbers: what a crash left whole of a file that was not synced."""
        entries = list(self.entry.iter_unpack(self._cache.index(self.path, self.stored)[: self.stored])) if self.stored else []
        for slot in range(1, len(entries)):
            if entries[slot][0] <= entries[slot - 1][0] or entries[slot][1] <= entries[slot - 1][1]:
                return slot
        return len(entries)

    def _measure(self) -> int:
        try:
            size = self._files.size(self.path)
        except FileNotFoundError:
            self.stale = True
            return 0
        width = self.entry.size
        high = size // width
        return self._before_padding(high)

    def _before_padding(self, entries: int) -> int:
        """Bytes before the first of the zero entries that the file ends with. A single entry may be zero: the first offset at time 0."""
        width, low, high = self.entry.size, 0, entries
        if entries <= 1:
            return entries * width
        file = self._files.open(self.path)
        try:
            if any(file.pread(width, (entries - 1) * width)):
                return entries * width
            while low < high:
                middle = (low + high) // 2
                if any(file.pread(width, middle * width)):
                    low = middle + 1
                else:
                    high = middle
        finally:
            file.release()
        self.stale = True
        return low * width


class OffsetIndex(IndexFile):
    """The sparse index from offsets to file positions (``docs/formats/offset-index.md``).

    An entry says: the batch that starts at this position of the segment file ends with this offset, relative to the segment's base.
    One is added for about every `index.interval.bytes` of log. int32 relative offset and int32 position, 8 bytes: do not change.
    """

    __slots__ = ()

    entry = Struct(">ii")

    def position_before(self, offset: int) -> int:
        """Where a walk that looks for `offset` starts: never after the batch that holds it."""
        slot = self.search(offset - self.base_offset, 0) - 1
        return self[slot][1] if slot >= 0 else 0

    def last_position_until(self, position: int) -> int:
        """The last indexed position, thus start of a batch, that is not after `position`; 0 if there is none."""
        slot = self.search(position, 1) - 1
        return self[slot][1] if slot >= 0 else 0

    def truncate_to(self, position: int) -> None:
        """Drop the entries of batches that start at `position` or after it."""
        self.keep(self.search(position - 1, 1))


class TimeIndex(IndexFile):
    """The sparse index from timestamps to offsets (``docs/formats/time-index.md``).

    An entry says: up to this offset, relative to the segment's base, no record is newer than this timestamp, and the batch that ends with
    this offset reaches it. Timestamps rise strictly; a sealed segment's last entry holds its largest one. int64 timestamp and int32
    relative offset, 12 bytes: do not change.
    """

    __slots__ = ()

    entry = Struct(">qi")

    def add(self, timestamp: int, offset: int, last_timestamp: int) -> int:
        """Append an entry if it is newer than the last one, which the caller knows. The last timestamp after that."""
        if timestamp <= last_timestamp:
            return last_timestamp
        self.append(timestamp, offset - self.base_offset)
        return timestamp

    def last_entry(self) -> tuple[int, int]:
        """Largest indexed timestamp and the offset that reaches it; ``(-1, base offset)`` in an empty index."""
        last = self.last()
        return (-1, self.base_offset) if last is None else (last[0], self.base_offset + last[1])

    def offset_before(self, timestamp: int) -> int:
        """An offset up to which every record is older than `timestamp`: a search for it may start there."""
        slot = self.search(timestamp - 1, 0) - 1
        return self.base_offset + self[slot][1] if slot >= 0 else self.base_offset

    def truncate_to(self, offset: int) -> None:
        """Drop the entries that speak of `offset` and later ones."""
        self.keep(self.search(offset - self.base_offset - 1, 1))


class IndexBuilder:
    """Adds entries for batches of a segment that exists, from the last indexed one on. The rules are those of `SegmentAppender.index`."""

    __slots__ = ("_index", "_indexed_timestamp", "_interval", "_time_index", "indexed_at", "newest", "reached")

    def __init__(self, index: OffsetIndex, time_index: TimeIndex, interval: int) -> None:
        self._index = index
        self._time_index = time_index
        self._interval = interval
        last = index.last()
        self.indexed_at = last[1] if last is not None else 0
        """Position of the last batch that has an entry; 0 where none has."""
        self.newest, self.reached = time_index.last_entry()
        self._indexed_timestamp = self.newest

    def add(self, position: int, header: BatchHeader) -> None:
        """Note the batch at `position`. One that compaction has emptied has no record of its time."""
        if header.max_timestamp > self.newest and header.record_count:
            self.newest, self.reached = header.max_timestamp, header.last_offset
        if position - self.indexed_at > self._interval:
            self._index.append(header.last_offset - self._index.base_offset, position)
            self._indexed_timestamp = self._time_index.add(self.newest, self.reached, self._indexed_timestamp)
            self.indexed_at = position

    def finish(self) -> None:
        """The batches end here: the time index gets the largest timestamp."""
        self._indexed_timestamp = self._time_index.add(self.newest, self.reached, self._indexed_timestamp)


_SUFFIXES = (names.INDEX, names.TIME_INDEX, names.TRANSACTION_INDEX)
_NOTHING_KEPT: Mapping[str, tuple[int, int]] = {}


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


def write_checksums(
    files: FileSystem, stem: str, largest_timestamp: int, largest_offset: int, kept: Mapping[str, tuple[int, int]] = _NOTHING_KEPT
) -> None:
    """Note what a segment's index files hold now, into the page cache. A disk that cannot take it is no reason to fail.

    `kept`: by suffix what stays noted of files that are damaged.
    """
    path, rows = stem + names.CHECKSUMS, [f"largest {largest_timestamp} {largest_offset}"]
    with suppress(StorageError):
        rows += [
            f"{suffix} {size} {crc32c(_prefix(files, stem + suffix, size))}"
            for suffix in _SUFFIXES
            if suffix not in kept and files.exists(stem + suffix) and (size := files.size(stem + suffix))
        ]
        rows += [f"{suffix} {size} {checksum}" for suffix, (size, checksum) in kept.items()]
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
