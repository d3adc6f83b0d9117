"""Files that merges have replaced: kept for readers of older versions for a while, then deleted.

A merge sets the time of the files that it is about to replace, so the time of a file that no version names any more is that since when it
is not needed. Where files keep their time, in object stores, the log has what versions of that while have replaced. Merges would fill a
disk otherwise: each writes most of a table whose new rows are of many keys.
"""

import contextlib
from collections.abc import Iterable
from datetime import timedelta

from moldau.lake.merging.options import BUCKET
from moldau.lake.tables.data_files import DataFile, remove_files
from moldau.lake.tables.format import TableFormat
from moldau.lake.tables.places.addresses import place_of

KEPT = timedelta(hours=3)
EVERY_VERSIONS = 10
"""Each of so many versions looks for files to delete."""


def mark_replaced(path: str, files: Iterable[DataFile]) -> None:
    """The files are needed from now on only for readers of older versions. One that cannot be marked may be deleted early."""
    place = place_of(path)
    for file in files:
        with contextlib.suppress(OSError):
            place.mark(file.path)


def remove_replaced(tables: TableFormat, path: str, named: Iterable[str], older_than: timedelta, now_s: float) -> list[str]:
    """Delete the files of the merged table at `path` that are not `named` and were replaced so long ago, and what dead merges have left.
    Their paths. TableError."""
    before_s = now_s - older_than.total_seconds()
    place, kept = place_of(path), set(named)
    with contextlib.suppress(OSError):
        files = [each for each in place.walk() if each.name.startswith(f"{BUCKET}=") and each.name.endswith(".parquet")]
        found = sorted(each.name for each in files if each.name not in kept and each.changed_s < before_s)
        if found and not place.keeps_marks:
            kept = tables.named_since(path, before_s)
            found = [name for name in found if name not in kept]
        remove_files(path, found)
        return found
    return []
