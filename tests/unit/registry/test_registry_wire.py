"""The wire format: what frames a value, and what is refused as not framed."""

import pytest

from moldau.registry.wire import SCHEMA_ID_MAX, WireFormatError, frame, unframe


@pytest.mark.parametrize("schema_id", [0, 1, 258, SCHEMA_ID_MAX])
def test_what_is_framed_comes_back(schema_id: int) -> None:
    framed = frame(schema_id, b"body")
    assert framed == b"\0" + schema_id.to_bytes(4, "big") + b"body"
    found, body = unframe(framed)
    assert (found, bytes(body)) == (schema_id, b"body")


def test_the_body_is_a_view_and_may_be_empty() -> None:
    value = bytearray(frame(7, b"ab"))
    _, body = unframe(value)
    value[5] = ord("x")
    assert bytes(body) == b"xb"
    assert bytes(unframe(frame(7, b""))[1]) == b""


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"", "0 bytes"),
        (b"\0\0\0\1", "4 bytes"),
        (b"{" + bytes(8), "0x7b"),
        (b"\xff" + bytes(8), "0xff"),
        (b"\0\xff\xff\xff\xff!", "id -1 is negative"),
    ],
)
def test_a_value_that_is_not_framed_says_why(value: bytes, says: str) -> None:
    with pytest.raises(WireFormatError, match=says):
        unframe(value)


@pytest.mark.parametrize("schema_id", [-1, SCHEMA_ID_MAX + 1])
def test_an_id_that_does_not_fit_is_refused(schema_id: int) -> None:
    with pytest.raises(WireFormatError, match=str(schema_id)):
        frame(schema_id, b"")
