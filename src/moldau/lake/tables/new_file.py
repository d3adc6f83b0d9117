"""A file that appears under its name whole and synced, and only if the name is free: what makes a version of a table.

`os.link` does both: it fails where the name is taken, and what it shows was written and synced before. A writer that dies on the way
leaves a file with a name that no reader looks at.
"""

import os
import uuid

from moldau.lake.tables.format import TableError


def put_new(path: str, content: bytes) -> None:
    """Make the file. FileExistsError if the name is taken, and then nothing has happened; TableError from the disk, likewise."""
    folder = os.path.dirname(path)
    temporary = os.path.join(folder, f"_moldau_{uuid.uuid4().hex}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        _link(temporary, path)
    except FileExistsError:
        raise
    except OSError as error:
        raise TableError(f"{path}: cannot be written: {(error.strerror or str(error)).lower()}") from error
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
    sync(folder)


def _link(temporary: str, path: str) -> None:
    """`os.link`; on a network file system an answer may be lost, and the repetition then finds the name taken by ourselves."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        if not os.path.samefile(temporary, path):
            raise


def make_folder(path: str) -> None:
    """Make a folder and those above it that are missing, and bring their names to disk. OSError."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(os.path.abspath(path))
    for folder in reversed(missing):
        os.makedirs(folder, exist_ok=True)
    for folder in missing:
        sync(os.path.dirname(os.path.abspath(folder)))


def sync(path: str) -> None:
    """Bring a file or the names in a folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
