"""Short parts become one piece, long ones stay the objects that they are, and the bytes are the same."""

from hypothesis import given
from hypothesis import strategies as st

from moldau.protocol.codec.encoded import SHORT_PART, joined

PARTS = st.lists(st.sampled_from([b"", b"a", b"b" * SHORT_PART, b"c" * (SHORT_PART + 1)]))


@given(PARTS)
def test_the_bytes_are_the_same_in_few_pieces(parts: list[bytes]) -> None:
    pieces = list(joined(parts))
    assert b"".join(pieces) == b"".join(parts)
    long = [part for part in parts if len(part) > SHORT_PART]
    assert [id(piece) for piece in pieces if piece in long] == [id(part) for part in long]
    assert len(pieces) <= 2 * len(long) + 1
