"""Finding records by time (mission A12): the first one that is not older than a timestamp, and the one with the largest.

The segment is found by its largest timestamp, the batch by the time index and the batches' headers, the record by looking into that one
batch, whose checksum is compared first. Timestamps need not rise with offsets: the answer is the first record in offset order.
"""

from collections.abc import Iterator
from typing import NamedTuple

from moldau.log.batches import BadBatchError, walk
from moldau.log.segment import Segment
from moldau.log.segments import Segments
from moldau.model.errors import CorruptBatchError, PeerError
from moldau.ports.filesystem import File
from moldau.protocol.records.header import BatchHeader, verify_crc

DECOMPRESSED_BYTES_MAX = 100 * 1024 * 1024
"""A batch that unpacks to more is not looked into."""


class TimestampOffset(NamedTuple):
    """A record's timestamp and offset, and the epoch of the leader that wrote it (-1 if unknown)."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


def first_not_older(segments: Segments, timestamp: int, start_offset: int, end_offset: int) -> TimestampOffset | None:
    """The first record from `start_offset` to before `end_offset` whose timestamp is at least `timestamp`. BadBatchError."""
    for slot in range(segments.slot_of(start_offset), len(segments)):
        segment = segments.items[slot]
        if segment.base_offset >= end_offset:
            break
        if segment.size and segment.largest_timestamp()[0] >= timestamp:
            first_offset = max(start_offset, segment.time_index.offset_before(timestamp))
            found = _first_in_segment(segment, timestamp, first_offset, start_offset, end_offset)
            if found is not None:
                return found
    return None


def largest(segments: Segments, start_offset: int, end_offset: int, written_offset: int) -> TimestampOffset | None:
    """The record with the largest timestamp, the first of several. None without timestamps. BadBatchError.

    Only a segment that reaches beyond one of the bounds has to be walked, and only if that is where its newest record lies.
    """
    best, newest, first_offset = None, -1, start_offset
    for slot in range(segments.slot_of(start_offset), len(segments)):
        segment = segments.items[slot]
        if segment.base_offset >= end_offset:
            break
        timestamp, reached = segment.largest_timestamp() if segment.size else (-1, start_offset)
        if timestamp <= newest:
            continue
        if segment.base_offset < start_offset or segments.end_of(slot, written_offset) > end_offset:
            reached = max(reached, start_offset)
            if _first_in_segment(segment, timestamp, reached, start_offset, end_offset) is None:
                timestamp, reached = _largest_within(segment, start_offset, end_offset), start_offset
        if timestamp > newest:
            best, newest, first_offset = segment, timestamp, reached
    return None if best is None else _first_in_segment(best, newest, first_offset, start_offset, end_offset)


def _largest_within(segment: Segment, start_offset: int, end_offset: int) -> int:
    newest, file = -1, segment.file()
    for position, header in walk(file, segment.index.position_before(start_offset), segment.size, segment.base_offset):
        if header.base_offset >= end_offset:
            break
        if header.base_offset >= start_offset:
            newest = max(newest, header.max_timestamp)
        elif header.last_offset >= start_offset:
            newest = max([newest, *(at for at, offset in _records(file, position, header) if offset >= start_offset)])
    return newest


def _first_in_segment(segment: Segment, timestamp: int, first_offset: int, start_offset: int, end_offset: int) -> TimestampOffset | None:
    file = segment.file()
    for position, header in walk(file, segment.index.position_before(first_offset), segment.size, segment.base_offset):
        if header.base_offset >= end_offset:
            return None
        if header.max_timestamp >= timestamp and header.last_offset >= start_offset:
            found = _first_in_batch(file, position, header, timestamp, start_offset)
            if found is not None and found.offset < end_offset:
                return found
    return None


def _first_in_batch(file: File, position: int, header: BatchHeader, timestamp: int, start_offset: int) -> TimestampOffset | None:
    for found, offset in _records(file, position, header):
        if found >= timestamp and offset >= start_offset:
            return TimestampOffset(found, offset, header.partition_leader_epoch)
    return None


def _records(file: File, position: int, header: BatchHeader) -> Iterator[tuple[int, int]]:
    """Timestamp and offset of each record in a batch. BadBatchError for a damaged one; CorruptBatchError for one that is as it was sent
    and cannot be unpacked: that is no reason to keep it from consumers."""
    batch = memoryview(file.pread(header.size, position))
    if not verify_crc(batch):
        raise BadBatchError(file.path, position, header.base_offset, "checksum does not match")
    from moldau.protocol.records.batch import iterate

    try:
        for record in iterate(batch, max_decompressed_bytes=DECOMPRESSED_BYTES_MAX):
            yield record.timestamp, record.offset
    except PeerError as error:
        raise CorruptBatchError(f"{file.path}: at byte {position}, offset {header.base_offset}: {error.message}") from error
