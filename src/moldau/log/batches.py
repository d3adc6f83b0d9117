"""Walking over the batches of a segment file, by their headers alone or with their checksums.

A walk reads windows of the file and yields position and header of each batch. It ends with :class:`BadBatchError` where the bytes cannot
be a batch (:func:`walk`) or do not match their checksum (:func:`scan`), naming file, position and the offset that was due there.

Invariant: what a walk yields lies wholly before `end`, has at least a header's size, and offsets rise from batch to batch.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from moldau.model.errors import CorruptBatchError, ErrorCode, StorageError
from moldau.ports.filesystem import File
from moldau.protocol.records.header import HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchHeader, read_header, verify_crc

_START = Struct(">qiib")
_OLD_CRC = Struct(">I")
_OLD_SIZE_MIN = 14
"""Bytes after the length in the smallest message of the formats 0 and 1."""

_span = tuple.__new__

WALK_WINDOW = 4096
SCAN_WINDOW = 1024 * 1024


class Span(NamedTuple):
    """Where a batch lies in its file, and which offsets it takes."""

    position: int
    size: int
    base_offset: int
    last_offset: int


class BadBatchError(CorruptBatchError):
    """Bytes of a segment that should be a batch and are not: where, and which offset was due."""

    def __init__(self, path: str, position: int, offset: int, reason: str) -> None:
        super().__init__(f"{path}: at byte {position}, offset {offset}: {reason}")
        self.path = path
        self.position = position
        self.offset = offset
        self.reason = reason


class OldFormatError(StorageError):
    """A batch of message format 0 or 1, which Moldau does not read. Found at the start, it keeps its partition offline."""

    def __init__(self, path: str, position: int, offset: int, magic: int) -> None:
        super().__init__(f"batch of message format {magic} at byte {position}, offset {offset}; only format 2 can be read", path=path)
        self.position = position
        self.offset = offset
        self.code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


UNREADABLE = (BadBatchError, OldFormatError)
"""Errors that end one read and leave the log in service; a disk that fails is another StorageError."""


def walk(file: File, position: int, end: int, offset: int) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch from `position` to `end`, of which the first has a base offset of at least `offset`.

    Reads headers only: about 4 KB at once, and one header per batch where batches are longer. Cost: about 1 us per batch.
    """
    window, start = b"", position
    while position < end:
        at = position - start
        if at + HEADER_SIZE > len(window):
            window, start, at = file.pread(WALK_WINDOW, position), position, 0
        header = header_at(file, window, at, position, offset, end)
        yield position, header
        position += header.batch_length + LOG_OVERHEAD
        offset = header.base_offset + header.last_offset_delta + 1


def scan(file: File, position: int, end: int, offset: int) -> Iterator[tuple[Span, BatchHeader, memoryview]]:
    """As :func:`walk`, with every batch read whole and its checksum compared; yields its bytes too, valid until the next step."""
    window, start = memoryview(b""), position
    while position < end:
        at = position - start
        if at + HEADER_SIZE > len(window):
            window, start, at = memoryview(file.pread(min(SCAN_WINDOW, end - position), position)), position, 0
        header = header_at(file, window, at, position, offset, end)
        size, last_offset = header.batch_length + LOG_OVERHEAD, header.base_offset + header.last_offset_delta
        batch = window[at : at + size]
        if len(batch) < size:
            window, start = memoryview(file.pread(min(max(SCAN_WINDOW, size), end - position), position)), position
            batch = window[:size]
        if len(batch) < size or not verify_crc(batch):
            raise BadBatchError(file.path, position, header.base_offset, "checksum does not match")
        span: Span = _span(Span, (position, size, header.base_offset, last_offset))
        yield span, header, batch
        position += size
        offset = last_offset + 1


def find(file: File, position: int, end: int, offset: int, wanted: int) -> tuple[int, BatchHeader] | None:
    """The first batch from `position` on that holds `wanted` or, if that was compacted away, what follows it."""
    for found in walk(file, position, end, offset):
        if found[1].last_offset >= wanted:
            return found
    return None


def header_at(file: File, window: bytes | memoryview, at: int, position: int, offset: int, end: int) -> BatchHeader:
    """The header `at` this place of a window, which is at `position` of the file; `offset` and `end` as for :func:`walk`. BadBatchError."""
    try:
        header = read_header(window, at)
    except CorruptBatchError as error:
        raise _bad_header(file, position, offset, end) from error
    if header.base_offset < offset or header.last_offset_delta < 0 or position + header.batch_length + LOG_OVERHEAD > end:
        raise _bad_header(file, position, offset, end)
    return header


def _bad_header(file: File, position: int, offset: int, end: int) -> BadBatchError | OldFormatError:
    """Why the bytes at `position` are no batch. Garbage may look like an old format, so that is believed only with its own checksum."""
    data = file.pread(HEADER_SIZE, position)
    if len(data) > LOG_OVERHEAD + 4:
        base, length, _, magic = _START.unpack_from(data)
        if magic in (0, 1) and _OLD_SIZE_MIN <= length <= end - position - LOG_OVERHEAD:
            message = file.pread(length, position + LOG_OVERHEAD)
            if crc32(message[4:]) == _OLD_CRC.unpack_from(message)[0]:
                return OldFormatError(file.path, position, base, magic)
        if length + LOG_OVERHEAD < HEADER_SIZE:
            return BadBatchError(file.path, position, offset, f"a batch length of {length}")
        if base < offset:
            return BadBatchError(file.path, position, offset, f"base offset {base} where at least {offset} is due")
        if position + length + LOG_OVERHEAD > end:
            return BadBatchError(file.path, position, offset, f"{end - position} bytes of a batch of {length + LOG_OVERHEAD}")
        return BadBatchError(file.path, position, offset, f"no batch of format {MAGIC}")
    return BadBatchError(file.path, position, offset, f"{end - position} bytes are left, a header takes {HEADER_SIZE}")
