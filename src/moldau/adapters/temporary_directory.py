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

from moldau.adapters.process_identity import identity_of, is_alive

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
        if owner.partition(" ")[0].isdigit() and not is_alive(owner):
            shutil.rmtree(path, ignore_errors=True)


@cache
def _own_name(own_pid: int) -> str:
    """That of this process, which does not change; after a fork it is another one's."""
    return identity_of(own_pid)
