"""Reading sealed segments in large pieces, and no faster than is allowed."""

from collections.abc import Callable, Iterator

from fastcrc.crc32 import iscsi as crc32c

from moldau.log.batches import BadBatchError, header_at
from moldau.ports.filesystem import File
from moldau.protocol.records.header import CRC_DATA_START, HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchHeader, peek_header

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
