"""Checks of record batches that a follower has fetched from the leader of its partition, before they are written.

The leader has accepted these batches, and a follower that validated them again by its own rules would stop where its settings or its
knowledge of producers differ (KAFKA-9617, KAFKA-6003). So only what the leader cannot be asked about is checked here: that the bytes
arrived whole, and that offsets and leader epochs continue those of the log. Compaction leaves holes between offsets; they are accepted.
"""

from typing import NamedTuple

from moldau.model.errors import CorruptBatchError
from moldau.protocol.records.header import HEADER_SIZE, BatchHeader, read_header, verify_crc


class FetchedBatch(NamedTuple):
    """One whole batch, with the offset and the leader epoch that the leader gave it."""

    header: BatchHeader
    view: memoryview


def check_fetched(
    records: memoryview, partition: str, log_end_offset: int, latest_epoch: int, *, is_empty: bool
) -> tuple[list[FetchedBatch], bool]:
    """The batches in `records`, without a last one that is cut off: a fetch may end with one, but sends its first batch whole. And whether
    offsets are missing before some.

    `log_end_offset`, `latest_epoch`: where the log ends now. `is_empty`: the log has no batch; then the first batch may begin before its
    end, which is in the middle of that batch if the leader's log starts there (KAFKA-6975).
    CorruptBatchError if a batch is damaged, if its offsets are not after those before it, or if its leader epoch is an earlier one.
    """
    found: list[FetchedBatch] = []
    has_holes = False
    position, left, next_offset = 0, len(records), log_end_offset
    while left >= HEADER_SIZE:
        header = read_header(records, position)
        if header.size > left:
            break
        view = records[position : position + header.size]
        if not verify_crc(view):
            raise CorruptBatchError(f"{partition}: fetched batch at offset {header.base_offset}: checksum does not match")
        reaches_end = is_empty and not found and header.last_offset >= log_end_offset
        if header.last_offset_delta < 0 or (header.base_offset < next_offset and not reaches_end) or header.base_offset < 0:
            raise CorruptBatchError(
                f"{partition}: fetched batch with offsets {header.base_offset} to {header.last_offset}, the log ends at {next_offset}"
            )
        if 0 <= header.partition_leader_epoch < latest_epoch:
            raise CorruptBatchError(
                f"{partition}: fetched batch at offset {header.base_offset} has leader epoch {header.partition_leader_epoch}, "
                f"the log has {latest_epoch}"
            )
        found.append(FetchedBatch(header, view))
        has_holes |= header.base_offset > next_offset
        position, left = position + header.size, left - header.size
        next_offset, latest_epoch = header.last_offset + 1, max(latest_epoch, header.partition_leader_epoch)
    if left and not found:
        raise CorruptBatchError(f"{partition}: {left} bytes were fetched for offset {log_end_offset}, which are no whole batch")
    return found, has_holes
