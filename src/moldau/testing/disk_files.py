"""Open files and locks on a :class:`moldau.testing.disk.ForgetfulDisk`."""

from collections.abc import Sequence
from typing import Protocol

from moldau.model.errors import StorageError
from moldau.ports.filesystem import Bytes
from moldau.testing.disk_nodes import Content


class Disk(Protocol):
    """What an open file needs of its disk."""

    crashes: int

    def enter(self, operation: str, path: str) -> None:
        """Begin an operation. StorageError for one that was made to fail."""

    def room(self, wanted: int) -> int:
        """How many of so many bytes more there is space for."""

    def closed(self, content: Content) -> None:
        """A file has one user less."""

    def now_ms(self) -> int:
        """The time that files are stamped with."""


class ForgetfulFile:
    """An open file on a :class:`ForgetfulDisk`. After a crash of the disk it must not be used any more."""

    def __init__(self, disk: Disk, path: str, content: Content, writable: bool) -> None:
        self.path = path
        self._disk = disk
        self._content = content
        self._writable = writable
        self._users = 1
        self._crashes = disk.crashes
        content.users += 1

    def _enter(self, operation: str, *, writes: bool = False) -> None:
        assert self._crashes == self._disk.crashes, f"{self.path}: opened before the crash"
        assert self._users > 0, f"{self.path}: used after it was closed"
        self._disk.enter(operation, self.path)
        if writes and not self._writable:
            raise StorageError("opened for reading only", path=self.path)

    def append(self, buffers: Sequence[Bytes]) -> int:
        """Write at the end; fewer bytes than given when the disk is full after them."""
        self._enter("append", writes=True)
        data = b"".join(buffers)
        room = self._disk.room(len(data))
        if data and not room:
            raise StorageError("no space left on device", path=self.path, no_space=True)
        self._write(data[:room], len(self._content.data))
        return room

    def pread(self, length: int, position: int) -> bytes:
        """Read what the process sees, synced or not."""
        self._enter("pread")
        return bytes(self._content.data[position : position + length])

    def pwrite(self, data: Bytes, position: int) -> None:
        """Write at a position; on a full disk what fits is written before the error."""
        self._enter("pwrite", writes=True)
        inside = max(0, len(self._content.data) - position)
        room = inside + self._disk.room(max(0, len(data) - inside))
        self._write(bytes(data)[:room], position)
        if room < len(data):
            raise StorageError("no space left on device", path=self.path, no_space=True)

    def _write(self, data: bytes, position: int) -> None:
        self._content.change(position, data)
        self._content.modified_ms = self._disk.now_ms()

    def size(self) -> int:
        """Bytes in the file."""
        self._enter("size")
        return len(self._content.data)

    def truncate(self, size: int) -> None:
        """Cut, or extend with zeros (which take no space)."""
        self._enter("truncate", writes=True)
        self._content.change(size, None)

    def sync(self) -> None:
        """Make the bytes safe. A sync made to fail loses them for good, though they can still be read until the crash."""
        try:
            self._enter("sync")
        except StorageError:
            self._content.changes.clear()
            raise
        self._content.sync()

    def fileno(self) -> int:
        """None."""
        return -1

    def retain(self) -> None:
        """Count one more user."""
        self._users += 1

    def release(self) -> None:
        """Count one user less."""
        assert self._users > 0, f"{self.path}: released more often than retained"
        self._users -= 1
        if not self._users and self._crashes == self._disk.crashes:
            self._content.users -= 1
            self._disk.closed(self._content)


class ForgetfulLock:
    """A lock on a :class:`ForgetfulDisk`; a crash gives it back."""

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        """Give it back."""
        self._held.discard(self._path)
