"""Files that merges have replaced: kept for readers of older versions for a while, then deleted.

A merge sets the time of the files that it is about to replace, so the time of a file that no version names any more is that since when it
is not needed. Merges would fill a disk otherwise: each writes most of a table whose new rows are of many keys.
"""

import contextlib
import os
from collections.abc import Iterable
from datetime import timedelta

from moldau.lake.merging.options import BUCKET
from moldau.lake.tables.data_files import DataFile, remove_files

KEPT = timedelta(hours=3)
EVERY_VERSIONS = 10
"""Each of so many versions looks for files to delete."""


def mark_replaced(path: str, files: Iterable[DataFile]) -> None:
    """The files are needed from now on only for readers of older versions. One that cannot be marked may be deleted early."""
    for file in files:
        with contextlib.suppress(OSError):
            os.utime(os.path.join(path, file.path))


def remove_replaced(path: str, named: Iterable[str], older_than: timedelta, now_s: float) -> list[str]:
    """Delete the files of the merged table at `path` that are not `named` and were replaced so long ago, and what dead merges have left.
    Their paths."""
    kept = set(named)
    found = []
    for folder in _folders(path):
        with contextlib.suppress(OSError), os.scandir(os.path.join(path, folder)) as entries:
            for entry in entries:
                file = f"{folder}/{entry.name}"
                if entry.name.endswith(".parquet") and file not in kept and entry.stat().st_mtime < now_s - older_than.total_seconds():
                    found.append(file)
    remove_files(path, found)
    return sorted(found)


def _folders(path: str) -> list[str]:
    try:
        return [name for name in os.listdir(path) if name.startswith(f"{BUCKET}=")]
    except OSError:
        return []
