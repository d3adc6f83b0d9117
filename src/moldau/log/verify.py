"""Reads everything in a log directory or a partition's folder and says what is wrong with it (``moldau log verify``).

Nothing is changed, and nothing need be stopped; but in a directory that a broker is writing to, the newest batch may be found half
written, and the indexes may lag behind the log.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from moldau.log import names
from moldau.log.checkpoints import CLEANED, HIGH_WATERMARKS, LOG_STARTS, OFFSET_CHECKPOINTS, RECOVERY_POINTS, read_offsets
from moldau.log.damage import DamagedFileError
from moldau.log.findings import Finding, Severity
from moldau.log.leader_epochs import LeaderEpochs, decode_leader_epochs
from moldau.log.meta_properties import FILE_NAME as META_PROPERTIES
from moldau.log.meta_properties import read_meta_properties
from moldau.log.names import FolderKind, parse_folder
from moldau.log.partition_metadata import read_topic_id
from moldau.log.producer_snapshots import BadSnapshotError, decode_snapshot
from moldau.log.verify_segment import SegmentCheck, TransactionCheck
from moldau.model.errors import MoldauError
from moldau.model.identity import TopicPartition
from moldau.ports.filesystem import FileSystem


class FolderCheck:
    """`findings` walks the folder once; after it the other fields are known.

    `cleaned_offset`: how far the log was compacted, -1 if it never was. If it was, there may be gaps before its last segment.
    """

    def __init__(self, files: FileSystem, folder: str, *, records: bool = False, cleaned_offset: int = -1) -> None:
        self._files = files
        self._folder = folder
        self._records = records
        self._cleaned_offset = cleaned_offset
        self._epochs = LeaderEpochs()
        self.start_offset = 0
        """Base of the first segment."""
        self.end_offset = 0
        self.segments = 0
        self.batches = 0
        self.bytes = 0

    def findings(self) -> Iterator[Finding]:
        """What is wrong, segment by segment. StorageError."""
        listing = self._files.list(self._folder)
        bases = [base for name in listing if (base := names.offset_of(name, names.LOG)) is not None]
        if not bases:
            yield Finding(Severity.NOTE, self._folder, "folder", "has no segment")
        yield from self._read_epochs(listing)
        yield from self._check_segments(bases)
        yield from self._check_epochs()
        yield from self._check_others(listing, set(bases))

    def _read_epochs(self, listing: list[str]) -> Iterator[Finding]:
        if names.LEADER_EPOCHS not in listing:
            return
        path = f"{self._folder}/{names.LEADER_EPOCHS}"
        try:
            self._epochs = decode_leader_epochs(self._files.read(path), path)
        except DamagedFileError as error:
            yield Finding(Severity.DAMAGE, path, error.where, error.message)

    def _check_segments(self, bases: list[int]) -> Iterator[Finding]:
        due = self.start_offset = self.end_offset = bases[0] if bases else 0
        gaps_until = max(self._cleaned_offset, bases[-1]) if bases and self._cleaned_offset >= 0 else due
        transactions = TransactionCheck()
        for base in bases:
            path = f"{self._folder}/{names.file_name(base, names.LOG)}"
            if base < due:
                yield Finding(Severity.DAMAGE, path, 0, f"segment begins at offset {base}, the one before it reaches up to {due}")
            segment = SegmentCheck(self._files, self._folder, base, self._epochs, transactions, records=self._records)
            yield from segment.findings(due, gaps_until, is_last=base == bases[-1])
            if not segment.batches and base > max(due, gaps_until):
                yield Finding(Severity.GAP, path, 0, f"empty segment at offset {base} follows where {due} is due")
            due = self.end_offset = segment.end_offset
            self.segments += 1
            self.batches += segment.batches
            self.bytes += segment.bytes

    def _check_epochs(self) -> Iterator[Finding]:
        if self._epochs.entries and self._epochs.entries[-1][1] > self.end_offset:
            epoch, start = self._epochs.entries[-1]
            path = f"{self._folder}/{names.LEADER_EPOCHS}"
            yield Finding(Severity.DAMAGE, path, "last line", f"epoch {epoch} begins at offset {start}, the log ends at {self.end_offset}")

    def _check_others(self, listing: list[str], bases: set[int]) -> Iterator[Finding]:
        for name in listing:
            path = f"{self._folder}/{name}"
            if (offset := names.offset_of(name, names.SNAPSHOT)) is not None:
                yield from self._check_snapshot(path, offset)
            elif name.endswith((names.DELETED, names.CLEANED, names.SWAP)):
                yield Finding(Severity.NOTE, path, 0, "left by a removal or a compaction; the next start settles it")
            else:
                for suffix in names.SEGMENT_SUFFIXES[1:]:
                    if (offset := names.offset_of(name, suffix)) is not None and offset not in bases:
                        yield Finding(Severity.NOTE, path, 0, "index without a segment")
        try:
            if read_topic_id(self._files, self._folder) is None:
                yield Finding(Severity.NOTE, self._folder, "folder", "has no partition.metadata and so no topic id")
        except DamagedFileError as error:
            yield Finding(Severity.DAMAGE, error.path, error.where, error.message)

    def _check_snapshot(self, path: str, offset: int) -> Iterator[Finding]:
        try:
            producers = decode_snapshot(self._files.read(path))
        except BadSnapshotError as error:
            yield Finding(Severity.DAMAGE, path, 0, str(error))
            return
        if offset > self.end_offset:
            yield Finding(Severity.DAMAGE, path, 0, f"producers as of offset {offset}, the log ends at {self.end_offset}")
        for number, producer in enumerate(producers):
            if producer.last_offset >= offset:
                message = f"producer {producer.producer_id} is said to have written offset {producer.last_offset}, not before {offset}"
                yield Finding(Severity.DAMAGE, path, f"entry {number}", message)


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
    """By folder, how far its log was compacted. A damaged checkpoint is reported where all of them are checked."""
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
