"""Checks of record batches that a follower has fetched from the leader of its partition, before they are written.

The leader has accepted these batches, and a follower that validated them again by its own rules would stop where its settings or its
knowledge of producers differ (KAFKA-9617, KAFKA-6003). So only what the leader cannot be asked about is checked here: that the bytes
arrived whole, and that offsets and leader epochs continue those of the log. Compaction leaves holes between offsets; they are accepted.
"""

from typing import NamedTuple

from moldau.model.errors import CorruptBatchError
from moldau.protocol.records.header import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, read_header, verify_crc

_new = tuple.__new__


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
        base_offset, epoch, delta, size = header[0], header[2], header[6], header[1] + LOG_OVERHEAD
        if size > left:
            break
        view = records[position : position + size]
        last_offset = base_offset + delta
        if not verify_crc(view):
            raise CorruptBatchError(f"{partition}: fetched batch at offset {base_offset}: checksum does not match")
        if base_offset != next_offset or delta < 0:
            reaches_end = is_empty and not found and last_offset >= log_end_offset
            if delta < 0 or (base_offset < next_offset and not reaches_end) or base_offset < 0:
                raise CorruptBatchError(
                    f"{partition}: fetched batch with offsets {base_offset} to {last_offset}, the log ends at {next_offset}"
                )
            has_holes |= base_offset > next_offset
        if epoch < latest_epoch and epoch >= 0:
            raise CorruptBatchError(
                f"{partition}: fetched batch at offset {base_offset} has leader epoch {epoch}, the log has {latest_epoch}"
            )
        found.append(_new(FetchedBatch, (header, view)))
        position, left = position + size, left - size
        next_offset = last_offset + 1
        if epoch > latest_epoch:
            latest_epoch = epoch
    if left and not found:
        raise CorruptBatchError(f"{partition}: {left} bytes were fetched for offset {log_end_offset}, which are no whole batch")
    return found, has_holes
