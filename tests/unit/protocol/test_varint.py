"""Varints are as long as their value needs, come back as they went, and never take more than they may."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.model.errors import ProtocolError
from moldau.protocol.varint import read_uvarint, read_varint, read_varlong, uvarint, varint, varlong


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (16383, "ff7f"), (16384, "808001"), (2**32 - 1, "ffffffff0f")],
)
def test_unsigned(value: int, encoded: str) -> None:
    assert uvarint(value).hex() == encoded
    assert read_uvarint(bytes.fromhex("00" + encoded + "00"), 1) == (value, 1 + len(encoded) // 2)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (-1, "01"), (1, "02"), (-64, "7f"), (64, "8001"), (-65, "8101"), (2**31 - 1, "feffffff0f"), (-(2**31), "ffffffff0f")],
)
def test_zigzag(value: int, encoded: str) -> None:
    assert varint(value).hex() == varlong(value).hex() == encoded
    data = bytes.fromhex(encoded)
    assert read_varint(data, 0) == read_varlong(data, 0) == (value, len(data))


@given(st.integers(-(2**63), 2**63 - 1))
def test_there_and_back(value: int) -> None:
    data = varlong(value)
    assert read_varlong(data, 0) == (value, len(data))
    assert len(data) <= 10


@pytest.mark.parametrize("read", [read_uvarint, read_varint, read_varlong])
@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff\xff\xff"])
def test_cut_off(read: type[object], data: bytes) -> None:
    with pytest.raises(ProtocolError, match="cut off"):
        read(data, 0)  # type: ignore[call-arg]


def test_too_long_or_too_large() -> None:
    for read in (read_uvarint, read_varint):
        with pytest.raises(ProtocolError, match="longer than 5 bytes"):
            read(b"\x80" * 6, 0)
        with pytest.raises(ProtocolError, match="more than 32 bits"):
            read(b"\xff\xff\xff\xff\x10", 0)
    with pytest.raises(ProtocolError, match="longer than 10 bytes"):
        read_varlong(b"\x80" * 11, 0)
    with pytest.raises(ProtocolError, match="more than 64 bits"):
        read_varlong(b"\xff" * 9 + b"\x02", 0)
