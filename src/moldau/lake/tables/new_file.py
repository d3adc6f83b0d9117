"""A file that appears under its name whole and synced, and only if nobody has that name: what makes a version of a table.

`os.link` does both: it fails where the name is taken, and what it shows was written and synced before. A writer that dies on the way
leaves a file with a name that no reader looks at.
"""

import os
import uuid

from moldau.lake.tables.format import TableError


def put_new(path: str, content: bytes) -> None:
    """Make the file. FileExistsError if it is there already, and then nothing has happened; TableError from the disk, likewise."""
    folder = os.path.dirname(path)
    temporary = os.path.join(folder, f"_moldau_{uuid.uuid4().hex}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError as error:
        raise TableError(f"{path}: cannot be written: {(error.strerror or str(error)).lower()}") from error
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
    sync(folder)


def sync(path: str) -> None:
    """Bring a file or the names in a folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
