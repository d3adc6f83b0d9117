"""Whether directories can be data directories, found out before anything is started or made in them.

That of the metadata store has to be usable: without it there is no broker. Other data directories may fail: they go offline, and the
broker serves the rest.
"""

import os
from collections.abc import Iterable

from moldau.adapters.usable_directory import check_usable
from moldau.log.checkpoints import OFFSET_CHECKPOINTS
from moldau.log.meta_properties import FILE_NAME as META_PROPERTIES
from moldau.log.names import METADATA_FOLDER, parse_folder
from moldau.model.errors import StorageError

ROOM_BYTES = 256 * 1024
"""A new directory has to take this much: metadata store, identity, checkpoints."""


_OF_DATA_DIRECTORIES = (META_PROPERTIES, *OFFSET_CHECKPOINTS, METADATA_FOLDER, "bootstrap.checkpoint")
"""What the names of files begin with that only brokers write, Kafka's too; those of a start that was killed are longer."""
_OF_FILE_SYSTEMS = ("lost+found",)


def check_given(paths: Iterable[str], store: str, *, strangers: bool = False) -> None:
    """StorageError for what cannot be meant: a file, and without `strangers` a directory of other files, as that of a program."""
    for path in paths:
        if os.path.isfile(path):
            raise StorageError("is a file, not a directory", path=path)
        found = [] if strangers else strangers_in(path, store)
        if found:
            names = ", ".join([*found[:2], *(["..."] if len(found) > 2 else [])])
            raise StorageError(
                f"is no data directory and not empty ({names}); choose another one with --data (log.dirs), "
                "or start with --adopt to keep data among these files",
                path=path,
            )


def strangers_in(path: str, store: str) -> list[str]:
    """What lies in a directory that no broker has used yet: names, sorted. None of a data directory; hidden files do not count, nor does
    what a file system has at its root. A directory that cannot be listed has none.
    """
    try:
        names = os.listdir(path)
    except OSError:
        return []
    if any(name.startswith((store, *_OF_DATA_DIRECTORIES)) or parse_folder(name) is not None for name in names):
        return []
    return sorted(name for name in names if not name.startswith(".") and name not in _OF_FILE_SYSTEMS)


def check_directory(path: str, store: str) -> None:
    """StorageError, which says why and what to do, if a broker could not use this directory for its metadata store. Leaves no files.

    One that already has a store may be full: what is in it can be read.
    """
    room_bytes = 0 if os.path.lexists(f"{path}/{store}") else ROOM_BYTES
    check_usable(path, "a data directory", "--data (log.dirs)", room_bytes=room_bytes)
