"""Error codes are found wherever a response has them, and a long response is not walked to its end."""

from moldau.broker.metrics.response_errors import CODES_MAX, error_codes
from moldau.protocol.codec import element_writer
from moldau.protocol.codec.encoded import EncodedArray
from moldau.protocol.messages.group_members import HeartbeatResponse
from moldau.protocol.messages.offsets import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchResponse,
)
from moldau.protocol.messages.topics import CreatableTopicResult, CreateTopicsResponse


def test_a_code_of_the_response_itself() -> None:
    assert list(error_codes(HeartbeatResponse(error_code=27))) == [27]


def test_codes_of_elements_of_elements() -> None:
    topics = [
        OffsetCommitResponseTopic("a", partitions=[OffsetCommitResponsePartition(0, 3), OffsetCommitResponsePartition(1, 0)]),
        OffsetCommitResponseTopic("b", partitions=[OffsetCommitResponsePartition(0, 3)]),
    ]
    assert list(error_codes(OffsetCommitResponse(topics=topics))) == [3, 0, 3]


def test_what_is_null_or_empty_has_none() -> None:
    assert [code for code in error_codes(OffsetFetchResponse()) if code] == []


def test_elements_that_are_encoded_already_have_left_their_codes() -> None:
    results = EncodedArray(element_writer(CreateTopicsResponse, CreatableTopicResult, 5))
    results.append(CreatableTopicResult("a", error_code=36))
    results.append(CreatableTopicResult("b"))
    assert list(error_codes(CreateTopicsResponse(topics=results.as_list()))) == [36]


def test_a_long_response_is_not_walked_to_its_end() -> None:
    topic = OffsetCommitResponseTopic("a", partitions=[OffsetCommitResponsePartition(0, 3)] * (CODES_MAX + 5))
    assert sum(1 for _ in error_codes(OffsetCommitResponse(topics=[topic]))) == CODES_MAX
