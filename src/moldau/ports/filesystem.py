"""Files as the log needs them.

Durability is spelled out: `append` leaves bytes in the page cache, `sync` brings a file's bytes to disk,
`sync_directory` brings names (creations, renames, removals) to disk. A crash may forget whatever was not synced.
Every failure is a :class:`moldau.model.errors.StorageError` that names the path.
"""

from collections.abc import Sequence
from typing import Protocol

from moldau.model.errors import StorageError

Bytes = bytes | bytearray | memoryview


class LockHeldError(StorageError):
    """Another broker holds the lock file. Nothing is wrong with the disk."""

    def __init__(self, path: str) -> None:
        super().__init__(
            "in use by another broker, which holds this lock file; stop it, or choose another directory with --data (log.dirs)", path=path
        )


class MissingFileError(StorageError):
    """A file or directory does not exist. The disk may be sound."""


class NotRegularError(StorageError):
    """A name is of another kind than expected: a link, a FIFO, a device, a directory for a file or the reverse. Nothing
    was read, written or followed.
    """


class File(Protocol):
    """An open file. `retain` and `release` count its users: the last release closes it, also when its name is long gone."""

    path: str

    def append(self, buffers: Sequence[Bytes]) -> int:
        """Write the buffers at the end, in order. Bytes written; fewer than given only together with an error of the next call."""

    def pread(self, length: int, position: int) -> bytes:
        """Up to `length` bytes from `position`; fewer at the end of the file."""

    def pwrite(self, data: Bytes, position: int) -> None:
        """Write all of `data` at `position`."""

    def size(self) -> int:
        """Bytes in the file."""

    def truncate(self, size: int) -> None:
        """Cut or extend (with zeros) to `size` bytes."""

    def sync(self) -> None:
        """Bring the bytes and the length to disk (fdatasync, fsync where there is none). Safe to call from another thread.

        A failure never counts as a full disk: what was not synced may be lost, and a later sync that succeeds does not say so.
        """

    def fileno(self) -> int:
        """Descriptor for sendfile; -1 when there is none and the bytes have to be read with `pread`."""

    def retain(self) -> None:
        """Count one more user."""

    def release(self) -> None:
        """Count one user less; at none the file is closed."""


class FileLock(Protocol):
    """A lock on a directory, held by one process."""

    def release(self) -> None:
        """Give it back."""


class FileSystem(Protocol):
    """Files and directories by path. Paths are absolute or relative to the working directory, with ``/``.

    Links are followed on the way to a name, and where a directory is listed, synced or made; never where a name should be a file. Files
    are regular files: anything else raises NotRegularError, at once, also a FIFO without a writer. MissingFileError where a name is
    missing.
    """

    def open(self, path: str, *, create: bool = False, writable: bool = False) -> File:
        """Open a file with one user; `create` makes it, empty, where it is missing (implies `writable`)."""

    def exists(self, path: str) -> bool:
        """Whether a name exists, of any kind."""

    def is_directory(self, path: str) -> bool:
        """Whether it is a directory, and no link to one."""

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted."""

    def make_directory(self, path: str) -> None:
        """Create a directory and its missing parents; fine if it is there."""

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory, atomically; an existing target file is replaced."""

    def remove(self, path: str) -> None:
        """Remove a file; fine if it is missing."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all in it, links unfollowed; fine if it is missing. NotRegularError if it is no directory itself."""

    def read(self, path: str) -> bytes:
        """All bytes of a small file. :class:`FileNotFoundError` if it is missing."""

    def write_atomically(self, path: str, data: bytes) -> None:
        """Replace a small file: after a crash either the old or the new bytes are there, whole. Durable on return."""

    def size(self, path: str) -> int:
        """Bytes of a regular file by name. :class:`FileNotFoundError` if it is missing."""

    def modified_ms(self, path: str) -> int:
        """When a file was last written, in milliseconds since 1970."""

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Have a file look as if it was last written at that time: it takes the place of one that was."""

    def sync_directory(self, path: str) -> None:
        """Bring the names in a directory to disk."""

    def forget_cached(self, path: str) -> None:
        """Have the next reads of a file come from the disk. After a failed sync memory holds bytes that the disk does not have, and that no
        later sync brings there. Bytes that still wait to be written stay; where the system cannot do this, so does everything.
        """

    def disk_space(self, path: str) -> tuple[int, int]:
        """Bytes of the file system that holds `path`: total, free."""

    def lock(self, path: str) -> FileLock:
        """Take the lock file `path`; :class:`LockHeldError` when another process, or this one, holds it."""
