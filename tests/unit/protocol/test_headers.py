"""Headers v0 to v2 of requests and v0 to v1 of responses, with the three exceptions that clients rely on."""

import struct

import pytest

from moldau.model.errors import ProtocolError
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.headers import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    request_header,
    response_header,
)

UNKNOWN_KEY = 71

REQUESTS = [
    ("v1", ApiKey.METADATA, 8, "me", "0003 0008 0000002a 0002 6d65"),
    ("v1, no client id", ApiKey.METADATA, 8, None, "0003 0008 0000002a ffff"),
    ("v1, empty client id", ApiKey.METADATA, 8, "", "0003 0008 0000002a 0000"),
    ("v2: the client id is not compact", ApiKey.METADATA, 9, "me", "0003 0009 0000002a 0002 6d65 00"),
    ("v2 of an ApiVersions version from the future", ApiKey.API_VERSIONS, 99, "me", "0012 0063 0000002a 0002 6d65 00"),
    ("v1 whatever the version: never flexible", ApiKey.SASL_HANDSHAKE, 99, "me", "0011 0063 0000002a 0002 6d65"),
    ("v1 for want of knowing better", UNKNOWN_KEY, 3, "me", "0047 0003 0000002a 0002 6d65"),
    ("v0", ApiKey.CONTROLLED_SHUTDOWN, 0, None, "0007 0000 0000002a"),
    ("v1 from version 1", ApiKey.CONTROLLED_SHUTDOWN, 1, None, "0007 0001 0000002a ffff"),
]


@pytest.mark.parametrize(("api_key", "version", "client_id", "data"), [row[1:] for row in REQUESTS], ids=[row[0] for row in REQUESTS])
def test_request_headers(api_key: int, version: int, client_id: str | None, data: str) -> None:
    raw = bytes.fromhex(data)
    assert request_header(api_key, version, 42, client_id) == raw
    body = b"\xff\xff\xff\xff"
    assert decode_request_header(memoryview(raw + body)) == RequestHeader(api_key, version, 42, client_id, len(raw))


def test_unknown_tags_of_a_request_header_are_skipped() -> None:
    raw = bytes.fromhex("0003 0009 0000002a ffff 02 00 01 aa 63 00")
    assert decode_request_header(raw).body_position == len(raw)


@pytest.mark.parametrize(
    "data",
    [
        "",
        "0003 0009 0000002a",
        "0003 0009 0000002a 0002 6d",
        "0003 0008 0000002a 7fff",
        "0003 0008 0000002a fffe",
        "0003 0008 0000002a 0001 ff",
        "0003 0009 0000002a ffff",
        "0003 0009 0000002a ffff 01 00",
        "0003 0009 0000002a ffff 01 00 05 00",
    ],
)
def test_malformed_request_headers(data: str) -> None:
    with pytest.raises(ProtocolError, match=r"header|client id|varint|tagged"):
        decode_request_header(memoryview(bytes.fromhex(data)))


@pytest.mark.parametrize(
    ("api_key", "version", "data"),
    [
        (ApiKey.METADATA, 8, "0000002a"),
        (ApiKey.METADATA, 9, "0000002a 00"),
        (ApiKey.API_VERSIONS, 0, "0000002a"),
        (ApiKey.API_VERSIONS, 3, "0000002a"),  # the client cannot know yet what the broker speaks
        (ApiKey.API_VERSIONS, 4, "0000002a"),
        (ApiKey.OFFSET_DELETE, 0, "0000002a"),
        (ApiKey.CONTROLLED_SHUTDOWN, 0, "0000002a"),
    ],
)
def test_response_headers(api_key: ApiKey, version: int, data: str) -> None:
    raw = bytes.fromhex(data)
    assert response_header(api_key, version, 42) == raw
    assert decode_response_header(raw + b"\xff", api_key, version) == (42, len(raw))


def test_unknown_tags_of_a_response_header_are_skipped() -> None:
    assert decode_response_header(bytes.fromhex("0000002a 01 05 02 aaaa 99"), ApiKey.METADATA, 9) == (42, 9)


@pytest.mark.parametrize("data", ["", "000000", "0000002a", "0000002a 01 05 02 aa"])
def test_malformed_response_headers(data: str) -> None:
    with pytest.raises(ProtocolError):
        decode_response_header(bytes.fromhex(data), ApiKey.METADATA, 9)


def test_a_client_id_too_long_cannot_be_sent() -> None:
    with pytest.raises(struct.error):
        request_header(ApiKey.METADATA, 9, 1, "a" * 32768)
