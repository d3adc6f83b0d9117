"""Whether the directory of the metadata store can be used, found out before anything is started or made in it.

Other data directories may fail: they go offline, and the broker serves the rest. Without this one there is no broker.
"""

import errno
import os
from contextlib import suppress

from moldau.model.errors import StorageError

ROOM_BYTES = 256 * 1024
"""A new directory has to take this much: metadata store, identity, checkpoints."""

_ELSEWHERE = "or choose another directory with --data (log.dirs)"
_WHY = {
    errno.EACCES: f"no permission; give user {{user}} the right to read and write there, {_ELSEWHERE}",
    errno.EPERM: f"no permission; give user {{user}} the right to read and write there, {_ELSEWHERE}",
    errno.EROFS: f"the file system is read-only; mount it writable, {_ELSEWHERE}",
    errno.ENOSPC: f"no space left on the disk; a new data directory takes {ROOM_BYTES // 1024} KB: make room, {_ELSEWHERE}",
    errno.EDQUOT: f"the quota of user {{user}} is used up; a new data directory takes {ROOM_BYTES // 1024} KB: make room, {_ELSEWHERE}",
    errno.ENOTDIR: f"a part of the path is no directory; move it away, {_ELSEWHERE}",
    errno.EEXIST: f"is no directory; move it away, {_ELSEWHERE}",
}


def check_directory(path: str, store: str) -> None:
    """StorageError, which says why and what to do, if a broker could not use this directory for its metadata store. Leaves nothing behind.

    One that already has a store may be full: what is in it can be read.
    """
    made = _missing(path)
    try:
        os.makedirs(path, exist_ok=True)
        os.listdir(path)
        probe(f"{path}/.moldau_probe.{os.getpid()}", 0 if os.path.lexists(f"{path}/{store}") else ROOM_BYTES)
    except OSError as error:
        why = _WHY.get(error.errno or 0, error.strerror or str(error)).format(user=_user())
        raise StorageError(f"cannot be used as a data directory: {why}", path=path) from error
    finally:
        for each in made:
            with suppress(OSError):
                os.rmdir(each)


def probe(path: str, size: int) -> None:
    """Make a file of so many bytes, and remove it. OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        data = memoryview(bytes(size))
        while data:
            data = data[os.write(descriptor, data) :]
    finally:
        os.close(descriptor)
        os.unlink(path)


def _missing(path: str) -> list[str]:
    """The directories on this path that are not there, the innermost first."""
    missing = []
    while path and not os.path.lexists(path):
        missing.append(path)
        path = os.path.dirname(path)
    return missing


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
