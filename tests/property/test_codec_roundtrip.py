"""What is encoded decodes to the same value, in every version of every message, and nothing may follow it."""

from typing import Any

import pytest
from hypothesis import given

from moldau.model.errors import ProtocolError
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec import decode, encode, encode_into, step_decoder, step_writer
from moldau.protocol.codec.primitives import NO_BOUND
from moldau.protocol.versions import FLEXIBLE_FROM
from support.messages import Case, cases, few, values

UNKNOWN_TAGS = b"\x02\x63\x03abc\x80\x01\x00"  # two of them: number 99 with "abc", number 128 with nothing


@pytest.mark.parametrize("api_key", ApiKey, ids=lambda key: key.name)
def test_round_trip(api_key: ApiKey) -> None:
    for case in cases(api_key):
        round_trip(case)


def round_trip(case: Case) -> None:
    @few
    @given(values(*case))
    def same(message: Any) -> None:
        data = encode(message, case.version)
        assert decode(*case, memoryview(b"\x55" + data), 1) == message
        parts: list[bytes | bytearray | memoryview] = [b"header"]
        encode_into(parts, message, case.version)
        assert b"".join(parts) == b"header" + data
        assert in_steps(case, message, data) == (message, len(data))
        with pytest.raises(ProtocolError, match="1 bytes follow it"):
            decode(*case, data + b"\0")

    same()


def in_steps(case: Case, message: Any, data: bytes) -> Any:
    """What the decoder in steps makes of what the encoder in steps has made, which has to be `data`."""
    parts: list[bytes | bytearray | memoryview] = []
    for _ in step_writer(case.cls, case.version)(message, parts.append):
        pass
    assert b"".join(parts) == data
    decoding = step_decoder(*case)(data, 0, NO_BOUND)
    while True:
        try:
            next(decoding)
        except StopIteration as end:
            return end.value


@pytest.mark.parametrize("api_key", ApiKey, ids=lambda key: key.name)
def test_unknown_tagged_fields_are_skipped(api_key: ApiKey) -> None:
    for case in cases(api_key):
        first = FLEXIBLE_FROM[api_key]
        if first is not None and case.version >= first:
            data = encode(case.cls(), case.version)
            assert data.endswith(b"\0")  # the section of tagged fields, empty
            assert decode(*case, data[:-1] + UNKNOWN_TAGS) == case.cls()
