"""Open files and index bytes of segments, shared by all logs of a process and bounded.

A segment keeps nothing open and nothing in memory by itself. What is needed is opened here on first use and closed when others
were used more recently, so that the number of partitions and segments decides neither start-up time nor descriptors nor memory.
A file that is still being sent or synced stays open until that is done, because the transfer or sync counts as a user.

The file of an active segment is opened for writing once, and readers get the same one. Appends must cost nothing here, so they only set
a mark at their :class:`Writer`; a file whose turn it is to be closed gets another turn for it (the clock algorithm's second chance).
"""

from collections import OrderedDict
from typing import Protocol

from moldau.ports.filesystem import File, FileSystem

OPEN_FILES_MAX = 512
INDEX_BYTES_MAX = 16 * 1024 * 1024
EARLY_ROLLS_MAX = 50
"""Segments that all logs together roll at once before they are full: each takes half a millisecond and makes four files, and one request
may have a batch for each of thousands of logs, or thousands of batches for a log that rolls at each of them.
"""
EARLY_ROLL_MS = 10
"""Then one more is allowed in each interval of this many milliseconds."""


class Writer(Protocol):
    """Who appends to a file of the cache."""

    def keeps_file(self) -> bool:
        """Whether it needs the file, or has used it since it was last asked."""

    def give_back(self, file: File) -> None:
        """Use the file no more, and release it."""


class SegmentCache:
    """Least recently used first out.

    Invariants: `_writers` has only paths that are in `_open`.
    `index_bytes` is the sum of the lengths of the cached indexes, and above `index_bytes_max` only with a single one.
    """

    __slots__ = (
        "_early_rolls",
        "_early_rolls_ms",
        "_files",
        "_indexes",
        "_open",
        "_writers",
        "index_bytes",
        "index_bytes_max",
        "open_files_max",
    )

    def __init__(self, files: FileSystem, *, open_files_max: int = OPEN_FILES_MAX, index_bytes_max: int = INDEX_BYTES_MAX) -> None:
        self._files = files
        self._open: OrderedDict[str, File] = OrderedDict()
        self._writers: dict[str, Writer] = {}
        self._indexes: OrderedDict[str, bytes] = OrderedDict()
        self.open_files_max = open_files_max
        self.index_bytes_max = index_bytes_max
        self.index_bytes = 0
        self._early_rolls = 0
        self._early_rolls_ms = 0

    def may_roll_early(self, now_ms: int) -> bool:
        """Whether one more segment may be rolled because it is old or an index is full; otherwise that can wait for a later batch."""
        passed_ms = now_ms - self._early_rolls_ms
        if passed_ms >= EARLY_ROLL_MS or passed_ms < 0:
            self._early_rolls_ms = now_ms
            self._early_rolls = 0 if passed_ms < 0 else max(0, self._early_rolls - passed_ms // EARLY_ROLL_MS)
        if self._early_rolls >= EARLY_ROLLS_MAX:
            return False
        self._early_rolls += 1
        return True

    def file(self, path: str) -> File:
        """The file, open for reading. The cache is its user: who keeps it beyond the current call retains it."""
        file = self._open.get(path)
        if file is not None:
            self._open.move_to_end(path)
            return file
        file = self._files.open(path)
        self._add(path, file)
        return file

    def writable(self, path: str, writer: Writer, *, create: bool) -> File:
        """The file, open for appending by `writer` until it is asked to give it back. StorageError."""
        self._drop_file(path)
        file = self._files.open(path, create=create, writable=True)
        self._writers[path] = writer
        self._add(path, file)
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
        self._drop_file(path)
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

    def _add(self, path: str, file: File) -> None:
        """Take in a file just opened, and close the one that was not used for longest."""
        self._open[path] = file
        for _ in range(2 * len(self._open)):
            if len(self._open) <= self.open_files_max:
                break
            oldest = next(iter(self._open))
            writer = self._writers.get(oldest)
            if oldest == path or (writer is not None and writer.keeps_file()):
                self._open.move_to_end(oldest)
            else:
                self._drop_file(oldest)

    def _drop_file(self, path: str) -> None:
        file = self._open.pop(path, None)
        if file is None:
            return
        writer = self._writers.pop(path, None)
        if writer is None:
            file.release()
        else:
            writer.give_back(file)

    def _drop_index(self, path: str) -> None:
        data = self._indexes.pop(path, None)
        if data is not None:
            self.index_bytes -= len(data)
