"""The files of a compacted segment take the place of those of the old ones, by renames; a crash between any two leaves one or the other.

1. ``.cleaned`` -> ``.swap``. As long as one file of the new segment still ends with ``.cleaned``, the next start removes them all.
2. The old segments' files -> ``.deleted``. From here on the next start goes on where this was interrupted: the new segment's last batch
   tells which segments it stands for.
3. ``.swap`` -> the final names, batches first: the next start takes what it finds of old indexes for indexes of the new segment only after
   the batches have their name.

The next start is :mod:`moldau.log.leftovers`. File systems keep the order of renames in a directory over a crash, so nothing is synced
in between.
"""

from collections.abc import Sequence

from moldau.log import names
from moldau.log.segment import Segment
from moldau.log.segments import RemovedSegment, retire
from moldau.model.errors import StorageError
from moldau.ports.filesystem import FileSystem

REASON = "compacted"


def swap_files(files: FileSystem, folder: str, replaced: Sequence[Segment], suffixes: Sequence[str], delay_ms: int) -> list[RemovedSegment]:
    """Do it; the old segments. StorageError, never for want of space: the files are somewhere in between."""
    base_offset = replaced[0].base_offset
    stem = f"{folder}/{names.file_name(base_offset, '')}"
    try:
        remove_cleaned(files, folder, before=base_offset)
        for suffix in reversed(suffixes):
            files.rename(stem + suffix + names.CLEANED, stem + suffix + names.SWAP)
        removed = [
            retire(files, segment, REASON, delay_ms, with_snapshot=segment.base_offset != base_offset)  # that of the first stays true
            for segment in replaced
        ]
        for suffix in suffixes:
            files.rename(stem + suffix + names.SWAP, stem + suffix)
    except StorageError as error:
        raise StorageError(f"putting a compacted segment in place was interrupted: {error.reason}", path=error.path) from error
    return removed


def remove_cleaned(files: FileSystem, folder: str, *, before: int | None = None) -> None:
    """Remove what a pass has written and nobody takes over, or only what has a base offset below `before`. StorageError.

    While there is one with a lower base offset, the next start would take a ``.swap`` file for half of a split, and remove it.
    """
    for name in files.list(folder):
        if name.endswith(names.CLEANED) and (before is None or int(name.partition(".")[0]) < before):
            files.remove(f"{folder}/{name}")
