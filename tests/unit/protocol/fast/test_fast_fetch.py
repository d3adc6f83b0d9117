"""Fetch is decoded by hand, and its answer is a few bytes, ranges of files, and a few bytes. Golden bytes, laid out by hand."""

import pytest

from moldau.model.errors import ErrorCode, ProtocolError
from moldau.ports.transport import FileRange
from moldau.protocol.codec import encode
from moldau.protocol.fast.fetch import (
    NO_DIRECTORY,
    NO_HIGH_WATERMARK,
    FetchFrame,
    FetchFramePartition,
    FetchPartitionResult,
    decode_fetch,
    decode_fetch_in_steps,
    encode_fetch_response,
)
from moldau.protocol.messages.fetch import FetchRequest, FetchTopic, ForgottenTopic
from moldau.testing.disk import ForgetfulDisk

TOPIC_ID = bytes(range(16))

VERSION_4 = bytes.fromhex(
    "ffffffff 000001f4 00000001 03200000 01"  # consumer, wait 500 ms, at least 1 byte, at most 50 MiB, committed records
    "00000001 0005 746f706963"  # one topic, "topic"
    "00000001 00000003 0000000000000064 00100000"  # one partition, 3, from offset 100, at most 1 MiB
)
VERSION_16 = bytes.fromhex(
    "000001f4 00000001 03200000 00 00000000 ffffffff"  # limits, all records, no session
    "02 000102030405060708090a0b0c0d0e0f"  # one topic
    "02 00000003 00000009 0000000000000064 ffffffff ffffffffffffffff 00100000 00"  # one partition, leader epoch 9
    "00 01 02 72 00"  # no tagged fields, no forgotten topics, rack "r", no tagged fields
)


def file_range(data: bytes) -> FileRange:
    file = ForgetfulDisk().open("/log", create=True)
    file.append([data])
    return FileRange(file, 0, len(data))


def result(records: object, **fields: object) -> FetchPartitionResult:
    return FetchPartitionResult(3, 0, 200, 150, 10, records, **fields)  # type: ignore[arg-type]


def test_golden_request_of_version_4() -> None:
    partition = FetchFramePartition(3, -1, 100, -1, -1, 1 << 20, NO_DIRECTORY, NO_HIGH_WATERMARK)
    expected = FetchFrame(-1, -1, 500, 1, 50 << 20, 1, 0, -1, [(b"topic", [partition])], [], "", None)
    assert decode_fetch(memoryview(VERSION_4), 0, 4) == expected


def test_golden_request_of_version_16() -> None:
    partition = FetchFramePartition(3, 9, 100, -1, -1, 1 << 20, NO_DIRECTORY, NO_HIGH_WATERMARK)
    expected = FetchFrame(-1, -1, 500, 1, 50 << 20, 0, 0, -1, [(TOPIC_ID, [partition])], [], "r", None)
    assert decode_fetch(memoryview(b"header" + VERSION_16), 6, 16) == expected


@pytest.mark.parametrize(("version", "body"), [(4, VERSION_4), (16, VERSION_16)])
def test_every_cut_is_refused(version: int, body: bytes) -> None:
    for size in range(len(body)):
        with pytest.raises(ProtocolError) as caught:
            decode_fetch(memoryview(body)[:size], 0, version)
        assert caught.value.code == ErrorCode.INVALID_REQUEST


def test_a_follower_says_who_it_is() -> None:
    cluster, replica = "00 02 0263", "01 0d 00000005 0000000000000008 00"  # tag, size, value
    body = VERSION_16[:-1] + bytes.fromhex(f"02 {cluster} {replica}")
    frame = decode_fetch(memoryview(body), 0, 16)
    assert (frame.replica_id, frame.replica_epoch, frame.cluster_id) == (5, 8, "c")


@pytest.mark.parametrize(
    ("version", "records", "end"),
    [(4, b"", "00000000"), (4, None, "ffffffff"), (12, b"", "ffffffff 01 00 00 00"), (12, None, "ffffffff 00 00 00 00")],
)
def test_no_records(version: int, records: bytes | None, end: str) -> None:
    (whole,) = encode_fetch_response(version, 1, 0, 0, 0, [(b"t", [result(records)])])
    assert isinstance(whole, bytes)
    assert whole.endswith(bytes.fromhex(end))


class TestParts:
    def test_golden_answer(self) -> None:
        records = file_range(b"records")
        head, middle, tail = encode_fetch_response(16, 42, 5, 0, 0, [(TOPIC_ID, [result(records)])])
        assert head == bytes.fromhex(
            "0000004f 0000002a 00"  # size, correlation id, no tagged fields of the header
            "00000005 0000 00000000"  # throttle time, success, no session
            "02 000102030405060708090a0b0c0d0e0f"  # one topic
            "02 00000003 0000 00000000000000c8 0000000000000096 000000000000000a"  # one partition, its offsets
            "00 ffffffff 08"  # no list of aborted transactions, no preferred replica, seven bytes of records
        )
        assert middle is records
        assert tail == b"\0\0\0"

    @pytest.mark.parametrize("version", range(4, 19))
    def test_one_partition_is_at_most_three_parts(self, version: int) -> None:
        topic = TOPIC_ID if version >= 13 else b"topic"
        records = file_range(bytes(100))
        parts = encode_fetch_response(version, 1, 0, 0, 0, [(topic, [result(records)])])
        assert parts[1] is records
        assert [type(part) for part in parts] == [bytes, FileRange, bytes][: 3 if version >= 12 else 2]

    def test_several_ranges_and_small_bytes_between(self) -> None:
        one, two = file_range(b"one"), file_range(b"two")
        parts = encode_fetch_response(12, 1, 0, 0, 0, [(b"t", [result([one, b"small", two]), result(b"more")])])
        assert [type(part) for part in parts] == [bytes, FileRange, bytes, FileRange, bytes]
        assert parts[2] == b"small"

    def test_long_bytes_are_not_copied(self) -> None:
        records = memoryview(bytes(20_000))
        parts = encode_fetch_response(12, 1, 0, 0, 0, [(b"t", [result(records)])])
        assert parts[1] is records
        assert len(parts) == 3

    def test_the_size_is_that_of_all_parts(self) -> None:
        parts = encode_fetch_response(12, 1, 0, 0, 0, [(b"t", [result(file_range(bytes(300))), result(b"x" * 20_000)])])
        total = sum(part.length if isinstance(part, FileRange) else len(part) for part in parts)
        assert isinstance(parts[0], bytes)
        assert int.from_bytes(parts[0][:4], "big") == total - 4


def test_what_is_not_set_is_not_sent() -> None:
    (plain,) = encode_fetch_response(16, 1, 0, 0, 0, [(TOPIC_ID, [result(b"")])])
    (diverging,) = encode_fetch_response(16, 1, 0, 0, 0, [(TOPIC_ID, [result(b"", diverging_epoch=(4, 77))])])
    (leader,) = encode_fetch_response(16, 1, 0, 0, 0, [(TOPIC_ID, [result(b"", current_leader=(4, 7))])])
    assert isinstance(plain, bytes)
    assert isinstance(diverging, bytes)
    assert isinstance(leader, bytes)
    assert diverging.endswith(bytes.fromhex("01 00 0d 00000004 000000000000004d 00  00 00"))
    assert leader.endswith(bytes.fromhex("01 01 09 00000004 00000007 00  00 00"))
    assert plain.endswith(b"\x01\0\0\0")


@pytest.mark.parametrize("version", [7, 12, 18])
def test_a_request_of_any_length_is_read_in_short_steps(version: int) -> None:
    """50,000 topics, each wanted or forgotten, took a step of 90 ms."""
    names = [{"topic_id": bytes(16)} if version >= 13 else {"topic": "t"} for _ in range(25_000)]
    request = FetchRequest(topics=[FetchTopic(**name) for name in names], forgotten_topics_data=[ForgottenTopic(**name) for name in names])
    steps = decode_fetch_in_steps(memoryview(encode(request, version)), 0, version)
    paused = sum(1 for _ in steps)
    assert paused >= 2 * 25_000 // 128
