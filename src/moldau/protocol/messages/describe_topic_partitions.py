"""DescribeTopicPartitions (key 75): describes topics page by page."""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, boolean, int16, int32, message, string, struct, uuid


@message
class TopicRequest:
    """One topic."""

    name: str = string("0+")


@message
class Cursor:
    """Where a page starts."""

    topic_name: str = string("0+")
    partition_index: int = int32("0+")


@message
class DescribeTopicPartitionsRequest:
    """Which topics, from where, and how many partitions at most."""

    API: ClassVar = ApiKey.DESCRIBE_TOPIC_PARTITIONS

    topics: list[TopicRequest] = array(TopicRequest, "0+")
    response_partition_limit: int = int32("0+", 2000)
    cursor: Cursor | None = struct(Cursor, "0+", nullable="0+")


@message
class DescribeTopicPartitionsResponsePartition:
    """One partition: its leader and its replicas."""

    error_code: int = int16("0+")
    partition_index: int = int32("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+", -1, ignorable=True)
    replica_nodes: list[int] = array(int32, "0+")
    isr_nodes: list[int] = array(int32, "0+")
    eligible_leader_replicas: list[int] | None = array(int32, "0+", nullable="0+")
    last_known_elr: list[int] | None = array(int32, "0+", nullable="0+")
    offline_replicas: list[int] = array(int32, "0+", ignorable=True)


@message
class DescribeTopicPartitionsResponseTopic:
    """One topic and its partitions."""

    error_code: int = int16("0+")
    name: str | None = string("0+", nullable="0+")
    topic_id: bytes = uuid("0+", ignorable=True)
    is_internal: bool = boolean("0+", ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(DescribeTopicPartitionsResponsePartition, "0+")
    topic_authorized_operations: int = int32("0+", -2147483648)


@message
class DescribeTopicPartitionsResponse:
    """One page of topics, and where the next begins."""

    API: ClassVar = ApiKey.DESCRIBE_TOPIC_PARTITIONS

    throttle_time_ms: int = int32("0+", ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic, "0+")
    next_cursor: Cursor | None = struct(Cursor, "0+", nullable="0+")
