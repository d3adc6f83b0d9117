"""What a write-ahead log of SQLite's holds that SQLite will not use. Reads headers only.

SQLite takes the log's frames up to the first whose checksum is wrong and drops the rest without a word: so a transaction ends that a power
cut has interrupted. It is also how finished transactions are lost when a byte of an earlier one changes. The two can be told apart. Of
several transactions that wait for one sync, as in a log of an earlier version, a power cut leaves whole blocks unwritten, zeros, since the
file was empty before; no block of a whole frame is zeros. Where none is missing, only one transaction can be unfinished.

Layout: 32 bytes of header, then frames of 24 bytes and a page. A frame is of this log if it carries the header's two salts (one left from
an earlier round has neither); it ends a transaction if its second number, the size of the database in pages, is not 0.
"""

import os
from struct import Struct

_HEADER = Struct(">8I")
_FRAME = Struct(">4I")
_MAGIC = (0x377F0682, 0x377F0683)
_FRAME_HEADER_BYTES = 24
_BLOCK_BYTES = 4096


def dropped_transactions(path: str, frames_used: int) -> int | None:
    """How many transactions there are in the frames after the first `frames_used`; None for a log whose header is damaged. OSError.

    Those that a power cut can have interrupted together are one.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return 0
    try:
        size = os.fstat(descriptor).st_size
        if size <= _HEADER.size:
            return 0
        header = _HEADER.unpack(os.pread(descriptor, _HEADER.size, 0))
        magic, _, page_bytes, _, *salts, _, _ = header
        if magic not in _MAGIC or _checksum(header, swapped=magic == _MAGIC[0]) != header[6:]:
            return None
        step = _FRAME_HEADER_BYTES + page_bytes
        ends, unfinished = 0, False
        start = _HEADER.size + frames_used * step
        for position in range(start, size - step + 1, step):
            _, pages, *found = _FRAME.unpack(os.pread(descriptor, _FRAME.size, position))
            if salts[0] != found[0] and salts[1] != found[1]:
                break
            if pages and not ends and _has_hole(descriptor, start, position + step):
                return 1
            ends += pages != 0
            unfinished = not pages
        return ends + unfinished
    finally:
        os.close(descriptor)


def _has_hole(descriptor: int, start: int, end: int) -> bool:
    """Whether one of the blocks that hold these bytes was never written."""
    first = start - start % _BLOCK_BYTES
    return any(os.pread(descriptor, _BLOCK_BYTES, place) == bytes(_BLOCK_BYTES) for place in range(first, end, _BLOCK_BYTES))


def _checksum(header: tuple[int, ...], *, swapped: bool) -> tuple[int, int]:
    """SQLite's own, over the header's first six numbers; `swapped`: taken as little-endian ones."""
    numbers = [int.from_bytes(number.to_bytes(4, "big"), "little") if swapped else number for number in header[:6]]
    first = second = 0
    for even, odd in zip(numbers[::2], numbers[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second
