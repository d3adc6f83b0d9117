"""What offset index and time index share: entries of two numbers in rising order, most of them in a file, the newest in memory.

They go to the file when a segment is rolled, the log is closed, or some KB have gathered. The file is never synced for its own sake, only
before the recovery point passes the segment.

Kafka allocates its index files in full and leaves zeros after the last entry when it is killed: `stored` ends before them.
"""

from struct import Struct

from moldau.log.entry_file import EntryFile

STORE_BYTES = 4096
"""A tail of this size is moved to the file at the next write."""


class IndexFile(EntryFile):
    """See the module."""

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
