"""Decimals out of bytes, beside Python's own numbers: those of too many digits, or of more than 16 bytes, are marked and made 0."""

import random
from decimal import Context, Decimal

import pyarrow as pa
import pytest

from moldau.lake.avro.leaves import decimals

EXACT = Context(prec=60)
EDGES = [edge + step for bits in (0, 7, 8, 63, 64, 65, 126, 127) for edge in (1 << bits, -(1 << bits)) for step in (-1, 0, 1)]


@pytest.mark.parametrize(("precision", "scale"), [(1, 0), (6, 2), (18, 9), (19, 3), (20, 2), (37, 9), (38, 9), (38, 0)])
def test_numbers_of_too_many_digits_are_told_from_the_others(precision: int, scale: int) -> None:
    limit, chosen = 10**precision, random.Random(precision)
    near = [sign * limit + step for sign in (-1, 1) for step in (-1, 0, 1)]
    numbers = [*EDGES, *near, *(chosen.randint(-2 * limit, 2 * limit) for _ in range(500))]
    numbers = [number for number in numbers if -(1 << 127) <= number < 1 << 127]
    raw = [number.to_bytes(min(16, number.bit_length() // 8 + 1), "big", signed=True) for number in numbers]
    found, wrong = decimals(pa.array([*raw, bytes(17)], pa.binary()), pa.decimal128(precision, scale))
    for number, value, refused in zip(numbers, found.to_pylist(), wrong.tolist(), strict=False):
        assert refused == (abs(number) >= limit), number
        assert value == (Decimal(0) if refused else Decimal(number).scaleb(-scale, EXACT)), number
    assert wrong[-1]
