"""Checks one segment: every batch by size, checksum and offsets, and the indexes against the batches.

Markers in the log are compared with the indexes of aborted transactions: an entry too few shows aborted records to readers of committed
ones, an entry too many hides committed records from them; neither can be seen in the file alone.
"""

from collections.abc import Iterator
from struct import Struct

from moldau.log import names
from moldau.log.findings import Finding, Severity
from moldau.log.indexes import OffsetIndex, TimeIndex, read_checksums
from moldau.log.inspection import DamagedBytes, SoundBatch, inspect, records_of
from moldau.log.leader_epochs import LeaderEpochs
from moldau.log.transaction_index import ABORTED, ABORTED_VERSION
from moldau.model.errors import PeerError
from moldau.ports.filesystem import FileSystem
from moldau.protocol.records.control import ControlType, end_txn_marker_of
from moldau.protocol.records.header import BatchHeader


class TransactionCheck:
    """One for a whole log, shown its batches in order; after those of a segment it is shown the segment's index.

    `_open` has the first offset of each producer's transaction, as far as it is in the log; `_aborted`, by the offsets of the segment's
    abort markers, producer and first offset, None where no record of the transaction is left.
    """

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        self._aborted: dict[int, tuple[int, int | None]] = {}

    def note(self, batch: SoundBatch) -> None:
        """A batch in order."""
        header = batch.header
        if not header.is_control:
            if header.is_transactional and header.record_count:
                self._open.setdefault(header.producer_id, header.base_offset)
            return
        marker = end_txn_marker_of(batch.data)
        if marker is None:
            return
        first_offset = self._open.pop(header.producer_id, None)
        if marker.type is ControlType.ABORT:
            self._aborted[header.base_offset] = (header.producer_id, first_offset)

    def note_damaged(self, header: BatchHeader) -> None:
        """A batch of which only the header can be read: what it ends is not known."""
        self._open.pop(header.producer_id, None)

    def findings(self, path: str, data: bytes, base_offset: int, end_offset: int, *, is_last: bool) -> Iterator[Finding]:
        """What is wrong with the index of the segment that ends before `end_offset`; `data` is empty where there is none.

        In the last segment, which a broker may be writing to, the newest entries may not be in the file yet.
        """
        aborted, self._aborted = self._aborted, {}
        known, last = set(), base_offset - 1
        whole = len(data) - len(data) % ABORTED.size
        for position in range(0, whole, ABORTED.size):
            version, producer_id, first, marker, _stable = ABORTED.unpack_from(data, position)
            if version != ABORTED_VERSION or not 0 <= first <= marker < end_offset or marker <= last:
                message = f"entry of version {version} for offsets {first} to {marker}, the segment ends before {end_offset}"
                yield Finding(Severity.DAMAGE, path, position, message)
                continue
            last = marker
            known.add(marker)
            found = aborted.get(marker)
            if found is None or found[0] != producer_id:
                message = f"entry for producer {producer_id} from offset {first} on, but it has no abort marker at offset {marker}"
                yield Finding(Severity.DAMAGE, path, position, message)
            elif found[1] is not None and first > found[1]:
                message = f"entry for producer {producer_id} from offset {first} on, but its transaction begins at offset {found[1]}"
                yield Finding(Severity.DAMAGE, path, position, message)
        if whole < len(data):
            yield Finding(Severity.DAMAGE, path, whole, f"{len(data) - whole} bytes are left, an entry takes {ABORTED.size}")
        for marker, (producer_id, begin) in aborted.items():
            if marker not in known and begin is not None:
                message = f"no entry for the transaction of producer {producer_id} from offset {begin} on, aborted at offset {marker}"
                severity = Severity.NOTE if is_last and marker > last else Severity.DAMAGE
                yield Finding(severity, path, whole, message)


class SegmentCheck:
    """`findings` walks the segment once; after it `end_offset`, `batches` and `bytes` are known.

    `ends` maps the position of each batch to its last offset, and `newest` each last offset to the batch's largest timestamp: what the
    two indexes speak of. Cost: two small dict entries per batch.
    """

    def __init__(
        self, files: FileSystem, folder: str, base_offset: int, epochs: LeaderEpochs, transactions: TransactionCheck, *, records: bool
    ) -> None:
        self._files = files
        self._stem = f"{folder}/{names.file_name(base_offset, '')}"
        self._epochs = epochs
        self._transactions = transactions
        self._records = records
        self._wrong_epoch = -1
        self.base_offset = base_offset
        self.end_offset = base_offset
        self.batches = 0
        self.bytes = 0
        self.ends: dict[int, int] = {}
        self.newest: dict[int, int] = {}

    def findings(self, due: int, gaps_until: int = 0, *, is_last: bool) -> Iterator[Finding]:
        """What is wrong, the first offset being `due`. Offsets before `gaps_until` may be missing. StorageError."""
        yield from self._batches(due, gaps_until)
        named = set()
        for finding in (*self._offset_index(), *self._time_index(), *self._transaction_index(is_last=is_last)):
            named.add(finding.path)
            yield finding
        known = read_checksums(self._files, self._stem)
        for suffix in (names.INDEX, names.TIME_INDEX, names.TRANSACTION_INDEX):
            path = self._stem + suffix
            if known is not None and path not in named and not known.match(self._files, self._stem, suffix):
                yield Finding(Severity.DAMAGE, path, 0, f"does not match its checksum in {names.CHECKSUMS}")

    def _batches(self, due: int, gaps_until: int) -> Iterator[Finding]:
        path = self._stem + names.LOG
        file = self._files.open(path)
        try:
            self.bytes = file.size()
            for found in inspect(file, self.bytes, self.base_offset):
                if isinstance(found, DamagedBytes):
                    message = f"{found.reason}; {found.size} bytes from offset {found.offset} on"
                    yield Finding(Severity.DAMAGE, path, found.position, message)
                    if found.header is None:
                        if found.old_format:
                            return
                        continue
                    header, position = found.header, found.position
                    self._transactions.note_damaged(header)
                else:
                    header, position = found.header, found.span.position
                    self._transactions.note(found)
                    yield from self._one_batch(path, found, gaps_until)
                if header.base_offset > max(due, gaps_until) or header.base_offset < due:
                    yield Finding(Severity.GAP, path, position, f"offset {header.base_offset} follows where {due} is due")
                due = self.end_offset = header.last_offset + 1
                self.batches += 1
                self.ends[position] = header.last_offset
                self.newest[header.last_offset] = header.max_timestamp
        finally:
            file.release()

    def _one_batch(self, path: str, batch: SoundBatch, gaps_until: int) -> Iterator[Finding]:
        header, position = batch.header, batch.span.position
        if header.record_count > header.last_offset_delta + 1 or header.record_count < 0:
            message = f"batch of offsets {header.base_offset} to {header.last_offset} says that it holds {header.record_count} records"
            yield Finding(Severity.DAMAGE, path, position, message)
        elif header.record_count <= header.last_offset_delta and header.last_offset >= gaps_until:
            missing = header.last_offset_delta + 1 - header.record_count
            yield Finding(
                Severity.GAP, path, position, f"{missing} offsets from {header.base_offset} to {header.last_offset} have no record"
            )
        epoch, known = header.partition_leader_epoch, self._epochs.epoch_of(header.base_offset)
        if known >= 0 and epoch >= 0 and epoch != known and epoch != self._wrong_epoch:
            self._wrong_epoch = epoch
            message = f"offset {header.base_offset} was written in leader epoch {epoch}, {names.LEADER_EPOCHS} says {known}"
            severity = Severity.NOTE if epoch > self._epochs.latest else Severity.DAMAGE  # a new epoch is noted with the next flush
            yield Finding(severity, path, position, message)
        if self._records:
            try:
                records_of(batch)
            except PeerError as error:
                yield Finding(Severity.DAMAGE, path, position, f"batch at offset {header.base_offset}: {error.message}")

    def _offset_index(self) -> Iterator[Finding]:
        path = self._stem + names.INDEX
        for position, (relative, at), finding in self._entries(path, OffsetIndex.entry):
            offset = self.base_offset + relative
            if finding is not None:
                yield finding
            elif at not in self.ends:
                yield Finding(Severity.DAMAGE, path, position, f"offset {offset} is said to be at byte {at}, where no batch starts")
            elif self.ends[at] != offset:
                yield Finding(Severity.DAMAGE, path, position, f"the batch at byte {at} ends with offset {self.ends[at]}, not {offset}")

    def _time_index(self) -> Iterator[Finding]:
        path = self._stem + names.TIME_INDEX
        for position, (timestamp, relative), finding in self._entries(path, TimeIndex.entry):
            offset = self.base_offset + relative
            if finding is not None:
                yield finding
            elif offset not in self.newest:
                yield Finding(Severity.DAMAGE, path, position, f"no batch ends with offset {offset}, said to be of time {timestamp}")
            elif self.newest[offset] != timestamp:
                message = f"the batch that ends with offset {offset} is of time {self.newest[offset]}, not {timestamp}"
                yield Finding(Severity.DAMAGE, path, position, message)

    def _entries(self, path: str, layout: Struct) -> Iterator[tuple[int, tuple[int, int], Finding | None]]:
        """Entries with their position, and what is wrong with them beyond what they say."""
        try:
            data = self._files.read(path)
        except FileNotFoundError:
            if self.batches:
                yield 0, (0, 0), Finding(Severity.NOTE, path, 0, "missing; it is rebuilt when it is needed")
            return
        previous = (-1, -1)
        whole = len(data) - len(data) % layout.size
        for position in range(0, whole, layout.size):
            entry: tuple[int, int] = layout.unpack_from(data, position)
            if entry == (0, 0):
                return  # allocated ahead by Kafka
            rises = entry[0] > previous[0] and entry[1] > previous[1]
            message = f"entry {entry} does not rise above {previous} before it"
            yield position, entry, None if rises else Finding(Severity.DAMAGE, path, position, message)
            previous = entry
        if whole < len(data):
            yield whole, (0, 0), Finding(Severity.DAMAGE, path, whole, f"{len(data) - whole} bytes are left, an entry takes {layout.size}")

    def _transaction_index(self, *, is_last: bool) -> Iterator[Finding]:
        path = self._stem + names.TRANSACTION_INDEX
        try:
            data = self._files.read(path)
        except FileNotFoundError:
            data = b""
        yield from self._transactions.findings(path, data, self.base_offset, self.end_offset, is_last=is_last)
