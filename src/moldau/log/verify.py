"""Reads everything in a log directory or a partition's folder and says what is wrong with it (``moldau log verify``).

Nothing is changed, and nothing need be stopped; but in a directory that a broker is writing to, the newest batch may be found half
written, and the indexes are behind the log.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from moldau.log import names
from moldau.log.checkpoints import CLEANED, HIGH_WATERMARKS, LOG_STARTS, OFFSET_CHECKPOINTS, RECOVERY_POINTS, read_offsets
from moldau.log.damage import DamagedFileError
from moldau.log.findings import Finding, Severity
from moldau.log.folders import FolderKind, parse_folder
from moldau.log.meta_properties import FILE_NAME as META_PROPERTIES
from moldau.log.meta_properties import read_meta_properties
from moldau.log.verify_folder import FolderCheck
from moldau.model.errors import MoldauError
from moldau.model.identity import TopicPartition
from moldau.ports.filesystem import FileSystem


@dataclass(slots=True)
class Totals:
    """How much was checked."""

    partitions: int = 0
    segments: int = 0
    batches: int = 0
    bytes: int = 0


class NoLogError(MoldauError):
    """A directory that is no log's: it has neither meta.properties nor, in it or in a partition's folder, a segment."""

    def __init__(self, directory: str) -> None:
        super().__init__(f"{directory}: there is no log here, neither {META_PROPERTIES} nor a segment")


def verify(files: FileSystem, directory: str, *, records: bool = False, totals: Totals | None = None) -> Iterator[Finding]:
    """Findings, in the order of the files; none if all is well. `totals` is counted up on the way.

    `directory` is a log directory, or a partition's folder. With `records` every batch is also decompressed and its records are walked.
    StorageError where a file cannot be read; NoLogError, at the end, if there was nothing to check.
    """
    totals = Totals() if totals is None else totals
    listing = files.list(directory)
    if any(names.offset_of(name, names.LOG) is not None for name in listing):
        parent, _, name = directory.rstrip("/").rpartition("/")
        check = FolderCheck(files, directory, records=records, cleaned_offset=_cleaned(files, parent or ".").get(name, -1))
        yield from check.findings()
        _count(totals, check)
        return
    if META_PROPERTIES in listing:
        try:
            read_meta_properties(files, directory)
        except DamagedFileError as error:
            yield _damaged(error)
    else:
        yield Finding(Severity.NOTE, directory, "directory", f"has no {META_PROPERTIES}")
    logs: dict[TopicPartition, FolderCheck] = {}
    cleaned = _cleaned(files, directory)
    for name in listing:
        folder = parse_folder(name)
        if folder is not None and folder.kind is FolderKind.LOG and files.is_directory(f"{directory}/{name}"):
            check = FolderCheck(files, f"{directory}/{name}", records=records, cleaned_offset=cleaned.get(name, -1))
            yield from check.findings()
            _count(totals, check)
            logs[folder.topic_partition] = check
    for name in OFFSET_CHECKPOINTS:
        if name in listing:
            yield from _check_offsets(files, f"{directory}/{name}", name, logs)
    if META_PROPERTIES not in listing and not any(check.segments for check in logs.values()):
        raise NoLogError(directory)


def _cleaned(files: FileSystem, directory: str) -> dict[str, int]:
    """By folder, how far its log was compacted. A checkpoint that is damaged is told of where all of them are checked."""
    try:
        return {str(topic_partition): offset for topic_partition, offset in read_offsets(files, f"{directory}/{CLEANED}").items()}
    except DamagedFileError:
        return {}


def _count(totals: Totals, check: FolderCheck) -> None:
    totals.partitions += 1
    totals.segments += check.segments
    totals.batches += check.batches
    totals.bytes += check.bytes


def _check_offsets(files: FileSystem, path: str, name: str, logs: dict[TopicPartition, FolderCheck]) -> Iterator[Finding]:
    try:
        offsets = read_offsets(files, path)
    except DamagedFileError as error:
        yield _damaged(error)
        return
    for topic_partition, offset in offsets.items():
        log = logs.get(topic_partition)
        if log is None:
            message = f"{topic_partition} has no folder in this directory: it is lost, unless its topic was just deleted or it was moved"
            yield Finding(Severity.DAMAGE if name == RECOVERY_POINTS else Severity.NOTE, path, str(topic_partition), message)
        elif name in (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS) and offset > log.end_offset:
            yield Finding(Severity.DAMAGE, path, str(topic_partition), f"offset {offset}, but the log ends at {log.end_offset}")


def _damaged(error: DamagedFileError) -> Finding:
    return Finding(Severity.DAMAGE, error.path, error.where, error.message)
