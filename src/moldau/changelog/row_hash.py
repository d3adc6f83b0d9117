"""A hash of a row that is the same for every store, and sums of hashes, which need no order.

The hash is BLAKE2b of 64 bits over the columns that are not null, by name: name and value, each with its length before it. A value is a
letter for its type and its canonical text. What is equal to a reader has one text: `0.0` and `-0.0`; decimals without the zeros at their
end; a point in time in UTC. A column that is null is left out, so that one which was added since makes no difference.
"""

import math
from collections.abc import Iterable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from hashlib import blake2b
from struct import Struct

from moldau.changelog.store import Checksum
from moldau.changelog.values import Row, Value

MODULUS = 1 << 64
_LENGTH = Struct(">I")


def row_hash(row: Row) -> int:
    """From 0 to 2^64 - 1."""
    parts = []
    for name in sorted(row):
        value = row[name]
        if value is not None:
            text, what = name.encode("utf-8", "surrogatepass"), _canonical(value)
            parts += (_LENGTH.pack(len(text)), text, _LENGTH.pack(len(what)), what)
    return int.from_bytes(blake2b(b"".join(parts), digest_size=8).digest())


def checksum_of(rows: Iterable[Row]) -> Checksum:
    """Of these rows; each is read once."""
    count = total = 0
    for row in rows:
        count += 1
        total += row_hash(row)
    return Checksum(count, total % MODULUS)


def _canonical(value: Value) -> bytes:
    match value:
        case str():
            return b"s" + value.encode("utf-8", "surrogatepass")
        case bool():
            return b"b1" if value else b"b0"
        case int():
            return b"i%d" % value
        case float():
            return b"f" + (b"nan" if math.isnan(value) else repr(value + 0.0).encode())
        case bytes():
            return b"x" + value
        case Decimal():
            return b"n" + _decimal_text(value).encode()
        case datetime():
            zone = "" if value.tzinfo is None else "Z"
            plain = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
            return b"t" + plain.isoformat(timespec="microseconds").encode() + zone.encode()
        case date():
            return b"d" + value.isoformat().encode()
        case time():
            return b"h" + value.isoformat(timespec="microseconds").encode()
        case None:
            raise AssertionError("a column that is null is left out")


def _decimal_text(value: Decimal) -> str:
    """Not `normalize`, which rounds to the context's precision."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return str(value).lower()
    text = "".join(map(str, digits)).lstrip("0")
    short = text.rstrip("0")
    if not short:
        return "0"
    return f"{'-' if sign else ''}{short}e{exponent + len(text) - len(short)}"
