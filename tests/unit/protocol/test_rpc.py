"""The client of the protocol agrees on versions, numbers its requests, and takes responses in their order, however the bytes come."""

from itertools import repeat
from unittest.mock import Mock

import pytest

from moldau.model.errors import ErrorCode, PeerError, ProtocolError
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec import UnencodableError, decode
from moldau.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from moldau.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from moldau.protocol.messages.metadata import MetadataRequest, MetadataResponse
from moldau.protocol.messages.produce import ProduceRequest
from moldau.protocol.rpc import AHEAD_BYTES, WHOLE_BYTES_MAX, Rpc, RpcRequest
from moldau.protocol.versions import SERVED, VersionRange
from support.rpc_peer import VERSIONS, answer, asked, feed, frame, opened


def new_rpc() -> Rpc:
    return Rpc("test", 1 << 20, 4)


def ask_metadata(rpc: Rpc) -> tuple[object, bytes]:
    return rpc.send(ApiKey.METADATA, MetadataRequest(None))


def test_a_connection_is_open_once_the_broker_has_told_its_versions() -> None:
    rpc = new_rpc()
    assert not rpc.is_open
    assert rpc.broker_versions == {}
    hello = asked(rpc.hello())
    assert (hello.api_key, hello.api_version, hello.correlation_id, hello.client_id) == (18, 4, 1, "test")
    assert rpc.oldest == (ApiKey.API_VERSIONS, 4, 1)
    assert feed(rpc, answer(hello, VERSIONS)) == []
    assert rpc.is_open
    assert rpc.oldest is None
    assert rpc.broker_versions == SERVED


def test_what_brokers_of_one_version_serve_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearly all connections are to such brokers, and each begins with it."""
    decoded = Mock(side_effect=decode)
    monkeypatch.setattr("moldau.protocol.rpc.decode", decoded)
    own = ApiVersionsResponse(0, [ApiVersion(3, 5, 9)])
    for told in (own, own, ApiVersionsResponse(0, [ApiVersion(3, 5, 10)]), own):
        rpc = new_rpc()
        feed(rpc, answer(asked(rpc.hello()), told))
        assert rpc.broker_versions == {3: VersionRange(5, told.api_keys[0].max_version)}
    assert decoded.call_count == 2


@pytest.mark.parametrize(
    ("known", "second"),
    [([ApiVersion(18, 0, 2)], 2), ([ApiVersion(3, 0, 1)], 0), ([], 0), ([ApiVersion(18, 0, 30)], 3), ([ApiVersion(18, -9, -7)], 0)],
)
def test_an_older_broker_is_asked_again_in_the_version_it_knows(known: list[ApiVersion], second: int) -> None:
    rpc = new_rpc()
    assert feed(rpc, answer(asked(rpc.hello()), ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, known), version=0), repeat(1)) == []
    assert not rpc.is_open
    again = asked(rpc.hello())
    assert (again.api_version, again.correlation_id) == (second, 2)
    feed(rpc, answer(again, VERSIONS))
    assert rpc.is_open


@pytest.mark.parametrize("code", [1, 35, 4711])
def test_a_broker_that_refuses_to_tell_its_versions_is_given_up(code: int) -> None:
    rpc = new_rpc()
    refusal = ApiVersionsResponse(code, [ApiVersion(18, 0, 2)])
    if code == ErrorCode.UNSUPPORTED_VERSION:
        feed(rpc, answer(asked(rpc.hello()), refusal, version=0))
    hello = asked(rpc.hello())
    with pytest.raises(PeerError, match=f"refused to tell its versions, error {code}"):
        feed(rpc, answer(hello, refusal, version=0 if code == ErrorCode.UNSUPPORTED_VERSION else None))
    assert not rpc.is_open


def test_the_highest_common_version_is_chosen_within_a_range_if_one_is_given() -> None:
    rpc = new_rpc()
    feed(rpc, answer(asked(rpc.hello()), ApiVersionsResponse(0, [ApiVersion(3, 5, 9), ApiVersion(0, 90, 91)])))
    assert rpc.version_for(ApiKey.METADATA) == 9
    assert rpc.version_for(ApiKey.METADATA, VersionRange(0, 6)) == 6
    assert asked(rpc.send(ApiKey.METADATA, MetadataRequest(None), version=VersionRange(0, 6))[1]).api_version == 6
    for api_key, within, said in [
        (ApiKey.METADATA, VersionRange(0, 4), "metadata is spoken here in versions 0-4, the broker serves versions 5-9"),
        (ApiKey.PRODUCE, None, "the broker serves versions 90-91"),
        (ApiKey.FETCH, None, "the broker does not serve it"),
    ]:
        with pytest.raises(PeerError, match=said) as caught:
            rpc.version_for(api_key, within)
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_nothing_is_in_flight_after_a_request_that_could_not_be_made() -> None:
    rpc = opened()
    with pytest.raises(UnencodableError):
        rpc.send(ApiKey.METADATA, MetadataRequest([]), version=0x7FFF)
    with pytest.raises(PeerError):
        rpc.send(ApiKey.METADATA, MetadataRequest([]), version=VersionRange(90, 91))
    assert rpc.oldest is None
    assert asked(ask_metadata(rpc)[1]).correlation_id == 2


def test_responses_come_in_order_byte_by_byte_or_all_at_once() -> None:
    for sizes in (repeat(1), repeat(3), ()):
        rpc = opened()
        calls = [rpc.send(ApiKey.METADATA, MetadataRequest(None))[0] for _ in range(3)]
        calls.append(rpc.send(ApiKey.API_VERSIONS, ApiVersionsRequest(), version=4)[0])
        assert rpc.oldest is calls[0]
        stream = b"".join(answer(call, MetadataResponse(cluster_id=f"c{call.correlation_id}")) for call in calls[:3])
        stream += answer(calls[3], ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION), version=0)
        answers = feed(rpc, stream, sizes)
        assert [found.call for found in answers] == calls
        assert [found.response.cluster_id for found in answers[:3]] == ["c2", "c3", "c4"]
        assert answers[3].response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert rpc.oldest is None


@pytest.mark.parametrize("piece", [1, 3, 5, 1000, AHEAD_BYTES, 1 << 20])
def test_read_ahead_the_responses_are_the_same(piece: int) -> None:
    rpc = Rpc("test", 1 << 20, 8, reads_ahead=True)
    stream = answer(asked(rpc.hello()), VERSIONS)
    expected = ["", "short", "x" * 3000, "y" * (AHEAD_BYTES - 40), "z" * 20_000, "last"]
    found, reads = list[str](), 0
    calls = list[RpcRequest]()
    while stream:
        room = rpc.get_buffer()
        count = min(piece, len(room), len(stream))
        room[:count], stream = stream[:count], stream[count:]
        response = rpc.buffer_updated(count)
        reads += 1
        while response is not None:
            found.append(response.response.cluster_id)
            response = rpc.next_response()
        if rpc.is_open and not calls:
            calls = [rpc.send(ApiKey.METADATA, MetadataRequest(None))[0] for _ in expected]
            stream += b"".join(answer(call, MetadataResponse(cluster_id=text)) for call, text in zip(calls, expected, strict=True))
    assert found == expected
    assert rpc.oldest is None
    if piece > AHEAD_BYTES:
        assert reads <= 6, "the short ones have come with one read, as have the versions"


def test_a_request_without_a_response_is_not_waited_for() -> None:
    rpc = opened()
    call, data = rpc.send(ApiKey.PRODUCE, ProduceRequest(None, 0, 1000, []), answered=False)
    assert asked(data).correlation_id == call.correlation_id == 2
    assert rpc.oldest is None
    following, _ = rpc.send(ApiKey.METADATA, MetadataRequest(None))
    (found,) = feed(rpc, answer(following, MetadataResponse()))
    assert found.call is following


def test_what_is_given_up_is_named_and_waited_for_no_more() -> None:
    rpc = opened()
    calls = [ask_metadata(rpc)[0] for _ in range(3)]
    assert rpc.give_up() == calls
    assert rpc.give_up() == []
    assert rpc.oldest is None


def test_no_more_requests_are_in_flight_than_are_allowed() -> None:
    rpc = opened(in_flight_max=2)
    ask_metadata(rpc)
    ask_metadata(rpc)
    with pytest.raises(AssertionError, match="too many requests are in flight"):
        ask_metadata(rpc)


def test_the_order_of_calls_is_kept() -> None:
    rpc = new_rpc()
    with pytest.raises(AssertionError, match="the versions are not known"):
        ask_metadata(rpc)
    hello = asked(rpc.hello())
    with pytest.raises(AssertionError, match="the versions are asked for"):
        rpc.hello()
    feed(rpc, answer(hello, VERSIONS))
    with pytest.raises(AssertionError, match="the versions are known"):
        rpc.hello()


def test_correlation_ids_begin_again_after_the_last() -> None:
    rpc = opened()
    rpc._correlation_id = 0x7FFFFFFE
    ids = []
    for _ in range(3):
        call, data = rpc.send(ApiKey.METADATA, MetadataRequest(None))
        assert asked(data).correlation_id == call.correlation_id
        ids.append(call.correlation_id)
    assert ids == [0x7FFFFFFF, 0, 1]


@pytest.mark.parametrize("size", [1000, WHOLE_BYTES_MAX + 1])
def test_the_records_of_a_long_response_are_views_that_stay_good(size: int) -> None:
    rpc = opened()
    kept = []
    for letter in (b"a", b"b"):
        call, _ = rpc.send(ApiKey.FETCH, FetchRequest(), version=11)
        data = PartitionData(partition_index=0, high_watermark=1, records=letter * size)
        (found,) = feed(rpc, answer(call, FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])), repeat(1 << 20))
        kept.append(found.response.responses[0].partitions[0].records)
    assert [bytes(records) for records in kept] == [b"a" * size, b"b" * size]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "a response of 1213486160 bytes, at most 1048576 are taken; is this a Kafka broker?"),
        (b"\xff\xff\xff\xff", "a response of -1 bytes"),
        (b"\x00\x10\x00\x01", "a response of 1048577 bytes"),
        (frame(b""), "response header is cut off: 0 bytes"),
        (frame(b"ab"), "response header is cut off: 2 bytes"),
        (frame(b"\0\0\0\x63\0"), "a response to request 99 came where that to 2 was due"),
        (frame(b"\0\0\0\x01\0"), "a response to request 1 came where that to 2 was due"),
        (frame(b"\0\0\0\x02"), "varint at byte 4 is cut off by the end of 4 bytes"),
        (frame(b"\0\0\0\x02\0"), "MetadataResponse v13"),
    ],
)
def test_what_is_no_response_is_refused(data: bytes, said: str) -> None:
    rpc = opened(frame_bytes_max=1 << 20)
    call, _ = ask_metadata(rpc)
    with pytest.raises(ProtocolError, match=said):
        feed(rpc, data, repeat(1))
    assert rpc.give_up() == [call]


def test_bytes_after_the_end_of_a_response_are_refused() -> None:
    rpc = opened()
    call, _ = rpc.send(ApiKey.METADATA, MetadataRequest(None))
    with pytest.raises(ProtocolError, match="MetadataResponse v13: 3 bytes follow it"):
        feed(rpc, frame(answer(call, MetadataResponse())[4:] + b"abc"))


def test_a_response_that_nobody_asked_for_is_refused() -> None:
    rpc = opened()
    with pytest.raises(ProtocolError, match="a response of 4 bytes came where none was due"):
        feed(rpc, frame(b"\0\0\0\x02"))
