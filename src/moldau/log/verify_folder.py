"""Checks a partition's folder: its segments one after the other, then what stands beside them."""

from collections.abc import Iterator

from moldau.log import names
from moldau.log.damage import DamagedFileError
from moldau.log.findings import Finding, Severity
from moldau.log.leader_epochs import LeaderEpochs, decode_leader_epochs
from moldau.log.partition_metadata import read_topic_id
from moldau.log.producer_snapshots import BadSnapshotError, decode_snapshot
from moldau.log.verify_segment import SegmentCheck, TransactionCheck
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
