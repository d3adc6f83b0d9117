"""Which neighbouring segments become one, so that a log that is compacted again and again does not end as many small files."""

from collections.abc import Sequence
from typing import NamedTuple

RELATIVE_OFFSET_MAX = 2**31 - 1
SEGMENTS_MAX = 64
"""Of a group: it is swapped in on the broker's thread, with some renames for each segment."""


class Sized(NamedTuple):
    """A segment with what counts for its place: `end_offset` is where the next one begins."""

    base_offset: int
    end_offset: int
    size: int
    index_bytes: int
    time_index_bytes: int


def group_segments(segments: Sequence[Sized], segment_bytes: int, index_bytes: int) -> list[list[Sized]]:
    """The segments in their order, in groups that are, before anything is removed from them, no larger than one segment may be.

    Offsets in a segment are stored relative to its base in 31 bits, so a group spans no more.
    """
    groups: list[list[Sized]] = []
    log_size = index_size = time_index_size = 0
    for segment in segments:
        group = groups[-1] if groups else []
        log_size += segment.size
        index_size += segment.index_bytes
        time_index_size += segment.time_index_bytes
        fits = (
            0 < len(group) < SEGMENTS_MAX
            and log_size <= segment_bytes
            and max(index_size, time_index_size) <= index_bytes
            and (not segment.size or segment.end_offset - 1 - group[0].base_offset <= RELATIVE_OFFSET_MAX)
        )
        if fits:
            group.append(segment)
        else:
            groups.append([segment])
            log_size, index_size, time_index_size = segment.size, segment.index_bytes, segment.time_index_bytes
    return groups
