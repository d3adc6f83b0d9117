"""The batches that a fetch returned: checked before they are used, which of them committed readers may see, and where reading continues
after damage.

A broker sends batches as they lie on its disk and reads none of them, so the reader's check is the one that finds damage. The checksum
covers a batch from its attributes on; base offset and length lie before it, and are compared with the batches around them.

The broker sends with each fetch the aborted transactions that overlap with it, and no records after the last stable offset. A producer's
records are hidden from the first offset of its aborted transaction up to the marker that ends it; markers themselves are never shown.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from moldau.client.partition_requests import LATEST, AbortedRecords, FetchedBatches, FetchLimits
from moldau.model.errors import CorruptBatchError, ErrorCode, PeerError
from moldau.model.identity import Offset, TopicPartition
from moldau.protocol.records.batch import iterate
from moldau.protocol.records.control import ControlType, decode_end_txn_marker
from moldau.protocol.records.header import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, read_header, verify_crc

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster

HeaderAndBytes = tuple[BatchHeader, memoryview]


DAMAGED = "is damaged"
CHECKSUM = "its checksum does not match"
BEYOND_BOUND = "is more than is read"


class UnreadableBatchError(CorruptBatchError):
    """A batch that cannot be read, at `offset`. `next_offset` is where the batch after it begins, None if that is not known."""

    def __init__(self, partition: TopicPartition, offset: int, next_offset: int | None, reason: str, fault: str = DAMAGED) -> None:
        super().__init__(f"partition {partition}: the batch at offset {offset} {fault}: {reason}")
        self.partition = partition
        self.offset = Offset(offset)
        self.next_offset = None if next_offset is None else Offset(next_offset)
        self.reason = reason


def checked_batches(partition: TopicPartition, fetched: FetchedBatches, position: int) -> Iterator[HeaderAndBytes]:
    """Header and bytes of each whole batch that reaches to `position` or beyond. UnreadableBatchError at the first that is damaged."""
    records, last_read = fetched.records, fetched.last_read
    at, size, due, seen = 0, len(records), position, False
    while True:
        try:
            found = _batch_at(records, at, size)
        except CorruptBatchError as error:
            raise UnreadableBatchError(partition, due, None, error.message) from error
        if found is None:
            break
        header, batch = found
        at += len(batch)
        if header.base_offset != due or not verify_crc(batch):  # else all is as it should be, which is the rule
            after = _whole_batch_at(records, at, size)
            if not seen and (header.last_offset < position or _lies_before(position, header, batch, after)):
                continue
            fault = _fault(header, batch, due, after, fetched.high_watermark, first=not seen)
            if fault is not None:
                # The error names the header's offset where it can be true: after a gap it helps more than the one that is due.
                following = _start_of(after, due)
                believed = fault is CHECKSUM and due <= header.base_offset < (following or fetched.high_watermark)
                raise UnreadableBatchError(partition, header.base_offset if believed else due, following, fault)
        due, seen = header.base_offset + header.last_offset_delta + 1, True
        if last_read is not None:
            last_read.offset, last_read.epoch = due, header.partition_leader_epoch
        yield header, batch
    if size and not seen:
        raise UnreadableBatchError(partition, position, None, f"in {size} bytes there is no whole batch with this offset")


def _batch_at(records: memoryview, at: int, size: int) -> HeaderAndBytes | None:
    """The batch there; None where the bytes end before it does. CorruptBatchError."""
    if size - at < HEADER_SIZE:
        return None
    header = read_header(records, at)
    end = at + header.batch_length + LOG_OVERHEAD
    return (header, records[at:end]) if end <= size else None


def _whole_batch_at(records: memoryview, at: int, size: int) -> HeaderAndBytes | None:
    """The batch there if its checksum is right."""
    try:
        found = _batch_at(records, at, size)
    except CorruptBatchError:
        return None
    return found if found is not None and verify_crc(found[1]) else None


def _fault(header: BatchHeader, batch: memoryview, due: int, after: HeaderAndBytes | None, end: int, *, first: bool) -> str | None:
    """What is wrong with a batch, if anything is; its base offset may be, which no checksum covers."""
    if not verify_crc(batch):
        return CHECKSUM
    if header.base_offset < due:
        is_wrong = not first
    elif after is None:
        is_wrong = header.base_offset > due and header.last_offset >= end
    else:
        is_wrong = due < after[0].base_offset <= header.last_offset
    return f"its header has offset {header.base_offset}" if is_wrong else None


def _start_of(after: HeaderAndBytes | None, due: int) -> int | None:
    """Where the batch after a damaged one begins; the damaged one's own offsets are not used."""
    return after[0].base_offset if after is not None and after[0].base_offset > due else None


def _lies_before(position: int, header: BatchHeader, batch: memoryview, after: HeaderAndBytes | None) -> bool:
    """Whether a damaged batch ends before the position, though its header claims otherwise: a good one begins there."""
    return header.base_offset < position and after is not None and after[0].base_offset <= position and not verify_crc(batch)


_MARKER_BYTES_MAX = 4096


class VisibleBatches:
    """Looks at the batches of one fetch, each once, in their order."""

    def __init__(self, aborted: Iterable[AbortedRecords]) -> None:
        self._coming = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        self._aborting: set[int] = set()

    def shows(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether the records of this batch are shown. PeerError INVALID_RECORD for a marker that cannot be read."""
        while self._coming and self._coming[-1].first_offset <= header.last_offset:
            self._aborting.add(self._coming.pop().producer_id)
        if header.is_control:
            if header.producer_id in self._aborting and self._ends_by_abort(batch):
                self._aborting.discard(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._aborting)

    def _ends_by_abort(self, batch: memoryview) -> bool:
        for record in iterate(batch, max_decompressed_bytes=_MARKER_BYTES_MAX):
            marker = decode_end_txn_marker(record)
            return marker is not None and marker.type is ControlType.ABORT
        return False


def next_readable(cluster: "Cluster", where: TopicPartition, bad: int) -> Offset:
    """The first offset after `bad` from which whole batches can be read, or the log's end. WorldError, PeerError."""
    end = cluster.list_offsets({where: LATEST})[where].offset
    return Offset(first_true(bad + 1, end, lambda offset: _is_readable(cluster, where, offset)))


def _is_readable(cluster: "Cluster", where: TopicPartition, offset: int) -> bool:
    try:
        fetched = cluster.fetch(*where, offset, FetchLimits(partition_max_bytes=1))
        return next(checked_batches(where, fetched, offset), None) is not None
    except PeerError as error:
        if error.code is not ErrorCode.CORRUPT_MESSAGE:
            raise
        return False


def first_true(start: int, end: int, holds: Callable[[int], bool]) -> int:
    """The first number from `start` to before `end` for which `holds`, where it holds for all after one; else `end`.

    Asks near the start first: about twice the logarithm of how far it is.
    """
    below, step = start - 1, 1
    while below + step < end and not holds(below + step):
        below += step
        step *= 2
    above = min(below + step, end)
    while above - below > 1:
        middle = (below + above) // 2
        if holds(middle):
            above = middle
        else:
            below = middle
    return above
