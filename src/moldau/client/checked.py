"""The batches that a fetch brought, each checked before anything of it is used. No I/O.

A broker sends batches as they lie on its disk and reads none of them, so the reader's check is the one that finds damage. The checksum
covers a batch from its attributes on; base offset and length lie before it, and are compared with the batches around them.
"""

from collections.abc import Iterator

from moldau.client.partition_requests import Fetched
from moldau.model.errors import CorruptBatchError
from moldau.model.identity import Offset, TopicPartition
from moldau.protocol.records.header import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, read_header, verify_crc

HeaderAndBytes = tuple[BatchHeader, memoryview]


DAMAGED = "is damaged"
CHECKSUM = "its checksum does not match"
BEYOND_BOUND = "is more than is read"


class DamagedBatchError(CorruptBatchError):
    """A batch that cannot be read, at `offset`. `next_offset` is where the batch after it begins, None if that is not known."""

    def __init__(self, partition: TopicPartition, offset: int, next_offset: int | None, reason: str, fault: str = DAMAGED) -> None:
        super().__init__(f"partition {partition}: the batch at offset {offset} {fault}: {reason}")
        self.partition = partition
        self.offset = Offset(offset)
        self.next_offset = None if next_offset is None else Offset(next_offset)
        self.reason = reason


def checked_batches(partition: TopicPartition, fetched: Fetched, position: int) -> Iterator[HeaderAndBytes]:
    """Header and bytes of each whole batch that reaches to `position` or beyond. DamagedBatchError at the first that is damaged."""
    records = fetched.records
    at, size, due, seen = 0, len(records), position, False
    while True:
        try:
            found = _batch_at(records, at, size)
        except CorruptBatchError as error:
            raise DamagedBatchError(partition, due, None, error.message) from error
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
                raise DamagedBatchError(partition, header.base_offset if believed else due, following, fault)
        due, seen = header.base_offset + header.last_offset_delta + 1, True
        yield header, batch
    if size and not seen:
        raise DamagedBatchError(partition, position, None, f"in {size} bytes there is no whole batch with this offset")


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
    """Whether a damaged batch that says it reaches to the position does not: a good one begins there."""
    return header.base_offset < position and after is not None and after[0].base_offset <= position and not verify_crc(batch)
