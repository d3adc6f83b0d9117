"""A file of entries of one size, most of them in the file, the newest in memory: what all indexes of a segment share.

    stored ............ | tail
    in the index file   | in memory

Appending touches the tail only and costs no system call; `store` moves it to the file. A tail lost in a crash is rebuilt from the log.
"""

from struct import Struct

from moldau.log.cache import SegmentCache
from moldau.ports.filesystem import FileSystem


class EntryFile:
    """Invariant: `_stored` is a multiple of the entry size, or -1 while the file has not been looked at.

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

        Whether there was anything to do. StorageError: the tail stays in memory, and the next `store` begins anew.
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
