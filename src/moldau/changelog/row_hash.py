"""A hash of a row that is the same for every store, and sums of hashes, which need no order.

The hash is BLAKE2b of 64 bits over the columns that are not null, by name: name and value, each with its length before it. A value is a
letter for its type and its canonical text. What is equal to a reader has one text: numbers by their value, whether a store has an integer,
a float or a decimal; a point in time in UTC. A column that is null is left out, so that one which was added since makes no difference.
"""

from collections.abc import Iterable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from hashlib import blake2b
from struct import Struct

from moldau.changelog.store import Checksum
from moldau.changelog.values import Row, Value

MODULUS = 1 << 64
_LENGTH = Struct(">I")
_EXACT = 1e15
"""Below it the shortest text of a float that is an integer has all its digits."""
_ZEROS_MAX = 400
"""At the end of an integer; floats have fewer."""


def row_hash(row: Row) -> int:
    """From 0 to 2^64 - 1."""
    parts: list[bytes] = []
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
            return b"i%d" % value if value.is_integer() and abs(value) < _EXACT else _number(Decimal(repr(value)))
        case bytes():
            return b"x" + value
        case Decimal():
            return _number(value)
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


def _number(value: Decimal) -> bytes:
    """Not `normalize`, which rounds to the context's precision. Integers are written as those of type int are, unless very many zeros end
    them.
    """
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return b"n" + str(abs(value) if value.is_nan() else value).lower().encode()
    text = "".join(map(str, digits)).lstrip("0")
    short = text.rstrip("0")
    if not short:
        return b"i0"
    minus, power = "-" if sign else "", exponent + len(text) - len(short)
    if 0 <= power <= _ZEROS_MAX:
        return f"i{minus}{short}{'0' * power}".encode()
    return f"n{minus}{short}e{power}".encode()
