"""Whether a directory can be made and written, found out before anything is started or made in it, and what to do if not."""

import errno
import os
from contextlib import suppress

from moldau.model.errors import StorageError

_NO_PERMISSION = "no permission; give user {user} the right to read and write there"
_REASONS = {
    errno.EACCES: _NO_PERMISSION,
    errno.EPERM: _NO_PERMISSION,
    errno.EROFS: "the file system is read-only; mount it writable",
    errno.ENOSPC: "no space left on the disk; {what} takes {room_kb} KB at least: make room",
    errno.EDQUOT: "the quota of user {user} is used up; {what} takes {room_kb} KB at least: make room",
    errno.ENOTDIR: "a part of the path is no directory; move it away",
    errno.EEXIST: "is no directory; move it away",
}


def check_usable(path: str, what: str, option: str, *, room_bytes: int) -> None:
    """StorageError, which says why and what to do, if `path` cannot be `what` ("a data directory") and take `room_bytes`; `option` chooses
    another one. Leaves no files, nor directories that were missing.
    """
    made = _missing(path)
    try:
        os.makedirs(path, exist_ok=True)
        os.listdir(path)
        probe(f"{path}/.moldau_probe.{os.getpid()}", room_bytes)
    except OSError as error:
        reason = _REASONS.get(error.errno or 0)
        shown = (
            f"{error.strerror or error};" if reason is None else reason.format(user=_user(), what=what, room_kb=room_bytes // 1024) + ","
        )
        raise StorageError(f"cannot be used as {what}: {shown} or choose another directory with {option}", path=path) from error
    finally:
        for each in made:
            with suppress(OSError):
                os.rmdir(each)


def probe(path: str, size: int) -> None:
    """Make a file of `size` bytes, and remove it. OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        _fill(descriptor, size)
    finally:
        os.close(descriptor)
        os.unlink(path)


def _fill(descriptor: int, size: int) -> None:
    """Take `size` bytes of the disk: reserved where the system can do that, or else written."""
    if size and hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, 0, size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
        else:
            return
    data = memoryview(bytes(size))
    while data:
        data = data[os.write(descriptor, data) :]


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
