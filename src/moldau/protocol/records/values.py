"""The values of a batch's records and nothing else, for readers that want no more: half the work of whole records.

The loop jumps from record to record by their sizes, reads past the numbers in between, and looks at no header.
"""

from collections.abc import Callable

from moldau.protocol.records.walk import long_varint, refuse_record


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
