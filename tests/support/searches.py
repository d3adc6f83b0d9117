"""Look-ups by time, run to their end in one go."""

from moldau.log.partition_log import PartitionLog
from moldau.log.timestamps import TimeSearch, TimestampOffset
from moldau.model.errors import MoldauError

DECOMPRESSED_BYTES_MAX = 1 << 24


def offset_for_timestamp(
    log: PartitionLog, timestamp_ms: int, limit_offset: int | None = None, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> TimestampOffset | None:
    """The first record that is not older."""
    limit = log.log_end_offset if limit_offset is None else limit_offset
    return run_search(log.search_timestamp(timestamp_ms, limit, decompressed_bytes_max))


def max_timestamp_offset(log: PartitionLog, limit_offset: int | None = None) -> TimestampOffset | None:
    """The record with the largest timestamp."""
    limit = log.log_end_offset if limit_offset is None else limit_offset
    return run_search(log.search_largest_timestamp(limit, DECOMPRESSED_BYTES_MAX))


def run_search(search: TimeSearch) -> TimestampOffset | None:
    """What it finds."""
    try:
        piece = next(search)
        while True:
            if piece is None:
                piece = search.send(None)
                continue
            try:
                reached = piece.run()
            except MoldauError as error:
                piece = search.throw(error)
            else:
                piece = search.send(reached)
    except StopIteration as end:
        found: TimestampOffset | None = end.value
        return found
