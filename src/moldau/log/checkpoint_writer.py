"""Writes the checkpoint files of one directory, here or in a background thread, so that an older state never replaces a newer one."""

import threading
from collections.abc import Callable, Mapping

from moldau.ports.filesystem import FileSystem


class CheckpointWriter:
    """Each `prepare` takes a number; a write with an earlier number than the one on disk does nothing.

    A file whose content has not changed since this writer wrote it is left alone: an idle broker syncs nothing.
    """

    def __init__(self, files: FileSystem, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._lock = threading.Lock()
        self._prepared = 0
        self._written = 0
        self._on_disk: dict[str, bytes] = {}

    def prepare(self, contents: Callable[[], Mapping[str, bytes]]) -> Callable[[], None]:
        """The work of making these files, by name, and bringing them to disk. It may run in any thread; StorageError."""
        self._prepared += 1
        number = self._prepared

        def write() -> None:
            with self._lock:
                if number <= self._written:
                    return
                for name, data in contents().items():
                    if self._on_disk.get(name) != data:
                        self._on_disk.pop(name, None)
                        self._files.write_atomically(f"{self._directory}/{name}", data)
                        self._on_disk[name] = data
                self._written = number

        return write
