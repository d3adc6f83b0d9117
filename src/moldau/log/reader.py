"""Finding the bytes that answer a fetch: a range of one segment file, which then goes to the socket without passing through here.

A batch is sent whole from the one that holds the asked offset, also where that is not its first: clients skip what they did not ask for.
A range ends before the batch that holds the limit (the high watermark), at the end of the segment, or within the size asked for, and then
if possible where a batch ends.

Where a range ended, the next fetch usually begins, so that position is remembered and the next fetch needs neither index nor walk.
"""

from typing import TYPE_CHECKING, NamedTuple

from moldau.log.batches import UNREADABLE, BadBatchError, OldFormatError, walk
from moldau.log.offsets import LogOffsets
from moldau.log.segment import Segment
from moldau.log.segments import Segments
from moldau.model.errors import ErrorCode, PeerError
from moldau.ports.transport import FileRange
from moldau.protocol.records.header import HEADER_SIZE, LOG_OVERHEAD, read_header

if TYPE_CHECKING:
    from moldau.log.timestamps import SearchedLog, TimeSearch

POSITIONS_KEPT = 128

Place = tuple[Segment, int]


class ReadResult(NamedTuple):
    """What a fetch gets: a range of a file, which its receiver releases, and where it starts. No range: nothing to send."""

    records: FileRange | None
    position: int
    segment: Segment | None = None


_NOTHING = ReadResult(None, -1)


class LogReader:
    """Reads of one log.

    Invariants: a remembered position is the start of the batch with that base offset, or the written end of the log.
    `bad` maps the first offset of each batch known to be damaged to its last.
    """

    __slots__ = ("_offsets", "_positions", "_segments", "bad", "holes_allowed", "partition")

    def __init__(self, partition: str, offsets: LogOffsets, segments: Segments) -> None:
        self.partition = partition
        self._offsets = offsets
        self._segments = segments
        self._positions: dict[int, Place] = {}
        self.bad: dict[int, int] = {}
        self.holes_allowed = True
        """Whether offsets may be missing: the log was compacted, or a loss was accepted. Otherwise a hole is damage that no read skips."""

    def read(self, offset: int, max_bytes: int, limit_offset: int, *, at_least_one: bool) -> ReadResult:
        """The bytes of one segment from the batch that holds `offset` to before the one that holds `limit_offset`, `max_bytes` at most.

        `at_least_one` gives the first batch whole even if it is longer. None where nothing lies before the limits.
        PeerError: OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE.
        """
        log_end_offset = self._offsets.log_end_offset
        if not self._offsets.start_offset <= offset <= log_end_offset:
            raise PeerError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.partition}: offset {offset} is not in {self._offsets.start_offset}..{log_end_offset}",
            )
        limit = min(limit_offset, log_end_offset)
        if self.bad:
            limit = self._limit_before_bad(offset, limit)
        if offset >= limit:
            return _NOTHING
        place = self._place_of(offset)
        if place is None:
            return _NOTHING
        segment, position = place
        stop = self._stop(segment, limit, log_end_offset)
        length = stop - position
        if length > max_bytes:
            length = min(length, self._cut(segment, position, offset, max_bytes, at_least_one=at_least_one))
        if length <= 0:
            return _NOTHING
        return ReadResult(FileRange(segment.file(), position, length), position, segment)

    def end_of(self, read: ReadResult, limit_offset: int) -> int:
        """An offset before which all that was read lies: where it ended, as closely as the index says, which is not believed without a look
        at the batch: an end too early would leave out an aborted transaction.
        """
        assert read.segment is not None
        assert read.records is not None
        read.segment.find_indexes()
        index, end = read.segment.index, read.position + read.records.length
        slot = index.search(end - 1, 1)
        if slot < len(index):
            last_offset, position = index[slot]
            try:
                header = read_header(read.segment.file().pread(HEADER_SIZE, position))
            except PeerError:  # the index is wrong
                header = None
            if header is not None and header.last_offset == index.base_offset + last_offset:
                return min(limit_offset, header.base_offset)
        segments = self._segments
        return min(limit_offset, segments.end_of(segments.slot_of(read.segment.base_offset), limit_offset))

    def readable_bytes(self, offset: int, limit_offset: int, max_bytes: int) -> int:
        """How much `read`, called again and again, would give, up to `max_bytes`; all of it where `read` would raise."""
        log_end_offset = self._offsets.log_end_offset
        if not self._offsets.start_offset <= offset <= log_end_offset:
            return max_bytes
        limit = min(limit_offset, log_end_offset)
        if offset >= limit:
            return 0
        try:
            place = self._place_of(offset)
            if place is None:
                return 0
            segment, position = place
            total = self._stop(segment, limit, log_end_offset) - position
            segments = self._segments
            for slot in range(segments.slot_of(segment.base_offset) + 1, len(segments)):
                if total >= max_bytes or segments.bases[slot] >= limit:
                    break
                total += self._stop(segments.items[slot], limit, log_end_offset)
        except PeerError:
            return max_bytes
        return max(0, min(total, max_bytes))

    def stretch(self, offset: int) -> tuple[FileRange, int]:
        """All that is written of the segment that holds `offset`, and the offset before which it ends; for reading in spite of damage.

        The caller releases the range. The first batches may lie before `offset`.
        """
        slot = self._segments.slot_of(offset)
        segment = self._segments.items[slot]
        return FileRange(segment.file(), 0, segment.size), self._segments.end_of(slot, self._offsets.log_end_offset)

    def search_timestamp(self, timestamp_ms: int, limit_offset: int, decompressed_bytes_max: int) -> "TimeSearch":
        """A search for the first record before `limit_offset` that is not older; see :mod:`moldau.log.timestamps` for how it is run.

        PeerError CORRUPT_MESSAGE when damage is in the way.
        """
        from moldau.log.timestamps import first_not_older

        return self._searching(first_not_older(self._searched(decompressed_bytes_max), timestamp_ms, limit_offset))

    def search_largest_timestamp(self, limit_offset: int, decompressed_bytes_max: int) -> "TimeSearch":
        """The same for the record with the largest timestamp."""
        from moldau.log.timestamps import largest

        return self._searching(largest(self._searched(decompressed_bytes_max), limit_offset))

    def _searched(self, decompressed_bytes_max: int) -> "SearchedLog":
        from moldau.log.timestamps import SearchedLog

        return SearchedLog(self._segments, self._offsets, decompressed_bytes_max)

    def _searching(self, steps: "TimeSearch") -> "TimeSearch":
        try:
            return (yield from steps)
        except UNREADABLE as error:
            raise self.corrupt(error.offset, error) from error

    def epoch_of_last_batch(self) -> int:
        """The leader epoch that the last batch carries, from the file; -1 where there is none or it cannot be read."""
        for segment in reversed(self._segments.items):
            if segment.size:
                last = segment.index.last()
                try:
                    *_, (_, header) = walk(segment.file(), 0 if last is None else last[1], segment.size, segment.base_offset)
                except UNREADABLE:
                    break
                return header.partition_leader_epoch
        return -1

    def remember(self, offset: int, segment: Segment, position: int) -> None:
        """A batch with this base offset starts, or is going to start, at this position."""
        if len(self._positions) >= POSITIONS_KEPT:
            self._positions.clear()
        self._positions[offset] = (segment, position)

    def remember_bad(self, first_offset: int, last_offset: int) -> None:
        """Readers must not get the batch with these offsets."""
        self.bad[first_offset] = max(first_offset, last_offset)

    def forget_positions(self) -> None:
        """Segments were cut or removed."""
        self._positions.clear()

    def corrupt(self, offset: int, error: BadBatchError | OldFormatError) -> PeerError:
        """Remember that the batch due at `error.offset` cannot be read; the error for who asked for `offset`."""
        self.remember_bad(error.offset, offset)
        if isinstance(error, OldFormatError):
            return PeerError(error.code, f"{self.partition}: {error}")
        return PeerError(ErrorCode.CORRUPT_MESSAGE, f"{self.partition}: {error.message}")

    def _place_of(self, offset: int) -> Place | None:
        """Where the batch that holds `offset`, or the next one, starts. PeerError CORRUPT_MESSAGE where the one that held it is missing."""
        try:
            place = self._find(offset)
            if not self.holes_allowed and (place is None or place[1] == 0 or offset not in self._positions):
                self._expect(offset, place)
            return place
        except UNREADABLE as error:
            raise self.corrupt(offset, error) from error

    def _expect(self, offset: int, place: Place | None) -> None:
        """BadBatchError unless the batch at this place holds `offset`."""
        if place is None:
            last = self._segments.active
            raise BadBatchError(last.path, last.size, offset, "the log ends before this offset")
        segment, position = place
        begin = read_header(segment.file().pread(HEADER_SIZE, position)).base_offset
        if begin > offset:
            raise BadBatchError(segment.path, position, offset, f"is missing; the next record has offset {begin}")

    def _find(self, offset: int) -> Place | None:
        place = self._positions.get(offset)
        if place is not None and place[1] < place[0].size:
            return place
        segments = self._segments
        for slot in range(segments.slot_of(offset), len(segments)):
            segment = segments.items[slot]
            if segment.size and offset <= segment.base_offset:
                return segment, 0
            found = segment.locate(offset)
            if found is not None:
                position, header = found
                if header.base_offset == offset:
                    self.remember(offset, segment, position)
                return segment, position
        return None

    def _stop(self, segment: Segment, limit: int, log_end_offset: int) -> int:
        """Where in `segment` the batch that holds `limit` starts; the segment's end if that is later."""
        segments = self._segments
        if limit >= segments.end_of(segments.slot_of(segment.base_offset), log_end_offset):
            if limit == log_end_offset and segment is segments.active:
                self.remember(log_end_offset, segment, segment.size)
            return segment.size
        try:
            place = self._find(limit)
        except UNREADABLE as error:
            self.remember_bad(error.offset, error.offset)
            return error.position if error.path == segment.path else segment.size
        return place[1] if place is not None and place[0] is segment else segment.size

    def _cut(self, segment: Segment, position: int, offset: int, max_bytes: int, *, at_least_one: bool) -> int:
        """How much of `segment` from `position` on fits into `max_bytes`; the first batch anyway if `at_least_one`."""
        segment.find_indexes()
        file = segment.file()
        indexed = min(segment.index.last_position_until(position + max_bytes), segment.size - LOG_OVERHEAD)
        if indexed > position:
            try:
                base_offset = read_header(file.pread(HEADER_SIZE, indexed)).base_offset
            except PeerError:  # the index is wrong
                base_offset = -1
            if base_offset > offset:
                self.remember(base_offset, segment, indexed)
                return indexed - position
        try:
            first = read_header(file.pread(HEADER_SIZE, position))
        except PeerError as error:
            raise self.corrupt(offset, BadBatchError(file.path, position, offset, error.message)) from error
        self._remember_next(segment, position + first.size, first.last_offset + 1)
        if first.size > max_bytes:
            return first.size if at_least_one else 0
        return max_bytes

    def _remember_next(self, segment: Segment, position: int, offset: int) -> None:
        """Remember where a batch ends, if the next one begins with the offset that is due."""
        data = segment.file().pread(8, position) if position < segment.size else b""
        if not data or int.from_bytes(data, "big", signed=True) == offset:
            self.remember(offset, segment, position)

    def _limit_before_bad(self, offset: int, limit: int) -> int:
        for first, last in self.bad.items():
            if first <= offset <= last:
                raise PeerError(ErrorCode.CORRUPT_MESSAGE, f"{self.partition}: the batch at offset {first} is damaged")
            if offset < first < limit:
                limit = first
        return limit
