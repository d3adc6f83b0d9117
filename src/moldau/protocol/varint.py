"""Integers of variable length, and tagged fields (KIP-482) of unknown numbers, which are made of them.

Records use the zigzag forms (0, -1, 1, -2 become 0, 1, 2, 3): varint for 32 bits, varlong for 64. Messages with flexible
versions use the unsigned form. The readers here are for general use; hot loops repeat the one-byte case in line.
"""

from moldau.model.errors import ProtocolError
from moldau.ports.filesystem import Bytes

VARINT_BYTES_MAX = 5
VARLONG_BYTES_MAX = 10


def read_uvarint(view: Bytes, position: int) -> tuple[int, int]:
    """Unsigned value of at most 32 bits and the position after it. ProtocolError at the end of `view` or beyond 32 bits."""
    if position < len(view) and view[position] < 0x80:
        return view[position], position + 1
    value, after = _read(view, position, VARINT_BYTES_MAX)
    if value >> 32:
        raise ProtocolError(f"unsigned varint {value:#x} at byte {position} has more than 32 bits")
    return value, after


def read_varint(view: Bytes, position: int) -> tuple[int, int]:
    """Zigzag value of at most 32 bits and the position after it. ProtocolError as for `read_uvarint`."""
    value, after = read_uvarint(view, position)
    return (value >> 1) ^ -(value & 1), after


def read_varlong(view: Bytes, position: int) -> tuple[int, int]:
    """Zigzag value of at most 64 bits and the position after it. ProtocolError at the end of `view` or beyond 64 bits."""
    value, after = _read(view, position, VARLONG_BYTES_MAX)
    if value >> 64:
        raise ProtocolError(f"varlong {value:#x} at byte {position} has more than 64 bits")
    return (value >> 1) ^ -(value & 1), after


def _read(view: Bytes, position: int, bytes_max: int) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(view[position : position + bytes_max]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position + index + 1
    if len(view) - position < bytes_max:
        raise ProtocolError(f"varint at byte {position} is cut off by the end of {len(view)} bytes")
    raise ProtocolError(f"varint at byte {position} is longer than {bytes_max} bytes")


def uvarint(value: int) -> bytes:
    """Bytes of an unsigned value."""
    if value < 0x80:
        return _ONE_BYTE[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def varint(value: int) -> bytes:
    """Bytes of a signed value of 32 bits, zigzag."""
    return uvarint((value << 1) ^ (value >> 31))


def varlong(value: int) -> bytes:
    """Bytes of a signed value of 64 bits, zigzag."""
    return uvarint((value << 1) ^ (value >> 63))


_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))


HEADER_TAGS_MAX = 1000
"""Tagged fields in the header of a request or response; no version has more than one."""


def skip_tags(data: Bytes, position: int, count_max: int = HEADER_TAGS_MAX) -> int:
    """Position after a section of tagged fields none of which is known here. ProtocolError if it is cut off or has too many."""
    count, position = read_uvarint(data, position)
    if count > count_max:
        raise ProtocolError(f"{count} tagged fields, at most {count_max} are taken")
    return skip_fields(data, position, count)


def skip_fields(data: Bytes, position: int, count: int) -> int:
    """Position after `count` tagged fields. ProtocolError if they are cut off."""
    for _ in range(count):
        _, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        position += size
    if position > len(data):
        raise ProtocolError(f"tagged fields end at byte {position} of {len(data)}")
    return position
