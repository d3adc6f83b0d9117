"""Produce (key 0): appends record batches to partitions.

Version 7 allows zstd, 9 is the first flexible one, 12 adds partitions to a transaction implicitly, 13 names topics by id.
"""

from typing import ClassVar

from moldau.ports.filesystem import Bytes
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, int16, int32, int64, message, record_bytes, string, struct, uuid


@message
class PartitionProduceData:
    """Batches for one partition."""

    index: int = int32("0+")
    records: Bytes | None = record_bytes("0+", nullable="0+")


@message
class TopicProduceData:
    """Batches for partitions of one topic."""

    name: str = string("0-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData, "0+")


@message
class ProduceRequest:
    """Record batches to append. Unless `acks` is 0 it is answered, at the latest after `timeout_ms`."""

    API: ClassVar = ApiKey.PRODUCE

    transactional_id: str | None = string("3+", nullable="3+")
    acks: int = int16("0+")
    timeout_ms: int = int32("0+")
    topic_data: list[TopicProduceData] = array(TopicProduceData, "0+")
    mirror: str | None = string("9+", None, nullable="9+", tag=10000, ignorable=True)
    """Ours: name of the mirror whose source the batches are from; they are stored as they are."""
    known_ends: list[int] = array(int64, "9+", tag=10001, ignorable=True)
    """Ours: for each partition, in the order of the request, an offset that its log has reached by what the mirror knows; -1: none."""


@message
class BatchIndexAndErrorMessage:
    """One record that was refused, by its position in the batch."""

    batch_index: int = int32("8+")
    batch_index_error_message: str | None = string("8+", nullable="8+")


@message
class LeaderIdAndEpoch:
    """Who leads the partition now, sent with NOT_LEADER_OR_FOLLOWER."""

    leader_id: int = int32("10+", -1)
    leader_epoch: int = int32("10+", -1)


@message
class PartitionProduceResponse:
    """What became of the batches of one partition."""

    index: int = int32("0+")
    error_code: int = int16("0+")
    base_offset: int = int64("0+")
    log_append_time_ms: int = int64("2+", -1, ignorable=True)
    log_start_offset: int = int64("5+", -1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+", ignorable=True)
    error_message: str | None = string("8+", nullable="8+", ignorable=True)
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, "10+", tag=0)


@message
class TopicProduceResponse:
    """Answers for partitions of one topic."""

    name: str = string("0-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse, "0+")


@message
class NodeEndpoint:
    """Where a new leader is reached."""

    node_id: int = int32("10+")
    host: str = string("10+")
    port: int = int32("10+")
    rack: str | None = string("10+", nullable="10+")


@message
class ProduceResponse:
    """Offsets and errors by partition."""

    API: ClassVar = ApiKey.PRODUCE

    responses: list[TopicProduceResponse] = array(TopicProduceResponse, "0+")
    throttle_time_ms: int = int32("1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0)
