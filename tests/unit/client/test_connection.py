"""A raw connection speaks the highest common version, keeps responses in order, and says in one line, with the address, what went wrong."""

import struct

import pytest

from moldau.client.connection import IN_FLIGHT_MAX, BrokerConnection
from moldau.client.errors import ConnectionLostError, RequestFailedError, UnreachableError
from moldau.model.errors import ErrorCode, ProtocolError
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from moldau.protocol.messages.metadata import MetadataRequest, MetadataResponse
from moldau.protocol.messages.topics import DeleteRecordsRequest, DeleteRecordsResponse
from moldau.protocol.versions import SERVED, VersionRange
from support.scripted_broker import HANG_UP, SILENCE, Request, ScriptedBroker, reply


def metadata(request: Request) -> MetadataResponse:
    return MetadataResponse(cluster_id=f"v{request.version}", controller_id=request.correlation_id)


def connect(broker: ScriptedBroker, **options: float) -> BrokerConnection:
    return BrokerConnection("127.0.0.1", broker.port, client_id="test", timeout_s=options.get("timeout_s", 10.0))


def test_the_highest_common_version_is_spoken() -> None:
    versions = {**SERVED, ApiKey.METADATA: VersionRange(5, 9)}
    with ScriptedBroker(metadata, versions=versions) as broker, connect(broker) as connection:
        assert connection.request(ApiKey.METADATA, MetadataRequest(None)).cluster_id == "v9"
        assert connection.request(ApiKey.METADATA, MetadataRequest(None), version=5).cluster_id == "v5"
        assert connection.broker_versions[ApiKey.METADATA] == VersionRange(5, 9)
        assert [request.client_id for request in broker.requests] == ["test", "test"]
        assert broker.connections == 1


@pytest.mark.parametrize(
    ("versions", "said"),
    [
        ({ApiKey.API_VERSIONS: VersionRange(0, 4)}, "the broker does not serve it"),
        ({ApiKey.METADATA: VersionRange(90, 91)}, "the broker serves versions 90-91"),
    ],
)
def test_no_common_version_is_reported_before_anything_is_sent(versions: dict[ApiKey, VersionRange], said: str) -> None:
    with (
        ScriptedBroker(metadata, versions=versions) as broker,
        connect(broker) as connection,
        pytest.raises(RequestFailedError, match=said) as caught,
    ):
        connection.request(ApiKey.METADATA, MetadataRequest(None))
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert f"127.0.0.1:{broker.port}" in caught.value.message
    assert broker.requests == []


def test_an_older_broker_answers_the_version_question_with_version_0_and_is_asked_again() -> None:
    def script(request: Request) -> object:
        if request.api_key is not ApiKey.API_VERSIONS:
            return metadata(request)
        known = [ApiVersion(18, 0, 2), ApiVersion(3, 0, 7)]
        if request.version > 2:
            return reply(request, ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, known), version=0)
        return ApiVersionsResponse(0, known)

    with ScriptedBroker(script, takes_api_versions=True) as broker, connect(broker) as connection:
        assert connection.request(ApiKey.METADATA, MetadataRequest(None)).cluster_id == "v7"
    assert [(request.api_key, request.version) for request in broker.requests] == [(18, 4), (18, 2), (3, 7)]


def test_a_pipeline_of_any_length_gives_responses_in_order() -> None:
    with ScriptedBroker(metadata) as broker, connect(broker) as connection:
        count = 3 * IN_FLIGHT_MAX + 1
        responses = connection.pipeline((ApiKey.METADATA, MetadataRequest([])) for _ in range(count))
    ids = [response.controller_id for response in responses]
    assert ids == [request.correlation_id for request in broker.requests]
    assert len(set(ids)) == count


def test_different_requests_may_be_on_their_way_together() -> None:
    def script(request: Request) -> object:
        return metadata(request) if request.api_key is ApiKey.METADATA else DeleteRecordsResponse(throttle_time_ms=7)

    with ScriptedBroker(script) as broker, connect(broker) as connection:
        first = connection.send(ApiKey.METADATA, MetadataRequest(None))
        second = connection.send(ApiKey.DELETE_RECORDS, DeleteRecordsRequest())
        with pytest.raises(AssertionError, match="in the order"):
            connection.receive(second)
        assert connection.receive(first).cluster_id == "v13"
        assert connection.receive(second).throttle_time_ms == 7


def test_an_address_without_a_broker_is_named() -> None:
    with ScriptedBroker() as broker:
        pass
    with pytest.raises(UnreachableError, match=f"cannot connect to 127.0.0.1:{broker.port}: connection refused") as caught:
        connect(broker).request(ApiKey.METADATA, MetadataRequest(None))
    assert caught.value.retriable


def test_a_host_that_does_not_exist_is_reported() -> None:
    with pytest.raises(UnreachableError, match=r"cannot connect to no\.such\.host\.invalid:9092: "):
        BrokerConnection("no.such.host.invalid", 9092).request(ApiKey.METADATA, MetadataRequest(None))


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (HANG_UP, ConnectionLostError, "the broker closed the connection"),
        (SILENCE, ConnectionLostError, "no answer in time"),
        (b"\0\0", ConnectionLostError, "no answer in time"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", ProtocolError, "a response of 1213486160 bytes.*is this a Kafka broker"),
        (struct.pack(">i", -1), ProtocolError, "a response of -1 bytes"),
        (struct.pack(">i", 2) + b"ab", ProtocolError, "response header is cut off: 2 bytes"),
        (struct.pack(">ii", 4, 4711), ProtocolError, "."),
    ],
)
def test_a_bad_answer_closes_the_connection_and_the_next_request_makes_a_new_one(answer: object, kind: type[Exception], said: str) -> None:
    answers = [answer]
    with (
        ScriptedBroker(lambda request: answers.pop() if answers else metadata(request)) as broker,
        connect(broker, timeout_s=0.5) as connection,
    ):
        with pytest.raises(kind, match=said) as caught:
            connection.request(ApiKey.METADATA, MetadataRequest(None))
        assert f"127.0.0.1:{broker.port}: " in str(caught.value)
        assert not connection.connected
        assert connection.request(ApiKey.METADATA, MetadataRequest(None)).cluster_id == "v13"
        assert broker.connections == 2


def test_a_response_to_another_request_is_refused() -> None:
    with (
        ScriptedBroker(lambda request: reply(request, metadata(request), correlation_id=99)) as broker,
        connect(broker) as connection,
        pytest.raises(ProtocolError, match="a response to request 99 came where that to 2 was due"),
    ):
        connection.request(ApiKey.METADATA, MetadataRequest(None))


def test_a_response_with_bytes_after_its_end_is_refused() -> None:
    def script(request: Request) -> bytes:
        frame = reply(request, metadata(request))
        return struct.pack(">i", len(frame) - 4 + 3) + frame[4:] + b"abc"

    with (
        ScriptedBroker(script) as broker,
        connect(broker) as connection,
        pytest.raises(ProtocolError, match=f"127.0.0.1:{broker.port}: MetadataResponse v13: 3 bytes follow it"),
    ):
        connection.request(ApiKey.METADATA, MetadataRequest(None))
