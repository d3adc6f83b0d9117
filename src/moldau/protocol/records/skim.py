"""Records read in part: no object is made of what is passed over.

`skim` jumps by the records' sizes and reads the first numbers of each: a record of 40 MB costs what one of 40 bytes does, and what follows
the key's length is neither read nor checked. The readers of values jump too, read past the numbers in between, and look at no header: half
the work of whole records.
"""

from collections.abc import Callable, Iterator

from moldau.protocol.records.walk import long_varint, refuse_record


def skim(data: bytes, count: int) -> Iterator[tuple[int, int, bool]]:
    """Timestamp delta and offset delta of each of `count` records, and whether its key is null.

    PeerError INVALID_RECORD at the first record that is malformed as far as it is read, or whose offset does not ascend.
    """
    start = p = index = 0
    last_offset = -1
    size = len(data)
    try:
        for index in range(count):  # noqa: B007 - for the message
            start = p
            n = data[p]
            p += 1
            if n >= 0x80:
                n, p = long_varint(data, p - 1)
            end = p + (n >> 1)
            if n & 1 or end > size:
                break
            timestamp = data[p + 1]
            p += 2
            if timestamp >= 0x80:
                timestamp, p = long_varint(data, p - 1)
            offset = data[p]
            p += 1
            if offset >= 0x80:
                offset, p = long_varint(data, p - 1)
            key = data[p]
            if offset & 1 or offset <= last_offset or p >= end:
                break
            last_offset = offset
            yield ~(timestamp >> 1) if timestamp & 1 else timestamp >> 1, offset >> 1, key == 1
            p = end
        else:
            return
    except IndexError:
        pass
    raise refuse_record(data, start, index)


def first_at_least(data: bytes, count: int, timestamp: int, offset: int) -> tuple[int, int] | None:
    """Timestamp delta and offset delta of the first record for which both are at least these. As `skim`, in one loop and without yields."""
    start = p = index = 0
    last_offset = -1
    size = len(data)
    wanted_offset = offset << 1
    try:
        for index in range(count):  # noqa: B007 - for the message
            start = p
            n = data[p]
            p += 1
            if n >= 0x80:
                n, p = long_varint(data, p - 1)
            end = p + (n >> 1)
            if n & 1 or end > size:
                break
            n = data[p + 1]
            p += 2
            if n >= 0x80:
                n, p = long_varint(data, p - 1)
            number = data[p]
            if number >= 0x80:
                after = data[p + 1]
                if after < 0x80:
                    number += (after << 7) - 0x80
                    p += 1
                else:
                    number, p = long_varint(data, p)
                    p -= 1
            if number & 1 or number <= last_offset or p + 1 >= end:
                break
            last_offset = number
            if number >= wanted_offset and (~(n >> 1) if n & 1 else n >> 1) >= timestamp:
                return (~(n >> 1) if n & 1 else n >> 1), number >> 1
            p = end
        else:
            return None
    except IndexError:
        pass
    raise refuse_record(data, start, index)


def read_values(data: bytes, count: int, add: Callable[[bytes | None], object]) -> None:
    """Call `add` with the value of each of the `count` records that fill `data`. PeerError INVALID_RECORD for a malformed record.

    What was added before such a record stays added.
    """
    start = end = number = 0
    try:
        for number in range(count):  # noqa: B007 - for the message
            start = p = end
            n = data[p]
            p += 1
            if n >= 0x80:
                n, p = _longer(data, p, n)
            if n & 1:
                break
            end = p + (n >> 1)
            p += 1
            while data[p] >= 0x80:  # the timestamp
                p += 1
            p += 1
            while data[p] >= 0x80:  # the offset
                p += 1
            p += 1
            n = data[p]
            p += 1
            if n != 1:  # the key, where there is one
                if n >= 0x80:
                    n, p = _longer(data, p, n)
                if n & 1:
                    break
                p += n >> 1
            n = data[p]
            p += 1
            if n == 1:
                if p >= end:
                    break
                add(None)
                continue
            if n >= 0x80:
                b = data[p]
                if b < 0x80:
                    n += (b << 7) - 0x80
                    p += 1
                else:
                    n, p = long_varint(data, p - 1)
            n = p + (n >> 1) if not n & 1 else end
            if n >= end:
                break
            add(data[p:n])
        else:
            if end == len(data):
                return
    except IndexError:
        pass
    raise refuse_record(data, start, number)


def _longer(data: bytes, position: int, first: int) -> tuple[int, int]:
    """The varint whose first byte was just read, and the position after it."""
    following = data[position]
    return (first + (following << 7) - 0x80, position + 1) if following < 0x80 else long_varint(data, position - 1)
