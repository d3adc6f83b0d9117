"""Tagged fields that are not known are stepped over, as far as the data reaches."""

import pytest

from moldau.model.errors import ProtocolError
from moldau.protocol.varint import skip_tags


@pytest.mark.parametrize(
    ("data", "after"),
    [
        ("00", 1),
        ("01 63 00", 3),
        ("02 00 01 aa 80 01 02 bbbb", 9),  # number 128 takes two bytes
        ("01 00 01 aa ff", 4),
    ],
)
def test_the_position_after_them(data: str, after: int) -> None:
    raw = bytes.fromhex(data)
    assert skip_tags(raw, 0) == after
    assert skip_tags(memoryview(b"\x55" + raw), 1) == after + 1


@pytest.mark.parametrize("data", ["", "01", "01 00", "01 00 05 aa", "ff ff ff ff 0f", "01 00 ff ff ff ff 0f", "ff ff ff ff ff ff"])
def test_what_is_cut_off_is_refused(data: str) -> None:
    with pytest.raises(ProtocolError):
        skip_tags(bytes.fromhex(data), 0)


def test_a_header_has_few_of_them() -> None:
    with pytest.raises(ProtocolError, match="at most 1000 are taken"):
        skip_tags(b"\xe9\x07" + b"\x63\x00" * 1001, 0)
