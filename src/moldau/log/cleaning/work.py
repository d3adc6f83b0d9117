"""A pass over one log, as the worker does it: the dirty part is read once for the map, then everything before its end is copied."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from fastcrc.crc32 import iscsi as crc32c

from moldau.log import names
from moldau.log.batches import BadBatchError, OldFormatError, header_at
from moldau.log.cache import SegmentCache
from moldau.log.cleaning.filtering import BatchFilter, MissingEntryError, TransactionFilter, marker_kind, records_of
from moldau.log.cleaning.groups import CleanedSegment, SegmentSizes, group_segments
from moldau.log.cleaning.key_map import KeyMap, UnreadableRecordsError
from moldau.log.cleaning.task import (
    BadBatch,
    CleaningTask,
    EntryMissing,
    GroupWritten,
    PassDone,
    PassMessage,
    SourceSegment,
    StorageFailed,
    encode_message,
)
from moldau.log.segment import Segment
from moldau.model.errors import ProtocolError, StorageError
from moldau.ports.background import WorkerTools
from moldau.ports.filesystem import File
from moldau.protocol.records.header import CRC_DATA_START, HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchHeader, peek_header, read_header

if TYPE_CHECKING:
    from moldau.ports.filesystem import Bytes

WINDOW_S = 0.3
LENGTH_MIN = HEADER_SIZE - LOG_OVERHEAD


class DamagedBatchError(BadBatchError):
    """A batch whose header makes sense, but whose checksum does not match."""

    def __init__(self, path: str, position: int, header: BatchHeader) -> None:
        super().__init__(path, position, header.base_offset, "checksum does not match")
        self.last_offset = header.last_offset


class Throttle:
    """Keeps what is read and written below a rate: after each piece it sleeps as long as the piece was too early."""

    def __init__(self, bytes_per_second: float, monotonic: Callable[[], float], sleep: Callable[[float], object]) -> None:
        self._rate = max(bytes_per_second, 1.0)
        self._monotonic = monotonic
        self._sleep = sleep
        self._since = monotonic()
        self._bytes = 0

    def passed(self, count: int) -> None:
        """So many bytes were read or written."""
        self._bytes += count
        elapsed = self._monotonic() - self._since
        early = self._bytes / self._rate - elapsed
        if early > 0:
            self._sleep(early)
        if elapsed > WINDOW_S:  # what was not used is not saved up
            self._since = self._monotonic()
            self._bytes = 0


def chunks(
    file: File, position: int, end: int, offset: int, chunk_bytes: int, throttle: Throttle
) -> Iterator[tuple[bytes, int, list[tuple[int, BatchHeader]]]]:
    """Pieces of the file that begin and end with a batch: the bytes, their position, and where in them which batch begins.

    About `chunk_bytes` each, more for a longer batch. Checksums are compared. BadBatchError, OldFormatError, StorageError.
    """
    while position < end:
        data = file.pread(min(chunk_bytes, end - position), position)
        if len(data) >= HEADER_SIZE:
            size = header_at(file, data, 0, position, offset, end).size
            if size > len(data):
                data = file.pread(size, position)
        view = memoryview(data)
        found: list[tuple[int, BatchHeader]] = []
        at, length = 0, len(data)
        while length - at >= HEADER_SIZE:
            header = peek_header(data, at)
            base_offset, size, _, magic, crc, _, delta, *_ = header
            after = at + size + LOG_OVERHEAD
            if magic != MAGIC or size < LENGTH_MIN or base_offset < offset or delta < 0 or position + after > end:
                header_at(file, data, at, position + at, offset, end)  # says what is wrong with it
            if after > length:
                break
            if crc32c(view[at + CRC_DATA_START : after]) != crc:
                raise DamagedBatchError(file.path, position + at, header)
            found.append((at, header))
            at = after
            offset = base_offset + delta + 1
        if not found or (position + length == end and at < length):
            raise BadBatchError(file.path, position + at, offset, f"{length - at} bytes are left, a header takes {HEADER_SIZE}")
        throttle.passed(at)
        yield data, position, found
        position += at


def compact(task: bytes, tools: WorkerTools) -> Iterator[bytes]:
    """The work of a :class:`moldau.log.cleaning.task.CleaningTask`: a message for each group that is written, and one for the end."""
    try:
        for message in CleaningPass(CleaningTask.decode(task), tools).run():
            yield encode_message(message)
    except (BadBatchError, OldFormatError) as error:
        last_offset = error.last_offset if isinstance(error, DamagedBatchError) else error.offset
        yield encode_message(BadBatch(error.path, error.position, error.offset, last_offset, error.reason))
    except MissingEntryError as error:
        yield encode_message(EntryMissing(error.offset))
    except StorageError as error:
        yield encode_message(StorageFailed(error.path, error.reason, error.no_space))


class CleaningPass:
    """One pass."""

    def __init__(self, task: CleaningTask, tools: WorkerTools) -> None:
        self._task = task
        self._files = tools.files
        self._monotonic = tools.monotonic
        self._throttle = Throttle(task.bytes_per_second, tools.monotonic, tools.sleep)
        self._map = KeyMap(task.map_bytes, task.map_load_factor)
        self._unreadable: set[int] = set()
        self._done = PassDone(task.end_offset)

    def run(self) -> Iterator[PassMessage]:
        """Do it. BadBatchError, OldFormatError, MissingEntryError, StorageError."""
        task, done, begun = self._task, self._done, self._monotonic()
        done.end_offset = self._fill_map()
        done.keys = len(self._map)
        done.map_seconds = self._monotonic() - begun
        first = task.sources[0].base_offset if task.sources else 0
        batch_filter = BatchFilter(
            self._map,
            transactions := TransactionFilter(task.aborted, first),
            task.producers,
            self._unreadable,
            first_dirty=task.first_dirty,
            map_end=done.end_offset,
            now_ms=task.now_ms,
            delete_retention_ms=task.delete_retention_ms,
            decompressed_bytes_max=task.decompressed_bytes_max,
            counts=done,
        )
        sources = [source for source in task.sources if source.base_offset < done.end_offset]
        by_base = {source.base_offset: source for source in sources}
        for group in group_segments([self._sized(source) for source in sources], task.segment_bytes, task.index_bytes):
            written = self._copy_group([by_base[sized.base_offset] for sized in group], batch_filter, transactions)
            if written is not None:
                yield written
        done.seconds = self._monotonic() - begun
        yield done

    def _fill_map(self) -> int:
        """Put the keys of the dirty part into the map, as long as there is room; the offset up to which they are in it.

        The first batch is always taken, so that every pass gets on.
        """
        task, done = self._task, self._done
        transactions = TransactionFilter(task.aborted, task.first_dirty)
        end_offset = task.first_dirty
        for source in task.sources:
            if source.end_offset <= task.first_dirty:
                continue
            for data, _, found in self._dirty_chunks(source):
                done.bytes_mapped += len(data)
                for at, header in found:
                    if header.last_offset < task.first_dirty:
                        continue
                    if header.is_control:
                        _pass_marker(transactions, data, at, header)
                    elif not transactions.pass_data(header) and header.record_count:
                        if not self._map.take_room(header.record_count, anyway=end_offset == task.first_dirty):
                            return end_offset
                        self._add(data, at, header)
                    end_offset = header.last_offset + 1
            end_offset = source.end_offset
        return end_offset

    def _dirty_chunks(self, source: SourceSegment) -> Iterator[tuple[bytes, int, list[tuple[int, BatchHeader]]]]:
        task, position = self._task, 0
        if source.base_offset < task.first_dirty:
            segment = Segment(self._files, SegmentCache(self._files), task.folder, source.base_offset, source.size)
            found = segment.locate(task.first_dirty)
            segment.forget()
            position = source.size if found is None else found[0]
        return self._chunks(source, position)

    def _chunks(self, source: SourceSegment, position: int = 0) -> Iterator[tuple[bytes, int, list[tuple[int, BatchHeader]]]]:
        file = self._files.open(self._path(source, names.LOG))
        try:
            yield from chunks(file, position, source.size, source.base_offset, self._task.chunk_bytes, self._throttle)
        finally:
            file.release()

    def _add(self, data: bytes, at: int, header: BatchHeader) -> None:
        self._done.records_mapped += header.record_count
        try:
            records, start, end = records_of(data, at, header, self._task.decompressed_bytes_max)
            self._map.add_batch(header.base_offset, records, start, end, header.record_count)
        except UnreadableRecordsError:
            self._done.batches_unreadable += 1
            self._unreadable.add(header.base_offset)

    def _copy_group(self, group: list[SourceSegment], batch_filter: BatchFilter, transactions: TransactionFilter) -> GroupWritten | None:
        """Write the one segment that these become; None if there is nothing in them."""
        filled = [source for source in group if source.size]
        if not filled:
            return None
        task = self._task
        cleaned = CleanedSegment(self._files, task.folder, group[0].base_offset, task.index_interval_bytes)
        try:
            for source in filled:
                self._copy(source, cleaned, batch_filter, last=source is filled[-1])
            kept, transactions.kept = transactions.kept, []
            cleaned.finish(kept, self._files.modified_ms(self._path(filled[-1], names.LOG)))
        except BaseException:
            cleaned.discard()
            raise
        self._done.bytes_written += cleaned.size
        return GroupWritten(group, cleaned.size, *cleaned.largest_timestamp, cleaned.suffixes)

    def _copy(self, source: SourceSegment, cleaned: CleanedSegment, batch_filter: BatchFilter, *, last: bool) -> None:
        for data, position, found in self._chunks(source):
            view = memoryview(data)
            pieces: list[Bytes] = []
            start, end = -1, 0
            for at, header in found:
                end = at + header.size
                passed = batch_filter.pass_batch(data, at, header, last=last and position + end == source.size)
                if passed is True:
                    if start < 0:
                        start = at
                    cleaned.note(header)
                    continue
                if start >= 0:
                    pieces.append(view[start:at])
                    start = -1
                if passed is not False:
                    cleaned.note(read_header(passed))
                    pieces.append(passed)
            if start >= 0:
                pieces.append(view[start:end])
            cleaned.append(pieces)
            self._done.bytes_read += end
            self._throttle.passed(sum(map(len, pieces)))

    def _sized(self, source: SourceSegment) -> SegmentSizes:
        return SegmentSizes(
            source.base_offset,
            source.end_offset,
            source.size,
            self._index_bytes(source, names.INDEX),
            self._index_bytes(source, names.TIME_INDEX),
        )

    def _index_bytes(self, source: SourceSegment, suffix: str) -> int:
        try:
            return self._files.size(self._path(source, suffix))
        except FileNotFoundError:
            return 0

    def _path(self, source: SourceSegment, suffix: str) -> str:
        return f"{self._task.folder}/{names.file_name(source.base_offset, suffix)}"


def _pass_marker(transactions: TransactionFilter, data: bytes, at: int, header: BatchHeader) -> None:
    try:
        transactions.pass_marker(header, marker_kind(data, at) if header.record_count else None)
    except ProtocolError:  # the copying will say so
        return
