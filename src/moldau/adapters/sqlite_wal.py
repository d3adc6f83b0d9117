"""What a write-ahead log of SQLite's holds that SQLite will not use. Reads headers only.

SQLite takes the log's frames up to the first whose checksum is wrong and drops the rest without a word: so a transaction ends that a power
cut has interrupted. It is also how finished transactions are lost when a byte of an earlier one changes. The two can be told apart: a
transaction is synced before the next one begins, so no more than one can be unfinished.

Layout: 32 bytes of header, then frames of 24 bytes and a page. A frame is of this log if it carries the header's two salts (one left from
an earlier round has neither); it ends a transaction if its second number, the size of the database in pages, is not 0.
"""

import os
from struct import Struct

_HEADER = Struct(">8I")
_FRAME = Struct(">4I")
_MAGIC = (0x377F0682, 0x377F0683)
_FRAME_HEADER_BYTES = 24


def dropped_transactions(path: str, frames_used: int) -> int | None:
    """How many transactions there are in the frames after the first `frames_used`; None for a log whose header is damaged. OSError."""
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
        for position in range(_HEADER.size + frames_used * step, size - step + 1, step):
            _, pages, *found = _FRAME.unpack(os.pread(descriptor, _FRAME.size, position))
            if salts[0] != found[0] and salts[1] != found[1]:
                break
            ends += pages != 0
            unfinished = not pages
        return ends + unfinished
    finally:
        os.close(descriptor)


def _checksum(header: tuple[int, ...], *, swapped: bool) -> tuple[int, int]:
    """SQLite's own, over the header's first six numbers; `swapped`: taken as little-endian ones."""
    numbers = [int.from_bytes(number.to_bytes(4, "big"), "little") if swapped else number for number in header[:6]]
    first = second = 0
    for even, odd in zip(numbers[::2], numbers[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second
