"""What one answer of a source has of a partition."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from moldau.mirror.partitions import Halt, Position, SourcePartition
from moldau.model.errors import CorruptBatchError
from moldau.protocol.records.header import HEADER_SIZE, BatchHeader, read_header, verify_crc

Batch = tuple[BatchHeader, memoryview]


class Fetched(NamedTuple):
    """What one answer has of a partition."""

    batches: list[Batch]
    """Whole, in the memory that they were received in, which is the mirror's; with right checksums where these are looked at."""
    records: memoryview
    """The same in one piece."""
    aborted: Sequence[Any]
    """Transactions of which all records are to be left out: `producer_id`, `first_offset`."""
    position: Position
    """After the batches."""
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


def nothing_from(position: Position) -> Fetched:
    """Of a partition of which nothing was fetched yet."""
    return Fetched([], memoryview(b""), (), position, -1, -1, -1)


class Limits(NamedTuple):
    """How much is fetched at once, over how many connections to a broker, and how long a reader waits after a failure."""

    response_bytes: int = 16 * 1024 * 1024
    """Over one connection, at first."""
    partition_bytes: int = 1024 * 1024
    """At first."""
    back_off_s: float = 1.0
    """The longest pause of a partition that the source does not give."""
    connections: int = 1
    """To each leader, at most."""
    partition_bytes_max: int = 1024 * 1024
    """What `partition_bytes` become where answers take long to come."""

    def response_bytes_with(self, partition_bytes: int) -> int:
        """With so many of a partition: less in proportion to it, and no less than that."""
        return max(min(self.response_bytes, self.response_bytes * partition_bytes // self.partition_bytes), partition_bytes)


LIMITS = Limits()


class Taker(Protocol):
    """The mirror, which takes what was fetched."""

    def take(self, partition: SourcePartition, fetched: Fetched) -> bool:
        """Take what an answer has, perhaps no batches. Whether there is room for more now: otherwise `SourceReader.resume`."""

    def halt(self, partition: SourcePartition, why: Halt, reason: str) -> None:
        """The partition is not fetched any more."""


def whole_batches(records: memoryview, position: Position, *, verifies: bool) -> tuple[list[Batch], memoryview, Position]:
    """The batches of an answer but for a last one that is cut off, those before the position left out; the bytes of these; and the position
    after them.

    CorruptBatchError, only where no whole batch comes before: what is whole is mirrored first.
    """
    found: list[Batch] = []
    at, start, end = 0, 0, len(records)
    while at < end:
        try:
            header = read_header(records, at)
            if at + header.size > end:
                break
            batch = records[at : at + header.size]
            if verifies and not verify_crc(batch):
                raise CorruptBatchError(f"the batch at offset {header.base_offset} has a wrong checksum")
        except CorruptBatchError:
            if found or end - at < HEADER_SIZE:
                break
            raise
        at += header.size
        if header.last_offset >= position.offset:
            found.append((header, batch))
            position = Position(header.last_offset + 1, header.partition_leader_epoch)
        elif not found:
            start = at
    return found, records[start:at], position
