"""Batches that have to be looked into: what breaks a rule is named record by record (KIP-467), and what is large keeps nobody waiting."""

from typing import Any

import pytest

from moldau.broker.handlers.produce import walks
from moldau.broker.handlers.produce.record_walk import RECORD_ERRORS_MAX
from moldau.model.errors import ErrorCode
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.records.batch import Compression, RecordBatchBuilder, iterate_log
from moldau.protocol.records.builder import assemble
from moldau.protocol.records.compression import compress
from moldau.protocol.records.header import HEADER_SIZE, LOG_OVERHEAD, BatchHeader
from moldau.protocol.varint import uvarint
from support.broker_world import BrokerWorld, Client, batch, produce_request

HOUR_MS = 3_600_000
LARGE = b"x" * (2 * walks.DIRECT_BYTES_MAX)


@pytest.fixture
def world() -> BrokerWorld:
    made = BrokerWorld()
    made.create_topic("compacted", cleanup_policy="compact")
    made.create_topic("plain")
    made.create_topic("bounded", message_timestamp_before_max_ms=HOUR_MS)
    made.create_topic("valid", produce_validation="records")
    made.create_topic("gzipped", compression_type="gzip")
    return made


@pytest.fixture
def client(world: BrokerWorld) -> Client:
    return world.connect()


def built(*records: tuple[int, bytes | None], compression: Compression = Compression.NONE, value: bytes = b"v", **fields: Any) -> bytes:
    """A batch of records by timestamp and key."""
    builder = RecordBatchBuilder(compression=compression, **fields)
    for timestamp, key in records:
        builder.append(timestamp, key, value)
    return builder.build()


def send(client: Client, topic: str, records: bytes, version: int = 9, **options: Any) -> Any:
    client.send(produce_request(topic, records, **options), version)
    client.world.clock.settle()
    (answer,) = client.answers()
    return answer.body.responses[0].partition_responses[0]


@pytest.mark.parametrize("value", [b"v", LARGE])
@pytest.mark.parametrize("compression", Compression)
def test_records_without_a_key_are_named(world: BrokerWorld, client: Client, compression: Compression, value: bytes) -> None:
    now_ms = world.clock.time_ms()
    records = built(*((now_ms, None if number % 3 == 0 else b"k") for number in range(7)), compression=compression, value=value)
    answer = send(client, "compacted", records)
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == [0, 3, 6]
    assert all("compacted-0" in error.batch_index_error_message for error in answer.record_errors)
    assert (answer.base_offset, answer.log_start_offset) == (-1, 0)
    assert "record 0 of the batch, and 2 others" in answer.error_message
    assert world.partition("compacted").log.log_end_offset == 0


def test_timestamps_out_of_bounds_are_named_and_decide_the_code(world: BrokerWorld, client: Client) -> None:
    now_ms = world.clock.time_ms()
    old, far = now_ms - 2 * HOUR_MS, now_ms + 2 * HOUR_MS
    answer = send(client, "bounded", built((now_ms, b"k"), (old, b"k"), (-1, b"k"), (far, b"k")))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in answer.record_errors] == [1, 3]
    answer = send(client, "compacted", built((now_ms, None), (far, b"k"), (now_ms, b"k")))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in answer.record_errors] == [0, 1]


def test_timestamps_ahead_are_named_where_nothing_else_is_looked_at(world: BrokerWorld, client: Client) -> None:
    now_ms = world.clock.time_ms()
    answer = send(client, "plain", built((now_ms, b"k"), (now_ms + 2 * HOUR_MS, b"k")))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in answer.record_errors] == [1]
    assert send(client, "plain", built((now_ms, b"k"))).error_code == 0


@pytest.mark.parametrize("version", [3, 5, 7])
def test_before_version_8_only_the_code_is_told(world: BrokerWorld, client: Client, version: int) -> None:
    answer = send(client, "compacted", built((world.clock.time_ms(), None)), version)
    assert answer.error_code == ErrorCode.INVALID_RECORD


def test_so_many_records_are_named_and_no_more(world: BrokerWorld, client: Client) -> None:
    now_ms = world.clock.time_ms()
    answer = send(client, "compacted", built(*[(now_ms, None)] * (RECORD_ERRORS_MAX + 5)))
    assert len(answer.record_errors) == RECORD_ERRORS_MAX


@pytest.mark.parametrize("topic", ["compacted", "valid", "gzipped", "plain"])
def test_size_is_compared_before_anything_is_looked_at(world: BrokerWorld, client: Client, topic: str) -> None:
    """Also where the batch is damaged, and where its records compress to less than the bound."""
    world.compute.immediate = False
    records = bytearray(built((world.clock.time_ms(), None), value=bytes(2 << 20)))
    records[HEADER_SIZE + 20] ^= 1
    answer = send(client, topic, bytes(records))
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert not world.compute.jobs


def test_what_recompression_makes_is_compared_too(world: BrokerWorld, client: Client) -> None:
    world.create_topic("small", compression_type="uncompressed", max_message_bytes=10_000)
    records = built((world.clock.time_ms(), b"k"), value=bytes(50_000), compression=Compression.ZSTD)
    answer = send(client, "small", records)
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert "becomes" in answer.error_message


@pytest.mark.parametrize("topic", ["compacted", "valid"])
def test_batches_that_become_too_large_are_refused_for_good(world: BrokerWorld, client: Client, topic: str) -> None:
    """MESSAGE_TOO_LARGE is not tried again, and makes Java's producer split the batch."""
    records = built((world.clock.time_ms(), b"k"), value=bytes(64 << 20), compression=Compression.ZSTD)
    answer = send(client, topic, records)
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert "16777408" in answer.error_message


def bomb(now_ms: int, headers: int) -> bytes:
    """One record with so many empty headers."""
    body = b"\0\0\0\2k\2v" + uvarint(headers << 1) + b"\0\1" * headers
    payload = compress(uvarint(len(body) << 1) + body, Compression.ZSTD)
    size = HEADER_SIZE - LOG_OVERHEAD + len(payload)
    return bytes(assemble(BatchHeader(0, size, -1, 2, 0, Compression.ZSTD, 0, now_ms, now_ms, -1, -1, -1, 1), payload))


@pytest.mark.parametrize("headers", [12_000, 2_000_000])
def test_more_headers_than_may_be_are_refused(world: BrokerWorld, client: Client, headers: int) -> None:
    answer = send(client, "compacted", bomb(world.clock.time_ms(), headers))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert f"{headers} headers" in answer.error_message
    assert "record.headers.max" in answer.error_message
    world.create_topic("plain-enough")
    assert send(client, "plain-enough", bomb(world.clock.time_ms(), headers)).error_code == 0


def test_the_bound_of_headers_is_a_setting() -> None:
    world = BrokerWorld(record_headers_max=3)
    world.create_topic("t", cleanup_policy="compact")
    client = world.connect()
    assert send(client, "t", bomb(world.clock.time_ms(), 3)).error_code == 0
    assert send(client, "t", bomb(world.clock.time_ms(), 4)).error_code == ErrorCode.INVALID_RECORD


def waiting(world: BrokerWorld) -> None:
    world.compute.immediate = False


def test_a_large_batch_waits_elsewhere_and_what_follows_on_its_connection_waits_for_it(world: BrokerWorld, client: Client) -> None:
    """Others are served; the order of the connection's batches, so of their sequence numbers, stays."""
    waiting(world)
    now_ms = world.clock.time_ms()
    for sequence in range(3):
        value = b"v" if sequence else LARGE
        records = built((now_ms, b"k"), value=value, producer_id=7, producer_epoch=0, base_sequence=sequence)
        client.send(produce_request("compacted", records), 9)
    world.clock.settle()
    other = world.connect()
    other.produce("plain", b"a")
    assert other.values("plain") == [b"a"]
    assert client.answers() == []
    world.compute.run_all()
    world.clock.settle()
    client.peer.push()
    world.clock.settle()
    assert [each.body.responses[0].partition_responses[0].base_offset for each in client.answers()] == [0, 1, 2]


def partitions(*data: tuple[str, bytes], acks: int = 1) -> ProduceRequest:
    return ProduceRequest(
        None, acks, 30_000, [TopicProduceData(topic, partition_data=[PartitionProduceData(0, each)]) for topic, each in data]
    )


def test_what_lies_in_the_receive_buffer_is_copied(world: BrokerWorld, client: Client) -> None:
    """Other reads overwrite the buffer while the batches of a request wait; all of them wait for a large one."""
    waiting(world)
    now_ms = world.clock.time_ms()
    small, large = built((now_ms, b"k"), value=b"small"), built((now_ms, b"k"), value=LARGE)
    client.send(partitions(("plain", small), ("compacted", large), ("valid", small)), 9)
    world.clock.settle()
    assert [world.partition(topic).log.log_end_offset for topic in ("plain", "compacted", "valid")] == [0, 0, 0]
    other = world.connect()
    for _ in range(20):
        other.produce("plain", b"?" * 100_000)
    world.compute.run_all()
    world.clock.settle()
    (answer,) = client.answers()
    assert [each.partition_responses[0].error_code for each in answer.body.responses] == [0, 0, 0]
    last = other.values("plain", 20)[0]
    assert [last, *(other.values(topic, partition_max_bytes=1 << 20)[0] for topic in ("compacted", "valid"))] == [b"small", LARGE, b"small"]


@pytest.mark.parametrize("acks", [0, 1])
def test_a_topic_that_is_deleted_meanwhile(world: BrokerWorld, client: Client, acks: int) -> None:
    waiting(world)
    records = built((world.clock.time_ms(), b"k"), value=LARGE)
    client.send(partitions(("compacted", records), acks=acks), 9, answered=bool(acks))
    world.clock.settle()
    world.delete_topics("compacted")
    world.compute.run_all()
    world.clock.settle()
    if acks:
        (answer,) = client.answers()
        assert answer.body.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        assert client.closed


def test_a_connection_that_is_lost_meanwhile_leaves_nothing_in_the_log(world: BrokerWorld, client: Client) -> None:
    waiting(world)
    client.send(produce_request("compacted", built((world.clock.time_ms(), b"k"), value=LARGE)), 9)
    world.clock.settle()
    client.peer.disconnect()
    world.compute.run_all()
    world.clock.settle()
    assert world.partition("compacted").log.log_end_offset == 0
    assert world.connect().produce("plain", b"a").error_code == 0


def test_small_batches_of_one_turn_are_looked_into_at_once_up_to_a_bound(world: BrokerWorld, client: Client) -> None:
    waiting(world)
    records = built((world.clock.time_ms(), b"k"), value=bytes(20_000))
    fitting = -(-walks.TURN_BYTES_MAX // len(records))
    client.send(partitions(*[("compacted", records)] * (fitting + 2)), 9)
    assert len(world.compute.jobs) == 2
    world.compute.run_all()
    world.clock.settle()
    (answer,) = client.answers()
    assert [each.partition_responses[0].base_offset for each in answer.body.responses] == list(range(fitting + 2))
    assert send(client, "compacted", records).error_code == 0
    assert not world.compute.jobs


def test_recompressed_batches_are_what_they_were(world: BrokerWorld, client: Client) -> None:
    now_ms = world.clock.time_ms()
    for value in (b"v", LARGE):
        assert send(client, "gzipped", built((now_ms, b"k"), (now_ms, None), value=value, compression=Compression.LZ4)).error_code == 0
    records = client.fetch("gzipped", 0).records
    assert [each.value for each in iterate_log(memoryview(bytes(records)), max_decompressed_bytes=1 << 24)] == [b"v", b"v", LARGE, LARGE]


def test_a_plain_batch_is_not_looked_into(world: BrokerWorld, client: Client) -> None:
    waiting(world)
    assert client.ask(produce_request("plain", batch(world, LARGE)), 9).responses[0].partition_responses[0].error_code == 0
    assert not world.compute.jobs


def test_what_is_compressed_anew_waits_for_nothing_but_that(world: BrokerWorld, client: Client) -> None:
    """Compressing may take a hundred seconds for 16 MB: it has its own thread; only the smallest batches are compressed at once."""
    world.recompress.immediate = False
    now_ms = world.clock.time_ms()
    other = world.connect()
    client.send(produce_request("gzipped", built((now_ms, b"k"), value=bytes(2 * walks.RECOMPRESSED_BYTES_MAX))), 9)
    assert len(world.recompress.jobs) == 1
    assert send(other, "compacted", built((now_ms, b"k"), value=LARGE)).error_code == 0
    assert send(other, "gzipped", built((now_ms, b"k"), value=bytes(100))).base_offset == 0
    assert send(other, "gzipped", built((now_ms, b"k"), value=LARGE, compression=Compression.GZIP)).base_offset == 1
    world.recompress.run_all()
    world.clock.settle()
    (answer,) = client.answers()
    assert answer.body.responses[0].partition_responses[0].base_offset == 2
