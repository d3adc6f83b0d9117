"""The fast decoders and the compiled codec take the same requests for the same thing, and refuse the same.

Whole requests come from the declarations of the messages. Damaged ones come from two of each version, one in the form that has a quick
way and one with everything in it: cut anywhere, and every byte changed, doubled or left out.
"""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moldau.model.errors import ProtocolError
from moldau.protocol.codec import decode, encode
from moldau.protocol.fast.fetch import FetchFrame, FetchFramePartition, decode_fetch
from moldau.protocol.fast.produce import ProduceFrame, decode_produce
from moldau.protocol.messages import fetch, produce
from moldau.protocol.varint import uvarint
from support.messages import values
from support.sizes import sized

PRODUCE_VERSIONS = range(3, 14)
FETCH_VERSIONS = range(4, 19)

quick = settings(max_examples=sized(6, 500), deadline=None, suppress_health_check=list(HealthCheck))


def produce_frame(request: produce.ProduceRequest, version: int) -> ProduceFrame:
    """What the fast decoder should make of a request."""
    topics = [
        (
            topic.topic_id if version >= 13 else topic.name.encode(),
            [(partition.index, None if partition.records is None else memoryview(partition.records)) for partition in topic.partition_data],
        )
        for topic in request.topic_data
    ]
    return ProduceFrame(request.transactional_id, request.acks, request.timeout_ms, topics, request.mirror, tuple(request.known_ends))


def fetch_frame(request: fetch.FetchRequest, version: int) -> FetchFrame:
    """What the fast decoder should make of a request."""
    replica_id, replica_epoch = request.replica_id, -1
    if version >= 15:
        state = request.replica_state
        replica_id, replica_epoch = (-1, -1) if state is None else (state.replica_id, state.replica_epoch)

    def key(topic: fetch.FetchTopic | fetch.ForgottenTopic) -> bytes:
        return topic.topic_id if version >= 13 else topic.topic.encode()

    def partition(wanted: fetch.FetchPartition) -> FetchFramePartition:
        return FetchFramePartition(
            wanted.partition,
            wanted.current_leader_epoch,
            wanted.fetch_offset,
            wanted.last_fetched_epoch,
            wanted.log_start_offset,
            wanted.partition_max_bytes,
            wanted.replica_directory_id,
            wanted.high_watermark,
        )

    return FetchFrame(
        replica_id,
        replica_epoch,
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        request.session_epoch,
        [(key(topic), [partition(wanted) for wanted in topic.partitions]) for topic in request.topics],
        [(key(topic), topic.partitions) for topic in request.forgotten_topics_data],
        request.rack_id,
        request.cluster_id,
    )


def agree_on(data: bytes, version: int, fast: Any, cls: type[Any], expected: Any) -> None:
    """Both decoders give the same, or both refuse with a ProtocolError."""
    view = memoryview(data)
    try:
        message = decode(cls, version, view)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            fast(view, 0, version)
    else:
        assert fast(view, 0, version) == expected(message, version)


ALL_REQUESTS = [
    *(
        pytest.param(version, decode_produce, produce.ProduceRequest, produce_frame, id=f"produce-{version}")
        for version in PRODUCE_VERSIONS
    ),
    *(pytest.param(version, decode_fetch, fetch.FetchRequest, fetch_frame, id=f"fetch-{version}") for version in FETCH_VERSIONS),
]


def plain_request(cls: type[Any], version: int, name: str = "topic", records: bytes | None = b"records") -> Any:
    """The form that has a quick way: one topic, one partition, nothing uncommon."""
    by_name, topic_id = (name, bytes(16)) if version < 13 else ("", b"0123456789abcdef")
    if cls is produce.ProduceRequest:
        partition = produce.PartitionProduceData(index=3, records=records)
        topic = produce.TopicProduceData(name=by_name, topic_id=topic_id, partition_data=[partition])
        return produce.ProduceRequest(acks=-1, timeout_ms=30000, topic_data=[topic])
    wanted = fetch.FetchPartition(partition=3, fetch_offset=1 << 33, partition_max_bytes=1 << 20)
    return fetch.FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1 << 26,
        topics=[fetch.FetchTopic(topic=by_name, topic_id=topic_id, partitions=[wanted])],
        rack_id=name if version >= 11 else "",
    )


def full_request(cls: type[Any], version: int) -> Any:
    """One with all that its version can carry."""
    request = plain_request(cls, version, "t", b"r")
    if cls is produce.ProduceRequest:
        request.transactional_id = "id"
        if version >= 9:
            request.mirror, request.known_ends = "m", [7, -1]
        request.topic_data = [request.topic_data[0], plain_request(cls, version, "", None).topic_data[0]]
        return request
    if version >= 15:
        request.replica_state = fetch.ReplicaState(replica_id=2, replica_epoch=5)
    else:
        request.replica_id = 2
    if version >= 12:
        request.cluster_id = "c"
    if version >= 17:
        request.topics[0].partitions[0].replica_directory_id = bytes(range(16))
    if version >= 18:
        request.topics[0].partitions[0].high_watermark = 77
    if version >= 7:
        by_name, topic_id = ("f", bytes(16)) if version < 13 else ("", b"f" * 16)
        request.forgotten_topics_data = [fetch.ForgottenTopic(topic=by_name, topic_id=topic_id, partitions=[1, 2])]
    return request


@pytest.mark.parametrize(("version", "fast", "cls", "expected"), ALL_REQUESTS)
def test_requests_are_read_alike(version: int, fast: Any, cls: type[Any], expected: Any) -> None:
    @quick
    @given(values(cls, version))
    def check(request: Any) -> None:
        agree_on(encode(request, version), version, fast, cls, expected)

    check()


@pytest.mark.parametrize(("version", "fast", "cls", "expected"), ALL_REQUESTS)
def test_sizes_at_which_the_encoding_changes(version: int, fast: Any, cls: type[Any], expected: Any) -> None:
    for name in ("", "t", "ü", "x" * 126, "x" * 127, "x" * 249):
        for records in (None, b"", b"1", bytes(126), bytes(127), bytes(16382), bytes(16383), bytes(1 << 21)):
            agree_on(encode(plain_request(cls, version, name, records), version), version, fast, cls, expected)


@pytest.mark.parametrize(("version", "fast", "cls", "expected"), ALL_REQUESTS)
@pytest.mark.parametrize("build", [plain_request, full_request])
def test_damaged_requests_are_refused_alike(version: int, fast: Any, cls: type[Any], expected: Any, build: Any) -> None:
    whole = encode(build(cls, version), version)
    for cut in range(len(whole)):
        agree_on(whole[:cut], version, fast, cls, expected)
    for tail in (b"\0", b"\xff", b"\0\0\0\0"):
        agree_on(whole + tail, version, fast, cls, expected)
    for where, byte in enumerate(whole):
        before, after = whole[:where], whole[where + 1 :]
        for other in (b"", bytes((byte, byte)), *(bytes((value & 0xFF,)) for value in (0, 1, 2, 0x7F, 0x80, 0xFF, byte + 1, byte - 1))):
            agree_on(before + other + after, version, fast, cls, expected)


@pytest.mark.parametrize("version", range(9, 14))
@pytest.mark.parametrize("zeros", range(6))
def test_a_length_written_in_more_bytes_than_it_needs_is_read_alike(version: int, zeros: int) -> None:
    data = encode(plain_request(produce.ProduceRequest, version), version)
    stretched = data.replace(b"\x08records", b"\x88" + b"\x80" * zeros + b"\0records")
    agree_on(stretched, version, decode_produce, produce.ProduceRequest, produce_frame)


@pytest.mark.parametrize(("version", "fast", "cls", "expected"), ALL_REQUESTS)
def test_a_string_beyond_the_bound_is_refused_alike(version: int, fast: Any, cls: type[Any], expected: Any) -> None:
    """Compact lengths could say more than the 32,767 bytes that a string has at most."""
    name = plain_request(cls, version, "x" * 32767)
    agree_on(encode(name, version), version, fast, cls, expected)
    if version >= 12:
        data = encode(name, version).replace(uvarint(32768) + b"x", uvarint(32769) + b"xx")
        agree_on(data, version, fast, cls, expected)


@pytest.mark.parametrize(("version", "fast", "cls", "expected"), ALL_REQUESTS)
def test_noise_is_refused_alike(version: int, fast: Any, cls: type[Any], expected: Any) -> None:
    @quick
    @given(st.binary(max_size=80) | st.lists(st.sampled_from((0, 1, 2, 0xFF)), max_size=80).map(bytes))
    def check(noise: bytes) -> None:
        agree_on(noise, version, fast, cls, expected)

    check()
