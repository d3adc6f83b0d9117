"""Whether the directory of the metadata store can be used, found out before anything is started or made in it.

Other data directories may fail: they go offline, and the broker serves the rest. Without this one there is no broker.
"""

import os

from moldau.adapters.usable_directory import check_usable

ROOM_BYTES = 256 * 1024
"""A new directory has to take this much: metadata store, identity, checkpoints."""


def check_directory(path: str, store: str) -> None:
    """StorageError, which says why and what to do, if a broker could not use this directory for its metadata store. Leaves no files.

    One that already has a store may be full: what is in it can be read.
    """
    room_bytes = 0 if os.path.lexists(f"{path}/{store}") else ROOM_BYTES
    check_usable(path, "a data directory", "--data (log.dirs)", room_bytes=room_bytes)
