"""ConsumerGroupHeartbeat (key 68): keeps a member in a group of the newer protocol (KIP-848) and hands it its partitions.

From version 1 members make up their own ids and may subscribe by a pattern.
"""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, int16, int32, message, string, struct, uuid


@message
class TopicPartitions:
    """Partitions of one topic."""

    topic_id: bytes = uuid("0+")
    partitions: list[int] = array(int32, "0+")


@message
class ConsumerGroupHeartbeatRequest:
    """A member and what has changed about it; null stands for no change."""

    API: ClassVar = ApiKey.CONSUMER_GROUP_HEARTBEAT

    group_id: str = string("0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    instance_id: str | None = string("0+", nullable="0+")
    rack_id: str | None = string("0+", nullable="0+")
    rebalance_timeout_ms: int = int32("0+", -1)
    subscribed_topic_names: list[str] | None = array(string, "0+", nullable="0+")
    subscribed_topic_regex: str | None = string("1+", nullable="1+")
    server_assignor: str | None = string("0+", nullable="0+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, "0+", nullable="0+")


@message
class Assignment:
    """What a member may read."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions, "0+")


@message
class ConsumerGroupHeartbeatResponse:
    """The member's epoch, and its new assignment if there is one."""

    API: ClassVar = ApiKey.CONSUMER_GROUP_HEARTBEAT

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    member_id: str | None = string("0+", nullable="0+")
    member_epoch: int = int32("0+")
    heartbeat_interval_ms: int = int32("0+")
    assignment: Assignment | None = struct(Assignment, "0+", nullable="0+")
