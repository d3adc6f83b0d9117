"""The fast encoders write the same answers to Produce and Fetch as the compiled codec, in all the shapes that records come in."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moldau.ports.transport import FileRange, Part
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec import encode
from moldau.protocol.fast.fetch import FetchPartitionResult, encode_fetch_response
from moldau.protocol.fast.produce import ProducePartitionResult, encode_produce_response
from moldau.protocol.fast.writing import LeaderEndpoint
from moldau.protocol.headers import response_header
from moldau.protocol.messages import fetch, produce
from moldau.testing.disk import ForgetfulDisk
from support.messages import values
from support.sizes import sized

quick = settings(max_examples=sized(6, 500), deadline=None, suppress_health_check=list(HealthCheck))
NAMES = ["", "t", "ü", *("x" * size for size in (125, 126, 127, 128, 249))]


def frame(api_key: ApiKey, version: int, correlation_id: int, message: Any) -> bytes:
    body = response_header(api_key, version, correlation_id) + encode(message, version)
    return len(body).to_bytes(4, "big") + body


def pair(struct: Any, first: str, second: str) -> tuple[int, int] | None:
    return None if struct is None else (getattr(struct, first), getattr(struct, second))


def endpoints(nodes: Sequence[Any]) -> list[LeaderEndpoint]:
    return [LeaderEndpoint(node.node_id, node.host, node.port, node.rack) for node in nodes]


def produce_answer(answer: produce.ProduceResponse, version: int, correlation_id: int) -> bytes:
    """The fast encoder's bytes for a message of the codec."""
    topics = [
        (
            topic.topic_id if version >= 13 else topic.name.encode(),
            [
                ProducePartitionResult(
                    result.index,
                    result.error_code,
                    result.base_offset,
                    result.log_append_time_ms,
                    result.log_start_offset,
                    result.error_message,
                    [(error.batch_index, error.batch_index_error_message) for error in result.record_errors],
                    pair(result.current_leader, "leader_id", "leader_epoch"),
                )
                for result in topic.partition_responses
            ],
        )
        for topic in answer.responses
    ]
    return encode_produce_response(version, correlation_id, topics, answer.throttle_time_ms, endpoints(answer.node_endpoints))


@pytest.mark.parametrize("version", range(3, 14))
def test_produce_answers_are_written_alike(version: int) -> None:
    @quick
    @given(values(produce.ProduceResponse, version), st.integers(0, (1 << 31) - 1))
    def check(answer: produce.ProduceResponse, correlation_id: int) -> None:
        assert produce_answer(answer, version, correlation_id) == frame(ApiKey.PRODUCE, version, correlation_id, answer)

    check()


@pytest.mark.parametrize("version", range(3, 14))
def test_produce_answers_for_one_partition_are_written_alike(version: int) -> None:
    @quick
    @given(values(produce.PartitionProduceResponse, version), st.booleans())
    def check(result: produce.PartitionProduceResponse, plain: bool) -> None:
        if plain:
            result.record_errors, result.error_message, result.current_leader = [], None, None
        for name in NAMES:
            topic = produce.TopicProduceResponse(partition_responses=[result])
            topic.name, topic.topic_id = (name, bytes(16)) if version < 13 else ("", bytes(range(16)))
            answer = produce.ProduceResponse(responses=[topic], throttle_time_ms=5)
            assert produce_answer(answer, version, 1) == frame(ApiKey.PRODUCE, version, 1, answer)

    check()


def stitched(parts: Sequence[Part]) -> bytes:
    return b"".join(part.file.pread(part.length, part.position) if isinstance(part, FileRange) else bytes(part) for part in parts)


def as_part(records: Any, shape: str) -> Any:
    """The records of a partition in one of the shapes that an answer takes."""
    if records is None or shape == "bytes":
        return records
    file = ForgetfulDisk().open("/log", create=True)
    file.append([b"before", records])
    if shape == "range":
        return FileRange(file, 6, len(records))
    half = len(records) // 2
    return [FileRange(file, 6, half), records[half:], memoryview(b"")]


def fetch_answer(answer: fetch.FetchResponse, version: int, correlation_id: int, shape: str) -> list[Part]:
    """The fast encoder's parts for a message of the codec."""
    topics = [
        (
            topic.topic_id if version >= 13 else topic.topic.encode(),
            [
                FetchPartitionResult(
                    data.partition_index,
                    data.error_code,
                    data.high_watermark,
                    data.last_stable_offset,
                    data.log_start_offset,
                    as_part(data.records, shape),
                    None
                    if data.aborted_transactions is None
                    else [(aborted.producer_id, aborted.first_offset) for aborted in data.aborted_transactions],
                    data.preferred_read_replica,
                    pair(data.diverging_epoch, "epoch", "end_offset"),
                    pair(data.current_leader, "leader_id", "leader_epoch"),
                    pair(data.snapshot_id, "end_offset", "epoch"),
                )
                for data in topic.partitions
            ],
        )
        for topic in answer.responses
    ]
    parts = encode_fetch_response(
        version, correlation_id, answer.throttle_time_ms, answer.error_code, answer.session_id, topics, endpoints(answer.node_endpoints)
    )
    assert all(isinstance(one, FileRange) or isinstance(two, FileRange) for one, two in pairwise(parts)), "bytes that could be one part"
    return parts


@pytest.mark.parametrize("shape", ["bytes", "range", "pieces"])
@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_answers_are_written_alike(version: int, shape: str) -> None:
    @quick
    @given(values(fetch.FetchResponse, version), st.integers(0, (1 << 31) - 1))
    def check(answer: fetch.FetchResponse, correlation_id: int) -> None:
        assert stitched(fetch_answer(answer, version, correlation_id, shape)) == frame(ApiKey.FETCH, version, correlation_id, answer)

    check()


@pytest.mark.parametrize("shape", ["bytes", "range", "pieces"])
@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_answers_for_one_partition_are_written_alike(version: int, shape: str) -> None:
    @quick
    @given(values(fetch.PartitionData, version), st.booleans())
    def check(data: fetch.PartitionData, plain: bool) -> None:
        if plain:
            data.aborted_transactions = data.diverging_epoch = data.current_leader = data.snapshot_id = None
        for name in NAMES:
            topic = fetch.FetchableTopicResponse(partitions=[data])
            topic.topic, topic.topic_id = (name, bytes(16)) if version < 13 else ("", bytes(range(16)))
            answer = fetch.FetchResponse(throttle_time_ms=5, responses=[topic])
            assert stitched(fetch_answer(answer, version, 1, shape)) == frame(ApiKey.FETCH, version, 1, answer)

    check()
