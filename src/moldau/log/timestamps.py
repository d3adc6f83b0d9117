"""Finding records by time: the first one that is not older than a timestamp, and the one with the largest.

The segment is found by its largest timestamp, the batch by the time index and the batches' headers, the record by looking into that one
batch, whose checksum is compared first. Timestamps need not rise with offsets: the answer is the first record in offset order.

**Work.** A walk over headers may be long, and a batch expensive to decompress. So a search is a generator for the broker's thread, which
yields its work in pieces, each a :class:`SearchStep` that any thread may run and that touches nothing but its file; the result is sent
back. None is yielded where the search only lets other work run. Between two steps segments may be rolled, removed, compacted
or cut. So the search looks at the log again after each: where its segment was removed it starts again at the first offset not searched yet,
and an offset that it found counts if it is still in the log.

**Headers that lie.** A header may promise a timestamp that no record has, or hide records that cannot be unpacked within the bound or are
malformed (the broker takes batches by their headers). Decompressing such a batch finds nothing. So after `VAIN_LOOKS_MAX` of them, and
for one that cannot be read, the header is taken as true: the answer is the batch's first offset with its largest timestamp. A consumer that
starts there misses nothing, and reads a little more than it asked for.
"""

from collections.abc import Generator
from typing import NamedTuple

from moldau.log.batches import UNREADABLE, BadBatchError, walk
from moldau.log.offsets import LogOffsets
from moldau.log.segment import Segment
from moldau.log.segments import Segments
from moldau.model.errors import PeerError
from moldau.ports.filesystem import File
from moldau.protocol.records.header import BatchHeader, verify_crc

VAIN_LOOKS_MAX = 4
"""Batches of a segment that may be searched without a result before a header is taken as true."""
HEADERS_AT_A_TIME = 4000
"""Headers of a piece: some milliseconds."""
_LEAST = -(1 << 64)
SEGMENTS_AT_A_TIME = 32
"""Segments that are skipped before other work runs: the first access to each reads its index."""


class TimestampOffset(NamedTuple):
    """A record's timestamp and offset, and the epoch of the leader that wrote it (-1 if unknown)."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


class SearchProgress(NamedTuple):
    """How far a piece of work came. `position` is -1 at the end of the segment or beyond the last offset that is asked for."""

    position: int
    offset: int
    """The least that the batch at `position` may begin with."""
    in_vain: bool = False
    """Whether the last batch was decompressed and had no such record."""
    found: TimestampOffset | None = None
    newest: int = -1
    """The largest timestamp seen, for who asked for that."""


class SearchBounds(NamedTuple):
    """Offsets that are asked for, from `start` to before `end`, and how much of a batch is unpacked at most."""

    start: int
    end: int
    decompressed_bytes_max: int


class SearchStep:
    """A walk over some batches of a segment. The file is retained while it waits and runs; `run` may be called on any thread."""

    __slots__ = ("_bounds", "_end", "_looks_left", "_offset", "_position", "_timestamp", "file")

    def __init__(
        self, file: File, position: int, end: int, offset: int, bounds: SearchBounds, timestamp: int | None, looks_left: int
    ) -> None:
        """From `position`, where a batch of at least `offset` begins, to `end`. Without a `timestamp`: find the largest."""
        self.file = file
        self._position = position
        self._end = end
        self._offset = offset
        self._bounds = bounds
        self._timestamp = timestamp
        self._looks_left = looks_left

    def run(self) -> SearchProgress:
        """Do it. BadBatchError, OldFormatError, StorageError."""
        start, end, _ = self._bounds
        timestamp, newest, left = self._timestamp, -1, HEADERS_AT_A_TIME
        for position, header in walk(self.file, self._position, self._end, self._offset):
            if header.base_offset >= end:
                return SearchProgress(-1, header.base_offset, newest=newest)
            if left == 0:
                return SearchProgress(position, header.base_offset, newest=newest)
            left -= 1
            if header.last_offset < start:
                continue
            if timestamp is None:
                inside = header.base_offset >= start
                newest = max(newest, header.max_timestamp if inside else self._newest_in(position, header))
            elif header.max_timestamp >= timestamp:
                found = self._first_in(position, header, timestamp)
                if found is None or found.offset < end:
                    return SearchProgress(position + header.size, header.last_offset + 1, in_vain=found is None, found=found)
        return SearchProgress(-1, self._offset, newest=newest)

    def _first_in(self, position: int, header: BatchHeader, timestamp: int) -> TimestampOffset | None:
        start, _, _ = self._bounds
        first, epoch = max(header.base_offset, start), header.partition_leader_epoch
        believed = TimestampOffset(header.max_timestamp, first, epoch)
        from moldau.protocol.records.skim import first_at_least

        if self._looks_left <= 0 or (header.timestamp_type_is_log_append and header.record_count == header.last_offset_delta + 1):
            return believed
        try:
            appended = header.timestamp_type_is_log_append
            least = _LEAST if appended else timestamp - header.base_timestamp
            found = first_at_least(self._records(position, header), header.record_count, least, first - header.base_offset)
        except BadBatchError:
            raise
        except PeerError:
            return believed
        if found is None:
            return None
        return TimestampOffset(header.max_timestamp if appended else header.base_timestamp + found[0], header.base_offset + found[1], epoch)

    def _newest_in(self, position: int, header: BatchHeader) -> int:
        """Of the records from the start on in the batch that holds it."""
        from moldau.protocol.records.skim import skim

        if header.timestamp_type_is_log_append:
            return header.max_timestamp
        start, base = self._bounds.start - header.base_offset, header.base_timestamp
        try:
            records = skim(self._records(position, header), header.record_count)
            return max((base + timestamp for timestamp, offset, _ in records if offset >= start), default=-1)
        except BadBatchError:
            raise
        except PeerError:
            return header.max_timestamp

    def _records(self, position: int, header: BatchHeader) -> bytes:
        """The records of a batch, unpacked. BadBatchError for a damaged one; another PeerError for one that is as it was sent and cannot be
        unpacked: that is no reason to keep it from consumers."""
        batch = memoryview(self.file.pread(header.size, position))
        if len(batch) < header.size or not verify_crc(batch):
            raise BadBatchError(self.file.path, position, header.base_offset, "checksum does not match")
        from moldau.protocol.records.batch import decompressed_records

        return decompressed_records(batch, header, self._bounds.decompressed_bytes_max)


TimeSearch = Generator[SearchStep | None, SearchProgress | None, TimestampOffset | None]
"""See the module. What a piece raises is thrown into it."""


class _SegmentGoneError(Exception):
    """The segment that is being searched is no longer, or not wholly, part of the log."""


class SearchedLog:
    """What a search sees of a log; it may change between two steps."""

    __slots__ = ("_decompressed_bytes_max", "offsets", "segments")

    def __init__(self, segments: Segments, offsets: LogOffsets, decompressed_bytes_max: int) -> None:
        self._decompressed_bytes_max = decompressed_bytes_max
        self.segments = segments
        self.offsets = offsets

    def bounds(self, end_offset: int) -> SearchBounds:
        """What is there now of what was asked for."""
        return SearchBounds(self.offsets.start_offset, min(end_offset, self.offsets.log_end_offset), self._decompressed_bytes_max)

    def check(self, segment: Segment, size: int) -> None:
        """The first `size` bytes of the segment are part of the log. _SegmentGoneError."""
        segments = self.segments
        if segments.items[segments.slot_of(segment.base_offset)] is not segment or segment.size < size:
            raise _SegmentGoneError


def first_not_older(log: SearchedLog, timestamp: int, end_offset: int) -> TimeSearch:
    """The first record before `end_offset` whose timestamp is at least `timestamp`. BadBatchError, OldFormatError, StorageError."""
    segments, offset, passed = log.segments, log.offsets.start_offset, 0
    while True:
        bounds = log.bounds(end_offset)
        offset = max(offset, bounds.start)
        slot = segments.slot_of(offset)
        segment = segments.items[slot]
        if max(offset, segment.base_offset) >= bounds.end:
            return None
        after = segments.end_of(slot, log.offsets.log_end_offset)
        if segment.size and segment.largest_timestamp()[0] >= timestamp:
            first_offset = max(offset, segment.offset_before(timestamp))
            try:
                found = yield from _first_in_segment(log, segment, timestamp, first_offset, bounds)
            except _SegmentGoneError:
                continue
            if found is not None:
                if log.offsets.start_offset <= found.offset < log.offsets.log_end_offset:
                    return found
                continue
        offset = after
        passed += 1
        if passed % SEGMENTS_AT_A_TIME == 0:
            yield None


def largest(log: SearchedLog, end_offset: int) -> TimeSearch:
    """The record before `end_offset` with the largest timestamp, the first of several. None without timestamps. Errors as above."""
    while True:
        try:
            found = yield from _largest(log, end_offset)
        except _SegmentGoneError:
            continue
        if found is None or log.offsets.start_offset <= found.offset < log.offsets.log_end_offset:
            return found


def _largest(log: SearchedLog, end_offset: int) -> TimeSearch:
    """Only a segment that reaches beyond one of the bounds has to be walked, and only if that is where its newest record lies."""
    segments, bounds = log.segments, log.bounds(end_offset)
    best, newest, first_offset = None, -1, bounds.start
    offset, passed = bounds.start, 0
    while True:
        slot = segments.slot_of(offset)
        segment = segments.items[slot]
        if max(offset, segment.base_offset) >= bounds.end:
            break
        offset = segments.end_of(slot, log.offsets.log_end_offset)
        timestamp, reached = segment.largest_timestamp() if segment.size else (-1, bounds.start)
        if timestamp > newest:
            if segment.base_offset < bounds.start or offset > bounds.end:
                reached = max(reached, bounds.start)
                if (yield from _first_in_segment(log, segment, timestamp, reached, bounds)) is None:
                    timestamp, reached = (yield from _largest_within(log, segment, bounds)), bounds.start
            if timestamp > newest:
                best, newest, first_offset = segment, timestamp, reached
        passed += 1
        if passed % SEGMENTS_AT_A_TIME == 0:
            yield None
    return None if best is None else (yield from _first_in_segment(log, best, newest, first_offset, bounds))


def _first_in_segment(log: SearchedLog, segment: Segment, timestamp: int, first_offset: int, bounds: SearchBounds) -> TimeSearch:
    position, offset = segment.walk_from(first_offset), segment.base_offset
    end, looks_left = segment.size, VAIN_LOOKS_MAX
    while position >= 0:
        reached = yield from _run(log, segment, SearchStep(segment.file(), position, end, offset, bounds, timestamp, looks_left), end)
        if reached.found is not None:
            return reached.found
        position, offset = reached.position, reached.offset
        looks_left -= reached.in_vain
    return None


def _largest_within(log: SearchedLog, segment: Segment, bounds: SearchBounds) -> Generator[SearchStep | None, SearchProgress | None, int]:
    position, offset = segment.walk_from(bounds.start), segment.base_offset
    newest, end = -1, segment.size
    while position >= 0:
        reached = yield from _run(log, segment, SearchStep(segment.file(), position, end, offset, bounds, None, 0), end)
        newest = max(newest, reached.newest)
        position, offset = reached.position, reached.offset
    return newest


def _run(
    log: SearchedLog, segment: Segment, piece: SearchStep, end: int
) -> Generator[SearchStep | None, SearchProgress | None, SearchProgress]:
    """Have a piece run that walks up to `end`. Damage in what is no longer part of the log is ignored. _SegmentGoneError."""
    try:
        reached = yield piece
    except UNREADABLE:
        log.check(segment, end)
        raise
    assert reached is not None, "a piece comes back as what it has reached"
    if reached.found is None:
        log.check(segment, end)
    return reached
