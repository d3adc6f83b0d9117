"""A file that others read while it is replaced: they see all of the old text, or all of the new one."""

import os


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Replace a file, or make it. One writer at a time; it is not synced to disk. OSError: the old one is as it was."""
    new = f"{os.fspath(path)}.new"
    with open(new, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(new, path)
