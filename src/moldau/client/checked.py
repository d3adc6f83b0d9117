"""The batches that a fetch brought, each checked before anything of it is used. No I/O.

A broker sends batches as they lie on its disk and reads none of them, so the reader's check is the one that finds damage. The checksum
covers a batch from its attributes on; base offset and length lie before it, and are compared with the batches around them.
"""

from collections.abc import Iterator

from moldau.model.errors import CorruptBatchError
from moldau.model.identity import Offset, TopicPartition
from moldau.protocol.records.batch import batches
from moldau.protocol.records.header import BatchHeader, verify_crc

Batches = Iterator[tuple[BatchHeader, memoryview]]


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


def checked_batches(partition: TopicPartition, records: memoryview, position: int) -> Batches:
    """Header and bytes of each whole batch that reaches to `position` or beyond. DamagedBatchError at the first that is damaged."""
    following, seen = position, False
    rest = batches(records)
    try:
        for header, batch in rest:
            if header.last_offset < position and not seen:
                continue
            if seen and header.base_offset < following:
                raise DamagedBatchError(partition, following, None, f"it says that its offset is {header.base_offset}")
            if not verify_crc(batch):
                raise _damaged(partition, header.base_offset, following, _next_offset(rest, following))
            following, seen = header.last_offset + 1, True
            yield header, batch
    except DamagedBatchError:
        raise
    except CorruptBatchError as error:
        raise DamagedBatchError(partition, following, None, error.message) from error
    if records and not seen:
        raise DamagedBatchError(partition, position, None, f"in {len(records)} bytes there is no whole batch with this offset")


def _damaged(partition: TopicPartition, said: int, due: int, next_offset: int | None) -> DamagedBatchError:
    """The offset that a damaged batch says is told where it can be true: after a gap it helps more than the one that is due."""
    offset = said if due <= said and (next_offset is None or said < next_offset) else due
    return DamagedBatchError(partition, offset, next_offset, "its checksum does not match")


def _next_offset(rest: Batches, damaged: int) -> int | None:
    """Where the batch after the damaged one begins; nothing that the damaged one says of its offsets is believed."""
    try:
        header, batch = next(rest)
    except (StopIteration, CorruptBatchError):
        return None
    return header.base_offset if header.base_offset > damaged and verify_crc(batch) else None
