"""Temporary directories that name the process they belong to, so that those of processes that were killed are removed by the next one.

The name is a file in the directory. One without it was made just now, by another program, or is to be kept.
"""

import os
import shutil
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

_OWNER_FILE: Final = "owner"


def make_temporary(prefix: str) -> str:
    """A new directory of this process, after those of this prefix were removed that dead processes have left."""
    remove_left_behind(prefix)
    directory = tempfile.mkdtemp(prefix=prefix)
    Path(directory, _OWNER_FILE).write_text(_own_name(os.getpid()), encoding="utf-8")
    return directory


def keep(directory: str) -> None:
    """The directory belongs to no process any more and is not removed."""
    with suppress(FileNotFoundError):
        Path(directory, _OWNER_FILE).unlink()


def remove_left_behind(prefix: str) -> None:
    """Remove this user's temporary directories of this prefix whose owner is dead."""
    folder, found = tempfile.gettempdir(), list[str]()
    with suppress(OSError):
        found += [name for name in os.listdir(folder) if name.startswith(prefix)]
    for path in (Path(folder, name) for name in found):
        try:
            if path.lstat().st_uid != os.getuid() or not (path / _OWNER_FILE).is_file():
                continue  # in a folder that many users share; one of them may have laid something there to be waited for
            owner = (path / _OWNER_FILE).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue  # made just now, or another process's
        if owner.partition(" ")[0].isdigit() and not _is_alive(owner):
            shutil.rmtree(path, ignore_errors=True)


@cache
def _own_name(own_pid: int) -> str:
    """That of this process, which does not change; after a fork it is another one's."""
    return _name_of(own_pid)


def _name_of(pid: int) -> str:
    """A process's id and, since ids are reused, when it was started, in ticks since boot, and in which namespace of ids, since containers
    may share a temporary folder; without ``/proc`` the id alone."""
    try:
        stat = Path("/proc", str(pid), "stat").read_text(encoding="utf-8", errors="replace")
        return f"{pid} {stat.rpartition(')')[2].split()[19]} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return f"{pid}"


def _is_alive(owner: str) -> bool:
    """Whether the process of this name runs, or may run where it cannot be seen from here."""
    pid, *rest = owner.split()
    if len(rest) == 2 and os.path.isdir("/proc"):
        return rest[1] != os.readlink("/proc/self/ns/pid") or owner == _name_of(int(pid))
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True
