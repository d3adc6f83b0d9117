"""Produce is decoded without a copy of its records and answered in one piece. Golden bytes, laid out by hand from the protocol guide."""

import tracemalloc

import pytest

from moldau.model.errors import ErrorCode, ProtocolError
from moldau.protocol.fast.produce import ProduceFrame, ProducePartitionResult, decode_produce, encode_produce_response
from moldau.protocol.fast.writing import LeaderEndpoint
from moldau.protocol.framing import FrameReader, ReceiveBuffer
from moldau.protocol.headers import decode_request_header
from moldau.protocol.varint import uvarint

TOPIC_ID = bytes(range(16))

VERSION_3 = bytes.fromhex(
    "ffff"  # no transactional id
    "ffff 00007530"  # acks all, 30 s
    "00000001 0005 746f706963"  # one topic, "topic"
    "00000001 00000003"  # one partition, 3
    "00000004 deadbeef"  # four bytes of records
)
VERSION_9 = bytes.fromhex(
    "00 ffff 00007530"  # no transactional id, acks all, 30 s
    "02 06 746f706963"  # one topic, "topic"
    "02 00000003 05 deadbeef"  # one partition, 3, four bytes of records
    "00 00 00"  # no tagged fields of partition, topic, request
)
VERSION_13 = bytes.fromhex("00 ffff 00007530 02 000102030405060708090a0b0c0d0e0f 02 00000003 05 deadbeef 00 00 00")
HEADER_9 = bytes.fromhex("0000 0009 0000002a 0003 636c69 00")  # Produce v9, correlation id 42, client "cli", no tagged fields


@pytest.mark.parametrize(
    ("version", "body", "topic"),
    [
        *((version, VERSION_3, b"topic") for version in range(3, 9)),
        *((version, VERSION_9, b"topic") for version in range(9, 13)),
        (13, VERSION_13, TOPIC_ID),
    ],
)
class TestOnePartition:
    def test_golden_bytes(self, version: int, body: bytes, topic: bytes) -> None:
        frame = decode_produce(memoryview(body), 0, version)
        assert frame == ProduceFrame(None, -1, 30000, [(topic, [(3, memoryview(b"\xde\xad\xbe\xef"))])])

    def test_records_are_where_they_came_in(self, version: int, body: bytes, topic: bytes) -> None:
        """A view, writable as the receive buffer is: the broker stamps the batch there."""
        received = bytearray(b"header" + body)
        ((_, ((_, records),)),) = decode_produce(memoryview(received), 6, version).topics
        assert records is not None
        records[:] = b"MARK"
        assert b"MARK" in received

    def test_every_cut_is_refused(self, version: int, body: bytes, topic: bytes) -> None:
        for size in range(len(body)):
            with pytest.raises(ProtocolError) as caught:
                decode_produce(memoryview(body)[:size], 0, version)
            assert caught.value.code == ErrorCode.INVALID_REQUEST


def test_whole_request_fed_byte_by_byte() -> None:
    reader = FrameReader(ReceiveBuffer(64), 1000)
    stream = (len(HEADER_9 + VERSION_9).to_bytes(4, "big") + HEADER_9 + VERSION_9) * 3
    decoded = []
    for byte in stream:
        reader.get_buffer()[0] = byte
        reader.updated(1)
        for view in reader.frames():
            header = decode_request_header(view)
            frame = decode_produce(view, header.body_position, header.api_version)
            decoded.append((header.correlation_id, frame.topics[0][0], bytes(frame.topics[0][1][0][1] or b"")))
    assert decoded == [(42, b"topic", b"\xde\xad\xbe\xef")] * 3


def test_several_topics_and_partitions_and_a_transaction() -> None:
    body = bytes.fromhex(
        "04 747869"  # transactional id "txi"
        "0001 00000001"
        "03"  # two topics
        "02 61  03  00000000 00 00  00000001 01 00  00"  # "a": partition 0 with null, partition 1 with no bytes
        "02 62  01  01 05 03 616263"  # "b" without partitions, with tagged field 5 of three bytes, skipped
        "00"
    )
    frame = decode_produce(memoryview(body), 0, 9)
    assert frame == ProduceFrame("txi", 1, 1, [(b"a", [(0, None), (1, memoryview(b""))]), (b"b", [])])


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("00 ffff 00007530 ffffffff0f", "topics"),
        ("00 ffff 00007530 02 ffffffff0f", "longer than 32767"),
        ("00 ffff 00007530 02 02 74 ffffffff0f", "partitions"),
        ("00 ffff 00007530 02 02 74 02 00000003 ffffffff0f", "records of 4294967294"),
        ("00 ffff 00007530 02 02 74 02 00000003 ffffffffff", "longer than 5 bytes"),
        ("00 ffff 00007530 00", "-1 topics"),
        ("00 ffff 00007530 02 00 00 00 00", "string of -1"),
        ("00 ffff 00007530 02 03 c328 01 00 00", "UTF-8"),
        ("00 ffff 00007530 01 00 00", "1 bytes follow the Produce request"),
    ],
)
def test_malformed_requests_say_what_is_wrong(body: str, text: str) -> None:
    with pytest.raises(ProtocolError, match=text):
        decode_produce(memoryview(bytes.fromhex(body)), 0, 9)


def test_golden_answer_of_version_9() -> None:
    answer = encode_produce_response(9, 42, [(b"topic", [ProducePartitionResult(3, 0, 1000, -1, 7)])], throttle_ms=5)
    assert answer == bytes.fromhex(
        "00000034 0000002a 00"  # size, correlation id, no tagged fields of the header
        "02 06 746f706963 02"  # one topic, "topic", one partition
        "00000003 0000 00000000000003e8 ffffffffffffffff 0000000000000007"  # 3, success, base offset, no append time, start
        "01 00 00 00"  # no record errors, no message, no tagged fields of partition and topic
        "00000005 00"  # throttle time, no tagged fields
    )


def test_golden_answer_of_version_3() -> None:
    answer = encode_produce_response(3, 42, [(b"topic", [ProducePartitionResult(3, 6, -1, -1, 7)])])
    assert answer == bytes.fromhex(
        "0000002d 0000002a 00000001 0005 746f706963 00000001 00000003 0006 ffffffffffffffff ffffffffffffffff 00000000"
    )


def test_where_the_leader_is_now() -> None:
    """KIP-951: the tagged fields are there from version 10 and only when they say something."""
    result = ProducePartitionResult(0, ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=(2, 9))
    nodes = [LeaderEndpoint(2, "h", 9092)]
    with_leader = encode_produce_response(10, 1, [(b"t", [result])], node_endpoints=nodes)
    without = encode_produce_response(9, 1, [(b"t", [result])], node_endpoints=nodes)
    assert bytes.fromhex("01 00 09 00000002 00000009 00") in with_leader
    assert with_leader.endswith(bytes.fromhex("01 00 0d 02 00000002 02 68 00002384 00 00"))
    assert without == encode_produce_response(9, 1, [(b"t", [result._replace(current_leader=None)])])


class TestBytesBesideRecords:
    """What is not records has a bound, since objects are made of it; it holds for each request, whatever the order of its parts."""

    @staticmethod
    def request(partitions: int, records: int) -> memoryview:
        """Version 9; header and all beside records are 15 + 9 * partitions bytes."""
        data = b"".join(bytes.fromhex("00000003") + uvarint(records + 1) + bytes(records) + b"\0" for _ in range(partitions))
        return memoryview(bytes.fromhex("00 ffff 00007530 02 06 746f706963") + uvarint(partitions + 1) + data + b"\0\0")

    def test_records_do_not_count(self) -> None:
        body = self.request(3, 20_000)
        beside = len(body) - 3 * 20_000
        (_, partitions), *_ = decode_produce(body, 0, 9, beside).topics
        assert [len(records or b"") for _, records in partitions] == [20_000] * 3

    @pytest.mark.parametrize("less", [1, 2, 3, 9, 18])
    def test_all_else_does(self, less: int) -> None:
        body = self.request(3, 20_000)
        beside = len(body) - 3 * 20_000
        wanted = rf"^PRODUCE \(key 0\) version 9: request of {len(body)} bytes refused, at most {beside - less} beside records are taken"
        with pytest.raises(ProtocolError, match=wanted):
            decode_produce(body, 0, 9, beside - less)

    def test_a_count_that_goes_beyond_is_refused_before_anything_is_made(self) -> None:
        body = self.request(100_000, 1)
        tracemalloc.start()
        try:
            with pytest.raises(ProtocolError, match="100000 partitions at byte 17"):
                decode_produce(body, 0, 9, 100_000)
            assert tracemalloc.get_traced_memory()[1] < 100_000
        finally:
            tracemalloc.stop()

    def test_a_request_within_the_bound_is_malformed_in_its_own_right(self) -> None:
        with pytest.raises(ProtocolError, match=r"^6 partitions"):
            decode_produce(memoryview(bytes.fromhex("00 ffff 00007530 02 06 746f706963 07 00")), 0, 9, 1000)
