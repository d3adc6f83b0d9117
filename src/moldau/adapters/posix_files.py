"""The file system port over POSIX calls.

Linux is the fast path. Elsewhere names are missing, and what stands in for them is chosen when :class:`PosixFiles` is made:

* ``os.fdatasync`` (bytes and length, not times): ``fcntl(F_FULLFSYNC)`` on macOS, whose ``fsync`` leaves the bytes in the drive's own
  cache; ``os.fsync`` where there is neither, or where the volume knows no ``F_FULLFSYNC`` (network drives).
* ``os.writev``: one ``os.write`` of the joined buffers.

Files are opened without following a link in the last place and without waiting for a FIFO's other end, and looked at before they are used:
any program may have put files into a log directory.

The position of a descriptor always stands at the end of its file, so that an append is one system call without a seek.
"""

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Callable, Sequence

from moldau.model.errors import StorageError
from moldau.ports.filesystem import Bytes, LockHeldError, MissingFileError, NotRegularError

_SHORTAGES = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE})
_NOT_REGULAR = frozenset({errno.ELOOP, errno.EISDIR, errno.ENOTDIR, errno.ENXIO})
_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
}
_BYTES_PER_READ = 64 * 1024
"""Read at once of what a file has beyond the size that it had when it was opened."""
_BUFFERS_PER_WRITE = 1024
"""Linux's and macOS's IOV_MAX: a ``writev`` of more buffers fails."""

Write = Callable[[int, Sequence[Bytes]], int]
Sync = Callable[[int], object]


def storage_error(error: OSError, path: str) -> StorageError:
    """The port's error for a failed system call. A shortage (a full disk or quota, no free descriptor) is marked, since it may pass."""
    if error.errno == errno.ENOENT:
        return MissingFileError(error.strerror or str(error), path=path)
    if error.errno in _NOT_REGULAR:
        return NotRegularError(_what_is(path, error.strerror or str(error)), path=path)
    return StorageError(error.strerror or str(error), path=path, no_space=error.errno in _SHORTAGES)


def _what_is(path: str, otherwise: str) -> str:
    """The kind of a name that is no regular file, in words; `otherwise` if the name itself is not to blame."""
    try:
        kind = _KINDS.get(stat.S_IFMT(os.lstat(path).st_mode))
    except OSError:
        kind = None
    return otherwise if kind is None else f"is {kind}, not a regular file; move it away"


def open_regular(path: str, flags: int) -> int:
    """A descriptor of a regular file. NotRegularError for anything else, OSError."""
    return _open_regular(path, flags)[0]


def _open_regular(path: str, flags: int) -> tuple[int, int]:
    """The same, and the file's size."""
    descriptor = os.open(path, flags | _SAFELY, 0o644)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise NotRegularError(_what_is(path, "is not a regular file"), path=path)
    return descriptor, found.st_size


def sync_error(error: OSError, path: str) -> StorageError:
    """The port's error for a failed sync. It never passes: it is unknown what is on disk, and the next sync reports no error."""
    return StorageError(f"sync failed: {error.strerror or error}", path=path)


def _write_joined(descriptor: int, buffers: Sequence[Bytes]) -> int:
    return os.write(descriptor, b"".join(buffers))


def _sync_to_platter(descriptor: int) -> None:
    try:
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # type: ignore[attr-defined,unused-ignore]
    except OSError:
        os.fsync(descriptor)


def choose_write() -> Write:
    """How several buffers are written in one call on this system."""
    return getattr(os, "writev", _write_joined)


def choose_sync() -> Sync:
    """How bytes are brought to disk on this system."""
    if hasattr(os, "fdatasync"):
        return os.fdatasync
    return _sync_to_platter if hasattr(fcntl, "F_FULLFSYNC") else os.fsync


class PosixFile:
    """An open file; see :class:`moldau.ports.filesystem.File`. Used by one thread, but for `sync` and `pread`."""

    __slots__ = ("_descriptor", "_sync", "_users", "_write", "path")

    def __init__(self, path: str, descriptor: int, write: Write, sync: Sync) -> None:
        self.path = path
        self._descriptor = descriptor
        self._users = 1
        self._write = write
        self._sync = sync

    def append(self, buffers: Sequence[Bytes]) -> int:
        """Write at the end; a disk that fills up on the way gives the count so far, and the error with the next call."""
        try:
            written = (
                os.write(self._descriptor, buffers[0]) if len(buffers) == 1 else self._write(self._descriptor, buffers[:_BUFFERS_PER_WRITE])
            )
        except OSError as error:
            raise storage_error(error, self.path) from error
        total = sum(map(len, buffers))
        return written if written == total else self._append_rest(buffers, written, total)

    def _append_rest(self, buffers: Sequence[Bytes], written: int, total: int) -> int:
        while written < total:
            try:
                written += self._write(self._descriptor, _after(buffers, written)[:_BUFFERS_PER_WRITE])
            except OSError:
                break
        return written

    def pread(self, length: int, position: int) -> bytes:
        """Read; fewer bytes only at the end of the file."""
        try:
            data = os.pread(self._descriptor, length, position)
            while data and len(data) < length:
                more = os.pread(self._descriptor, length - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise storage_error(error, self.path) from error
        return data

    def pwrite(self, data: Bytes, position: int) -> None:
        """Write all of `data`; what was written before an error stays."""
        view = memoryview(data).cast("B")
        try:
            while view:
                count = os.pwrite(self._descriptor, view, position)
                view, position = view[count:], position + count
            os.lseek(self._descriptor, 0, os.SEEK_END)
        except OSError as error:
            raise storage_error(error, self.path) from error

    def size(self) -> int:
        """Bytes in the file."""
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise storage_error(error, self.path) from error

    def truncate(self, size: int) -> None:
        """Cut, or extend with zeros."""
        try:
            os.ftruncate(self._descriptor, size)
            os.lseek(self._descriptor, size, os.SEEK_SET)
        except OSError as error:
            raise storage_error(error, self.path) from error

    def sync(self) -> None:
        """Bring bytes and length to disk."""
        try:
            self._sync(self._descriptor)
        except OSError as error:
            raise sync_error(error, self.path) from error

    def fileno(self) -> int:
        """The descriptor."""
        return self._descriptor

    def retain(self) -> None:
        """Count one more user."""
        self._users += 1

    def release(self) -> None:
        """Count one user less; the last one closes."""
        assert self._users > 0, f"{self.path}: released more often than retained"
        self._users -= 1
        if not self._users:
            descriptor, self._descriptor = self._descriptor, -1
            try:
                os.close(descriptor)
            except OSError as error:
                raise storage_error(error, self.path) from error


def _after(buffers: Sequence[Bytes], written: int) -> list[Bytes]:
    """What is left of the buffers after `written` bytes of them."""
    rest: list[Bytes] = []
    for buffer in buffers:
        if written >= len(buffer):
            written -= len(buffer)
        else:
            rest.append(memoryview(buffer)[written:] if written else buffer)
            written = 0
    return rest


class PosixLock:
    """A lock file held open; the system gives the lock back when the process ends, however it ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Give the lock back; harmless when that was done before."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class PosixFiles:
    """The real file system; see :class:`moldau.ports.filesystem.FileSystem`."""

    def __init__(self) -> None:
        self._write = choose_write()
        self._sync = choose_sync()

    def open(self, path: str, *, create: bool = False, writable: bool = False) -> PosixFile:
        """Open a file with one user."""
        flags = os.O_RDWR if create or writable else os.O_RDONLY
        try:
            descriptor = open_regular(path, flags | os.O_CREAT if create else flags)
            if flags == os.O_RDWR:
                os.lseek(descriptor, 0, os.SEEK_END)
        except OSError as error:
            raise storage_error(error, path) from error
        return PosixFile(path, descriptor, self._write, self._sync)

    def exists(self, path: str) -> bool:
        """Whether the name is there."""
        return os.path.lexists(path)

    def is_directory(self, path: str) -> bool:
        """Whether it is a directory, and no link to one."""
        try:
            return stat.S_ISDIR(os.lstat(path).st_mode)
        except OSError:
            return False

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        try:
            return sorted(os.listdir(path))
        except OSError as error:
            raise storage_error(error, path) from error

    def make_directory(self, path: str) -> None:
        """Create a directory and its missing parents."""
        try:
            os.makedirs(path, exist_ok=True)
        except OSError as error:
            raise storage_error(error, path) from error

    def rename(self, source: str, target: str) -> None:
        """Rename, atomically."""
        try:
            os.rename(source, target)
        except OSError as error:
            raise storage_error(error, source) from error

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise storage_error(error, path) from error

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all in it; links are removed, not followed."""
        try:
            _remove_tree(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise storage_error(error, error.filename or path) from error

    def read(self, path: str) -> bytes:
        """All bytes of a file; FileNotFoundError if it is missing."""
        try:
            descriptor, size = _open_regular(path, os.O_RDONLY)
            try:
                data = os.read(descriptor, size)
                while more := os.read(descriptor, _BYTES_PER_READ):
                    data += more
                return data
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise storage_error(error, path) from error

    def write_atomically(self, path: str, data: bytes) -> None:
        """Write and sync ``path.tmp``, rename it over `path`, sync the directory. The order is what makes it whole after a crash."""
        temporary = f"{path}.tmp"
        try:
            with open(open_regular(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
                file.write(data)
                file.flush()
                self._sync(file.fileno())
            os.rename(temporary, path)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise storage_error(error, path) from error
        self.sync_directory(os.path.dirname(path) or ".")

    def size(self, path: str) -> int:
        """Bytes of a file; FileNotFoundError if it is missing."""
        return self._stat(path).st_size

    def modified_ms(self, path: str) -> int:
        """When a file was last written; FileNotFoundError if it is missing."""
        return self._stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the time of the last write."""
        try:
            os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000), follow_symlinks=False)
        except OSError as error:
            raise storage_error(error, path) from error

    def _stat(self, path: str) -> os.stat_result:
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise storage_error(error, path) from error
        if not stat.S_ISREG(found.st_mode):
            raise NotRegularError(_what_is(path, "is not a regular file"), path=path)
        return found

    def sync_directory(self, path: str) -> None:
        """Bring the names in a directory to disk."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK)
        except OSError as error:
            raise storage_error(error, path) from error
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise sync_error(error, path) from error
        finally:
            os.close(descriptor)

    def forget_cached(self, path: str) -> None:
        """Drop the file's clean pages, among them those that a failed sync has left. Linux; macOS has no such call."""
        if not hasattr(os, "posix_fadvise"):
            return
        try:
            descriptor = open_regular(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise storage_error(error, path) from error

    def disk_space(self, path: str) -> tuple[int, int]:
        """Bytes of the file system, and of those the ones free to this user."""
        try:
            found = os.statvfs(path)
        except OSError as error:
            raise storage_error(error, path) from error
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize

    def lock(self, path: str) -> PosixLock:
        """Take the lock file, made if missing.

        Two kinds of lock, for neither sees the other: the record lock is the one that Kafka's JVM takes, but a process does not exclude
        itself with it; ``flock`` excludes a second broker in this process too.
        """
        try:
            descriptor = open_regular(path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise storage_error(error, path) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise LockHeldError(path) from error
            raise storage_error(error, path) from error
        return PosixLock(descriptor)


def _remove_tree(path: str) -> None:
    if os.path.islink(path):  # `scandir` would go where it leads
        raise NotRegularError("is a symbolic link; its target is not removed", path=path)
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                _remove_tree(entry.path)
            else:
                os.unlink(entry.path)
    os.rmdir(path)
