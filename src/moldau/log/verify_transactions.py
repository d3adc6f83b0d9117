"""Checks the indexes of aborted transactions against the markers in the log.

An entry too few shows aborted records to readers of committed ones, an entry too many hides committed records from them; neither can be
seen in the file alone.
"""

from collections.abc import Iterator

from moldau.log.findings import Finding, Severity
from moldau.log.inspection import SoundBatch
from moldau.log.transaction_index import ABORTED, ABORTED_VERSION
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
