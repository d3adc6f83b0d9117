"""What of a segment's indexes is believed after a crash. They have no checksums: what they say is compared with the log."""

from moldau.log.batches import BadBatchError, find
from moldau.log.producer_replay import marker_in
from moldau.log.segment import Segment
from moldau.log.transaction_index import AbortedTransaction
from moldau.ports.filesystem import File


def believe_indexes(segment: Segment, file: File, recovery_point: int) -> int:
    """Keep of the segment's indexes what speaks of synced batches and proves right; the position to walk from.

    The two files may have lost different parts. The walk has to begin no later than at the batch that the last time entry speaks of, since
    nothing is known of the timestamps after it.
    """
    index, time_index = segment.index, segment.time_index
    index.keep(index.rising_prefix())
    time_index.keep(time_index.rising_prefix())
    last_time = None
    if recovery_point > segment.base_offset:
        time_index.keep(time_index.search(recovery_point - 1 - segment.base_offset, 1))
        last_time = time_index.last()
    if last_time is not None:
        index.keep(index.search(last_time[1], 0))
        last = index.last()
        position = last[1] if last is not None else 0
        if _is_reached(segment, file, position, *last_time):
            return position
    index.clear()
    time_index.clear()
    return 0


def _is_reached(segment: Segment, file: File, position: int, timestamp: int, relative_offset: int) -> bool:
    """Whether a batch begins at `position`, and from there on one ends with the offset of a time entry and reaches its timestamp."""
    offset = segment.base_offset + relative_offset
    try:
        found = find(file, position, segment.size, segment.base_offset, offset)
    except BadBatchError:
        return False
    return found is not None and found[1].last_offset == offset and found[1].max_timestamp == timestamp


def believe_aborted(segment: Segment, file: File, recovery_point: int) -> None:
    """Keep of the index of aborted transactions what speaks of synced markers.

    All that was synced is sound. What follows it may be torn, and so look like an entry of an earlier marker; but no marker is there that
    has no entry already. So the last entry is looked up until one proves right.
    """
    index = segment.transaction_index
    index.truncate_to(recovery_point)
    while (entries := len(index)) and not _has_marker(segment, file, index[entries - 1]):
        index.keep(entries - 1)
        index.unsynced = True


def _has_marker(segment: Segment, file: File, aborted: AbortedTransaction) -> bool:
    """Whether the marker that the entry speaks of is in the log."""
    offset = aborted.last_offset
    for start in (segment.index.position_before(offset), 0):
        try:
            found = find(file, start, segment.size, segment.base_offset, offset)
        except BadBatchError:
            continue
        if found is not None and found[1].base_offset == offset:
            position, header = found
            marker = marker_in(memoryview(file.pread(header.size, position))) if header.is_control else None
            return header.producer_id == aborted.producer_id and marker is not None and marker[1]
    return False
