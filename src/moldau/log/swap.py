"""Compaction puts files in the place of others by renames; after a crash between any two, the next start finishes or undoes it.

1. ``.cleaned`` -> ``.swap``. As long as one file of the new segment still ends with ``.cleaned``, the next start removes them all.
2. The old segments' files -> ``.deleted``. From here on the next start continues where this was interrupted: the new segment's last batch
   shows which segments it replaces.
3. ``.swap`` -> the final names, batches first: the next start takes what it finds of old indexes for indexes of the new segment only after
   the batches have their name.

File systems keep the order of renames in a directory over a crash, so nothing is synced in between.

After a crash, by Kafka's rules and in Kafka's order (Kafka also splits segments so):

1. A ``.cleaned`` file was not finished: it goes. A ``.swap`` file at or after the first ``.cleaned`` one belongs to a split that was
   not finished: it goes too.
2. Each other ``.swap`` segment is whole. Segments with a base offset in the range that the swapped ones cover are replaced: they go.
3. The ``.swap`` files get their final names, batches before indexes.
4. An index without its segment is left from a removal that was interrupted: it goes.

``.deleted`` files are dealt with where the log is opened.
"""

import logging
from collections.abc import Sequence

from moldau.log import names
from moldau.log.batches import walk
from moldau.log.damage import LostRecordsError
from moldau.log.segment import Segment
from moldau.log.segments import RemovedSegment, retire
from moldau.model.errors import StorageError
from moldau.ports.filesystem import FileSystem

_LOG = logging.getLogger(__name__)
REASON = "compacted"


def settle_leftovers(files: FileSystem, folder: str, durable: range = range(0)) -> list[str]:
    """Finish or undo what was interrupted; the names in the folder after that. May be interrupted itself at any point, and begun again.

    LostRecordsError for an index without its segment that no removal has left, if records with offsets in `durable` may have been there.
    StorageError; BadBatchError for a ``.swap`` segment that is damaged: then nothing was changed that it would replace.
    """
    listing = files.list(folder)
    if any(name.endswith((names.CLEANED, names.SWAP)) for name in listing):
        _settle_compaction(files, folder, listing)
        listing = files.list(folder)
    segments = {name[: -len(names.LOG)] for name in listing if name.endswith(names.LOG)}
    orphans = [name for name in listing if name.partition(".")[0] not in segments and _is_index(name)]
    for name in orphans:
        base, removed = _base(name), name.partition(".")[0] + names.LOG + names.DELETED
        end = min((base for base in map(_base, segments) if base > _base(name)), default=durable.stop)
        if removed not in listing and base < durable.stop and end > durable.start:
            segment = f"{folder}/{name.partition('.')[0]}{names.LOG}"
            raise LostRecordsError(folder, f"{segment} is missing, with the records from offset {base} on: its index {name} is still there")
        _LOG.info("removing index without its segment: path=%s/%s", folder, name)
        files.remove(f"{folder}/{name}")
    return [name for name in listing if name not in orphans] if orphans else listing


def _settle_compaction(files: FileSystem, folder: str, listing: list[str]) -> None:
    cleaned = [name for name in listing if name.endswith(names.CLEANED)]
    unfinished_from = min((_base(name) for name in cleaned), default=None)
    swapped = [name for name in listing if name.endswith(names.SWAP)]
    unfinished = [name for name in swapped if unfinished_from is not None and _base(name) >= unfinished_from]
    for name in (*unfinished, *cleaned):
        _LOG.info("removing unfinished file: path=%s/%s", folder, name)
        files.remove(f"{folder}/{name}")
    whole = [name for name in swapped if name not in unfinished]
    covered = [_covers(files, folder, name) for name in whole if name.endswith(names.LOG + names.SWAP)]
    if covered:
        first, end = min(start for start, _ in covered), max(end for _, end in covered)
        for name in listing:
            if name.endswith(names.SEGMENT_SUFFIXES) and first <= _base(name) < end:
                _LOG.info("removing compacted file: path=%s/%s", folder, name)
                files.remove(f"{folder}/{name}")
    whole.sort(key=lambda name: not name.endswith(names.LOG + names.SWAP))  # step 2 must not take renamed indexes for old ones
    for name in whole:
        files.rename(f"{folder}/{name}", f"{folder}/{name.removesuffix(names.SWAP)}")
    files.sync_directory(folder)


def _is_index(name: str) -> bool:
    return name.endswith(names.SEGMENT_SUFFIXES[1:]) and names.parse(name) is not None


def _base(name: str) -> int:
    stem = name.partition(".")[0]
    return int(stem) if stem.isascii() and stem.isdigit() else -1


def _covers(files: FileSystem, folder: str, name: str) -> tuple[int, int]:
    """First offset of a swapped segment, and the offset after its last."""
    base = end = _base(name)
    file = files.open(f"{folder}/{name}")
    try:
        for _, header in walk(file, 0, file.size(), base):
            end = header.last_offset + 1
    finally:
        file.release()
    return base, end


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
    """Remove what a pass has written and will not be swapped in, or only what has a base offset below `before`. StorageError.

    While there is one with a lower base offset, the next start would take a ``.swap`` file for half of a split, and remove it.
    """
    for name in files.list(folder):
        if name.endswith(names.CLEANED) and (before is None or int(name.partition(".")[0]) < before):
            files.remove(f"{folder}/{name}")
