"""A connection answers in the order of requests, keeps its bounds, and fails alone: with one clear line in the log."""

import struct
from collections.abc import Sequence
from typing import Any

import pytest

from moldau.model.errors import ErrorCode
from moldau.ports.transport import Part
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.fetch import FetchRequest
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.offset_lookups import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.messages.offsets import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from moldau.protocol.messages.produce import ProduceRequest
from moldau.protocol.messages.transaction_admin import DescribeProducersRequest, TopicRequest
from support.broker_world import BrokerWorld, Client, batch, fetch_request, produce_request, values_of


@pytest.fixture
def world() -> BrokerWorld:
    made = BrokerWorld()
    made.create_topic("t")
    return made


def latest(topic: str) -> ListOffsetsRequest:
    return ListOffsetsRequest(-1, topics=[ListOffsetsTopic(topic, [ListOffsetsPartition(0, timestamp=-1)])])


def mixture(world: BrokerWorld, client: Client) -> bytes:
    """Requests of many kinds, and Produce with and without an answer, as one stretch of bytes."""
    stream = b""
    for round_ in range(3):
        stream += client.frame(ApiVersionsRequest("test", "1"), 3)
        for number in range(4):
            stream += client.frame(produce_request("t", batch(world, b"%d.%d" % (round_, number))), 9)
        stream += client.frame(produce_request("t", batch(world, b"%d.-" % round_), acks=0), 9, answered=False)
        stream += client.frame(latest("t"), 7)
        stream += client.frame(fetch_request("t", 5 * round_, max_wait_ms=0), 12)
        stream += client.frame(MetadataRequest([]), 9)
        stream += client.frame(fetch_request("missing", 0), 11)
        stream += client.frame(produce_request("missing", batch(world, b"x")), 7)
    return stream


def check_mixture(client: Client) -> None:
    answers = [answer.body for answer in client.answers()]
    assert not client.expected
    for round_ in range(3):
        versions, *produced, listed, fetched, _, unknown, refused = answers[10 * round_ : 10 * (round_ + 1)]
        assert versions.error_code == 0
        offsets = [each.responses[0].partition_responses[0].base_offset for each in produced]
        assert offsets == [5 * round_ + number for number in range(4)]
        assert listed.topics[0].partitions[0].offset == 5 * (round_ + 1), "what was produced before is written before"
        assert values_of(fetched.responses[0].partitions[0].records) == [*(b"%d.%d" % (round_, n) for n in range(4)), b"%d.-" % round_]
        assert unknown.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert refused.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("piece", [1, 7, 100, 1 << 20])
def test_requests_in_pieces_of_any_size_get_the_same_answers(world: BrokerWorld, piece: int) -> None:
    client = world.connect(piece=piece)
    client.peer.send(mixture(world, client))
    check_mixture(client)


def test_a_peer_that_reads_a_byte_at_a_time_sees_the_same(world: BrokerWorld) -> None:
    client = world.connect(window=1, piece=1 << 20)
    client.peer.send(mixture(world, client))
    received = b""
    while byte := client.peer.transport.take(1):
        received += byte
        world.clock.settle()
        client.peer.push()
    client.received = received
    check_mixture(client)


def test_answers_of_one_read_leave_with_one_send(world: BrokerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    client = world.connect(piece=1 << 20)
    sends: list[int] = []
    send = client.peer.transport.send

    def counted(parts: Sequence[Part]) -> None:
        sends.append(len(parts))
        send(parts)

    monkeypatch.setattr(client.peer.transport, "send", counted)
    client.peer.send(b"".join(client.frame(produce_request("t", batch(world, b"x")), 9) for _ in range(100)))
    assert sends == [100]
    assert len(client.answers()) == 100


def test_answers_keep_their_order_behind_a_fetch_that_waits(world: BrokerWorld) -> None:
    client, other = world.connect(), world.connect()
    client.send(fetch_request("t", 0, max_wait_ms=10_000), 12)
    client.send(ApiVersionsRequest("test", "1"), 3)
    client.send(latest("t"), 7)
    assert client.answers() == []
    other.produce("t", b"now")
    fetched, versions, listed = (answer.body for answer in client.answers())
    assert values_of(fetched.responses[0].partitions[0].records) == [b"now"]
    assert versions.api_keys
    assert listed.topics[0].partitions[0].offset == 0, "it was answered before, and waited"


def test_a_client_may_complete_its_own_fetch(world: BrokerWorld) -> None:
    client = world.connect(piece=1 << 20)
    stream = client.frame(fetch_request("t", 0, max_wait_ms=10_000), 12)
    client.peer.send(stream + client.frame(produce_request("t", batch(world, b"mine")), 9))
    fetched, produced = (answer.body for answer in client.answers())
    assert values_of(fetched.responses[0].partitions[0].records) == [b"mine"]
    assert produced.responses[0].partition_responses[0].base_offset == 0


def test_requests_in_flight_are_bounded(world: BrokerWorld) -> None:
    world = BrokerWorld(connection_max_in_flight_requests=10)
    world.create_topic("t")
    client = world.connect(piece=1 << 20)
    stream = b"".join(client.frame(fetch_request("t", 0, max_wait_ms=1000), 12) for _ in range(25))
    client.peer.send(stream)
    assert world.broker.purgatory.waiting == 10
    assert not client.peer.transport.reading
    client.peer.send(b"")
    for _ in range(3):
        world.clock.advance(1.001)
        client.peer.push()
    assert len(client.answers()) == 25
    assert client.peer.transport.reading


def test_requests_that_wait_are_bounded_by_their_bytes_too() -> None:
    """What a fetch asks for stays in memory while it waits."""
    world = BrokerWorld(connection_queued_max_bytes=10_000)
    world.create_topic("t")
    client = world.connect(piece=1 << 20)
    request = fetch_request("t", 0, max_wait_ms=1000)
    request.topics[0].partitions *= 100
    client.peer.send(b"".join(client.frame(request, 12) for _ in range(25)))
    assert world.broker.purgatory.waiting == 3, "of 3.4 KB each"
    assert not client.peer.transport.reading
    answered = 0
    for _ in range(10):
        world.clock.advance(1.001)
        client.peer.push()
        answered += len(client.answers())
    assert answered == 25
    assert client.peer.transport.reading


def test_a_client_that_never_reads_is_read_no_more(world: BrokerWorld) -> None:
    world = BrokerWorld(connection_queued_max_bytes=50_000)
    world.create_topic("t", partitions=100)
    client = world.connect(window=1000)
    request = client.frame(MetadataRequest(None), 9)
    answer_size = len(request)
    for _ in range(2000):
        client.expected.clear()
        client.peer.send(client.frame(MetadataRequest(None), 9))
        world.clock.settle()
    queued = client.peer.transport.queued_bytes()
    assert queued < 50_000 + 10_000, f"bounded by one answer more than the bound, not by {2000 * answer_size}"
    assert client.peer.unsent > 0
    client.expected.clear()
    while client.peer.transport.take(1 << 16) or client.peer.unsent:
        world.clock.settle()
        client.peer.push()
    assert client.peer.transport.reading


def test_one_read_of_many_small_requests_with_long_answers_is_bounded_too(world: BrokerWorld) -> None:
    world = BrokerWorld(connection_queued_max_bytes=50_000)
    world.create_topic("t", partitions=100)
    client = world.connect(window=100_000, piece=1 << 20)
    client.peer.send(b"".join(client.frame(MetadataRequest(None), 9) for _ in range(500)))
    assert client.peer.transport.queued_bytes() + len(client.peer.transport.in_flight) < 170_000
    count = 0
    while len(client.expected) or client.peer.unsent:
        count += len(client.answers())
        world.clock.settle()
        client.peer.push()
    assert count == 500


def raw(api_key: int, version: int, body: bytes = b"", correlation_id: int = 9) -> bytes:
    payload = struct.pack(">hhih", api_key, version, correlation_id, -1) + body
    return struct.pack(">i", len(payload)) + payload


@pytest.mark.parametrize(
    ("bytes_", "reason"),
    [
        (b"\x7f\xff\xff\xff", "frame of 2147483647 bytes refused"),
        (b"\xff\xff\xff\xff", "frame of -1 bytes refused"),
        (b"\x16\x03\x01\x02\x00\x01\x00", "TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP"),
        (struct.pack(">i", 3) + b"abc", "too short"),
        (raw(9999, 0), "unknown API (key 9999) version 0"),
        (raw(ApiKey.ALTER_CLIENT_QUOTAS, 0), "ALTER_CLIENT_QUOTAS (key 49) version 0: not in service"),
        (raw(ApiKey.METADATA, 99), "METADATA (key 3) version 99: served are versions 0-13"),
        (raw(ApiKey.FETCH, 3), "FETCH (key 1) version 3: served are versions 4-18"),
        (raw(ApiKey.PRODUCE, 14), "PRODUCE (key 0) version 14: served are versions 0-13"),
        (raw(ApiKey.METADATA, 5, b"\x7f\xff\xff\xff"), "MetadataRequest v5"),
        (raw(ApiKey.PRODUCE, 9, b"\xff" * 40), "at byte"),
        (raw(ApiKey.FETCH, 12, b"\xff" * 40), "at byte"),
        (struct.pack(">ihhih", 14, 3, 9, 1, 30_000) + b"abcd", "header is cut off"),
    ],
    ids=lambda value: value[:40].hex() if isinstance(value, bytes) else None,
)
def test_nonsense_ends_its_connection_with_one_line(
    world: BrokerWorld, bytes_: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = world.connect(), world.connect()
    bad.send(ApiVersionsRequest("test", "1"), 3)
    bad.peer.send(bytes_)
    assert len(bad.answers()) == 1, "what was asked before is answered"
    assert bad.closed
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(lines) == 1
    assert lines[0].startswith("connection cut: peer=192.0.2.1:50000 reason=")
    assert any(part in lines[0] for part in reason.split("|")), lines[0]
    assert good.produce("t", b"others notice nothing").error_code == 0
    assert len(world.broker.connections) == 1


METADATA_OF_MANY = b"\0\0\3\xe8" + b"\0\1a" * 1000
"""The body of Metadata version 1 for a thousand topics: 3,004 bytes."""
PRODUCE_TO_MANY = b"\xff\xff\0\1\0\0\0\0" + b"\0\0\0\1\0\1t" + b"\0\0\3\xe8" + b"\0\0\0\1\xff\xff\xff\xff" * 1000
"""The body of Produce version 3 with null records for a thousand partitions: 8,019 bytes."""


@pytest.mark.parametrize(
    ("bytes_", "reason"),
    [
        (raw(ApiKey.METADATA, 1, METADATA_OF_MANY), "METADATA (key 3) version 1: request of 3014 bytes refused, at most 3000 are taken"),
        (raw(ApiKey.FETCH, 12, bytes(3000)), "FETCH (key 1) version 12: request of 3010 bytes refused, at most 3000 are taken"),
        (raw(9999, 0, bytes(3000)), "unknown API (key 9999) version 0: request of 3010 bytes refused"),
        (
            raw(ApiKey.PRODUCE, 3, PRODUCE_TO_MANY),
            "PRODUCE (key 0) version 3: request of 8029 bytes refused, at most 3000 beside records are taken",
        ),
        (
            raw(ApiKey.PRODUCE, 2, PRODUCE_TO_MANY[2:]),
            "PRODUCE (key 0) version 2: request of 8027 bytes refused, at most 3000 beside records are taken",
        ),
        (raw(ApiKey.PRODUCE, 9, b"\xd0\x0f" + b"\5\0" * 2000), "PRODUCE (key 0) version 9: request of 4012 bytes refused, at most 3000"),
    ],
    ids=["metadata", "fetch", "unknown", "produce", "old produce", "tags in the header"],
)
def test_a_request_with_more_to_decode_than_is_allowed_ends_its_connection(
    bytes_: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """`request.decoded.max.bytes`; records do not count."""
    world = BrokerWorld(request_decoded_max_bytes=3000)
    world.create_topic("t")
    good, bad = world.connect(), world.connect()
    bad.peer.send(bytes_)
    assert bad.closed
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert line.startswith(f"connection cut: peer=192.0.2.1:50000 reason={reason}")
    assert good.produce("t", b"x" * 50_000).error_code == 0


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (MetadataRequest(topics=[MetadataRequestTopic(name=f"{number}") for number in range(101)]), 12),
        (OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition()] * 100)]), 8),
        (DescribeProducersRequest([TopicRequest("t", [0] * 100)]), 0),
        (fetch_request("t", 0), 12),
        (produce_request("t", None), 9),
        (raw(ApiKey.PRODUCE, 2, PRODUCE_TO_MANY[2:]), 2),
    ],
    ids=["metadata", "nested", "numbers", "fetch", "produce", "old produce"],
)
def test_a_request_with_more_elements_than_are_taken_ends_its_connection(
    request_: Any, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    """`request.decoded.elements.max` holds for all arrays of a request together."""
    world = BrokerWorld(request_decoded_elements_max=100)
    world.create_topic("t")
    good, bad = world.connect(), world.connect()
    match request_:
        case FetchRequest():
            request_.topics[0].partitions *= 100
        case ProduceRequest():
            request_.topic_data[0].partition_data *= 100
    bad.peer.send(request_ if isinstance(request_, bytes) else bad.frame(request_, version))
    assert bad.closed
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert line.endswith("more than 100 elements, the most that are taken (request.decoded.elements.max)")
    within = MetadataRequest(topics=[MetadataRequestTopic(name="t")] * 100)
    assert [topic.error_code for topic in good.ask(within, 12).topics] == [0]


def test_half_a_frame_waits_and_costs_what_was_sent(world: BrokerWorld) -> None:
    client = world.connect()
    client.peer.send(struct.pack(">i", 100_000_000) + b"\0" * 100)
    assert not client.closed
    (connection,) = world.broker.connections
    assert connection.held_bytes <= 1000


def test_an_api_versions_request_of_the_future_is_answered(world: BrokerWorld) -> None:
    client = world.connect()
    client.peer.send(raw(ApiKey.API_VERSIONS, 99, b"\xff whatever it looks like"))
    answer = client.peer.receive()
    correlation_id, code, count = struct.unpack_from(">ihi", answer, 4)
    assert (correlation_id, code, count) == (9, ErrorCode.UNSUPPORTED_VERSION, 1)
    assert struct.unpack_from(">hhh", answer, 14) == (ApiKey.API_VERSIONS, 0, 4)
    assert client.ask(ApiVersionsRequest("test", "1"), 3).error_code == 0


def test_a_bug_ends_its_connection_with_a_traceback(
    world: BrokerWorld, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError("a bug")

    client, other = world.connect(piece=1 << 20), world.connect()
    monkeypatch.setattr(world.broker, "missing_partition", broken)
    stream = client.frame(produce_request("t", batch(world, b"before")), 9)
    client.peer.send(stream + client.frame(produce_request("missing", batch(world, b"x")), 9))
    assert client.closed
    assert [record for record in caplog.records if record.exc_info]
    assert other.values("t") == [b"before"], "what was staged is written all the same"


def test_a_lost_connection_gives_up_its_fetches(world: BrokerWorld) -> None:
    client = world.connect()
    client.send(fetch_request("t", 0, max_wait_ms=10_000), 12)
    assert world.broker.purgatory.waiting == 1
    client.peer.disconnect()
    world.clock.settle()
    assert world.broker.purgatory.waiting == 0
    assert not world.partition("t").watchers
    assert not world.broker.connections


def test_finishing_answers_what_waits_and_closes(world: BrokerWorld) -> None:
    idle, waiting = world.connect(), world.connect()
    waiting.send(fetch_request("t", 0, max_wait_ms=10_000), 12)
    waiting.send(ApiVersionsRequest("test", "1"), 3)
    world.broker.finish_connections()
    assert idle.closed
    assert len(waiting.answers()) == 2
    assert waiting.closed


def test_more_bytes_than_a_request_has_are_not_looked_at(world: BrokerWorld) -> None:
    """librdkafka 2.16 asks for the metadata of all topics with three bytes too many."""
    client = world.connect()
    client.peer.send(bytes.fromhex("000000190003000d00000003000772646b61666b610000000000010000"))
    assert client.peer.receive()[4:8] == struct.pack(">i", 3)


def test_client_ids_may_be_null_or_any_text(world: BrokerWorld) -> None:
    for client_id in (None, "", "ünïcödé"):
        client = world.connect()
        client.client_id = client_id
        assert client.produce("t", b"x").error_code == 0
        assert client.produce("t", b"x").error_code == 0
        assert client.values("t")
