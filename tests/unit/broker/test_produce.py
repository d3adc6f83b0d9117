"""Produce obeys Kafka's rules: which batches are taken, which code each refusal has, and where acknowledged bytes are."""

import struct
from typing import Any

import pytest

from moldau.model.errors import ErrorCode
from moldau.protocol.records.compression import Compression
from moldau.protocol.records.header import LOG_APPEND_TIME_BIT, read_header, stamp_crc
from support.broker_world import BrokerWorld, Client, batch, produce_request


@pytest.fixture
def world() -> BrokerWorld:
    made = BrokerWorld()
    made.create_topic("t")
    return made


@pytest.fixture
def client(world: BrokerWorld) -> Client:
    return world.connect()


def send(client: Client, records: bytes | None, version: int = 9, **options: Any) -> Any:
    topic = options.pop("topic", "t")
    answer = client.ask(produce_request(topic, records, **options), version)
    return answer.responses[0].partition_responses[0]


@pytest.mark.parametrize("version", range(3, 13))
@pytest.mark.parametrize("acks", [1, -1])
def test_batches_get_offsets_one_after_the_other(client: Client, version: int, acks: int) -> None:
    first = client.produce("t", b"a", b"b", version=version, acks=acks)
    second = client.produce("t", b"c", version=version, acks=acks)
    third = client.produce("t", b"d", version=version, acks=acks)
    assert [answer.error_code for answer in (first, second, third)] == [0, 0, 0]
    assert [answer.base_offset for answer in (first, second, third)] == [0, 2, 3]
    assert client.values("t") == [b"a", b"b", b"c", b"d"]


def test_from_version_13_topics_go_by_id(world: BrokerWorld, client: Client) -> None:
    topic_id = world.create_topic("by-id")
    for offset in range(2):
        answer = client.ask(produce_request(topic_id, batch(world, b"x")), 13)
        assert answer.responses[0].topic_id == topic_id
        assert (answer.responses[0].partition_responses[0].error_code, answer.responses[0].partition_responses[0].base_offset) == (
            0,
            offset,
        )
    unknown = client.ask(produce_request(b"?" * 16, batch(world, b"x")), 13)
    assert unknown.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_acks_0_gets_no_answer_and_appends(world: BrokerWorld, client: Client) -> None:
    for _ in range(3):
        client.send(produce_request("t", batch(world, b"x"), acks=0), 9, answered=False)
    assert client.answers() == []
    assert client.values("t") == [b"x"] * 3
    assert not client.closed


def test_an_error_with_acks_0_closes_the_connection(world: BrokerWorld, client: Client, caplog: pytest.LogCaptureFixture) -> None:
    client.send(produce_request("missing", batch(world, b"x"), acks=0), 9, answered=False)
    assert client.closed
    assert [record.getMessage() for record in caplog.records if "acks 0" in record.getMessage()]


@pytest.mark.parametrize("acks", [2, -2, 127])
def test_other_acks_are_refused(world: BrokerWorld, client: Client, acks: int) -> None:
    assert send(client, batch(world, b"x"), acks=acks).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert world.partition("t").log.log_end_offset == 0


def test_unknown_topics_and_partitions(world: BrokerWorld, client: Client) -> None:
    assert send(client, batch(world, b"x"), topic="missing").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert send(client, batch(world, b"x"), partition=1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert send(client, batch(world, b"x"), partition=-1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_error_of_one_partition_leaves_the_others_alone(world: BrokerWorld, client: Client) -> None:
    request = produce_request("t", batch(world, b"good"))
    bad = produce_request("t", batch(world, b"bad")[:-1])
    request.topic_data[0].partition_data.append(bad.topic_data[0].partition_data[0])
    answers = client.ask(request, 9).responses[0].partition_responses
    assert [answer.error_code for answer in answers] == [0, ErrorCode.CORRUPT_MESSAGE]
    assert client.values("t") == [b"good"]


def test_versions_before_3_are_listed_but_refused(client: Client) -> None:
    for version, size in ((0, 14), (1, 18), (2, 26)):
        body = struct.pack(">hii", 1, 1000, 1) + b"\0\1t" + struct.pack(">iii", 1, 0, 0)
        payload = struct.pack(">hhih", 0, version, 77, -1) + body
        client.peer.send(struct.pack(">i", len(payload)) + payload)
        answer = client.peer.receive()
        assert answer[4:8] == struct.pack(">i", 77)
        assert answer[8:19] == struct.pack(">ih", 1, 1) + b"t" + struct.pack(">i", 1)
        index, code, offset = struct.unpack_from(">ihq", answer, 19)
        assert (index, code, offset) == (0, ErrorCode.UNSUPPORTED_VERSION, -1)
        assert len(answer) == 19 + size
    assert not client.closed


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda good: None, ErrorCode.INVALID_RECORD),
        (lambda good: b"", ErrorCode.INVALID_RECORD),
        (lambda good: good[:-1], ErrorCode.CORRUPT_MESSAGE),
        (lambda good: good[:60] + bytes([good[60] ^ 1]) + good[61:], ErrorCode.CORRUPT_MESSAGE),
        (lambda good: good + good, ErrorCode.INVALID_RECORD),
        (lambda good: good[:16] + b"\1" + good[17:], ErrorCode.INVALID_RECORD),
    ],
    ids=["null", "empty", "cut", "changed", "two batches", "old format"],
)
def test_damaged_batches(world: BrokerWorld, client: Client, damage: Any, code: ErrorCode) -> None:
    answer = send(client, damage(batch(world, b"value")))
    assert (answer.error_code, answer.base_offset) == (code, -1)
    assert answer.error_message
    assert world.partition("t").log.log_end_offset == 0


def test_a_batch_longer_than_max_message_bytes(world: BrokerWorld, client: Client) -> None:
    world.create_topic("small", max_message_bytes=1000)
    fits = batch(world, b"x" * 900)
    assert send(client, fits, topic="small").error_code == 0
    assert send(client, fits, topic="small").error_code == 0
    for _ in range(2):
        assert send(client, batch(world, b"x" * 1000), topic="small").error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert world.partition("small").log.log_end_offset == 2


def test_a_batch_longer_than_a_segment(world: BrokerWorld, client: Client) -> None:
    world.create_topic("short", segment_bytes=1_048_576, max_message_bytes=3_000_000)
    answer = send(client, batch(world, b"x" * 1_048_576), topic="short")
    assert answer.error_code == ErrorCode.RECORD_LIST_TOO_LARGE


def test_zstd_needs_version_7(world: BrokerWorld, client: Client) -> None:
    compressed = batch(world, b"x" * 100, compression=Compression.ZSTD)
    assert send(client, compressed, 6).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert send(client, compressed, 7).error_code == 0
    assert send(client, compressed, 7).error_code == 0
    assert send(client, batch(world, b"x"), 6).error_code == 0
    assert send(client, compressed, 6).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_timestamps_too_far_ahead(world: BrokerWorld, client: Client) -> None:
    ahead = batch(world, b"x")
    assert send(client, ahead).error_code == 0
    world.clock.advance(7200)
    late = batch(world, b"x")
    world.clock._now -= 7200
    assert send(client, late).error_code == ErrorCode.INVALID_TIMESTAMP
    world.create_topic("stamped", message_timestamp_type="LogAppendTime")
    assert send(client, late, topic="stamped").error_code == 0


def test_timestamps_too_old(world: BrokerWorld, client: Client) -> None:
    world.create_topic("recent", message_timestamp_before_max_ms=60_000)
    old = batch(world, b"x")
    assert send(client, old, topic="recent").error_code == 0
    world.clock.advance(61)
    assert send(client, old, topic="recent").error_code == ErrorCode.INVALID_TIMESTAMP


def test_a_producer_may_not_claim_append_time(world: BrokerWorld, client: Client) -> None:
    claimed = bytearray(batch(world, b"x"))
    claimed[22] |= LOG_APPEND_TIME_BIT
    stamp_crc(claimed)
    for _ in range(2):
        assert send(client, bytes(claimed)).error_code == ErrorCode.INVALID_TIMESTAMP


def test_log_append_time_is_told_and_kept(world: BrokerWorld, client: Client) -> None:
    world.create_topic("stamped", message_timestamp_type="LogAppendTime")
    world.clock.advance(5)
    for _ in range(2):
        assert client.produce("stamped", b"x").log_append_time_ms == world.clock.time_ms()
    header = read_header(memoryview(bytes(client.fetch("stamped", 0).records)))
    assert header.max_timestamp == world.clock.time_ms()
    assert header.timestamp_type_is_log_append
    assert client.produce("t", b"x").log_append_time_ms == -1


def test_compacted_topics_take_no_record_without_a_key(world: BrokerWorld, client: Client) -> None:
    world.create_topic("compacted", cleanup_policy="compact")
    assert send(client, batch(world, b"x"), topic="compacted").error_code == ErrorCode.INVALID_RECORD
    assert send(client, batch(world, b"x", key=b"k"), topic="compacted").error_code == 0


def test_validation_of_records_is_a_choice_of_the_topic(world: BrokerWorld, client: Client) -> None:
    world.create_topic("strict", produce_validation="records")
    lying = bytearray(batch(world, b"one", b"two"))
    lying[61] ^= 0x10  # the size of the first record
    stamp_crc(lying)
    assert send(client, bytes(lying), topic="t").error_code == 0, "the default trusts checksum, count and last offset delta"
    assert send(client, bytes(lying), topic="strict").error_code == ErrorCode.INVALID_RECORD
    assert send(client, batch(world, b"one", b"two"), topic="strict").error_code == 0


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_another_codec_than_the_topics_is_replaced(world: BrokerWorld, client: Client, codec: str) -> None:
    world.create_topic("coded", compression_type=codec)
    number = 0 if codec == "uncompressed" else Compression[codec.upper()]
    for offset, sent in enumerate((Compression.NONE, Compression.GZIP, Compression.ZSTD)):
        assert send(client, batch(world, b"x" * 500, compression=sent), topic="coded").base_offset == offset
    header = read_header(memoryview(bytes(client.fetch("coded", 1).records)))
    assert header.compression == number
    assert client.values("coded", 0) == [b"x" * 500] * 3


def test_acks_all_needs_min_insync_replicas(world: BrokerWorld, client: Client) -> None:
    world.create_topic("safe", min_insync_replicas=2)
    assert client.produce("safe", b"x", acks=-1).error_code == 0, "it has one replica, which is in sync"
    world.lack_replicas("safe")
    assert client.produce("safe", b"x", acks=-1).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert client.produce("safe", b"x", acks=1).error_code == 0


def test_no_batch_of_a_new_producer_overtakes_one_that_was_refused_while_too_few_replicas_were_in_sync(
    world: BrokerWorld, client: Client
) -> None:
    """Seed 616: batches were in flight while the second replica came in sync, and the later of them was taken first."""

    def numbered(sequence: int) -> bytes:
        return batch(world, b"x", producer_id=5, producer_epoch=0, base_sequence=sequence)

    world.create_topic("safe", min_insync_replicas=2)
    assert client.produce("safe", b"x", acks=-1).error_code == 0
    world.lack_replicas("safe")
    assert send(client, numbered(0), topic="safe", acks=-1).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    world.lack_replicas("safe", lacks=False)
    assert send(client, numbered(1), topic="safe").error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [send(client, numbered(sequence), topic="safe").base_offset for sequence in range(2)] == [1, 2]


def test_idempotent_producers(world: BrokerWorld, client: Client) -> None:
    def numbered(sequence: int, epoch: int = 0) -> bytes:
        return batch(world, b"x", producer_id=5, producer_epoch=epoch, base_sequence=sequence)

    assert [send(client, numbered(sequence)).base_offset for sequence in range(3)] == [0, 1, 2]
    repeated = send(client, numbered(1))
    assert (repeated.error_code, repeated.base_offset) == (0, 1)
    assert send(client, numbered(9)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(client, numbered(0, epoch=1)).base_offset == 3
    assert send(client, numbered(1, epoch=0)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert world.partition("t").log.log_end_offset == 4


def test_configurations_change_at_once(world: BrokerWorld, client: Client) -> None:
    records = batch(world, b"x" * 500)
    assert send(client, records).error_code == 0
    assert send(client, records).error_code == 0
    world.configure("t", max_message_bytes=100)
    assert send(client, records).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_deleted_topic_is_unknown_at_once(world: BrokerWorld, client: Client) -> None:
    records = batch(world, b"x")
    assert send(client, records).error_code == 0
    assert send(client, records).error_code == 0
    world.delete_topics("t")
    assert send(client, records).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
