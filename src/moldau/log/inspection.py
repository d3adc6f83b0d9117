"""Walking over a segment file that may be damaged, to show or to check all of it.

Other walks end at the first bad batch. This one names it and continues after it wherever its header still says where it ends.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from moldau.log.batches import BadBatchError, OldFormatError, Span, scan
from moldau.model.errors import CorruptBatchError
from moldau.ports.filesystem import File
from moldau.protocol.records.batch import Record, iterate
from moldau.protocol.records.header import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, read_header

DECOMPRESSED_BYTES_MAX = 256 * 1024 * 1024
"""A batch that claims more is called damaged."""


@dataclass(frozen=True, slots=True)
class SoundBatch:
    """A batch whose header makes sense and whose checksum is right; `data` is valid until the next step."""

    span: Span
    header: BatchHeader
    data: memoryview


@dataclass(frozen=True, slots=True)
class DamagedBytes:
    """Bytes that are no batch that can be read."""

    position: int
    size: int
    offset: int
    """The offset that was due here."""
    reason: str
    header: BatchHeader | None
    """What the header says, if that makes sense in itself. Then the walk continues after the batch, else this is the end of it."""
    old_format: bool


def inspect(file: File, end: int, offset: int) -> Iterator[SoundBatch | DamagedBytes]:
    """All batches of a file of `end` bytes whose first offset is at least `offset`. StorageError."""
    position = 0
    while position < end:
        try:
            for span, header, data in scan(file, position, end, offset):
                yield SoundBatch(span, header, data)
                position, offset = span.position + span.size, span.last_offset + 1
        except (BadBatchError, OldFormatError) as error:
            damaged = _measure(file, position, end, offset, error)
            yield damaged
            position += damaged.size
            if damaged.header is not None:
                offset = damaged.header.last_offset + 1


def _measure(file: File, position: int, end: int, offset: int, error: BadBatchError | OldFormatError) -> DamagedBytes:
    """How far the damage at `position` reaches: over one batch, or to the end of the file."""
    data = file.pread(HEADER_SIZE, position)
    if isinstance(error, OldFormatError):
        size = int.from_bytes(data[8:12], "big") + LOG_OVERHEAD
        return DamagedBytes(position, size, error.offset, str(error), None, old_format=True)
    header: BatchHeader | None
    try:
        header = read_header(data)
    except CorruptBatchError:
        header = None
    if header is None or position + header.size > end or header.last_offset_delta < 0 or header.base_offset < offset:
        return DamagedBytes(position, end - position, offset, error.reason, None, old_format=False)
    return DamagedBytes(position, header.size, offset, error.reason, header, old_format=False)


def records_of(batch: SoundBatch) -> list[Record]:
    """The records of a batch, also those of a control batch. PeerError for a malformed one, CorruptBatchError for damaged compression."""
    return list(iterate(batch.data, max_decompressed_bytes=DECOMPRESSED_BYTES_MAX))
