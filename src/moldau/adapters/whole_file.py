"""A file that others read while it is replaced: they see all of the old text, or all of the new one."""

import os
import tempfile


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Replace a file, or make it. One writer at a time; it is not synced to disk. OSError: the old one is as it was."""
    new = f"{os.fspath(path)}.new"
    with open(new, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(new, path)


def write_synced(path: str, text: str) -> None:
    """Replace a file, or make it and its directory. Several may write at a time; the text is on disk. OSError: it is as it was."""
    directory, name = os.path.split(path)
    os.makedirs(directory, exist_ok=True)
    descriptor, new = tempfile.mkstemp(dir=directory, prefix=f".{name}.")
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
