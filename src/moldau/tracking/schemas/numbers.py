"""Numbers as Avro writes them, by tables: varints, seven bits to a byte; decimals in bytes."""

from collections.abc import Callable
from decimal import Decimal
from functools import cache
from typing import Any, Final

Encode = Callable[[Any], bytes]
_EXACT_DOUBLES: Final = 1 << 53


class UnsureError(Exception):
    """The event may be valid or not: the slow way decides."""


@cache
def varint_tables() -> tuple[list[bytes], list[bytes]]:
    """By number below 16,384: its varint; and its two groups of seven bits where more follow."""
    pair = [bytes((number & 0x7F | 0x80, number >> 7 | 0x80)) for number in range(1 << 14)]
    low = [bytes((number,)) if number < 0x80 else bytes((number & 0x7F | 0x80, number >> 7)) for number in range(1 << 14)]
    return low, pair


@cache
def varint_encoder() -> Callable[[int], bytes]:
    """Writes an unsigned number of 64 bits, seven to a byte, the lowest first. It raises UnsureError for a greater one."""
    low, pair = varint_tables()

    def varint(number: int) -> bytes:
        if number < 1 << 28:
            return low[number] if number < 1 << 14 else pair[number & 0x3FFF] + low[number >> 14]
        if number < 1 << 42:
            return pair[number & 0x3FFF] + pair[number >> 14 & 0x3FFF] + low[number >> 28]
        first = pair[number & 0x3FFF] + pair[number >> 14 & 0x3FFF] + pair[number >> 28 & 0x3FFF]
        if number < 1 << 56:
            return first + low[number >> 42]
        if number >> 64:
            raise UnsureError
        return first + pair[number >> 42 & 0x3FFF] + low[number >> 56]

    return varint


def exact_double(value: Any) -> float:
    """A whole number where a double belongs, if it is one exactly."""
    if value.__class__ is int and -_EXACT_DOUBLES <= value <= _EXACT_DOUBLES:
        return float(value)
    raise UnsureError


@cache
def decimal_encoder(precision: int, scale: int) -> Encode:
    """The encoder of decimals in bytes: their digits without the point, as many as the schema's scale."""
    low, _ = varint_tables()
    limit = 10**precision
    powers = [10**number for number in range(scale + 1)]

    def encode(value: Any) -> bytes:
        if value.__class__ is not Decimal:
            raise UnsureError
        whole, _, fraction = str(value).partition(".")  # one with an exponent, or that is no number, is no int then
        missing = scale - len(fraction)
        if missing < 0:
            raise UnsureError
        digits = int(whole + fraction) * powers[missing]
        if not -limit < digits < limit:
            raise UnsureError
        size = (digits.bit_length() + 8) >> 3
        return bytes(low[size << 1] + digits.to_bytes(size, "big", signed=True))

    return encode
