"""Open files and index bytes of sealed segments, shared by all logs of a process and bounded.

A sealed segment keeps nothing open and nothing in memory by itself. What readers need is opened here on first use and closed when others
were used more recently, so that the number of segments on disk decides neither start-up time nor descriptors nor memory.
A file that is still being sent stays open until it is sent, because each range of it counts as a user.
"""

from collections import OrderedDict

from moldau.ports.filesystem import File, FileSystem

OPEN_FILES_MAX = 512
INDEX_BYTES_MAX = 16 * 1024 * 1024


class SegmentCache:
    """Least recently used first out.

    Invariant: `index_bytes` is the sum of the lengths of the cached indexes, and above `index_bytes_max` only with a single one.
    """

    __slots__ = ("_files", "_indexes", "_open", "index_bytes", "index_bytes_max", "open_files_max")

    def __init__(self, files: FileSystem, *, open_files_max: int = OPEN_FILES_MAX, index_bytes_max: int = INDEX_BYTES_MAX) -> None:
        self._files = files
        self._open: OrderedDict[str, File] = OrderedDict()
        self._indexes: OrderedDict[str, bytes] = OrderedDict()
        self.open_files_max = open_files_max
        self.index_bytes_max = index_bytes_max
        self.index_bytes = 0

    def file(self, path: str) -> File:
        """The file, open for reading. The cache is its user: who keeps it beyond the current call retains it."""
        file = self._open.get(path)
        if file is not None:
            self._open.move_to_end(path)
            return file
        file = self._files.open(path)
        self._open[path] = file
        if len(self._open) > self.open_files_max:
            self._open.popitem(last=False)[1].release()
        return file

    def index(self, path: str, length: int) -> bytes:
        """At least the first `length` bytes of an index file."""
        data = self._indexes.get(path)
        if data is not None and len(data) >= length:
            self._indexes.move_to_end(path)
            return data
        self._drop_index(path)
        file = self._files.open(path)
        try:
            data = file.pread(length, 0)
        finally:
            file.release()
        self._indexes[path] = data
        self.index_bytes += len(data)
        while self.index_bytes > self.index_bytes_max and len(self._indexes) > 1:
            self._drop_index(next(iter(self._indexes)))
        return data

    def forget(self, path: str) -> None:
        """Close a file and drop its bytes: it is being renamed, cut or removed."""
        file = self._open.pop(path, None)
        if file is not None:
            file.release()
        self._drop_index(path)

    def close(self) -> None:
        """Close and drop everything."""
        for path in list(self._open):
            self.forget(path)
        self._indexes.clear()
        self.index_bytes = 0

    def statistics(self) -> dict[str, int]:
        """How full the cache is."""
        return {"open_files": len(self._open), "indexes": len(self._indexes), "index_bytes": self.index_bytes}

    def _drop_index(self, path: str) -> None:
        data = self._indexes.pop(path, None)
        if data is not None:
            self.index_bytes -= len(data)
