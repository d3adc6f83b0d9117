"""What generated functions call: arrays of numbers, tagged fields, and the errors; the type of those that write; and how much may be
decoded of one request.

A few bytes of a request can become an object of several hundred bytes, and as much again in its answer. Two bounds keep that in check: on
the bytes that are not records (:mod:`moldau.protocol.framing`, :mod:`moldau.protocol.fast.cursor`), and on the elements of all its
arrays together, plain numbers too: for each number of a partition there may be an object in the answer. Tagged fields count as elements,
known or not: two bytes of a request cost as much time as a short text.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any, Never

from moldau.model.errors import ProtocolError
from moldau.ports.filesystem import Bytes
from moldau.protocol.varint import uvarint

NO_BOUND = 1 << 31


def too_many_elements(elements_max: int) -> Never:
    """Refuse a request with more elements."""
    raise ProtocolError(f"more than {elements_max} elements, the most that are taken (request.decoded.elements.max)")


class UnencodableError(ValueError):
    """A message holds something that the chosen version cannot carry, or that the wire type cannot: the caller's bug."""


Writer = Callable[[Any, Callable[[Bytes], None]], None]
"""Hands the parts of a message to a function, usually the `append` of a list."""

STRING_BYTES_MAX = 32767
_CACHED_COUNT_MAX = 64


class Unpackers(dict[int, Callable[[Bytes, int], tuple[Any, ...]]]):
    """By count: reads so many elements of one fixed-size type. Short arrays, nearly all there are, find theirs ready."""

    def __init__(self, code: str) -> None:
        self._code = code

    def __missing__(self, count: int) -> Callable[[Bytes, int], tuple[Any, ...]]:
        unpack = Struct(">" + _repeat(self._code, count)).unpack_from
        if count <= _CACHED_COUNT_MAX:
            self[count] = unpack
        return unpack


class Packers(dict[int, Callable[..., bytes]]):
    """By count: packs the fixed-size fields before an array, its length prefix and its elements in one go."""

    def __init__(self, prefix: str, prefix_fields: int, code: str, *, compact: bool) -> None:
        self._prefix = prefix
        self._prefix_fields = prefix_fields
        self._code = code
        self._compact = compact

    def __missing__(self, count: int) -> Callable[..., bytes]:
        if self._compact and count >= 127:
            return self._pack_long
        pack = Struct(">" + self._prefix + ("B" if self._compact else "i") + _repeat(self._code, count)).pack
        if count <= _CACHED_COUNT_MAX:
            self[count] = pack
        return pack

    def _pack_long(self, *values: Any) -> bytes:
        fields, length, elements = values[: self._prefix_fields], values[self._prefix_fields], values[self._prefix_fields + 1 :]
        head = Struct(">" + self._prefix).pack(*fields)
        return head + uvarint(length) + Struct(">" + _repeat(self._code, len(elements))).pack(*elements)


def _repeat(code: str, count: int) -> str:
    return f"{count}{code}" if len(code) == 1 else code * count


def tagged(tag: int, parts: list[Bytes]) -> bytes:
    """A tagged field: number, size, content."""
    content = b"".join(parts)
    return uvarint(tag) + uvarint(len(content)) + content


def uuid16(value: bytes) -> bytes:
    """`value`, which must have 16 bytes: `struct` would pad or cut it in silence."""
    if len(value) != 16:
        raise UnencodableError(f"a UUID has 16 bytes, not {len(value)}")
    return value


def long_uvarint(length: int) -> bytes:
    """Compact length of a string too long for a one-byte prefix. UnencodableError above 32,767 bytes."""
    if length > STRING_BYTES_MAX + 1:
        raise UnencodableError(f"a string of {length - 1} bytes is longer than {STRING_BYTES_MAX}")
    return uvarint(length)


def bad_length(field: str, length: int) -> Never:
    """A length that cannot be: negative, null where null is not allowed, or too long for a string."""
    raise ProtocolError(f"{field} has length {length}")


def bad_count(field: str, count: int, left: int) -> Never:
    """An array that cannot fit in what is left."""
    raise ProtocolError(f"{field} has {count} elements, more than {left} bytes can hold")


def bad_tag(tag: int, position: int, stop: int) -> Never:
    """A tagged field whose content does not end where its size says, or whose size is more than is left."""
    raise ProtocolError(f"tagged field {tag} should end at byte {stop} and is read to byte {position}")


def refuse(field: str, value: object) -> Never:
    """A field set to something that the version cannot carry."""
    raise UnencodableError(f"this version cannot carry {field}={value!r}")
