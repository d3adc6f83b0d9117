"""DescribeProducers (key 61): tells which producers a partition knows."""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, int16, int32, int64, message, string


@message
class TopicRequest:
    """Partitions of one topic."""

    name: str = string("0+")
    partition_indexes: list[int] = array(int32, "0+")


@message
class DescribeProducersRequest:
    """Which partitions."""

    API: ClassVar = ApiKey.DESCRIBE_PRODUCERS

    topics: list[TopicRequest] = array(TopicRequest, "0+")


@message
class ProducerState:
    """What the partition remembers of one producer."""

    producer_id: int = int64("0+")
    producer_epoch: int = int32("0+")
    last_sequence: int = int32("0+", -1)
    last_timestamp: int = int64("0+", -1)
    coordinator_epoch: int = int32("0+")
    current_txn_start_offset: int = int64("0+", -1)


@message
class PartitionResponse:
    """The producers of one partition."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    active_producers: list[ProducerState] = array(ProducerState, "0+")


@message
class TopicResponse:
    """Answers for partitions of one topic."""

    name: str = string("0+")
    partitions: list[PartitionResponse] = array(PartitionResponse, "0+")


@message
class DescribeProducersResponse:
    """Producers by partition."""

    API: ClassVar = ApiKey.DESCRIBE_PRODUCERS

    throttle_time_ms: int = int32("0+")
    topics: list[TopicResponse] = array(TopicResponse, "0+")
