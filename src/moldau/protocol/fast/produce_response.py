"""The answer to Produce, versions 3 to 13, as the bytes of one whole frame: size, response header, body."""

from collections.abc import Generator, Sequence
from struct import Struct
from typing import NamedTuple

from moldau.model.steps import UNFINISHED, Pause, drain
from moldau.protocol.fast import writing
from moldau.protocol.fast.writing import NodeEndpoint

FIRST_FLEXIBLE = 9
FIRST_WITH_TOPIC_IDS = 13
_FIRST_WITH_LOG_START_OFFSET = 5
_FIRST_WITH_MESSAGES = 8
_FIRST_WITH_LEADERS = 10


class ProducePartitionResult(NamedTuple):
    """What became of the records of one partition.

    `log_append_time_ms` is -1 unless the broker sets the topic's timestamps. `record_errors` names records by their index in the
    batch. `current_leader` (broker, leader epoch) helps with NOT_LEADER_OR_FOLLOWER. What a version does not have is left out.
    """

    partition: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    record_errors: Sequence[tuple[int, str | None]] = ()
    current_leader: tuple[int, int] | None = None


TopicResults = tuple[bytes, Sequence[ProducePartitionResult]]
"""A topic's name as UTF-8 bytes, or its id from version 13 on; its partitions."""

# The answer for one partition without an error message: before and after the topic, which has the place of the comma.
# Flexible: size, correlation id, no tags, topics (2 for one), length of the name + 1, and then partitions (2), index, error, base offset,
# append time, log start offset, no record errors (1), null message (0), no tags of partition and topic, throttle time, no tags.
_FLEXIBLE_HEAD = Struct(">iiBBB")
_FLEXIBLE_HEAD_BY_ID = Struct(">iiBB")
_FLEXIBLE_TAIL = Struct(">BihqqqBBBBiB")
# Size, correlation id, topics (1), length of the name, and then partitions (1), index, error, base offset, append time,
# log start offset (from version 5), no record errors (0) and null message (-1) (from version 8), throttle time.
_HEAD = Struct(">iiih")
_TAIL_3 = Struct(">iihqqi")
_TAIL_5 = Struct(">iihqqqi")
_TAIL_8 = Struct(">iihqqqihi")

_PARTS_AT_ONCE = 1000
"""Pieces of an answer that are made in one step."""

_PARTITION = Struct(">ihqq")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_INT32_PAIR = Struct(">ii")


def encode_produce_response(
    version: int,
    correlation_id: int,
    topics: Sequence[TopicResults],
    throttle_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """The whole answer. `node_endpoints`: addresses of the current leaders named in it (version 10 and later)."""
    if len(topics) == 1 and not node_endpoints:
        topic, partitions = topics[0]
        if len(partitions) == 1 and len(topic) < 0x7F:
            index, error, base, append_time, log_start, message, record_errors, leader = partitions[0]
            if message is None and leader is None and not record_errors:
                size = len(topic)
                if version >= FIRST_FLEXIBLE:
                    tail = _FLEXIBLE_TAIL.pack(2, index, error, base, append_time, log_start, 1, 0, 0, 0, throttle_ms, 0)
                    if version >= FIRST_WITH_TOPIC_IDS:
                        return _FLEXIBLE_HEAD_BY_ID.pack(size + 46, correlation_id, 0, 2) + topic + tail
                    return _FLEXIBLE_HEAD.pack(size + 47, correlation_id, 0, 2, size + 1) + topic + tail
                if version >= _FIRST_WITH_MESSAGES:
                    tail = _TAIL_8.pack(1, index, error, base, append_time, log_start, 0, -1, throttle_ms)
                elif version >= _FIRST_WITH_LOG_START_OFFSET:
                    tail = _TAIL_5.pack(1, index, error, base, append_time, log_start, throttle_ms)
                else:
                    tail = _TAIL_3.pack(1, index, error, base, append_time, throttle_ms)
                return _HEAD.pack(size + len(tail) + 10, correlation_id, 1, size) + topic + tail
    return drain(encode_produce_response_in_steps(version, correlation_id, topics, throttle_ms, node_endpoints))


def encode_produce_response_in_steps(
    version: int,
    correlation_id: int,
    topics: Sequence[TopicResults],
    throttle_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> Generator[Pause, None, bytes]:
    """As `encode_produce_response`, for results of any number."""
    flexible = version >= FIRST_FLEXIBLE
    parts = [_INT32.pack(correlation_id)]
    if flexible:
        parts.append(writing.NO_TAGS)
    parts.append(writing.count(len(topics), flexible=flexible))
    due = _PARTS_AT_ONCE
    for topic, partitions in topics:
        parts.append(writing.topic(topic, by_id=version >= FIRST_WITH_TOPIC_IDS, flexible=flexible))
        parts.append(writing.count(len(partitions), flexible=flexible))
        for partition in partitions:
            _write_partition(parts, partition, version)
            if len(parts) >= due:
                due = len(parts) + _PARTS_AT_ONCE
                yield UNFINISHED
        if flexible:
            parts.append(writing.NO_TAGS)
    parts.append(_INT32.pack(throttle_ms))
    if flexible:
        parts.append(writing.node_endpoints(node_endpoints if version >= _FIRST_WITH_LEADERS else ()))
    body = b"".join(parts)
    return _INT32.pack(len(body)) + body


def _write_partition(parts: list[bytes], result: ProducePartitionResult, version: int) -> None:
    flexible = version >= FIRST_FLEXIBLE
    parts.append(_PARTITION.pack(result.partition, result.error_code, result.base_offset, result.log_append_time_ms))
    if version >= _FIRST_WITH_LOG_START_OFFSET:
        parts.append(_INT64.pack(result.log_start_offset))
    if version >= _FIRST_WITH_MESSAGES:
        parts.append(writing.count(len(result.record_errors), flexible=flexible))
        for record_index, message in result.record_errors:
            parts.append(_INT32.pack(record_index))
            parts.append(writing.nullable_string(message, flexible=flexible))
            if flexible:
                parts.append(writing.NO_TAGS)
        parts.append(writing.nullable_string(result.error_message, flexible=flexible))
    if flexible:
        leader = result.current_leader if version >= _FIRST_WITH_LEADERS else None
        parts.append(writing.tags([] if leader is None else [(0, _INT32_PAIR.pack(*leader) + writing.NO_TAGS)]))
