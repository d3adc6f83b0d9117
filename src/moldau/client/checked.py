"""The batches that a fetch brought, each checked before anything of it is used. No I/O.

A broker sends batches as they lie on its disk and reads none of them, so the reader's check is the one that finds damage. The checksum
covers a batch from its attributes on; base offset and length lie before it, and are compared with the batches around them.
"""

from collections.abc import Iterator

from moldau.client.partition_requests import Fetched
from moldau.model.errors import CorruptBatchError
from moldau.model.identity import Offset, TopicPartition
from moldau.protocol.records.batch import batches
from moldau.protocol.records.header import BatchHeader, verify_crc

HeaderAndBytes = tuple[BatchHeader, memoryview]


DAMAGED = "is damaged"
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
    found, trouble = _framed(fetched.records)
    due, seen = position, False
    for number, (header, batch) in enumerate(found):
        after = found[number + 1] if number + 1 < len(found) else None
        if not seen and (header.last_offset < position or _lies_before(position, header, batch, after)):
            continue
        if header.base_offset < due and seen:
            raise DamagedBatchError(partition, due, _start_of(after, due), f"it says that its offset is {header.base_offset}")
        if not verify_crc(batch):
            following = _start_of(after, due)
            # The offset that it says is told where it can be true: after a gap it helps more than the one that is due.
            offset = header.base_offset if due <= header.base_offset < (following or fetched.high_watermark) else due
            raise DamagedBatchError(partition, offset, following, "its checksum does not match")
        if _is_ahead(header, due, after, fetched.high_watermark):
            raise DamagedBatchError(partition, due, _start_of(after, due), f"it says that its offset is {header.base_offset}")
        due, seen = header.last_offset + 1, True
        yield header, batch
    if trouble is not None:
        raise DamagedBatchError(partition, due, None, trouble.message) from trouble
    if fetched.records and not seen:
        raise DamagedBatchError(partition, position, None, f"in {len(fetched.records)} bytes there is no whole batch with this offset")


def _framed(records: memoryview) -> tuple[list[HeaderAndBytes], CorruptBatchError | None]:
    """What looks like whole batches, and why there are no more, if it is not that the bytes end."""
    found: list[HeaderAndBytes] = []
    try:
        found.extend(batches(records))
    except CorruptBatchError as error:
        return found, error
    return found, None


def _start_of(after: HeaderAndBytes | None, due: int) -> int | None:
    """Where the batch after a damaged one begins; nothing that the damaged one says of its offsets is believed."""
    return after[0].base_offset if after is not None and after[0].base_offset > due and verify_crc(after[1]) else None


def _lies_before(position: int, header: BatchHeader, batch: memoryview, after: HeaderAndBytes | None) -> bool:
    """Whether a damaged batch that says it reaches to the position does not: a good one begins there."""
    begins_before = header.base_offset < position
    return begins_before and not verify_crc(batch) and after is not None and after[0].base_offset <= position and verify_crc(after[1])


def _is_ahead(header: BatchHeader, due: int, after: HeaderAndBytes | None, end: int) -> bool:
    """Whether a batch after a gap says that it lies beyond the batch that follows it, or beyond the log's end."""
    if header.base_offset <= due:
        return False
    return header.last_offset >= end if after is None else due < after[0].base_offset <= header.last_offset
